"""A snapshot -> jobs of this manager, beside those it has.

    check       the whole file, before anything is changed
    decide      whose jobs, under which numbers, in which queues
    stage       part by part, between the manager's own commits; nobody sees anything of it
    adopt       one commit: now they are all here. A crash before it leaves nothing, one after it everything
    go on       the machine gets what is unfinished

Once the file is checked and found good, it is restored though the client may have left.
"""

import asyncio
import re
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tercel.core.blocked import Condition
from tercel.core.changes import Change, ConditionSet, JobAdded, LiveJob, Noted
from tercel.core.conditions import ConditionRow, Fault
from tercel.core.errors import Forbidden, PassingFault, UsageError
from tercel.core.model import BlockRule, JobRow, Role
from tercel.manager import blocking
from tercel.manager.access import Identity
from tercel.manager.filing import Filing
from tercel.manager.finding import pinned
from tercel.manager.inputs import restored
from tercel.manager.service import Manager
from tercel.stores.contract import needed_by
from tercel.stores.snapshot.checking import Contents, Job, check
from tercel.stores.snapshot.contract import ROWS, Placed
from tercel.stores.snapshot.files import parts
from tercel.stores.snapshot.placing import (
    Places,
    Placing,
    placed_condition,
    placed_flows,
    placed_row,
)
from tercel.stores.snapshot.records import Header, HistoryPart, OutcomesPart, Restored, SegmentPart, ValuePart
from tercel.wire.api_snapshots import Restoration

T = TypeVar("T")

MOST_ATTEMPTS = 2**31
"""In one snapshot: a manager numbers twice as many before it must be started anew."""
SLICE_BYTES = 2**20
JOBS_AT_ONCE = 100
"""Read from the store, and handed to the machine, before others get their turn."""
NOTES_MOST = 20
WHY_MOST = 200

_MADE_BY_CLIENT = re.compile(r"[0-9a-f]{32}(/[0-9]+)?")
"""A key that nobody chose: it was for repeating a submission safely, and has done so."""

_under_way: set[asyncio.Future[Any]] = set()
"""Nothing else holds them when a client leaves."""


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Though whoever asks may leave."""
    task = asyncio.ensure_future(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return await asyncio.shield(task)


async def restore(manager: Manager, who: Identity, path: Path, *, again: bool) -> Restoration:
    """`path` is this call's alone, and there until it returns."""
    contents = await asyncio.to_thread(check, path, "the snapshot")
    _may_restore(who, contents)
    contents = await _judge(manager, who, contents)
    return await _restore(manager, who, path, contents, again)


def _may_restore(who: Identity, contents: Contents) -> None:
    others = [owner for owner in contents.header.owners if owner != who.user]
    if others and who.sees_only is not None:
        raise Forbidden(
            f"the snapshot has jobs of {', '.join(others[:5])}: only an admin restores those of others",
            "snapshot",
        )
    if contents.attempts > MOST_ATTEMPTS:
        raise UsageError(
            f"the snapshot has {contents.attempts:,} attempts; at most {MOST_ATTEMPTS:,}", "snapshot"
        )


async def _judge(manager: Manager, who: Identity, contents: Contents) -> Contents:
    """What its tasks are blocked on says what is run, and where: it must be what its owner may ask for.

    Of the owners of others' jobs it is not known whether they are admins, so they are none. Returned is what was judged, as
    testers here write it: an older Tercel may have written the same otherwise.
    """
    asked: dict[str, set[blocking.Rules]] = {}
    for owner, rules in _rules(contents):
        asked.setdefault(owner, set()).add(rules)
    judged: dict[tuple[str, blocking.Rules], blocking.Rules] = {}
    for owner, all_rules in asked.items():
        identity = who if owner == who.user else Identity(owner, Role.USER, who.token)
        for rules, answer in (await blocking.settled_all(manager.examiners, identity, all_rules)).items():
            if isinstance(answer, UsageError):
                raise type(answer)(f"jobs of {owner} cannot be restored here: {answer}", "snapshot")
            judged[owner, rules] = answer
    return _as_judged(contents, judged)


def _rules(contents: Contents) -> Iterator[tuple[str, blocking.Rules]]:
    """By owner, all that is ever to be tested for its tasks."""
    for row in contents.conditions:
        yield row.owner, _alone(row)
    for job in contents.jobs:
        yield job.row.owner, job.row.spec.block_on
        for one in job.row.postponed:
            yield job.row.owner, _alone(one.fault)


def _alone(what: ConditionRow | Fault) -> blocking.Rules:
    """The rule that would have made it."""
    return (BlockRule(on="exit:1", tester=what.tester, at=what.place, policy=what.policy),)


def _as_judged(contents: Contents, judged: dict[tuple[str, blocking.Rules], blocking.Rules]) -> Contents:
    replace = msgspec.structs.replace

    def job(found: Job) -> Job:
        row = found.row
        if not row.spec.block_on and not row.postponed:
            return found
        rules = judged.get((row.owner, row.spec.block_on), ())
        postponed = tuple(
            replace(one, fault=replace(one.fault, tester=judged[row.owner, _alone(one.fault)][0].tester))
            for one in row.postponed
        )
        return replace(found, row=replace(row, spec=replace(row.spec, block_on=rules), postponed=postponed))

    conditions = [
        replace(row, tester=judged[row.owner, _alone(row)][0].tester) for row in contents.conditions
    ]
    return replace(contents, jobs=list(map(job, contents.jobs)), conditions=conditions)


async def _restore(
    manager: Manager, who: Identity, path: Path, contents: Contents, again: bool
) -> Restoration:
    async with manager.snapshots.restoring:
        manager.check_saving()
        header = contents.header
        before = await asyncio.to_thread(manager.store.restored, header.id)
        if before is not None and not again:
            raise UsageError(
                f"this snapshot was restored here before, by {before.by}, as {_numbers(before)}: to have its jobs a "
                "second time, say --again",
                "snapshot",
            )
        manager.uploads.name(contents.wanted | contents.values, manager.clock())
        absent = await manager.on_disk(lambda: _absent(manager, contents))
        if lost := sorted((contents.wanted & absent) - contents.values):
            raise UsageError(f"value {lost[0]} is neither in the snapshot nor here", "snapshot")
        plan = _Plan(manager, contents, await asyncio.to_thread(_taken, manager, contents))
        places = Places(
            plan.ids,
            {row.id: id for row, id in plan.conditions},
            manager.machine.take_attempts(contents.attempts),
        )
        placing = Placing(parts(path), places, contents.values & absent)
        kept = Restored(header.id, manager.clock(), who.user, tuple(plan.ids.items()))
        notes = plan.histories(f"by {who.user}", header)
        filing = Filing(manager)
        adopted = await put_in(
            manager, plan.rows, placing, plan.condition_rows(header.saved_at), notes, kept, filing=filing
        )
        return Restoration(
            id=header.id,
            jobs=list(plan.ids.items()),
            conditions=[(row.id, adopted.get(id, id)) for row, id in plan.conditions],
            tasks=sum(row.task_count for row in plan.rows),
            unfinished=sum(row.task_count for row in plan.rows) - sum(job.ended for job in contents.jobs),
            notes=[*plan.notes, *filing.notes],
        )


async def put_in(
    manager: Manager,
    rows: Sequence[JobRow],
    placing: Placing,
    conditions: Sequence[ConditionRow],
    notes: Sequence[Noted],
    kept: Restored,
    *,
    anew: bool = False,
    filing: Filing | None = None,
) -> dict[int, int]:
    """Jobs with a past are this manager's, all of them or none, and go on. One such at a time.

    `anew`: what is ready was never let go by anything that it asks about before it starts.
    Returns, by the number that it was to have, which condition tasks wait for: it may be one that was here.
    """
    numbers = sorted(row.id for row in rows)
    try:
        await _stage(manager, numbers, placing)
        added = [JobAdded(row, (), (), placing.edges.get(row.id, ())) for row in rows]
        changes: list[Change] = [*added, *map(ConditionSet, conditions), *notes]
        if filing is not None:
            changes += await filing.registered(placing.files)
        await manager.on_disk(partial(manager.store.adopt, numbers, changes, kept))
    except BaseException:
        with suppress(PassingFault):  # then it is gone with the next start
            await manager.on_disk(partial(manager.store.unstage, numbers))
            manager.leftovers.set()
        raise
    return await _go_on(manager, rows, {row.id: row for row in conditions}, anew)


def _numbers(before: Restored) -> str:
    numbers = sorted(number for _, number in before.jobs)
    if not numbers:
        return "no jobs"
    if numbers[-1] - numbers[0] == len(numbers) - 1 > 0:
        return f"jobs {numbers[0]}-{numbers[-1]}"
    return f"job{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:10]))}"


def _absent(manager: Manager, contents: Contents) -> set[str]:
    """Values that are not here."""
    keys = contents.wanted | contents.values
    return {key for key in keys if not manager.store.value_piece_count(key)}


def _taken(manager: Manager, contents: Contents) -> dict[tuple[str, str], JobRow]:
    """By owner and key: jobs that are here, and have the keys of those that come."""
    named = {(job.row.owner, job.row.key) for job in contents.jobs if job.row.key}
    found = {one: manager.store.job_by_key(*one) for one in named}
    return {one: row for one, row in found.items() if row is not None}


class _Plan:
    """What the jobs of a snapshot are called here, and what of them is another than it was."""

    def __init__(self, manager: Manager, contents: Contents, taken: dict[tuple[str, str], JobRow]) -> None:
        self._manager = manager
        self._taken = taken
        self.notes: list[str] = []
        self.ids = manager.take_job_ids([job.row.id for job in contents.jobs])
        flows = placed_flows((job.row for job in contents.jobs), self.ids)
        self.rows = [self._row(job.row, flows) for job in contents.jobs]
        first = manager.machine.take_conditions(len(contents.conditions))
        self.conditions = [(row, first + at) for at, row in enumerate(contents.conditions)]
        if len(self.notes) > NOTES_MOST:
            more = len(self.notes) - NOTES_MOST
            self.notes[NOTES_MOST:] = [f"and {more:,} more like these"]

    def _row(self, row: JobRow, flows: dict[int, int]) -> JobRow:
        placed = placed_row(row, self.ids)
        spec, key = placed.spec, placed.key
        if spec.queue and spec.queue != row.owner and spec.queue not in self._manager.machine.queues:
            self.notes.append(f"there is no queue {spec.queue} here: job {placed.id} is in {row.owner}'s own")
            spec = msgspec.structs.replace(spec, queue="")
        other = self._taken.get((row.owner, key))
        if other is not None:
            if not _MADE_BY_CLIENT.fullmatch(key):
                self.notes.append(
                    f"job {placed.id} is without its key {key[:80]!r}: job {other.id} has that here"
                )
            key = ""
        counts = {} if row.ended_at is not None else {"finished": 0, "failed": 0, "cancelled": 0}
        return msgspec.structs.replace(placed, spec=spec, key=key, flow=flows[row.flow], **counts)

    def histories(self, by: str, header: Header) -> list[Noted]:
        """What each job is told to have been: nothing else says that it has not always been here."""
        now = self._manager.clock()
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(header.saved_at))
        source = f"of a snapshot of {moment} ({header.why[:WHY_MOST]})"
        were = {here: there for there, here in self.ids.items()}
        return [
            Noted(row.id, row.ranges, now, "restored", f"{by}: job {were[row.id]} {source}")
            for row in self.rows
        ]

    def condition_rows(self, saved_at: float) -> list[ConditionRow]:
        now = self._manager.clock()
        return [placed_condition(row, id, saved_at, now) for row, id in self.conditions]


async def _stage(manager: Manager, numbers: Sequence[int], placing: Placing) -> None:
    """The next slice is read while the one before it is written."""
    slices = _slices(placing.parts())
    ahead = asyncio.ensure_future(asyncio.to_thread(next, slices, None))
    try:
        while (slice := await ahead) is not None:
            ahead = asyncio.ensure_future(asyncio.to_thread(next, slices, None))
            await manager.on_disk(partial(manager.store.stage, numbers, slice))
    finally:
        await asyncio.wait([ahead])


def _slices(parts: Iterator[Placed]) -> Iterator[list[Placed]]:
    """So much at a time that others need not wait long for the disk."""
    slice: list[Placed] = []
    weight = 0.0
    for part in parts:
        slice.append(part)
        weight += _weight(part)
        if weight >= 1.0:
            yield slice
            slice, weight = [], 0.0
    if slice:
        yield slice


def _weight(placed: Placed) -> float:
    part, _ = placed
    if isinstance(part, OutcomesPart | HistoryPart):
        return len(part.rows) / ROWS + 0.001
    return len(part.data) / SLICE_BYTES if isinstance(part, SegmentPart | ValuePart) else 0.01


async def _go_on(
    manager: Manager, jobs: Iterable[JobRow], rows: dict[int, ConditionRow], anew: bool
) -> dict[int, int]:
    """In order of their numbers: what a job needs comes before it."""
    conditions: dict[int, Condition] = {}
    machine = manager.machine
    unfinished = iter([row.id for row in jobs if row.ended_at is None])
    async with manager.reopening:
        while ids := list(islice(unfinished, JOBS_AT_ONCE)):
            for live in await asyncio.to_thread(_lives, manager, ids):
                async with pinned(manager, {id for id in needed_by(live) if id}):
                    for id, *_ in live.blocked:  # anew for each job: it may have cleared since the last
                        conditions[id] = machine.adopt_condition(rows[id], manager.clock())
                    job = machine.adopt(live, conditions, manager.clock(), anew=anew)
                    machine.set_inputs(job, restored(job, manager.store))
                    manager.files_read.look(job)
            manager.wake()
    for id, condition in conditions.items():
        machine.drop_condition(rows[id], condition, manager.clock())
    await manager.settled()
    return {id: condition.id for id, condition in conditions.items()}


def _lives(manager: Manager, ids: list[int]) -> list[LiveJob]:
    lives = [manager.store.live(id) for id in ids]
    return [live for live in lives if live is not None]
