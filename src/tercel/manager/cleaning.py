"""Removing what is old: jobs that ended long ago with all they left, closed conditions, notes, and long histories.

In small slices, each where commits are made and between two of them, so that nobody waits long for the disk.
"""

import asyncio

from tercel.core.errors import UsageError
from tercel.manager.access import Identity
from tercel.manager.service import Manager
from tercel.stores.contract import Cleaned as Slice
from tercel.wire.api import Clean, Cleaned

JOBS_AT_ONCE = 100
KEPT_ATTEMPTS = 50
"""Of a task that was tried very often: so many of the first and so many of the last."""
MOST_JOBS = 2**31
LEAST_S = 1.0
MOST_S = 100 * 365 * 86400.0


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
    # Nobody brings an ended job back meanwhile.
    async with manager.reopening:
        jobs, tasks, output_bytes = await _remove_jobs(manager, before)
    gone = Slice(more=True)
    while gone.more:
        gone += await manager.on_disk(
            lambda: manager.store.clean(before=before, keep_values=manager.uploads.named_lately())
        )
    attempts, after = 0, (0, -1)
    while True:
        compacted = await manager.on_disk(
            lambda after=after: manager.store.compact_history(  # type: ignore[misc]
                ended_before=before, keep=KEPT_ATTEMPTS, after=after
            )
        )
        attempts += compacted.attempts
        if compacted.after is None:
            break
        after = compacted.after
    return Cleaned(
        jobs=jobs,
        tasks=tasks,
        output_bytes=output_bytes,
        conditions=gone.conditions,
        notes=gone.notes,
        attempts=attempts,
        note=note,
    )


async def _keep_safe(manager: Manager, who: Identity, before: float) -> str:
    """What becomes removable only when others are gone comes along, for those need it."""
    found = await asyncio.to_thread(manager.store.removable, ended_before=before, owner=None, limit=MOST_JOBS)
    return await manager.safety_snapshot(found, f"before it was removed by {who.user}") if found else ""


async def _remove_jobs(manager: Manager, before: float) -> tuple[int, int, int]:
    jobs = tasks = output_bytes = 0
    while True:
        found = await _removable(manager, before, JOBS_AT_ONCE)
        weights = {id: await _weight(manager, id) for id in found}
        # Whoever is about to need one has pinned it, or cannot any more.
        manager.removing.update(id for id in found if id not in manager.machine.pinned)
        try:
            chosen = sorted(manager.removing)
            removed = await manager.on_disk(lambda: manager.store.remove_jobs(chosen, ended_before=before))  # noqa: B023
        finally:
            manager.removing.clear()
        if not removed:
            return jobs, tasks, output_bytes
        jobs += len(removed)
        tasks += sum(weights[id][0] for id in removed)
        output_bytes += sum(weights[id][1] for id in removed)


async def _removable(manager: Manager, before: float, limit: int) -> list[int]:
    found = await asyncio.to_thread(manager.store.removable, ended_before=before, owner=None, limit=limit)
    return [id for id in found if manager.machine.find(id) is None]


async def _weight(manager: Manager, id: int) -> tuple[int, int]:
    """How many tasks it has, and how many bytes of output."""
    row = manager.store.job(id)
    return (row.task_count if row else 0), await asyncio.to_thread(manager.store.kept_bytes, id)


async def _counted(manager: Manager, before: float) -> Cleaned:
    """Without those that become removable only when others are gone which need them."""
    found = await _removable(manager, before, MOST_JOBS)
    weights = [await _weight(manager, id) for id in found]
    return Cleaned(
        jobs=len(found),
        tasks=sum(tasks for tasks, _ in weights),
        output_bytes=sum(size for _, size in weights),
        dry_run=True,
    )
