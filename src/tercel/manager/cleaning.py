"""Removing what is old: jobs that ended long ago with all they left, closed conditions, notes, and long histories.

In small slices, each where commits are made and between two of them, so that nobody waits long for the disk.
What jobs have left that were never here, since they could not be restored or forked, goes without being asked for, and so
do uploaded values that no job has referred to for a day; and what is told of tasks (not the tasks), if the manager was given
an age for it. Contents that no file refers to go as well: see `vault`.
"""

import asyncio
import contextlib
import logging
from functools import partial

from tercel.core.errors import PassingFault, UsageError
from tercel.core.sizes import duration
from tercel.manager.access import Identity
from tercel.manager.service import Manager
from tercel.stores.contract import Cleaned as Slice
from tercel.wire.api import Clean, Cleaned

log = logging.getLogger("tercel.manager")

JOBS_AT_ONCE = 100
KEPT_ATTEMPTS = 50
"""Of a task that was tried very often: so many of the first and so many of the last."""
MOST_JOBS = 2**31
LEAST_S = 1.0
MOST_S = 100 * 365 * 86400.0
UNNAMED_S = 86_400.0
"""So long an uploaded value stays that no job refers to."""
VALUES_AT_ONCE = 1000
EVERY_S = 6 * 3600.0
"""What nobody asks to be removed is looked for so often."""
QUIET_S = 10.0
"""After the start, before what was left by an earlier manager is removed: others wait for the disk then."""


async def clean(manager: Manager, who: Identity, asked: Clean) -> Cleaned:
    if not LEAST_S <= asked.older_s <= MOST_S:
        raise UsageError(
            "--older (older_s) is how long ago it ended: at least a second, at most a hundred years",
            "older_s",
        )
    manager.check_saving()
    await manager.settled()
    before = manager.clock() - asked.older_s
    if asked.dry_run:
        return await _counted(manager, before)
    note = await _keep_safe(manager, who, before) if asked.snapshot else ""
    jobs, tasks, output_bytes = await _remove_jobs(manager, before)
    gone = await _sweep(manager, before)
    attempts = await _compact(manager, before)
    return Cleaned(
        jobs=jobs,
        tasks=tasks,
        output_bytes=output_bytes,
        conditions=gone.conditions,
        notes=gone.notes,
        attempts=attempts,
        note=note,
    )


async def keep_sweeping(manager: Manager) -> None:
    """For ever: what is left of jobs that are gone, some time after the start, whenever there is such, and now and then."""
    loop = asyncio.get_running_loop()
    loop.call_later(QUIET_S, manager.leftovers.set)
    by_age_at = loop.time()
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(manager.leftovers.wait(), EVERY_S)
        manager.leftovers.clear()
        try:
            if (
                loop.time() < by_age_at
            ):  # somebody left something; all histories are looked at now and then only
                await _sweep(manager, 0.0)
            else:
                by_age_at = loop.time() + EVERY_S
                await _sweep_by_age(manager)
            await asyncio.to_thread(manager.vault.sweep, manager.store.names_at)
        except PassingFault as error:
            log.warning("what is left of removed jobs, and what is old, stays for now: %s", error)


async def _sweep_by_age(manager: Manager) -> None:
    """Without an age, only what is left of removed jobs."""
    history_s = manager.options.history_s
    if not history_s:
        await _sweep(manager, 0.0)
        return
    before = manager.clock() - history_s
    gone = await _sweep(manager, before)
    attempts = await _compact(manager, before)
    if gone.conditions or gone.notes or attempts:
        log.info(
            "of what is older than %s, %d conditions, %d notes and %d attempts of long histories were removed",
            duration(history_s),
            gone.conditions,
            gone.notes,
            attempts,
        )


async def _compact(manager: Manager, before: float) -> int:
    """How many attempts went, of those that ended before then in the middle of long histories."""
    attempts, after = 0, (0, -1)
    while True:
        compacted = await manager.on_disk(
            partial(manager.store.compact_history, ended_before=before, keep=KEPT_ATTEMPTS, after=after)
        )
        attempts += compacted.attempts
        if compacted.after is None:
            return attempts
        after = compacted.after


async def _sweep(manager: Manager, before: float) -> Slice:
    """And notes and conditions from before then."""
    await _put_unnamed(manager)
    gone = Slice(more=True)
    while gone.more:
        now = manager.clock()
        gone += await manager.on_disk(
            partial(
                manager.store.clean,
                before=before,
                keep_values=manager.uploads.named_lately(now),
                unnamed_before=now - UNNAMED_S,
            )
        )
    return gone


async def _put_unnamed(manager: Manager) -> None:
    """Values that were uploaded for a job which never came: their time begins when they are first seen."""
    keys = await asyncio.to_thread(manager.store.unnamed_values)
    for first in range(0, len(keys), VALUES_AT_ONCE):
        some, now = keys[first : first + VALUES_AT_ONCE], manager.clock()
        await manager.on_disk(partial(manager.store.put_unnamed, some, now))


async def _keep_safe(manager: Manager, who: Identity, before: float) -> str:
    """What becomes removable only when others are gone comes along, for those need it."""
    found = await asyncio.to_thread(manager.store.removable, ended_before=before, owner=None, limit=MOST_JOBS)
    return await manager.safety_snapshot(found, f"before it was removed by {who.user}") if found else ""


async def _remove_jobs(manager: Manager, before: float) -> tuple[int, int, int]:
    jobs = tasks = output_bytes = 0
    while True:
        found = await _removable(manager, before, JOBS_AT_ONCE)
        weights = {id: await asyncio.to_thread(_weight, manager, id) for id in found}
        removed = await _remove(manager, found, before)
        if not removed:
            return jobs, tasks, output_bytes
        jobs += len(removed)
        tasks += sum(weights[id][0] for id in removed)
        output_bytes += sum(weights[id][1] for id in removed)


async def _remove(manager: Manager, found: list[int], before: float) -> list[int]:
    # Nobody brings an ended job back meanwhile; whoever waits to do that has its turn between two slices.
    async with manager.reopening:
        await manager.settled()
        # Whoever is about to need one has pinned it, or cannot any more.
        machine = manager.machine
        manager.removing.update(id for id in found if machine.find(id) is None and id not in machine.pinned)
        try:
            chosen = sorted(manager.removing)
            return await manager.on_disk(lambda: manager.store.remove_jobs(chosen, ended_before=before))
        finally:
            manager.removing.clear()


async def _removable(manager: Manager, before: float, limit: int) -> list[int]:
    found = await asyncio.to_thread(manager.store.removable, ended_before=before, owner=None, limit=limit)
    return [id for id in found if manager.machine.find(id) is None]


def _weight(manager: Manager, id: int) -> tuple[int, int]:
    """How many tasks it has, and how many bytes of output. Beside the loop."""
    row = manager.store.job(id)
    return (row.task_count if row else 0), manager.store.kept_bytes(id)


async def _counted(manager: Manager, before: float) -> Cleaned:
    """Without those that become removable only when others are gone which need them."""
    found = await _removable(manager, before, MOST_JOBS)
    weights = [await asyncio.to_thread(_weight, manager, id) for id in found]
    old = await asyncio.to_thread(
        partial(manager.store.old, before=before, keep=KEPT_ATTEMPTS, removed=frozenset(found))
    )
    return Cleaned(
        jobs=len(found),
        tasks=sum(tasks for tasks, _ in weights),
        output_bytes=sum(size for _, size in weights),
        conditions=old.conditions,
        notes=old.notes,
        attempts=old.attempts,
        dry_run=True,
    )
