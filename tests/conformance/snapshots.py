"""What tests of snapshots share: a store with a past, restoring as a manager does, and what must be the same after it."""

import hashlib
import zlib
from pathlib import Path
from typing import Any

import msgspec

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Change,
    Concluded,
    ConditionSet,
    FileRegistered,
    JobAdded,
    JobEnded,
    LiveJob,
    Noted,
    OutputKept,
    ReplicaSet,
    TasksBlocked,
    ValueKept,
)
from tercel.core.conditions import ConditionRow, Fault, Place, Postponed
from tercel.core.filenames import names_read, uploads_of
from tercel.core.files import FileRow, Input, ReplicaRow
from tercel.core.model import After, BlockRule, Call, Function, JobRow, JobSpec
from tercel.core.reports import Blame, Outcome, Output
from tercel.core.states import Stage
from tercel.stores.contract import Store
from tercel.stores.snapshot import files
from tercel.stores.snapshot.contract import Placed
from tercel.stores.snapshot.placing import (
    Places,
    Placing,
    new_ids,
    placed_condition,
    placed_flows,
    placed_row,
)
from tercel.stores.snapshot.records import ConditionPart, JobPart, Restored
from tercel.stores.snapshot.saving import Choice, save
from tests.conformance.stores import (
    BLOCKED,
    CANCELLED,
    DIGESTS,
    FAILED,
    answers,
    cancelled,
    file,
    hand_over,
    job,
    outcome,
)

NOW = 5000.0
VALUE = b"a value that calls share " * 100
KEY = f"b{hashlib.sha256(VALUE).hexdigest()}"
KEPT_HERE = f"tercel:{DIGESTS[0]}"
RULE = BlockRule(on="exit:75", tester="tcp:licence.lab:27000", at="manager", policy="every 2m for 12h")
FIT = JobSpec(
    argv=("fit",), array="0-9", retries=3, block_on=(RULE,), inputs=(Input(source="up:7f/run.root"),)
)
OPEN = ConditionRow(
    id=3,
    owner="ada",
    tester=RULE.tester,
    place=Place.MANAGER,
    policy=RULE.policy,
    opened_at=NOW - 600,
    tests=4,
    tested_at=NOW - 30,
    next_test_at=NOW + 90,
)


def campaign() -> list[Change]:
    """Jobs of every kind, in the middle of their lives."""
    fit = job(4, (0, 9), spec=FIT)
    met = Fault(stage=Stage.LAUNCH, tester=RULE.tester, place=Place.MANAGER, policy=RULE.policy)
    held = msgspec.structs.replace(fit.job, held=((8, 9),), postponed=(Postponed(met, ((9, 9),)),))
    lines = job(5, (0, 2), key="k", lines=("echo a", "echo b", "echo c"), spec=JobSpec())
    function = Function(code=b"f", name="f", python="3.11")
    calls = job(6, (0, 1), calls=(Call(b"x", (KEY,)), Call(b"y")), spec=JobSpec(function=function))
    after = job(
        8,
        (0, 1),
        calls=(Call(b"x", ("t6.0",)), Call(b"y", (KEY,))),
        spec=JobSpec(function=function, after=(After(job=4), After(job=5))),
    )
    flow = [
        JobAdded(msgspec.structs.replace(one.job, flow=5), one.lines, one.calls) for one in (lines, calls)
    ]
    edged = msgspec.structs.replace(after, edges=((0, 6, 0, 0),))
    small, large = Output(6, 6, b"hello\n"), Output(900_000, 600_000, b"", 2)
    return [
        JobAdded(held, (), (), ()),
        *flow,
        edged,
        ValueKept(KEY, 0, zlib.compress(VALUE), True),
        AttemptSpent(outcome(1, attempt=70, job=4, state=FAILED, note="first", out=small)),
        AttemptSpent(outcome(1, attempt=75, job=4, state=FAILED, err=large)),
        OutputKept(75, "err", 0, b"one"),
        OutputKept(75, "err", 1, b"two"),
        AttemptLost(outcome(2, attempt=77, job=4, state=BLOCKED, blame=Blame.OUTSIDE)),
        Concluded(outcome(0, attempt=71, job=4, out=small)),
        Concluded(outcome(4, attempt=72, job=4, out=large, value=small)),
        OutputKept(72, "out", 0, b"1st"),
        OutputKept(72, "out", 1, b"2nd"),
        Concluded(outcome(5, attempt=73, job=4, state=CANCELLED)),
        cancelled(6, 7, job=4),
        ConditionSet(OPEN),
        TasksBlocked(4, ((2, 2),), 3, NOW - 60, Stage.RUN),
        TasksBlocked(4, ((3, 3),), 3, NOW - 60, Stage.LAUNCH),
        Noted(4, ((2, 3),), NOW - 60, "blocked", "exit:75"),
        FileRegistered(file("lfn:fit/4/0", job=4, task=0, attempt=71), ("sftp://store/a", KEPT_HERE)),
        FileRegistered(file("sftp://store/b c", job=4, task=4, attempt=72), ("sftp://store/b c",)),
        FileRegistered(file("up:7f/run.root"), (KEPT_HERE,)),
        ReplicaSet(ReplicaRow(name="up:7f/run.root", url="https://gone", bad="gone")),
        FileRegistered(file("up:8a/run.root"), (KEPT_HERE,)),
        *[Concluded(outcome(task, attempt=90 + task, job=5, worker="n2")) for task in range(3)],
        JobEnded(5, NOW - 10, 3, 0, 0),
        Concluded(outcome(0, attempt=99, job=6, value=small)),
    ]


def saved(store: Store, path: Path, choice: Choice | None = None, id: str = "one") -> Path:
    save(store, path, choice or Choice(), id, NOW)
    return path


def restored_into(
    store: Store, path: Path, *, free: int = 1, attempt: int = 10**6, now: float = NOW
) -> dict[int, int]:
    """As a manager does it, in a store where numbers from `free` on are."""
    parts = list(files.parts(path))
    jobs = [part for part in parts if isinstance(part, JobPart)]
    ids = new_ids([part.row.id for part in jobs], free)
    flows = placed_flows((part.row for part in jobs), ids)
    rows = [part.row for part in parts if isinstance(part, ConditionPart)]
    conditions = {row.id: free + number for number, row in enumerate(rows)}
    placing = Placing(
        parts,
        Places(ids, conditions, attempt),
        [key for key in _keys(parts) if not store.value_piece_count(key)],
    )
    numbers = sorted(ids.values())
    placed: list[Placed] = []
    for part in placing.parts():
        placed.append(part)
        if len(placed) == 2:
            store.stage(numbers, placed)
            placed = []
    store.stage(numbers, placed)
    added: list[Change] = []
    for one in jobs:
        row = msgspec.structs.replace(placed_row(one.row, ids), flow=flows[one.row.flow])
        added.append(JobAdded(row, (), (), placing.edges.get(row.id, ())))
    opened = [ConditionSet(placed_condition(row, conditions[row.id], NOW, now)) for row in rows]
    store.adopt(numbers, [*added, *opened, *placing.files], Restored("one", now, "ada", tuple(ids.items())))
    return ids


def _keys(parts: list[Any]) -> set[str]:
    return {part.key for part in parts if hasattr(part, "key")}


def told(store: Store) -> dict[str, object]:
    """All that a store says of its jobs, but for the numbers of attempts; and what those left."""
    said = {key: _numberless(value) for key, value in answers(store).items() if key[:1].isdigit()}
    for row in store.jobs(owner=None, before=None, limit=1000):
        del said[f"{row.id} tried"]
        for first, last in row.ranges:
            for task in range(first, last + 1):
                said[f"{row.id}.{task} tried"] = [worker for _, worker in store.tried(row.id, task)]
                ends = [*store.history(row.id, task), *store.outcomes(row.id, ranges=[(task, task)], limit=1)]
                said[f"{row.id}.{task} output"] = [_left(store, end) for end in ends]
        live = store.live(row.id)
        assert live is not None
        said[f"{row.id} live"] = msgspec.structs.replace(live, blocked=[], left={})
        del said[f"{row.id} left over"]  # who restores it has not delivered anything
        said |= _files(store, row)
        said[f"{row.id} blocked"] = _awaited(store, live)
    return said


def _files(store: Store, row: JobRow) -> dict[str, object]:
    """What its tasks made, what was uploaded for it, and where that is; but for when anybody looked last."""
    made = store.made_by(row.id, row.ranges, limit=1000)
    uploads = uploads_of(names_read(row.spec))
    uploaded = [file for upload in sorted(uploads) for file in store.files_from(prefix=upload, limit=1000)]
    found = store.files(file.name for file in [*made, *uploaded])
    places = [[place.url for place in one.replicas if not place.bad] for one in found]
    return {
        f"{row.id} files": [[_numberless(file) for file in made], [_numberless(file) for file in uploaded]],
        f"{row.id} files are at": places,
    }


def _awaited(store: Store, live: LiveJob) -> list[object]:
    """Which tasks wait for which conditions that are open, and where they met them: those have other numbers elsewhere."""
    rows = [(store.condition(id), stage, ranges) for id, stage, ranges in live.blocked]
    open_ones = [
        (row, stage, ranges) for row, stage, ranges in rows if row is not None and row.closed_at is None
    ]
    return [
        (msgspec.structs.replace(row, id=0), stage, ranges)
        for row, stage, ranges in sorted(open_ones, key=lambda one: (one[0].opened_at, one[1]))
    ]


def _left(store: Store, end: Outcome) -> list[list[bytes]]:
    report = end.report
    if not any(kept and kept.segments for kept in (report.out, report.err, report.value)):
        return []
    return [store.output_segments(report.attempt, stream) for stream in ("out", "err", "value")]


def _numberless(value: object) -> object:
    if isinstance(value, Outcome):
        return msgspec.structs.replace(value, report=msgspec.structs.replace(value.report, attempt=0))
    if isinstance(value, FileRow):
        return msgspec.structs.replace(value, attempt=0, owner="")
    if isinstance(value, list):
        return [_numberless(one) for one in value]
    return value


def filled(store: Store) -> Store:
    store.load()
    hand_over(store, *campaign())
    return store
