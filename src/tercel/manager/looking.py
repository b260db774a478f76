"""The directories of workers, as people are shown them: asked over the worker's link, joined with what is known of jobs.

What is in a task's sandbox is its owner's to see, and only of attempts that this manager sent to that worker: a directory
outlives managers, and what another one's job of the same number left there is somebody else's. Not every attempt is on
record: of those that were cancelled, and of very many, some are not. What was kept under a number that this manager may have
given out, after the job was submitted, and is not known to have been elsewhere, is taken for one of these.
"""

import asyncio
from typing import TypeVar

import msgspec

from tercel.core.books import EPOCH_BITS
from tercel.core.errors import NotFound, PassingFault, TercelError, UsageError
from tercel.core.judging import NOTED_BLOCKINGS, NOTED_INTERRUPTIONS
from tercel.core.model import JobRow
from tercel.core.selectors import task_name
from tercel.core.sizes import duration
from tercel.core.states import TaskState
from tercel.manager.findings import ADVICE, WHY, findings
from tercel.manager.service import Manager
from tercel.manager.views import has_task
from tercel.wire.api_looking import (
    DirectoryView,
    EntryView,
    FileTail,
    FileView,
    KeptView,
    LeftView,
    PartView,
    SandboxView,
)
from tercel.wire.looking import (
    PATH_MOST,
    AtDirectory,
    AtFile,
    AtLog,
    AtSandbox,
    Contents,
    Entry,
    Found,
    KeptSandbox,
    Left,
    Listing,
    Part,
    Tail,
    Unseen,
    What,
)

F = TypeVar("F", bound=Found)
ATTEMPTS_MOST = 100
"""Of one task at one worker: it keeps no more sandboxes."""
STARTS = 1000
"""Of this manager: attempts of earlier ones are taken for another's, if they are not on record."""
OFTEN = min(NOTED_INTERRUPTIONS, NOTED_BLOCKINGS)
"""From so many attempts on, some may not be on record: of later ones not all are noted, and old ones are cleaned away."""


async def directory(manager: Manager, worker: str) -> DirectoryView:
    found = await _ask(manager, worker, AtDirectory(), Contents)
    owners = await _owners(manager, worker, found.kept)
    kept = [_kept_view(found.dir, one, owners.get(one)) for one in found.kept]
    view = DirectoryView(
        worker=worker,
        node=manager.machine.workers[worker].info.node,
        dir=found.dir,
        disk_bytes=found.disk_bytes,
        free_bytes=found.free_bytes,
        reports=found.reports,
        reports_since=found.reports_since,
        parts=[_part_view(part) for part in found.parts],
        kept=kept,
        left=[_left_view(found.dir, left) for left in found.left],
        log=found.log,
        findings=[],
    )
    view.findings.extend(findings(view, manager.clock()))
    return view


async def log_tail(manager: Manager, worker: str) -> FileTail:
    return _tail_view(worker, await _ask(manager, worker, AtLog(), Tail))


async def files(
    manager: Manager, row: JobRow, task: int, worker: str, attempt: int | None = None
) -> SandboxView:
    """Of a job that the caller may see."""
    attempts = await _attempts(manager, row, task, worker, attempt)
    found = await _ask(manager, worker, AtSandbox(row.id, task, attempts), Listing)
    job = manager.machine.jobs.get(row.id)
    flight = job.flights.get(task) if job is not None else None
    began = flight.running_since if flight is not None and flight.attempt == found.attempt else None
    return SandboxView(
        worker=worker,
        id=task_name(row.id, task),
        attempt=found.attempt,
        dir=found.dir,
        running=found.running,
        since=began if found.running and began is not None else found.since,
        files=[
            FileView(path=f.path, kind=f.kind, size_bytes=f.size_bytes, changed_at=f.changed_at)
            for f in found.files
        ],
        kept=found.kept,
        cut=found.cut,
    )


async def file(
    manager: Manager, row: JobRow, task: int, worker: str, path: str, attempt: int | None = None
) -> FileTail:
    """The end of a file in it."""
    attempts = await _attempts(manager, row, task, worker, attempt)
    if len(path) > PATH_MOST:
        raise UsageError(f"a path has at most {PATH_MOST} characters", "path")
    return _tail_view(worker, await _ask(manager, worker, AtFile(row.id, task, attempts, path), Tail))


# -- asking -----------------------------------------------------------------------------------------------


async def _ask(manager: Manager, worker: str, what: What, kind: type[F]) -> F:
    conversation = manager.telling.conversation_with(worker)
    if conversation is None or not conversation.welcomed:
        raise _absent(manager, worker)
    try:
        found = await conversation.looks.ask(what)
    except TercelError as error:
        message = f"worker {worker} cannot be looked into: {error}"
        raise (
            PassingFault(message) if isinstance(error, PassingFault) else UsageError(message, "worker")
        ) from None
    if isinstance(found, Unseen):
        message = f"worker {worker}: {found.why}"
        raise PassingFault(message) if found.passing else NotFound(message, "worker")
    assert isinstance(found, kind), "Looks lets nothing else through"
    return found


def _absent(manager: Manager, worker: str) -> TercelError:
    known = manager.machine.workers.get(worker)
    if known is None:
        return NotFound(f"there is no worker {worker[:128]!r}: see `tercel pool --all`", "worker")
    if known.online:
        return PassingFault(f"worker {worker} is just joining: try again in a moment")
    ago = duration(manager.clock() - known.since)
    where = f"its directory was {known.info.dir} on {known.info.node}" if known.info.dir else ""
    after = f"; {where}" if where else ""
    return NotFound(f"worker {worker} is offline since {ago}, so it cannot be looked into{after}", "worker")


async def _attempts(manager: Manager, row: JobRow, task: int, worker: str, attempt: int | None) -> list[int]:
    """Those of the task that this worker was given, oldest first. Raises NotFound if there is none."""
    if not has_task(row, task):
        raise NotFound(f"job {row.id} has no task {task}", "task")
    live = manager.machine.jobs.get(row.id)
    flight = live.flights.get(task) if live is not None else None
    await manager.settled()
    # What is under way is asked for first: what ends meanwhile is in either, or in both.
    traces = await asyncio.to_thread(_traces, manager, row.id, task)
    if flight is not None:
        traces.tried[flight.attempt] = flight.worker.id
    recorded = [number for number, at in traces.tried.items() if at == worker and attempt in (None, number)]
    known = recorded or await _unrecorded(manager, row, task, worker, attempt, traces)
    if known:
        return known[-ATTEMPTS_MOST:]
    name = task_name(row.id, task)
    if worker not in manager.machine.workers:
        raise _absent(manager, worker)
    if attempt is not None:
        raise NotFound(
            f"worker {worker} had no attempt {attempt} of {name}: see `tercel show {name}`", "attempt"
        )
    others = ", ".join(dict.fromkeys(at for at in traces.tried.values() if at))
    hint = f"it was at {others}" if others else "it has not run yet"
    raise NotFound(f"{name} was never at worker {worker}: {hint}", "worker")


class _Traces(msgspec.Struct, frozen=True):
    """What the books have of a task's attempts."""

    tried: dict[int, str]
    """The workers that had them, oldest first."""
    ended: TaskState | None

    @property
    def may_lack_some(self) -> bool:
        """That of a task which was cancelled is not kept, nor are all of one that was tried very often."""
        unrecorded = self.ended is not None and not self.tried
        return unrecorded or self.ended is TaskState.CANCELLED or len(self.tried) >= OFTEN


def _traces(manager: Manager, job: int, task: int) -> _Traces:
    """In a thread."""
    outcomes = manager.store.outcomes(job, ranges=[(task, task)], limit=1)
    return _Traces(dict(manager.store.tried(job, task)), next((outcome.state for outcome in outcomes), None))


async def _unrecorded(
    manager: Manager, row: JobRow, task: int, worker: str, attempt: int | None, traces: _Traces
) -> list[int]:
    """Of sandboxes that the worker has kept, those that can only be the task's though the books do not say so."""
    if attempt is not None:
        if attempt in traces.tried or not _may_be_ours(manager, attempt):
            return []
        found = await _ask(manager, worker, AtSandbox(row.id, task, [attempt]), Listing)
        return [attempt] if found.since >= row.submitted_at else []
    if not traces.may_lack_some:
        return []
    there = await _ask(manager, worker, AtDirectory(), Contents)
    return sorted(
        one.attempt
        for one in there.kept
        if (one.job, one.task) == (row.id, task)
        and one.attempt not in traces.tried
        and _may_be_ours(manager, one.attempt)
        and one.since >= row.submitted_at
    )


def _may_be_ours(manager: Manager, attempt: int) -> bool:
    """Every start numbers its attempts from an epoch on, and the first of a manager is any of a million."""
    return 0 <= manager.machine.epoch - (attempt >> EPOCH_BITS) < STARTS


async def _owners(
    manager: Manager, worker: str, kept: list[KeptSandbox]
) -> dict[KeptSandbox, tuple[str, bool]]:
    """Whose they are, without those of jobs that this manager does not know; and whether their attempts are on record as
    this worker's. While nothing can be saved, all are.

    Each task is looked up once, however many of its sandboxes there are: it may have been tried very often.
    """
    flights = manager.machine.workers[worker].flights.values()
    under_way = {(flight.job.id, flight.task, flight.attempt) for flight in flights}
    await manager.settled()
    of_task: dict[tuple[int, int], list[KeptSandbox]] = {}
    for one in kept:
        of_task.setdefault((one.job, one.task), []).append(one)
    owners: dict[KeptSandbox, tuple[str, bool]] = {}
    for (job, task), its in of_task.items():
        row, tried = await asyncio.to_thread(_known, manager, job, task)
        if row is None:
            continue
        sent = {attempt for attempt, at in tried if at == worker}
        for one in its:
            is_under_way = (job, task, one.attempt) in under_way
            owners[one] = row.owner, one.attempt in sent or is_under_way or bool(manager.trouble)
    return owners


def _known(manager: Manager, job: int, task: int) -> tuple[JobRow | None, list[tuple[int, str]]]:
    """In a thread."""
    return manager.store.job(job), manager.store.tried(job, task)


# -- as it is shown ---------------------------------------------------------------------------------------


def _kept_view(dir: str, kept: KeptSandbox, whose: tuple[str, bool] | None) -> KeptView:
    owner, recorded = whose or ("", False)
    return KeptView(
        id=task_name(kept.job, kept.task),
        job=kept.job,
        task=kept.task,
        attempt=kept.attempt,
        since=kept.since,
        size_bytes=kept.size_bytes,
        entries=kept.entries,
        path=f"{dir}/kept/{kept.job}.{kept.task}.{kept.attempt}",
        owner=owner,
        known=whose is not None,
        recorded=recorded,
        cut=kept.cut,
    )


def _part_view(part: Part) -> PartView:
    return PartView(
        name=part.name,
        size_bytes=part.size_bytes,
        entries=part.entries,
        oldest_at=part.oldest_at,
        largest=[_entry_view(entry) for entry in part.largest],
        cut=part.cut,
    )


def _entry_view(entry: Entry) -> EntryView:
    return EntryView(
        name=entry.name, size_bytes=entry.size_bytes, changed_at=entry.changed_at, task=entry.task
    )


def _left_view(dir: str, left: Left) -> LeftView:
    return LeftView(
        path=f"{dir}/{left.name}",
        size_bytes=left.size_bytes,
        since=left.since,
        why=WHY[left.kind],
        advice=ADVICE[left.kind],
    )


def _tail_view(worker: str, tail: Tail) -> FileTail:
    return FileTail(
        worker=worker,
        path=tail.path,
        size_bytes=tail.size_bytes,
        offset=tail.offset,
        changed_at=tail.changed_at,
        data=tail.data,
    )
