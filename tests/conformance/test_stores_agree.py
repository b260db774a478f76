"""Random histories of valid changes, kept in SQLite and in memory: every answer must be the same.

`Plan` knows only what may validly come next; what the answers should be, it does not. A history is handed over
in batches, some of them twice, some never committed, with the stores opened again in between.
"""

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Blamed,
    Change,
    Concluded,
    ConditionSet,
    FileRegistered,
    FileRemoved,
    JobEnded,
    JobResumed,
    JobRevised,
    LeaseClosed,
    Leased,
    LeftRemoved,
    MadeUndone,
    Noted,
    OutputKept,
    OutputsDropped,
    Reopened,
    ReplicaRemoved,
    ReplicaSet,
    ReservationRemoved,
    ReservationSet,
    SwitchSet,
    TasksBlocked,
    TasksUnblocked,
    TokenAdded,
    TokenRevoked,
    ValueKept,
    WorkerSet,
)
from tercel.core.conditions import SwitchRow
from tercel.core.files import Input, ReplicaRow
from tercel.core.intervals import IntervalSet
from tercel.core.model import After, Call, JobSpec
from tercel.core.presence import Reservation, WorkerRow
from tercel.core.reports import Blame, Output
from tercel.core.states import Stage, TaskState
from tercel.stores.contract import Cleaned
from tests.conformance.stores import (
    BLOCKED,
    CANCELLED,
    DIGESTS,
    FAILED,
    FINISHED,
    KEYS,
    NAMES,
    URLS,
    KeptInMemory,
    KeptInSqlite,
    answers,
    cancelled,
    condition,
    file,
    job,
    lease,
    outcome,
    token,
)


@dataclass
class PlannedJob:
    id: int
    tasks: IntervalSet
    open: IntervalSet
    spec: JobSpec
    ended: dict[TaskState, IntervalSet] = field(
        default_factory=lambda: {state: IntervalSet() for state in (FINISHED, FAILED, CANCELLED)}
    )
    over: bool = False


@dataclass
class Plan:
    jobs: list[PlannedJob] = field(default_factory=list)
    submitted: int = 0
    attempts: int = 0
    leases: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    spent: list[tuple[int, int, int]] = field(default_factory=list)
    """(job, task, attempt)"""
    lost: dict[tuple[int, int], int] = field(default_factory=dict)
    """By (job, task): the last attempt that was blocked."""
    makers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name: which task makes it, each time that it is made."""
    files: dict[str, str] = field(default_factory=dict)
    """By name: digests of those that are registered."""

    def attempt(self) -> int:
        self.attempts += 1
        return self.attempts


OUTPUTS = st.none() | st.builds(Output, st.just(9), st.just(4), st.binary(max_size=4), st.integers(0, 2))
WORKERS = st.sampled_from(["n1", "n2", "n3"])
RANGES = st.sampled_from([((0, 0),), ((0, 6),), ((3, 12),), ((0, 2), (5, 5), (9, 14)), ((2, 2), (4, 4))])

SOURCES = ("lfn:calib/2026", "lfn:fit/{task}", "up:7f/run.root", "up:7f/{task}", "up:8a/x", "https://x/y")
INPUTS = st.lists(st.sampled_from(SOURCES), max_size=2, unique=True).map(
    lambda sources: tuple(Input(source=source) for source in sources)
)
CONDITIONS = st.integers(1, 4)
TIMES = st.sampled_from([10.5, 20.0, 30.25])
SIZES = st.sampled_from([1, 1, 2, 5, 15, 20, 5000])

IN_MEMORY = Path("/dev/shm")
"""What is compared here are answers: thousands of commits need not wait for the disk."""


class StoresAgree(RuleBasedStateMachine):
    gaps = True
    """Whether jobs of lines or calls may have numbers that no task has: a store does not mind, though nobody submits such."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        self.memory = KeptInMemory()
        self.sqlite = KeptInSqlite(Path(self.directory.name) / "store.db")
        self.plan = Plan()
        self.committed = Plan()
        self.batch: list[Change] = []

    def teardown(self) -> None:
        self.sqlite.store.close()
        self.directory.cleanup()

    # --- changes

    @rule(
        ranges=RANGES,
        own=st.sampled_from(["", "lines", "calls"]),
        key=st.sampled_from(["", "", "k"]),
        owner=st.sampled_from(["ada", "bob"]),
        needs=st.integers(0, 5),
        reads=INPUTS,
    )
    def submit(
        self,
        ranges: tuple[tuple[int, int], ...],
        own: str,
        key: str,
        owner: str,
        needs: int,
        reads: tuple[Input, ...],
    ) -> None:
        tasks = IntervalSet(ranges)
        if own and not self.gaps:
            ranges = ((0, len(tasks) - 1),)
            tasks = IntervalSet(ranges)
        self.plan.submitted += 1
        number = self.plan.submitted
        after = tuple(After(job=planned.id) for planned in self.plan.jobs[needs : needs + 1])
        spec = JobSpec(argv=("true",), after=after, inputs=reads)
        lines = tuple(f"run {number} {task}" for task in tasks) if own == "lines" else ()
        calls = (
            tuple(Call(b"%d" % task, (f"t1.{task}", KEYS[1 - task % 2])) for task in tasks)
            if own == "calls"
            else ()
        )
        self.batch.append(job(number, *ranges, owner=owner, key=key, spec=spec, lines=lines, calls=calls))
        self.plan.jobs.append(PlannedJob(number, tasks, tasks.copy(), spec))

    @precondition(lambda self: any(job.open for job in self.plan.jobs))
    @rule(
        data=st.data(),
        state=st.sampled_from([FINISHED, FAILED, CANCELLED]),
        worker=WORKERS,
        outputs=st.tuples(OUTPUTS, OUTPUTS, OUTPUTS),
    )
    def conclude(
        self, data: st.DataObject, state: TaskState, worker: str, outputs: tuple[Output | None, ...]
    ) -> None:
        planned = data.draw(st.sampled_from([job for job in self.plan.jobs if job.open]))
        for task in data.draw(
            st.lists(st.sampled_from(list(planned.open)), min_size=1, max_size=4, unique=True)
        ):
            told = outcome(
                task,
                attempt=self.plan.attempt(),
                job=planned.id,
                state=state,
                worker=worker,
                out=outputs[0],
                err=outputs[1],
                value=outputs[2],
                note="it said, \";\" and ','" if task % 2 else "",
            )
            self.batch.append(Concluded(told))
            planned.open.discard(task)
            planned.ended[state].add(task)

    @precondition(lambda self: any(job.open for job in self.plan.jobs))
    @rule(data=st.data(), worker=WORKERS, out=OUTPUTS)
    def spend(self, data: st.DataObject, worker: str, out: Output | None) -> None:
        planned = data.draw(st.sampled_from([job for job in self.plan.jobs if job.open]))
        task = data.draw(st.sampled_from(list(planned.open)))
        told = outcome(
            task,
            attempt=self.plan.attempt(),
            job=planned.id,
            state=FAILED,
            worker=worker,
            out=out,
            note="again",
        )
        self.batch.append(AttemptSpent(told))
        self.plan.spent.append((planned.id, task, told.report.attempt))

    @precondition(lambda self: self.plan.spent)
    @rule(data=st.data(), blame=st.sampled_from(Blame))
    def blame(self, data: st.DataObject, blame: Blame) -> None:
        job, *attempt = data.draw(st.sampled_from(self.plan.spent))
        self.batch.append(Blamed(job, ((attempt[0], attempt[1]),), blame))

    @rule(name=WORKERS, quarantined=st.sampled_from(["", "why"]), tags=st.sampled_from([(), ("a", "b")]))
    def set_worker(self, name: str, quarantined: str, tags: tuple[str, ...]) -> None:
        self.batch.append(WorkerSet(WorkerRow(name=name, quarantined=quarantined, lost_tags=tags)))

    @rule(name=st.sampled_from(["app=a", "app=b"]), off=st.sampled_from(["by ada", ""]))
    def switch(self, name: str, off: str) -> None:
        self.batch.append(SwitchSet(SwitchRow(name=name, off=off)))

    @rule(id=st.integers(1, 3), owner=st.sampled_from(["ada", ""]))
    def reserve(self, id: int, owner: str) -> None:
        self.batch.append(
            ReservationSet(Reservation(id=id, owner=owner)) if owner else ReservationRemoved(id)
        )

    @precondition(lambda self: any(job.open for job in self.plan.jobs))
    @rule(data=st.data(), low=st.integers(0, 15), size=st.integers(1, 15), reason=st.sampled_from(["x", "y"]))
    def cancel(self, data: st.DataObject, low: int, size: int, reason: str) -> None:
        planned = data.draw(st.sampled_from([job for job in self.plan.jobs if job.open]))
        for first, last in planned.open.intersection(IntervalSet([(low, low + size - 1)])).ranges():
            self.batch.append(cancelled(first, last, job=planned.id, reason=reason))
            planned.open.discard_range(first, last)
            planned.ended[CANCELLED].add_range(first, last)

    @precondition(lambda self: any(job.ended[FAILED] or job.ended[CANCELLED] for job in self.plan.jobs))
    @rule(data=st.data(), low=st.integers(0, 15), size=st.integers(1, 15), resumed_first=st.booleans())
    def retry(self, data: st.DataObject, low: int, size: int, resumed_first: bool) -> None:
        choices = [job for job in self.plan.jobs if job.ended[FAILED] or job.ended[CANCELLED]]
        planned = data.draw(st.sampled_from(choices))
        again = planned.ended[FAILED].copy()
        again.update(planned.ended[CANCELLED])
        again = again.intersection(IntervalSet([(low, low + size - 1)]))
        if not again:
            return
        changes: list[Change] = [Reopened(planned.id, tuple(again.ranges()))]
        if planned.over:
            changes.insert(0 if resumed_first else 1, JobResumed(planned.id))
            planned.over = False
        self.batch += changes
        planned.open.update(again)
        planned.ended[FAILED].difference_update(again)
        planned.ended[CANCELLED].difference_update(again)

    @precondition(lambda self: any(not job.open and not job.over for job in self.plan.jobs))
    @rule()
    def end_jobs(self) -> None:
        for planned in self.plan.jobs:
            if not planned.open and not planned.over:
                counts = [len(planned.ended[state]) for state in (FINISHED, FAILED, CANCELLED)]
                self.batch.append(JobEnded(planned.id, 10.0 * (planned.id % 4), *counts))
                planned.over = True

    @precondition(lambda self: any(job.open for job in self.plan.jobs))
    @rule(
        data=st.data(),
        low=st.integers(0, 15),
        size=SIZES,
        of=CONDITIONS,
        at=TIMES,
        met=st.sampled_from(Stage),
        attempted=st.booleans(),
        again=st.booleans(),
    )
    def block(
        self,
        data: st.DataObject,
        low: int,
        size: int,
        of: int,
        at: float,
        met: Stage,
        attempted: bool,
        again: bool,
    ) -> None:
        planned = data.draw(st.sampled_from([job for job in self.plan.jobs if job.open]))
        waiting = planned.open.intersection(IntervalSet([(low, low + size - 1)]))
        for task in waiting if attempted else ():
            attempt, before = self.plan.attempt(), self.plan.lost.get((planned.id, task), 0)
            # Of the first three, pieces of output come at any time here, which they never do after a report.
            instead_of = before if again and before > 3 else 0
            told = outcome(task, attempt=attempt, job=planned.id, state=BLOCKED)
            self.batch.append(AttemptLost(told, instead_of))
            self.plan.lost[planned.id, task] = attempt
        self.batch.append(TasksBlocked(planned.id, tuple(waiting.ranges()), of, at, met))

    @precondition(lambda self: self.plan.jobs)
    @rule(data=st.data(), low=st.integers(0, 15), size=SIZES)
    def unblock(self, data: st.DataObject, low: int, size: int) -> None:
        planned = data.draw(st.sampled_from(self.plan.jobs))
        self.batch.append(
            TasksUnblocked(planned.id, ((low, low + size - 1), (low + size + 2, low + size + 2)))
        )

    @rule(id=CONDITIONS, tests=st.integers(0, 3), closed_at=st.none() | TIMES)
    def set_condition(self, id: int, tests: int, closed_at: float | None) -> None:
        self.batch.append(ConditionSet(condition(id, tests=tests, closed_at=closed_at)))

    @precondition(lambda self: self.plan.jobs)
    @rule(
        data=st.data(),
        ranges=st.lists(st.tuples(st.integers(0, 15), SIZES), min_size=1, max_size=3),
        at=TIMES,
        what=st.sampled_from(["held", "released"]),
        note=st.sampled_from(["", "by ada"]),
    )
    def note(
        self, data: st.DataObject, ranges: list[tuple[int, int]], at: float, what: str, note: str
    ) -> None:
        planned = data.draw(st.sampled_from(self.plan.jobs))
        told = tuple(IntervalSet((low, low + size - 1) for low, size in ranges).ranges())
        self.batch.append(Noted(planned.id, told, at, what, note))

    @rule(
        data=st.data(),
        name=st.sampled_from(NAMES),
        digest=st.sampled_from(DIGESTS),
        urls=st.lists(st.sampled_from(URLS), max_size=2, unique=True),
        at=TIMES,
    )
    def register(self, data: st.DataObject, name: str, digest: str, urls: list[str], at: float) -> None:
        """As whoever registers has looked: of a name that is taken, only what has the same bytes."""
        made = [
            (planned.id, task)
            for planned in self.plan.jobs
            for task in planned.tasks
            if not name.startswith("up:")
        ]
        job, task = data.draw(st.sampled_from([(0, 0), *made]))
        job, task = self.plan.makers.setdefault(name, (job, task))
        digest = self.plan.files.setdefault(name, digest)
        row = file(name, digest=digest, job=job, task=task, attempt=1, made_at=at)
        self.batch.append(FileRegistered(row, tuple(urls)))

    @precondition(lambda self: self.plan.files)
    @rule(data=st.data(), url=st.sampled_from(URLS), at=TIMES, bad=st.sampled_from(["", "gone"]))
    def set_replica(self, data: st.DataObject, url: str, at: float, bad: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.plan.files)))
        self.batch.append(ReplicaSet(ReplicaRow(name=name, url=url, verified_at=at, bad=bad)))

    @precondition(lambda self: self.plan.files)
    @rule(data=st.data(), url=st.sampled_from(URLS), whole=st.booleans())
    def remove_file(self, data: st.DataObject, url: str, whole: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.plan.files)))
        self.batch.append(FileRemoved(name) if whole else ReplicaRemoved(name, url))
        if whole:
            del self.plan.files[name]

    @precondition(lambda self: self.plan.jobs)
    @rule(data=st.data(), low=st.integers(0, 15), size=SIZES, removed=st.booleans())
    def undo(self, data: st.DataObject, low: int, size: int, removed: bool) -> None:
        planned = data.draw(st.sampled_from(self.plan.jobs))
        ranges = ((low, low + size - 1), (low + size + 2, low + size + 2))
        self.batch.append(MadeUndone(planned.id, ranges))
        if removed:
            self.batch.append(LeftRemoved(planned.id, low))
        undone = IntervalSet(ranges)
        for name, (maker, task) in self.plan.makers.items():
            if maker == planned.id and task in undone:
                self.plan.files.pop(name, None)

    @precondition(lambda self: self.plan.jobs)
    @rule(data=st.data(), reads=INPUTS)
    def revise(self, data: st.DataObject, reads: tuple[Input, ...]) -> None:
        planned = data.draw(st.sampled_from(self.plan.jobs))
        self.batch.append(JobRevised(planned.id, msgspec.structs.replace(planned.spec, inputs=reads), ()))

    @rule(worker=WORKERS)
    def issue_lease(self, worker: str) -> None:
        number = self.plan.attempt()
        self.batch.append(Leased(lease(number, worker=worker)))
        self.plan.leases.append(number)

    @precondition(lambda self: self.plan.leases)
    @rule(data=st.data())
    def close_lease(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.plan.leases))
        self.batch.append(LeaseClosed(number))
        self.plan.leases.remove(number)

    @rule(
        attempt=st.integers(1, 3), stream=st.sampled_from(["out", "err", "value"]), number=st.integers(0, 3)
    )
    def keep_output(self, attempt: int, stream: str, number: int) -> None:
        self.batch.append(OutputKept(attempt, stream, number, f"{attempt} {stream} {number}".encode()))

    @rule(attempts=st.lists(st.integers(1, 3), unique=True))
    def drop_outputs(self, attempts: list[int]) -> None:
        self.batch.append(OutputsDropped(tuple(attempts)))

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 3), last=st.booleans())
    def keep_value(self, key: str, number: int, last: bool) -> None:
        self.batch.append(ValueKept(key, number, f"{key} {number}".encode(), last))

    @rule(revoke=st.booleans())
    def change_tokens(self, revoke: bool) -> None:
        if self.plan.tokens and revoke:
            self.batch.append(TokenRevoked(self.plan.tokens.pop()))
        else:
            name = f"t{self.plan.attempt()}"
            self.batch.append(TokenAdded(token(name)))
            self.plan.tokens.append(name)

    # --- keeping them

    @precondition(lambda self: self.batch)
    @rule(times=st.sampled_from([1, 1, 2]), cut=st.integers(0, 20))
    def commit(self, times: int, cut: int) -> None:
        self.memory.store.write(self.batch)
        self.memory.store.commit()
        for _ in range(times):
            self.sqlite.store.write(self.batch[:cut])
            self.sqlite.store.write(self.batch[cut:])
            self.sqlite.store.commit()
        self.batch = []
        self.committed = copy.deepcopy(self.plan)
        self.compare()

    @precondition(lambda self: self.batch)
    @rule()
    def crash(self) -> None:
        for kept in (self.memory, self.sqlite):
            kept.store.write(self.batch)
        self.batch = []
        self.plan = copy.deepcopy(self.committed)
        self.open_again()

    @precondition(lambda self: not self.batch)
    @rule()
    def open_again(self) -> None:
        loaded = self.memory.reopen()
        same = self.sqlite.reopen()
        assert msgspec.structs.replace(same, epoch=0) == msgspec.structs.replace(loaded, epoch=0)
        self.compare()
        assert [
            (live.job.id, sum(map(_size, [live.finished, live.failed, live.cancelled])))
            for live in loaded.jobs
        ] == [
            (planned.id, len(planned.tasks) - len(planned.open))
            for planned in self.plan.jobs
            if not planned.over
        ]

    @precondition(lambda self: not self.batch and any(job.over for job in self.plan.jobs))
    @rule(
        before=st.sampled_from([5.0, 15.0, 25.0, 99.0]),
        owner=st.sampled_from([None, None, "ada"]),
        limit=st.sampled_from([1, 2, 30, 1000]),
        keep_values=st.sampled_from([(), KEYS[:1]]),
        unnamed_before=st.sampled_from([0.0, 5.0, 99.0]),
    )
    def clean(
        self,
        before: float,
        owner: str | None,
        limit: int,
        keep_values: tuple[str, ...],
        unnamed_before: float,
    ) -> None:
        stores = (self.memory.store, self.sqlite.store)
        earlier, lives = self.memory.reopen(), self._staying()
        removed: list[int] = []
        while True:
            old, same = (store.removable(ended_before=before, owner=owner, limit=limit) for store in stores)
            assert old == same
            if not old:
                break
            for store in stores:
                assert store.remove_jobs([*old, 99], ended_before=before) == old
            removed += old
            self.plan.jobs = [planned for planned in self.plan.jobs if planned.id not in old]
        unnamed, alike = (store.unnamed_values() for store in stores)
        assert unnamed == alike
        for store in stores:
            store.put_unnamed(unnamed, before)
            told, gone = store.old(before=before, keep=1, removed=removed), Cleaned(more=True)
            while gone.more:
                gone += store.clean(
                    before=before, keep_values=keep_values, unnamed_before=unnamed_before, limit=limit
                )
            assert (gone.conditions, gone.notes) == (told.conditions, told.notes)
        there = {found.file.name for found in self.memory.store.files(NAMES)}
        self.plan.files = {name: digest for name, digest in self.plan.files.items() if name in there}
        self.committed = copy.deepcopy(self.plan)
        later = self.memory.reopen()
        assert msgspec.structs.replace(later, epoch=0) == msgspec.structs.replace(earlier, epoch=0)
        assert {job: lives[job] for job in self._staying()} == self._staying()
        self.open_again()

    def _staying(self) -> dict[int, object]:
        """What is told of each job, without notes: those go by their age."""
        told = answers(self.memory.store)
        jobs = {planned.id: f"{planned.id} " for planned in self.plan.jobs}
        return {
            job: {
                key: said
                for key, said in told.items()
                if key.startswith(name) and not key.endswith(("notes", "dependents", "files"))
            }
            for job, name in jobs.items()
        }

    @precondition(lambda self: not self.batch and self.plan.jobs)
    @rule(keep=st.integers(1, 2), before=st.sampled_from([205.0, 999.0]), limit=st.sampled_from([1, 3, 1000]))
    def compact(self, keep: int, before: float, limit: int) -> None:
        earlier = self.memory.reopen()
        for store in (self.memory.store, self.sqlite.store):
            after: tuple[int, int] | None = (0, -1)
            left = store.old(before=before, keep=keep, removed=()).attempts
            while after is not None:
                compacted = store.compact_history(ended_before=before, keep=keep, after=after, limit=limit)
                after, left = compacted.after, left - compacted.attempts
            assert left == 0
        later = self.memory.reopen()
        assert msgspec.structs.replace(later, epoch=0) == msgspec.structs.replace(earlier, epoch=0)
        self.open_again()

    def compare(self) -> None:
        store = self.memory.store
        left = {
            url
            for planned in self.plan.jobs
            for urls in store.left_overs(planned.id, [(0, 10**6)]).values()
            for url in urls
        }
        assert not left & store.names_at(URLS).keys(), "what is a replica would be removed"
        assert answers(self.sqlite.store, attempts=3) == answers(self.memory.store, attempts=3)


def _size(ranges: list[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


TestStoresAgree = StoresAgree.TestCase
TestStoresAgree.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
