"""Jobs and flows as they are handed in: checked whole, made durable at once, and only then known to the machine.

A flow is several jobs that come together or not at all. What a job waits for is looked up before it is accepted and
pinned until it is known to the machine, so that it is not forgotten in between.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from tercel.core import assign
from tercel.core.changes import Edge, JobAdded
from tercel.core.commands import check_spec, parse_key
from tercel.core.declared import MOST_TRIED
from tercel.core.errors import NotFound, UsageError
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import After, JobRow, JobSpec, Role
from tercel.core.rules import check_rules, edges_of
from tercel.manager import blocking
from tercel.manager.access import Identity
from tercel.manager.finding import find_job, pinned
from tercel.manager.service import Manager
from tercel.manager.values import missing, named
from tercel.wire.api import Flow, FlowSubmitted, Submission, Submitted

MAX_KEY = 200
MAX_FLOW = 100_000
LINES_AT_ONCE = 10_000
"""So many are checked in a few milliseconds; more of them beside the loop."""


class _Draft(msgspec.Struct):
    """A job that has been checked as far as it can be by itself."""

    submission: Submission
    ranges: list[Range]
    max_running: int
    edges: tuple[Edge, ...]
    """The job itself is 0 in them: it has no number yet."""


async def submit(manager: Manager, who: Identity, submission: Submission) -> Submitted:
    who.require(Role.USER, Role.ADMIN)
    (submitted,) = await _submit(manager, who, await _checked(manager, who, [submission]), submission.key)
    return submitted


async def submit_flow(manager: Manager, who: Identity, flow: Flow) -> FlowSubmitted:
    who.require(Role.USER, Role.ADMIN)
    if not flow.jobs:
        raise UsageError("the flow has no jobs", "jobs")
    if len(flow.jobs) > MAX_FLOW:
        raise UsageError(f"the flow has {len(flow.jobs):,} jobs; at most {MAX_FLOW:,}", "jobs")
    for number, job in enumerate(flow.jobs):
        if job.key:
            raise UsageError("a flow has one key for all its jobs", f"jobs[{number}].key")
    jobs = flow.jobs
    if flow.key:
        jobs = [msgspec.structs.replace(job, key=_key_of(flow.key, at)) for at, job in enumerate(jobs)]
    drafts = await _checked(manager, who, jobs, of_flow=True)
    key = _key_of(flow.key, 0) if flow.key else ""
    return FlowSubmitted(jobs=await _submit(manager, who, drafts, key, of_flow=True))


def _key_of(key: str, number: int) -> str:
    return f"{key}/{number}"


async def _submit(
    manager: Manager, who: Identity, drafts: list[_Draft], key: str, of_flow: bool = False
) -> list[Submitted]:
    """`key` is that of the first: they are stored together, so where it is, all are."""
    owned = (who.user, key)
    _check_key(key)
    needy = [number for number, draft in enumerate(drafts) if _has_needs(draft)]
    if key and needy and manager.store.job_by_key(*owned) is not None:
        # Accepted before, whatever has become since of what it needs.
        return await asyncio.to_thread(_earlier, manager, who, drafts)
    for number in needy:
        draft = drafts[number]
        with _placed(draft.submission, number, of_flow):
            await _check_values(manager, who, draft.submission)  # first: what calls name are needs, too
            _check_needs(manager, who, drafts, number)
    if not key:
        return [_submitted(row) for row in await _add(manager, who, drafts)]
    while (first := manager.keys_under_way.get(owned)) is not None:
        # The same submission is on its way to the disk: its fate is awaited, not its success.
        await asyncio.wait([first])
    if manager.store.job_by_key(*owned) is not None:
        return await asyncio.to_thread(_earlier, manager, who, drafts)
    # A task of its own: whatever becomes of this request, the key stays taken until all is stored or refused.
    adding = asyncio.ensure_future(_add_under_key(manager, who, drafts, key))
    manager.keys_under_way[owned] = adding
    return [_submitted(row) for row in await asyncio.shield(adding)]


def _has_needs(draft: _Draft) -> bool:
    """Whether it names anything that must be there."""
    one = draft.submission
    return bool(one.queue or one.after or draft.edges or one.function is not None)


def _earlier(manager: Manager, who: Identity, drafts: list[_Draft]) -> list[Submitted]:
    found = []
    for draft in drafts:
        row = manager.store.job_by_key(who.user, draft.submission.key)
        if row is None:
            raise UsageError("this key was used before, for another flow", "key")
        found.append(_submitted(row, repeated=True))
    return found


# -- checking ---------------------------------------------------------------------------------------------


async def _checked(
    manager: Manager, who: Identity, submissions: Sequence[Submission], of_flow: bool = False
) -> list[_Draft]:
    if any(one.rank for one in submissions):
        await asyncio.to_thread(assign.prepare)
    if sum(map(_listed, submissions)) + len(submissions) > LINES_AT_ONCE:
        drafts = await asyncio.to_thread(_check_all, submissions, of_flow)
    else:
        drafts = _check_all(submissions, of_flow)
    await _settle_rules(manager, who, drafts, of_flow)
    return drafts


async def _settle_rules(manager: Manager, who: Identity, drafts: list[_Draft], of_flow: bool) -> None:
    """What jobs are blocked on, as its testers write it."""
    settled = await blocking.settled_all(
        manager.examiners, who, (draft.submission.block_on for draft in drafts if draft.submission.block_on)
    )
    for number, draft in enumerate(drafts):
        if not draft.submission.block_on:
            continue
        with _placed(draft.submission, number, of_flow):
            rules = settled[draft.submission.block_on]
            if isinstance(rules, UsageError):
                raise rules
            draft.submission = msgspec.structs.replace(draft.submission, block_on=rules)


def _check_all(submissions: Sequence[Submission], of_flow: bool) -> list[_Draft]:
    drafts = []
    for number, one in enumerate(submissions):
        with _placed(one, number, of_flow):
            ranges, max_running = check_spec(one, one.lines, items=one.items, calls=one.calls)
            check_rules(one)
            edges = edges_of(one.edges or (), one.calls, ranges)
        drafts.append(_Draft(one, ranges, max_running, edges))
    return drafts


@contextmanager
def _placed(one: Submission, number: int, of_flow: bool) -> Iterator[None]:
    """What is wrong with a job of a flow is told with which job it is."""
    try:
        yield
    except UsageError as error:
        if not of_flow:
            raise
        text = f"job {one.name or number + 1!r} of the flow: {error}"
        raise type(error)(text, f"jobs[{number}].{error.field}") from None


def _listed(submission: Submission) -> int:
    """How many lines, items, calls, edges, values, inputs and outputs are to be checked."""
    grid = submission.grid
    values = sum(len(axis.values) for axis in grid.axes) if grid is not None else 0
    files = len(submission.inputs) + len(submission.outputs)
    if files:
        values += MOST_TRIED if grid is not None else files * len(submission.items or [""])
    lists = (submission.lines, submission.items, submission.calls, submission.edges)
    return values + sum(len(each) for each in lists if each is not None)


def _check_key(key: str) -> None:
    if len(key) > MAX_KEY or "\0" in key:
        raise UsageError(f"key has at most {MAX_KEY} characters and no NUL", "key")


def _check_needs(manager: Manager, who: Identity, drafts: list[_Draft], number: int) -> None:
    """What it waits for exists, and is the caller's to see; and so does its queue."""
    draft = drafts[number]
    check_queue(manager, who, draft.submission.queue)
    known: dict[int, IntervalSet] = {}
    for after in draft.submission.after:
        ranges = _ranges_of_need(manager, who, drafts, number, after, known)
        if after.tasks and not IntervalSet(after.tasks).intersection(ranges):
            raise UsageError(f"job {after.job} has none of the tasks that are to be waited for", "after")
        if after.each:
            alone = IntervalSet(draft.ranges)
            alone.difference_update(ranges)
            if alone:
                raise UsageError(
                    f"task {alone.first()} cannot wait for task {alone.first()} of job {after.job}, which does not "
                    "have it: give both the same task numbers",
                    "after",
                )
    for task, job, first, last in draft.edges:
        if job == 0:
            continue
        if job not in known:
            known[job] = IntervalSet(_needed(manager, who, job, "edges").ranges)
        span = IntervalSet([(first, last)])
        if len(span.intersection(known[job])) < len(span):
            raise UsageError(f"task {task} needs {job}.{first}, which does not exist", "edges")


def check_queue(manager: Manager, who: Identity, queue: str) -> None:
    if queue and queue != who.user and queue not in manager.machine.queues:
        names = sorted(name for name in manager.machine.queues)[:20]
        raise NotFound(
            f"there is no queue {queue!r}: {', '.join(names) or 'none'} (see `tercel queue list`)", "queue"
        )


def _ranges_of_need(
    manager: Manager,
    who: Identity,
    drafts: list[_Draft],
    number: int,
    after: After,
    known: dict[int, IntervalSet],
) -> IntervalSet:
    if after.job < 0:
        if -after.job > number:
            raise UsageError(
                f"it waits for job {-after.job} of its flow, which does not come before it: put needs first",
                "after",
            )
        return IntervalSet(drafts[-after.job - 1].ranges)
    if after.job not in known:
        known[after.job] = IntervalSet(_needed(manager, who, after.job, "after").ranges)
    return known[after.job]


def _needed(manager: Manager, who: Identity, id: int, field: str) -> JobRow:
    try:
        return find_job(manager, who, id, field)
    except NotFound:
        raise NotFound(
            f"there is no job {id} to wait for (or it is not yours): see `tercel list`", field
        ) from None


async def _check_values(manager: Manager, who: Identity, submission: Submission) -> None:
    """What calls refer to must be there, or be what a task of a job that the caller may see will return."""
    keys = set(named(submission.calls or []))
    if submission.function is not None and submission.function.value:
        keys.add(submission.function.value)
    if not keys:
        return
    uploaded = {key for key in keys if key.startswith("b")}
    manager.uploads.name(uploaded, manager.clock())
    # Not while anything is cleaned away: what is there now, and named, stays.
    if uploaded and (absent := await manager.on_disk(lambda: missing(manager.store, uploaded))):
        raise NotFound(f"there is no value {absent}: upload it first (PUT /v1/values/{absent})", "calls")
    rows: dict[int, IntervalSet] = {}
    for key in keys - uploaded:
        job, task = parse_key(key) or (-1, -1)
        if job not in rows:
            row = find_job(manager, who, job, "calls")
            if row.spec.function is None:
                raise UsageError(f"{key}: job {job} is no function's, so its tasks return no values", "calls")
            rows[job] = IntervalSet(row.ranges)
        if task not in rows[job]:
            raise NotFound(f"{key}: job {job} has no task {task}", "calls")


# -- accepting --------------------------------------------------------------------------------------------


async def _add_under_key(manager: Manager, who: Identity, drafts: list[_Draft], key: str) -> list[JobRow]:
    try:
        return await _add(manager, who, drafts)
    finally:
        del manager.keys_under_way[who.user, key]


async def _add(manager: Manager, who: Identity, drafts: list[_Draft]) -> list[JobRow]:
    ids = [manager.take_job_id() for _ in drafts]
    added = [
        _added(manager, who, draft, id, ids, flow=ids[0] if len(ids) > 1 else 0)
        for draft, id in zip(drafts, ids, strict=True)
    ]
    needed = {need for one in added for need in _needs_of(one)} - set(ids)
    if needed:
        async with pinned(manager, needed):
            await manager.add(added)
    else:
        await manager.add(added)
    return [one.job for one in added]


def _needs_of(added: JobAdded) -> set[int]:
    return {after.job for after in added.job.spec.after} | {edge[1] for edge in added.edges}


def _added(manager: Manager, who: Identity, draft: _Draft, id: int, ids: list[int], flow: int) -> JobAdded:
    one = draft.submission
    row = JobRow(
        id=id,
        owner=who.user,
        spec=_spec_of(one, ids),
        ranges=tuple(draft.ranges),
        max_running=draft.max_running,
        submitted_at=manager.clock(),
        key=one.key,
        has_lines=one.lines is not None or one.items is not None,
        flow=flow,
        held=tuple(draft.ranges) if one.hold else (),
    )
    edges = tuple((task, job or id, first, last) for task, job, first, last in draft.edges)
    return JobAdded(row, tuple(one.lines or one.items or ()), tuple(one.calls or ()), edges)


def _spec_of(submission: Submission, ids: list[int]) -> JobSpec:
    fields = {name: getattr(submission, name) for name in JobSpec.__struct_fields__}
    fields["template"] = submission.grid is not None or submission.items is not None
    fields["after"] = tuple(
        after if after.job > 0 else msgspec.structs.replace(after, job=ids[-after.job - 1])
        for after in submission.after
    )
    return JobSpec(**fields)


def _submitted(row: JobRow, repeated: bool = False) -> Submitted:
    return Submitted(id=row.id, tasks=row.task_count, name=row.spec.name, repeated=repeated)
