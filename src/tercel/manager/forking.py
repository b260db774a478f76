"""Jobs that are replayed from a moment: copies of them, with what had finished by then, and with some things changed.

look       at the jobs, and at the flows that they are of, in one committed state of the store
change     what the copies are to be; checked as a submission is
decide     which tasks keep their records (core.forking)
put in     as a snapshot is restored: a crash leaves all copies, or none
"""

import asyncio
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from tercel.core.changes import LiveJob, Noted
from tercel.core.errors import NotFound, UsageError
from tercel.core.forking import Copied, Fate, Past, affected, fates, is_changed
from tercel.core.intervals import IntervalSet
from tercel.core.model import JobRow, JobSpec
from tercel.core.states import TaskState
from tercel.manager import blocking, requests
from tercel.manager.access import Identity
from tercel.manager.finding import pinned
from tercel.manager.fork_changes import Change, changed_by, check_changed
from tercel.manager.restoring import MOST_ATTEMPTS, put_in, to_the_end
from tercel.manager.service import Manager
from tercel.manager.submissions import check_queue
from tercel.stores.codes import STATE_CODES
from tercel.stores.contract import needed_by
from tercel.stores.snapshot.contract import Reading
from tercel.stores.snapshot.placing import Places, Placing, placed_flows, placed_row
from tercel.stores.snapshot.records import (
    HistoryPart,
    HistoryRow,
    JobPart,
    LinesPart,
    OutcomeRow,
    OutcomesPart,
    Part,
    Restored,
)
from tercel.stores.snapshot.replaying import Replaying
from tercel.wire.api import Selection
from tercel.wire.api_forks import Fork, Forked, ForkedJob

replace = msgspec.structs.replace
_FINISHED = STATE_CODES[TaskState.FINISHED]
NOTE_BYTES = 400
NOTE_JOBS = 10


class _Draft(msgspec.Struct):
    """A job, and what its copy is to be."""

    live: LiveJob
    change: Change
    spec: JobSpec
    kept: IntervalSet = msgspec.field(default_factory=IntervalSet)
    chosen: dict[int, int] = {}
    """See Past."""
    fate: Fate | None = None
    attempts: int = 0
    """So many, or fewer, are copied."""

    @property
    def row(self) -> JobRow:
        return self.live.job


async def fork(manager: Manager, who: Identity, asked: Fork) -> Forked:
    chosen = await requests.resolve(manager, who, Selection(select=asked.select))
    if any(tasks is not None for _, tasks in chosen):
        raise UsageError("whole jobs are forked: write 37, not 37.4", "select")
    if not chosen:
        raise UsageError("there is nothing to fork: name a job, as in 37", "select")
    now = manager.clock()
    if asked.at is not None and not 0 <= asked.at <= now:
        raise UsageError("a fork is from a moment in the past: this one is yet to come, or never was", "at")
    await manager.settled()
    return await to_the_end(_fork(manager, who, asked, [id for id, _ in chosen], now))


async def _fork(manager: Manager, who: Identity, asked: Fork, ids: Sequence[int], now: float) -> Forked:
    at = now if asked.at is None else asked.at
    with ExitStack() as stack:
        if asked.dry_run:
            reading = stack.enter_context(manager.store.reading())
            return _told(ids, at, await _drafts(manager, who, asked, reading, ids), {})
        async with manager.snapshots.restoring:
            manager.check_saving()
            reading = stack.enter_context(manager.store.reading())
            drafts = await _drafts(manager, who, asked, reading, ids)
            copies = await _put_in(manager, who, asked, reading, drafts, at)
            return _told(ids, at, drafts, copies)


async def _drafts(
    manager: Manager, who: Identity, asked: Fork, reading: Reading, ids: Sequence[int]
) -> list[_Draft]:
    """By number: what is needed comes before what needs it."""
    lives = [live for live in await asyncio.to_thread(_lives, reading, ids) if who.may_see(live.job)]
    if not lives:
        raise NotFound("these jobs were removed a moment ago: there is nothing to fork", "select")
    changes = changed_by(asked, [live.job for live in lives])
    drafts = [
        _Draft(live, change, change.spec(live.job.spec)) for live, change in zip(lives, changes, strict=True)
    ]
    settled = await blocking.settled_all(manager.examiners, who, (draft.spec.block_on for draft in drafts))
    for draft in drafts:
        rules = settled.get(draft.spec.block_on, ())
        if isinstance(rules, UsageError):
            raise type(rules)(f"the copy of job {draft.row.id}: {rules}", "changes")
        draft.spec = replace(draft.spec, block_on=rules)
        draft.spec = _in_a_queue(manager, who, draft)
    await asyncio.to_thread(_decide, reading, drafts, asked)
    if sum(draft.attempts for draft in drafts) > MOST_ATTEMPTS:
        raise UsageError(f"these jobs have more than {MOST_ATTEMPTS:,} attempts: fork fewer", "select")
    return drafts


def _in_a_queue(manager: Manager, who: Identity, draft: _Draft) -> JobSpec:
    """One that is asked for must be there. The job's own may be gone, or be its owner's: then it is the caller's."""
    queue = draft.spec.queue
    if "queue" in draft.change.fields:
        check_queue(manager, who, queue)
    elif queue == draft.row.owner or (queue != who.user and queue not in manager.machine.queues):
        return replace(draft.spec, queue="")
    return draft.spec


def _lives(reading: Reading, ids: Sequence[int]) -> list[LiveJob]:
    """Of a flow, all its jobs: a step alone would be no campaign."""
    found: dict[int, LiveJob] = {}
    flows = set()
    for id in ids:
        if id not in found and (live := reading.live(id)) is not None:
            found[id] = live
            flows.add(live.job.flow)
    for flow in flows - {0}:
        for id in reading.flow_ids(flow):
            if id not in found and (live := reading.live(id)) is not None:
                found[id] = live
    return [found[id] for id in sorted(found)]


# -- what keeps its record --------------------------------------------------------------------------------


def _decide(reading: Reading, drafts: list[_Draft], asked: Fork) -> None:
    """Beside the loop: costs what has happened to the tasks."""
    copied = []
    for draft in drafts:
        check_changed(reading, draft.row, draft.spec, draft.change)
        past = Past(asked.at)
        for part in reading.parts(draft.row.id):
            if isinstance(part, HistoryPart):
                past.take_earlier(map(_ended, part.rows))
                draft.attempts += len(part.rows)
            elif isinstance(part, OutcomesPart):
                past.take_records(map(_ended, part.rows))
                draft.attempts += len(part.rows)
        draft.chosen, kept = past.chosen(), past.kept()
        copied.append(
            Copied(
                draft.row.id,
                draft.row.ranges,
                kept,
                _affected(reading, draft, kept, asked.only_affected),
                draft.spec.after,
                draft.live.edges,
            )
        )
    found = fates(copied)
    for draft, copy in zip(drafts, copied, strict=True):
        draft.fate = found[copy.id]
        draft.kept = copy.kept
        draft.kept.difference_update(draft.fate.again())


def _ended(row: OutcomeRow | HistoryRow) -> tuple[int, int, bool, float]:
    return row[0], row[1], row[2] == _FINISHED, row[7]


def _affected(reading: Reading, draft: _Draft, kept: IntervalSet, only_affected: bool) -> IntervalSet:
    old, new = draft.row.spec, draft.spec
    changed = is_changed(old, new)
    texts = None
    if draft.row.has_lines and (changed or draft.change.texts is not None):
        texts = _texts(reading, draft)
    if only_affected:
        return affected(old, new, kept, texts)
    return kept.copy() if changed or any(was != now for _, was, now in texts or ()) else IntervalSet()


def _texts(reading: Reading, draft: _Draft) -> Iterator[tuple[int, str, str]]:
    """(task, what it had, what it has): lines or items."""
    for part in reading.parts(draft.row.id):
        if not isinstance(part, LinesPart):
            return
        for task, line in enumerate(part.lines, part.first):
            yield task, line, line if draft.change.texts is None else draft.change.texts[task]


# -- putting copies in ------------------------------------------------------------------------------------


async def _put_in(
    manager: Manager, who: Identity, asked: Fork, reading: Reading, drafts: list[_Draft], at: float
) -> dict[int, int]:
    """Returns the copies' numbers."""
    ids = manager.take_job_ids([draft.row.id for draft in drafts])
    outside = await asyncio.to_thread(_outside, manager, drafts)
    jobs = {**{id: id for id in outside}, **ids}
    flows = placed_flows((draft.row for draft in drafts), ids)
    now = manager.clock()
    rows = [_row(draft, who, asked, jobs, flows, now) for draft in drafts]
    notes = [
        Noted(ids[draft.row.id], draft.row.ranges, now, "forked", _note(draft, asked, at)) for draft in drafts
    ]
    attempts = manager.machine.take_attempts(sum(draft.attempts for draft in drafts))
    placing = Placing(_parts(reading, drafts, asked.at), Places(jobs, {}, attempts), ())
    kept = Restored(f"fork {os.urandom(16).hex()}", now, who.user, tuple(ids.items()))
    async with pinned(manager, outside):
        await put_in(manager, rows, placing, (), notes, kept, anew=True)
    return ids


def _outside(manager: Manager, drafts: list[_Draft]) -> set[int]:
    """Jobs that are needed, are not copied, and are still there."""
    needed = set().union(*(needed_by(draft.live) for draft in drafts))
    needed -= {draft.row.id for draft in drafts}
    return {id for id in needed if manager.store.job(id) is not None}


def _row(
    draft: _Draft, who: Identity, asked: Fork, jobs: Mapping[int, int], flows: Mapping[int, int], now: float
) -> JobRow:
    row = placed_row(draft.row, jobs)
    finished = len(draft.kept)
    over = finished == row.task_count
    return replace(
        row,
        owner=who.user,
        spec=replace(draft.spec, after=row.spec.after, hold=asked.hold),
        submitted_at=now,
        key="",
        flow=flows[row.flow],
        held=row.ranges if asked.hold else (),
        postponed=(),
        ended_at=(row.ended_at or now) if over else None,
        finished=finished if over else 0,
        failed=0,
        cancelled=0,
    )


def _parts(reading: Reading, drafts: list[_Draft], at: float | None) -> Iterator[Part]:
    for draft in drafts:
        id = draft.row.id
        yield JobPart(draft.row, tuple(draft.live.edges))
        replaying = Replaying(id, at, draft.kept, draft.chosen, draft.change.texts, reading.segments)
        yield from replaying.parts(reading.parts(id))


# -- telling ----------------------------------------------------------------------------------------------


def _note(draft: _Draft, asked: Fork, at: float) -> str:
    """Values of variables are nobody else's business: names are enough."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    told = [f"env.{name}" for name in draft.change.env] + [
        name for name in draft.change.fields if name not in ("env", "argv", "line")
    ]
    if draft.change.texts is not None:
        told.append("items" if draft.spec.template else "lines")
    if "argv" in draft.change.fields or "line" in draft.change.fields:
        command = shlex.join(draft.spec.argv) if draft.spec.argv else draft.spec.line
        told.append(f"command {command!r}")
    changed = f", with {', '.join(told)}" if told else ""
    only = ", only what is affected" if asked.only_affected and told else ""
    return f"from job {draft.row.id} as of {moment}{only}{changed}"[:NOTE_BYTES]


def _told(named: Sequence[int], at: float, drafts: list[_Draft], ids: Mapping[int, int]) -> Forked:
    jobs = [_told_of(draft, ids.get(draft.row.id, 0)) for draft in drafts]
    notes = []
    if all(job.kept == job.tasks for job in jobs):
        notes.append("nothing runs again: all had finished by then, and nothing of what they run is changed")
    late = [str(draft.row.id) for draft in drafts if draft.row.submitted_at > at]
    if late:
        which = f"job {late[0]} was" if len(late) == 1 else f"jobs {', '.join(late[:NOTE_JOBS])} were"
        notes.append(f"{which} submitted only after that moment")
    if len(jobs) > len(named):
        notes.append("all jobs of a flow are forked together")
    return Forked(at=at, jobs=jobs, notes=notes)


def _told_of(draft: _Draft, id: int) -> ForkedJob:
    assert draft.fate is not None  # `_decide` has set it
    return ForkedJob(
        job=draft.row.id,
        id=id,
        name=draft.spec.name,
        tasks=draft.row.task_count,
        kept=len(draft.kept),
        unfinished=len(draft.fate.unfinished),
        changed=len(draft.fate.changed),
        needy=len(draft.fate.needy),
    )
