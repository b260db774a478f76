"""Snapshots that are cut off, changed, made to do harm, or whose maker was killed: nothing is changed by them."""

import itertools
import random
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.conditions import Fault, Place, Postponed
from tercel.core.model import JobSpec
from tercel.core.states import Stage
from tercel.stores.memory import MemoryStore
from tercel.stores.snapshot import files
from tercel.stores.snapshot.checking import check
from tercel.stores.snapshot.files import Damaged, Writer
from tercel.stores.snapshot.records import (
    BlockedPart,
    CallsPart,
    ConditionPart,
    FilesPart,
    Header,
    HistoryPart,
    JobPart,
    LinesPart,
    OutcomesPart,
    Part,
    SegmentPart,
    SpansPart,
    ValuePart,
)
from tercel.stores.sqlite import SqliteStore
from tests.conformance.snapshots import filled, restored_into, saved, told

LICENCE = Fault(tester="tcp:licence.lab:27000", place=Place.SITE, policy="every 1m for 1d")
SEED = 5
MOST_CALLS = 40

pytestmark = [pytest.mark.C(8), pytest.mark.must("e")]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot of many blocks."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 200)
    return saved(filled(MemoryStore()), tmp_path / "one.tercel")


def boundaries(data: bytes) -> list[int]:
    found = [len(files.MAGIC) + 4]
    while found[-1] < len(data):
        (stored,) = struct.unpack_from(">I", data, found[-1])
        found.append(found[-1] + 12 + stored)
    assert found[-1] == len(data)
    return found


def test_a_snapshot_that_is_cut_off_anywhere_is_refused(path: Path) -> None:
    data = path.read_bytes()
    check(path)
    cuts = {*boundaries(data)[:-1], *random.Random(SEED).sample(range(len(data)), 100), 0, 5}
    assert len(boundaries(data)) > 8
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        with pytest.raises(Damaged, match=r"cut off|not a snapshot"):
            check(path)


def test_a_snapshot_with_any_bit_flipped_is_refused(path: Path) -> None:
    data = path.read_bytes()
    rng = random.Random(SEED)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(Damaged):
            check(path)


def test_blocks_that_are_missing_doubled_or_moved_are_noticed(path: Path) -> None:
    data = path.read_bytes()
    places = boundaries(data)
    blocks = [data[first:last] for first, last in itertools.pairwise(places)]
    head = data[: places[0]]
    for wrong in (
        [*blocks[:2], *blocks[3:]],
        [*blocks[:3], *blocks[2:]],
        [blocks[0], blocks[2], blocks[1], *blocks[3:]],
        [*blocks, blocks[-1]],
    ):
        path.write_bytes(head + b"".join(wrong))
        with pytest.raises(Damaged):
            check(path)


def test_a_block_that_unpacks_to_far_more_than_it_says_is_not_unpacked(path: Path) -> None:
    data = path.read_bytes()
    bomb = zlib.compress(bytes(10**8))
    block = struct.pack(">III", len(bomb), 1000, zlib.crc32(bomb)) + bomb
    path.write_bytes(data[: len(files.MAGIC) + 4] + block)
    with pytest.raises(Damaged, match="another length"):
        check(path)
    path.write_bytes(data[: len(files.MAGIC) + 4] + struct.pack(">III", 2**32 - 1, 2**32 - 1, 0))
    with pytest.raises(Damaged, match="absurdly large"):
        check(path)


def test_a_foreign_file_and_one_that_is_not_there_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"PK\x03\x04 something else entirely")
    with pytest.raises(Damaged, match="not a snapshot"):
        check(tmp_path / "x")
    with pytest.raises(files.UsageError, match="No such file"):
        check(tmp_path / "absent")


# -- with all checksums right -----------------------------------------------------------------------------


replace = msgspec.structs.replace
Change = Callable[[Any], Any]


def _row(part: OutcomesPart | HistoryPart | FilesPart, at: int, value: object) -> Any:
    first = list(part.rows[0])
    first[at] = value
    return replace(part, rows=[tuple(first), *part.rows[1:]])


FORGERIES: dict[str, tuple[type, Change]] = {
    "a task that does not exist": (OutcomesPart, lambda part: _row(part, 0, 99)),
    "a task that ended twice": (OutcomesPart, lambda part: replace(part, rows=[*part.rows, part.rows[-1]])),
    "an unknown state": (OutcomesPart, lambda part: _row(part, 2, 9)),
    "an unfinished record": (OutcomesPart, lambda part: _row(part, 2, 4)),
    "a worker without a name": (OutcomesPart, lambda part: replace(part, workers={})),
    "an unknown end": (HistoryPart, lambda part: _row(part, 4, 77)),
    "an unknown blame": (HistoryPart, lambda part: _row(part, 16, 77)),
    "a time that is none": (OutcomesPart, lambda part: _row(part, 6, float("nan"))),
    "a number too large": (OutcomesPart, lambda part: _row(part, 10, 2**63)),
    "an output that is none": (OutcomesPart, lambda part: _row(part, 13, b"\xc1")),
    "an output too large": (
        OutcomesPart,
        lambda part: _row(part, 13, msgspec.msgpack.encode([1, 1, bytes(10**5), 0])),
    ),
    "output of another attempt": (SegmentPart, lambda part: replace(part, attempt=1)),
    "a huge piece of output": (SegmentPart, lambda part: replace(part, data=bytes(10**6))),
    "a span of ended tasks": (SpansPart, lambda part: replace(part, rows=[(0, 7, *part.rows[0][2:])])),
    "blocked tasks that have ended": (BlockedPart, lambda part: replace(part, rows=[(0, 3, 3, 0.0)])),
    "a task that met its fault in two stages": (
        BlockedPart,
        lambda part: replace(part, rows=[(2, 3, *part.rows[0][2:])]),
    ),
    "an unknown stage": (BlockedPart, lambda part: replace(part, stage="ascent")),
    "a stage that is none": (BlockedPart, lambda part: replace(part, stage=None)),
    "a held task that met its fault in an unknown stage": (
        JobPart,
        lambda part: replace(
            part, row=replace(part.row, postponed=(Postponed(replace(LICENCE, stage="ascent"), ((8, 8),)),))
        ),
    ),
    "an unknown condition": (BlockedPart, lambda part: replace(part, rows=[(2, 3, 4, 0.0)])),
    "a condition of somebody else": (
        ConditionPart,
        lambda part: replace(part, row=replace(part.row, owner="eve")),
    ),
    "a condition that is never given up": (
        ConditionPart,
        lambda part: replace(part, row=replace(part.row, policy="every now and then")),
    ),
    "a job that could not be submitted": (
        JobPart,
        lambda part: replace(part, row=replace(part.row, spec=replace(part.row.spec, cpus=-1.0))),
    ),
    "a job that runs nothing": (JobPart, lambda part: replace(part, row=replace(part.row, spec=JobSpec()))),
    "other tasks than asked for": (
        JobPart,
        lambda part: replace(part, row=replace(part.row, ranges=((0, 10**7),))),
    ),
    "a task that is to be blocked though it is not held": (
        JobPart,
        lambda part: replace(
            part, row=replace(part.row, postponed=(Postponed(LICENCE, ((0, 0),)),), held=((8, 9),))
        ),
    ),
    "a task that is to be blocked on nothing": (
        JobPart,
        lambda part: replace(
            part, row=replace(part.row, postponed=(Postponed(replace(LICENCE, tester=""), ((8, 8),)),))
        ),
    ),
    "an owner that is nobody": (JobPart, lambda part: replace(part, row=replace(part.row, owner=""))),
    "a job that has ended and has not": (
        JobPart,
        lambda part: replace(part, row=replace(part.row, ended_at=1.0)),
    ),
    "a task that waits for itself": (JobPart, lambda part: replace(part, edges=((0, part.row.id, 0, 0),))),
    "a job that waits for a later one": (JobPart, lambda part: replace(part, edges=((0, 8, 0, 0),))),
    "missing lines": (LinesPart, lambda part: replace(part, lines=part.lines[:-1])),
    "a line that is none": (LinesPart, lambda part: replace(part, lines=["\0", *part.lines[1:]])),
    "calls with values of a job that is not there": (
        CallsPart,
        lambda part: replace(part, calls=[replace(call, values=("t99.0",)) for call in part.calls]),
    ),
    "a value that is not what its key says": (
        ValuePart,
        lambda part: replace(part, data=zlib.compress(b"something else")),
    ),
    "a value that unpacks to far more": (
        ValuePart,
        lambda part: replace(part, data=zlib.compress(bytes(10**8))),
    ),
    "a condition that nobody waits for": (
        BlockedPart,
        lambda part: replace(part, rows=[(first, last, 99, at) for first, last, _, at in part.rows]),
    ),
    "a condition that says too much": (
        ConditionPart,
        lambda part: replace(part, row=replace(part.row, note="x" * 10**6)),
    ),
    "a condition at a place of many words": (
        ConditionPart,
        lambda part: replace(part, row=replace(part.row, where="x" * 1000)),
    ),
    "a condition at a worker whose name a shell would obey": (
        ConditionPart,
        lambda part: replace(part, row=replace(part.row, place=Place.WORKER, where="w1;reboot")),
    ),
    "a condition that is broken for ever": (
        ConditionPart,
        lambda part: replace(part, row=replace(part.row, policy="every 1m for ever")),
    ),
    "a file whose name cannot be": (FilesPart, lambda part: _row(part, 0, "lfn:../../x")),
    "a file without a digest": (FilesPart, lambda part: _row(part, 2, "blake3:12")),
    "a file of a task that does not exist": (FilesPart, lambda part: _row(part, 4, 99)),
    "a file that nobody uploaded for the job": (FilesPart, lambda part: _row(part, 4, None)),
    "a file that leads out of the vault": (FilesPart, lambda part: _row(part, 5, ("tercel:blake3:../x",))),
    "another header": (Header, lambda part: replace(part, jobs=(1, 2, 3))),
    "owners that are not": (Header, lambda part: replace(part, owners=("eve",))),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_snapshot_with_right_checksums_is_refused(path: Path, forgery: str) -> None:
    kind, change = FORGERIES[forgery]
    done = False

    def forged(part: Part) -> Part:
        nonlocal done
        if isinstance(part, kind) and not done:
            done = True
            return change(part)  # type: ignore[no-any-return]
        return part

    parts = [forged(part) for part in files.parts(path)]
    assert done
    write(path, parts)
    with pytest.raises(Damaged, match="damaged"):
        check(path)


def write(path: Path, parts: Sequence[Any]) -> None:
    with path.open("wb") as file:
        writer = Writer(file)
        for part in parts:
            writer.add(part)
        writer.finish()
        writer.close()


def test_who_forges_a_stage_is_told_what_is_wrong_with_it(path: Path) -> None:
    parts = list(files.parts(path))
    write(path, [replace(part, stage="ascent") if isinstance(part, BlockedPart) else part for part in parts])
    with pytest.raises(
        Damaged, match=r"one\.tercel is damaged: .*Invalid enum value 'ascent'.*nothing was changed"
    ):
        check(path)


# -- of before --------------------------------------------------------------------------------------------


class PartOfBefore(msgspec.Struct, frozen=True, array_like=True, tag="BlockedPart"):
    """As it was before the stage was kept in which tasks met what they wait for."""

    job: int
    rows: list[tuple[int, int, int, float]]


def test_a_snapshot_from_before_stages_were_kept_is_restored_as_if_all_had_run(path: Path) -> None:
    store = MemoryStore()
    store.load()
    parts = list(files.parts(path))
    write(
        path,
        [PartOfBefore(part.job, part.rows) if isinstance(part, BlockedPart) else part for part in parts],
    )
    check(path)
    restored_into(store, path)
    (live,) = [live for live in store.load().jobs if live.blocked]
    assert [(stage, ranges) for _, stage, ranges in live.blocked] == [(Stage.RUN, [(2, 3)])]


def test_a_tercel_from_before_stages_were_kept_reads_a_snapshot_of_now(path: Path) -> None:
    """It passes over what it does not know: so the format of the file is the same."""
    (now, *_) = [part for part in files.parts(path) if isinstance(part, BlockedPart)]
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(now), type=PartOfBefore)
    assert (read.job, read.rows) == (now.job, now.rows)


# -- killed -----------------------------------------------------------------------------------------------


def played(*words: object) -> int:
    """How `dying_snapshot` ended."""
    command = [sys.executable, "-m", "tests.faults.dying_snapshot", *map(str, words)]
    return subprocess.run(command, check=False, timeout=60).returncode


def test_who_is_killed_while_saving_leaves_no_half_file_under_its_name(tmp_path: Path) -> None:
    filled(SqliteStore(tmp_path / "a.db")).close()
    target = tmp_path / "one.tercel"
    for block in (1, 2, 4):
        assert played("save", tmp_path / "a.db", target, block) == -signal.SIGKILL
        assert not target.exists()
    assert played("save", tmp_path / "a.db", target, 10_000) == 0
    check(target)


def test_who_is_killed_at_any_step_of_restoring_leaves_nothing_or_all(tmp_path: Path) -> None:
    source = filled(SqliteStore(tmp_path / "a.db"))
    file, expected = saved(source, tmp_path / "one.tercel"), told(source)
    source.close()
    seen: list[bool] = []
    for call in range(1, MOST_CALLS):
        for when in ("before", "after"):
            place = tmp_path / f"{call}-{when}.db"
            ended = played("restore", place, file, call, when)
            store = SqliteStore(place)
            loaded = store.load()
            assert told(store) in ({}, expected)
            assert bool(told(store)) is bool(loaded.jobs)
            seen.append(bool(loaded.jobs))
            store.close()
            if ended == 0:
                assert seen[-3:] == [False, True, True] or seen[-2:] == [True, True]
                assert seen.count(False) > 4
                return
            assert ended == -signal.SIGKILL
    pytest.fail("it never came to its end")
