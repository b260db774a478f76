"""Rollback: what is chosen, what stands on it, and all of that undone in one commit.

    resolve --> gather all that needs it, and so on --> plan --> (dry run: told) --> plan again, and apply, in one go

Between the plan that was looked at and the one that is applied others go on; if they changed what is to be undone,
it is looked at again.
"""

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from tercel.core.changes import OutputsDropped
from tercel.core.errors import Forbidden, PassingFault, UsageError
from tercel.core.intervals import IntervalSet, Range
from tercel.core.ledger import Job
from tercel.core.model import JobRow
from tercel.core.rolling import Plan, healthy
from tercel.core.states import TERMINAL, TaskState
from tercel.manager.access import Identity
from tercel.manager.finding import pinned
from tercel.manager.inputs import restored
from tercel.manager.requests import Chosen, by, resolve, saved
from tercel.manager.service import Manager
from tercel.stores.contract import needed_by
from tercel.wire.api import Rollback as Asked
from tercel.wire.api import RollbackPart, RolledBack, Selection

LOOKS = 10
"""How often it is looked anew at what others change meanwhile."""
MADE_AT_ONCE = 10_000
NAMED_RANGES = 100
"""Of a job, in an answer."""

NAMED_FILES = 100
"""Of a job, likewise."""

Made = dict[int, tuple[int, list[str]]]
"""By job: how many files its tasks made that are in the catalogue, and the names of some."""
HalfDone = dict[int, list[tuple[int, int]]]
"""By job: attempts that left pieces of output, and how many."""


async def roll_back(manager: Manager, who: Identity, asked: Asked) -> RolledBack:
    _check(asked)
    chosen = await resolve(manager, who, Selection(select=asked.select, reason=asked.reason))
    async with manager.reopening:
        await manager.settled()
        since = await _ended_since(manager, chosen, asked.since)
        safe: dict[frozenset[int], str] = {}
        for _ in range(LOOKS):
            behind = await _behind(manager, {id for id, _ in chosen})
            async with pinned(manager, await _needed(manager, behind)):
                rolled = await _look_and_apply(manager, who, asked, chosen, since, behind, safe)
            if rolled is not None:
                if not asked.dry_run:
                    await saved(manager)
                return rolled
    raise PassingFault("too much of this is changing just now: hold the jobs, or try again")


def _check(asked: Asked) -> None:
    wrong = [state for state in asked.states if state not in TERMINAL]
    if wrong:
        raise UsageError(f"a task that is {wrong[0]} has not ended: finished, failed or cancelled", "states")


async def _ended_since(
    manager: Manager, chosen: list[Chosen], since: float | None
) -> dict[int, IntervalSet] | None:
    if since is None:
        return None
    ids = {id for id, _ in chosen}
    return {
        id: IntervalSet(await asyncio.to_thread(manager.store.ended_since, id, since)) for id in sorted(ids)
    }


async def _behind(manager: Manager, chosen: set[int]) -> set[int]:
    """The chosen jobs, those that need any of them, and so on."""
    found, todo = set(chosen), list(chosen)
    while todo:
        fresh = set(await asyncio.to_thread(manager.store.dependents, todo.pop())) - found
        found |= fresh
        todo += fresh
    return found


async def _needed(manager: Manager, jobs: Collection[int]) -> set[int]:
    """These, and what they need: that decides what may run again."""
    needed = set(jobs)
    for id in sorted(jobs):
        job = manager.machine.find(id)
        if job is not None:
            needed |= {after.job for after in job.row.spec.after} | {edge[1] for edge in job.edges}
        elif (live := await asyncio.to_thread(manager.store.live, id)) is not None:
            needed |= needed_by(live)
    return needed


async def _look_and_apply(
    manager: Manager,
    who: Identity,
    asked: Asked,
    chosen: list[Chosen],
    since: dict[int, IntervalSet] | None,
    behind: set[int],
    safe: dict[frozenset[int], str],
) -> RolledBack | None:
    """None: others changed what is to be undone meanwhile. `safe`: jobs of which a snapshot was taken, and what to tell of it."""
    machine = manager.machine
    newest = max(machine.jobs, default=0)
    wanted = {id: tasks for id, tasks in _wanted(manager, asked, chosen, since).items() if tasks}
    plan = machine.plan_rollback(wanted, behind, only=asked.only)
    _check_owners(manager, who, plan)
    half_done = {
        id: await asyncio.to_thread(manager.store.half_done, id, part.tasks.ranges())
        for id, part in plan.parts.items()
    }
    made = {id: await _made(manager, id, part.tasks) for id, part in plan.parts.items()}
    if asked.dry_run:
        return _told(manager, asked, plan, half_done, made)
    if plan.in_the_way and not asked.force:
        raise UsageError(
            f"{', '.join(_in_the_way(plan))} under way: cancel that first, or roll back with force, which cancels it",
            "force",
        )
    # What is cancelled, too, and what is skipped because of that.
    touched = frozenset({*plan.parts, *await _behind(manager, set(plan.in_the_way))})
    if touched and touched not in safe:  # once, however often the plan changes: few are kept
        safe[touched] = await manager.safety_snapshot(touched, f"before it was rolled back by {who.user}")
    # From here on nobody else has a turn, until all of it is done.
    if any(_needs_any(job, behind) for id, job in machine.jobs.items() if id > newest):
        return None
    if machine.plan_rollback(wanted, behind, only=asked.only) != plan:
        return None
    now, who_why = manager.clock(), by(who, asked.reason)
    for id, tasks in plan.in_the_way.items():
        machine.on_cancel(machine.jobs[id], tasks, f"cancelled {who_why}, to be rolled back", now)
        wanted.setdefault(id, IntervalSet()).update(tasks)
    undone = machine.plan_rollback(wanted, behind, only=asked.only) if plan.in_the_way else plan
    dropped = tuple(attempt for found in half_done.values() for attempt, _ in found)
    if dropped:
        machine.changes.append(OutputsDropped(dropped))
    resumed = [id for id in undone.parts if id not in machine.jobs]
    told = _told(manager, asked, undone, half_done, made, _in_the_way(plan))
    machine.on_rollback(undone, behind, f"to {told.to} {who_why}", now)
    for id in resumed:
        if (job := machine.jobs.get(id)) is not None:
            machine.set_inputs(job, restored(job, manager.store))
            manager.files_read.look(job)
    return msgspec.structs.replace(told, note=safe.get(touched, ""))


def _wanted(
    manager: Manager, asked: Asked, chosen: list[Chosen], since: dict[int, IntervalSet] | None
) -> dict[int, IntervalSet]:
    """The tasks that somebody wants to be rolled back, by job; also such as are under way, if they are named."""
    wanted: dict[int, IntervalSet] = {}
    for id, tasks in chosen:
        job = manager.machine.find(id)
        if job is None:
            continue
        named = tasks is not None or since is not None
        states = asked.states or (list(TERMINAL) if named else [TaskState.FAILED])
        of_job = IntervalSet()
        for state in states:
            of_job.update(job.ended_in(state))
        if since is not None:
            of_job = of_job.intersection(since[id])
        elif set(states) == TERMINAL:
            of_job.update(IntervalSet((task, task) for task in sorted(job.flights)))
        if tasks is not None:
            of_job = of_job.intersection(tasks)
        wanted.setdefault(id, IntervalSet()).update(of_job)
    return wanted


def _check_owners(manager: Manager, who: Identity, plan: Plan) -> None:
    for id in [*plan.parts, *plan.in_the_way]:
        job = manager.machine.find(id)
        if job is not None and not who.may_see(job.row):
            raise Forbidden(
                f"job {id} of {job.row.owner} has used what would be undone: leave it alone (only), or ask an admin",
                "only",
            )


def _needs_any(job: Job, ids: set[int]) -> bool:
    return any(after.job in ids for after in job.row.spec.after) or any(edge[1] in ids for edge in job.edges)


async def _made(manager: Manager, id: int, tasks: IntervalSet) -> tuple[int, list[str]]:
    """What is taken out of the catalogue with these tasks, and removed where it was delivered to."""
    job = manager.machine.find(id)
    if job is None or not job.row.spec.outputs:
        return 0, []
    count, names, after = 0, list[str](), (-1, "")
    while found := await asyncio.to_thread(
        manager.store.made_by, id, tasks.ranges(), after=after, limit=MADE_AT_ONCE
    ):
        count += len(found)
        names += [file.name for file in found[: NAMED_FILES - len(names)]]
        after = (found[-1].task, found[-1].name)
    return count, names


# -- for people -------------------------------------------------------------------------------------------


def _told(
    manager: Manager,
    asked: Asked,
    plan: Plan,
    half_done: HalfDone,
    made: Made,
    cancelled: Sequence[str] | None = None,
) -> RolledBack:
    parts: list[RollbackPart] = []
    rows: list[JobRow] = []
    for id, part in plan.parts.items():
        job = manager.machine.find(id)
        assert job is not None, "it was planned"
        rows.append(job.row)
        count, names = made.get(id, (0, []))
        parts.append(
            RollbackPart(
                job=id,
                name=job.row.spec.name,
                tasks=named_ranges(part.tasks.ranges()),
                failed=len(part.chosen.intersection(job.failed)),
                cancelled=len(part.chosen.intersection(job.cancelled)),
                finished=len(part.chosen.intersection(job.finished)),
                used=len(part.used),
                skipped=len(part.skipped),
                outputs=sum(pieces for _, pieces in half_done.get(id, ())),
                files=count,
                names=names,
            )
        )
    return RolledBack(
        count=sum(len(part.tasks) for part in plan.parts.values()),
        to=healthy(asked.to, rows),
        parts=parts,
        under_way=list(cancelled if cancelled is not None else _in_the_way(plan)),
        hopeless=sum(map(len, plan.hopeless.values())),
        dry_run=asked.dry_run,
    )


def _in_the_way(plan: Plan) -> list[str]:
    return [f"{id}.{named_ranges(tasks.ranges())}" for id, tasks in plan.in_the_way.items()]


def named_ranges(ranges: Sequence[Range]) -> str:
    """`0-9,12`; of very many the first ones."""
    shown = ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in ranges[:NAMED_RANGES]
    )
    return f"{shown},…" if len(ranges) > NAMED_RANGES else shown
