"""What clients ask for: submit, cancel, retry, drain. Each is checked whole before anything changes."""

import asyncio
from collections.abc import AsyncIterator

from tercel.core.changes import JobAdded, LiveJob
from tercel.core.commands import check_spec
from tercel.core.errors import NotFound, PassingFault, UsageError
from tercel.core.intervals import IntervalSet, Range
from tercel.core.ledger import Job
from tercel.core.model import JobRow, JobSpec, Role
from tercel.core.selectors import Selector, parse_selector
from tercel.core.states import TaskState
from tercel.manager.access import Identity
from tercel.manager.service import Manager
from tercel.wire.api import Selection, Submission, Submitted

MAX_KEY = 200
MAX_SELECTORS = 1000
MAX_REASON = 500
JOBS_AT_ONCE = 1000
"""Read from the store, cancelled or retried before others get their turn."""
LINES_AT_ONCE = 10_000
"""So many are checked in a few milliseconds; more of them beside the loop."""
ENDS = (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)
SETTLINGS = 5
"""How often a job that comes and goes (retried while somebody looks) is waited for."""

Chosen = tuple[int, IntervalSet | None]
"""A job, and of its tasks some, or None for all."""


# -- submissions ------------------------------------------------------------------------------------------


async def submit(manager: Manager, who: Identity, submission: Submission) -> Submitted:
    who.require(Role.USER, Role.ADMIN)
    lines, items = submission.lines, submission.items
    if _listed(submission) > LINES_AT_ONCE:
        ranges, max_running = await asyncio.to_thread(check_spec, submission, lines, items)
    else:
        ranges, max_running = check_spec(submission, lines, items)
    if len(submission.key) > MAX_KEY or "\0" in submission.key:
        raise UsageError(f"key has at most {MAX_KEY} characters and no NUL", "key")
    if not submission.key:
        return _submitted(await _add(manager, who, submission, ranges, max_running), repeated=False)
    key = (who.user, submission.key)
    while (first := manager.keys_under_way.get(key)) is not None:
        # The same submission is on its way to the disk: its fate is awaited, not its success.
        await asyncio.wait([first])
    earlier = manager.store.job_by_key(*key)
    if earlier is not None:
        return _submitted(earlier, repeated=True)
    # A task of its own: whatever becomes of this request, the key stays taken until the job is stored or refused.
    adding = asyncio.ensure_future(_add_under_key(manager, who, submission, ranges, max_running))
    manager.keys_under_way[key] = adding
    return _submitted(await asyncio.shield(adding), repeated=False)


async def _add_under_key(
    manager: Manager, who: Identity, submission: Submission, ranges: list[Range], max_running: int
) -> JobRow:
    try:
        return await _add(manager, who, submission, ranges, max_running)
    finally:
        del manager.keys_under_way[who.user, submission.key]


async def _add(
    manager: Manager, who: Identity, submission: Submission, ranges: list[Range], max_running: int
) -> JobRow:
    row = JobRow(
        id=manager.take_job_id(),
        owner=who.user,
        spec=_spec_of(submission),
        ranges=tuple(ranges),
        max_running=max_running,
        submitted_at=manager.clock(),
        key=submission.key,
        has_lines=submission.lines is not None or submission.items is not None,
    )
    await manager.add(JobAdded(row, tuple(submission.lines or submission.items or ())))
    return row


def _listed(submission: Submission) -> int:
    """How many lines, items and values are to be checked."""
    grid = submission.grid
    values = sum(len(axis.values) for axis in grid.axes) if grid is not None else 0
    return len(submission.lines or ()) + len(submission.items or ()) + values


def _spec_of(submission: Submission) -> JobSpec:
    fields = {name: getattr(submission, name) for name in JobSpec.__struct_fields__}
    fields["template"] = submission.grid is not None or submission.items is not None
    return JobSpec(**fields)


def _submitted(row: JobRow, repeated: bool) -> Submitted:
    return Submitted(id=row.id, tasks=row.task_count, name=row.spec.name, repeated=repeated)


# -- changes ----------------------------------------------------------------------------------------------


async def cancel(manager: Manager, who: Identity, selection: Selection) -> int:
    """How many tasks ended by this."""
    chosen = await _resolve(manager, who, selection)
    reason = f"cancelled by {who.user}" + (f": {selection.reason}" if selection.reason else "")
    now = manager.clock()
    count = 0
    async for id, tasks in _in_turns(chosen):
        job = manager.machine.jobs.get(id)
        if job is not None:
            wanted = tasks if tasks is not None else IntervalSet(job.row.ranges)
            count += manager.machine.on_cancel(job, wanted, reason, now)
    await _saved(manager)
    return count


async def retry(manager: Manager, who: Identity, selection: Selection) -> int:
    """How many tasks will run again. A whole job means its failed tasks; tasks that are named, also cancelled ones."""
    chosen = await _resolve(manager, who, selection)
    count = 0
    async for id, tasks in _in_turns(chosen):
        async with manager.reopening:
            row = await standing(manager, who, id, "select")
            job = manager.machine.jobs.get(id)
            if job is None:
                if tasks is None and row.failed == 0:
                    continue
                job = await _reopen(manager, row)
            wanted = tasks if tasks is not None else job.failed.copy()
            count += manager.machine.on_retry(job, wanted, manager.clock())
    await _saved(manager)
    return count


async def _in_turns(chosen: list[Chosen]) -> AsyncIterator[Chosen]:
    """One after the other; others get their turn between."""
    for number, one in enumerate(chosen, 1):
        yield one
        if number % JOBS_AT_ONCE == 0:
            await asyncio.sleep(0)


async def _saved(manager: Manager) -> None:
    manager.wake()
    await manager.settled()
    if manager.trouble:
        raise PassingFault(f"this is done as soon as it can be saved, which it cannot now: {manager.trouble}")


async def _reopen(manager: Manager, row: JobRow) -> Job:
    """A job that has ended, as the machine would know it. Nothing of it is kept if nothing is retried."""
    finished, failed, cancelled = await asyncio.to_thread(
        lambda: [manager.store.ended(row.id, state) for state in ENDS]
    )
    return manager.machine.restore(LiveJob(row, finished, failed, cancelled, {}))


async def drain(manager: Manager, worker: str) -> int:
    known = manager.machine.workers.get(worker)
    if known is None or not known.online:
        raise NotFound(f"no worker {worker[:128]!r} is connected: see `tercel pool`", "worker")
    manager.machine.on_drain(worker, manager.clock())
    manager.wake()
    return 1


# -- which jobs -------------------------------------------------------------------------------------------


async def _resolve(manager: Manager, who: Identity, selection: Selection) -> list[Chosen]:
    """Jobs (and tasks of them) that the caller named and may change; each once, however often it is named."""
    if not selection.select:
        raise UsageError("nothing is selected: name a job (37), tasks (37.0-9), last or all", "select")
    if len(selection.select) > MAX_SELECTORS:
        raise UsageError(f"at most {MAX_SELECTORS} selectors at a time", "select")
    if len(selection.reason) > MAX_REASON or not selection.reason.isprintable():
        raise UsageError(f"a reason has at most {MAX_REASON} printable characters", "reason")
    manager.check_saving()
    whole: dict[int, None] = {}
    some: dict[int, IntervalSet] = {}
    for text in dict.fromkeys(selection.select):
        for id, tasks in await _resolve_one(manager, who, parse_selector(text), text):
            if tasks is None:
                whole[id] = None
            else:
                some.setdefault(id, IntervalSet()).update(tasks)
    return [*((id, None) for id in whole), *some.items()]


async def _resolve_one(manager: Manager, who: Identity, selector: Selector, text: str) -> list[Chosen]:
    if selector.word == "all":
        return [(job.id, None) for job in list(manager.machine.jobs.values()) if who.may_see(job.row)]
    if selector.first == selector.last:
        row = _newest(manager, who) if selector.word else find_job(manager, who, selector.first, "select")
        if selector.tasks is None:
            return [(row.id, None)]
        known = IntervalSet(selector.tasks).intersection(IntervalSet(row.ranges))
        if not known:
            raise NotFound(f"job {row.id} has no task {text.partition('.')[2][:80]}", "select")
        return [(row.id, known)]
    ids = await asyncio.to_thread(_ids_between, manager, who, selector.first, selector.last)
    if not ids:
        raise NotFound(f"there is no job among {text[:80]}", "select")
    return [(id, None) for id in ids]


def _newest(manager: Manager, who: Identity) -> JobRow:
    rows = manager.store.jobs(owner=who.sees_only, before=None, limit=1)
    if not rows:
        raise NotFound("there is no job yet", "select")
    return rows[0]


def _ids_between(manager: Manager, who: Identity, first: int, last: int) -> list[int]:
    """Costs the jobs that are there and visible, however wide the range."""
    found: list[int] = []
    before = last + 1
    while True:
        page = manager.store.jobs(owner=who.sees_only, before=before, limit=JOBS_AT_ONCE)
        found += [row.id for row in page if row.id >= first]
        if len(page) < JOBS_AT_ONCE or page[-1].id <= first:
            return found
        before = page[-1].id


def find_job(manager: Manager, who: Identity, id: int, field: str = "job") -> JobRow:
    """The job, if it exists and the caller may see it; to others it does not exist."""
    job = manager.machine.jobs.get(id)
    row = job.row if job is not None else manager.store.job(id) if id < 2**62 else None
    if row is None or not who.may_see(row):
        raise NotFound(f"there is no job {id} (or it is not yours): see `tercel list`", field)
    return row


async def standing(manager: Manager, who: Identity, id: int, field: str = "job") -> JobRow:
    """As `find_job`; and if the machine does not know it (any more), the row tells how it ended.

    A job leaves the machine when its last task ends, a moment before the disk knows. Whoever looked in between
    would find it nowhere: nothing unfinished, nothing ended.
    """
    for _ in range(SETTLINGS):
        if id not in manager.machine.jobs:
            await manager.settled()
        row = find_job(manager, who, id, field)
        if id in manager.machine.jobs or row.ended_at is not None:
            return row
    raise PassingFault(f"how job {id} stands is being saved: ask again. {manager.trouble}".strip())
