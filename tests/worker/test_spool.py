"""Reports on disk: what is there after every kind of end."""

import errno
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.errors import UsageError
from tercel.core.reports import Output, Report
from tercel.worker import spool as module
from tercel.worker.spool import Home, Spool
from tests.worker.stage import report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Spool]]:
    """Opens the spool as each new process would."""
    spools: list[Spool] = []

    def open_again() -> Spool:
        spools.append(Spool(path))
        return spools[-1]

    yield open_again
    for spool in spools:
        spool.close()


def _attempts(reports: list[Report]) -> list[int]:
    return [r.attempt for r in reports]


def test_reports_are_read_back_whole_and_in_order(opened: Callable[[], Spool]) -> None:
    first = opened()
    assert first.load() == []
    first.append([report(3, note="three", out=Output(2, 2, b"\0\xff")), report(1)])
    first.append([report(2)])
    assert opened().load() == [report(3, note="three", out=Output(2, 2, b"\0\xff")), report(1), report(2)]


def test_acknowledged_reports_are_not_read_back(opened: Callable[[], Spool]) -> None:
    first = opened()
    first.append([report(1), report(2)])
    first.acknowledge([1], [report(2)])
    first.append([report(3)])
    assert _attempts(opened().load()) == [2, 3]


def test_the_file_is_emptied_when_all_is_acknowledged(opened: Callable[[], Spool], path: Path) -> None:
    first = opened()
    first.append([report(1), report(2)])
    first.acknowledge([1, 2], [])
    assert path.stat().st_size == 0
    first.append([report(3)])
    assert _attempts(opened().load()) == [3]


@pytest.mark.must("b")
def test_a_torn_last_record_is_cut_off_and_what_follows_is_kept(
    opened: Callable[[], Spool], path: Path
) -> None:
    first = opened()
    first.append([report(1)])
    whole = path.stat().st_size
    first.append([report(2), report(3)])
    data = path.read_bytes()
    for length in range(whole, len(data)):
        path.write_bytes(data[:length])
        again = opened()
        assert _attempts(again.load()) == [1]
        again.append([report(4)])
        assert _attempts(opened().load()) == [1, 4]


def test_what_stood_behind_a_damaged_record_does_not_reappear(
    opened: Callable[[], Spool], path: Path
) -> None:
    first = opened()
    for number in (1, 2, 3):
        first.append([report(number)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF  # in the second of three records of one length
    path.write_bytes(data)
    again = opened()
    assert _attempts(again.load()) == [1]
    again.append([report(4)])
    assert _attempts(opened().load()) == [1, 4]


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_any_damage_leaves_a_readable_beginning(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, at: int, value: int
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool"
    spool = Spool(path)
    for number in range(4):
        spool.append([report(number)])
    spool.close()
    data = bytearray(path.read_bytes() + tail)
    data[at % len(data)] = value
    path.write_bytes(data)
    again = Spool(path)
    attempts = _attempts(again.load())
    again.close()
    assert attempts == list(range(4))[: len(attempts)]


def test_a_large_spool_of_mostly_acknowledged_reports_is_compacted(
    opened: Callable[[], Spool], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 20_000)
    spool = opened()
    owed = {0: report(0)}
    spool.append([report(0)])
    largest = 0
    for number in range(1, 2000):
        owed[number] = report(number)
        spool.append([owed[number]])
        if number > 10:
            del owed[number - 10]
            spool.acknowledge([number - 10], owed.values())
        largest = max(largest, path.stat().st_size)
    assert largest < 25_000
    owed[2000] = report(2000)
    spool.append([owed[2000]])  # which takes the last acknowledgement along
    assert _attempts(opened().load()) == list(owed)


def test_what_is_all_owed_is_not_compacted_again_and_again(
    opened: Callable[[], Spool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 1000)
    compacted = []
    original = Spool._compact
    monkeypatch.setattr(
        Spool, "_compact", lambda self, owed: (compacted.append(len(owed)), original(self, owed))[-1]
    )
    spool = opened()
    owed = {number: report(number) for number in range(3000)}
    for number in range(3000):
        spool.append([owed[number]])
        spool.acknowledge([-1], owed.values())
    assert len(compacted) < 12


@pytest.mark.must("h")
def test_a_full_disk_keeps_reports_in_memory_until_there_is_room(
    opened: Callable[[], Spool], path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = opened()
    spool.append([report(1)])
    original = os.pwrite

    def half(fd: int, data: bytes, at: int) -> int:
        """Writes some, then there is no room: what a disk does that fills up in the middle of a record."""
        if len(data) > 40:
            return original(fd, data[:-40], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half)
        spool.append([report(2)])
        spool.append([report(3)])
        assert _attempts(opened().load()) == [1]
        spool.acknowledge([2], [report(1), report(3)])
    assert caplog.text.count("No space left on device") == 1
    spool.append([report(4)])
    assert _attempts(opened().load()) == [1, 3, 4]


def test_a_compaction_that_fails_leaves_the_old_file(
    opened: Callable[[], Spool], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 10)
    spool = opened()
    spool.append([report(1), report(2)])
    path.with_suffix(".new").mkdir()  # in the way
    spool.acknowledge([1], [report(2)])
    spool.append([report(3)])
    assert _attempts(opened().load()) == [2, 3]


@pytest.mark.must("b")
def test_a_process_killed_while_it_writes_leaves_a_readable_spool(path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tercel.worker.spool import Spool
        from tercel.core.reports import End, Output, Report
        spool = Spool(Path(sys.argv[1]))
        first = len(spool.load())
        print("ready", flush=True)
        for number in range(first, 10**9):
            spool.append([Report(1, number, number, End.EXITED, 0, 1.0, 1.0, 1.0, 1, "", Output(9, 9, bytes(5000)))])
        """
    )
    before = 0
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        while path.stat().st_size < before + 200_000:
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        spool = Spool(path)
        attempts = _attempts(spool.load())
        spool.close()
        assert attempts == list(range(len(attempts)))
        before = path.stat().st_size
        assert before >= 200_000


def test_a_directory_has_one_worker_at_a_time_and_one_name(tmp_path: Path) -> None:
    with Home(tmp_path / "a" / "b", "node 1", random.Random(1)) as home:
        name = home.worker
        assert name.startswith("node-1-")
        assert len(name) == len("node-1-") + 6
        with pytest.raises(UsageError, match="another worker uses"):
            Home(tmp_path / "a" / "b", "node 1", random.Random(2)).__enter__()
    with Home(tmp_path / "a" / "b", "elsewhere", random.Random(2)) as home:
        assert home.worker == name
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_damaged_name_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "worker-id").write_bytes(b"\xff\0 bad")
    with Home(tmp_path, "n", random.Random(1)) as home:
        assert home.worker.startswith("n-")


def test_a_directory_that_cannot_be_used_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used"):
        Home(tmp_path / "file" / "w", "n", random.Random(1)).__enter__()
    (tmp_path / "spool").mkdir()
    with pytest.raises(UsageError, match="cannot be used"):
        Home(tmp_path, "n", random.Random(1)).__enter__()


def test_attempt_that_went_on_after_its_first_report_was_acknowledged_is_owed_again(
    opened: Callable[[], Spool],
) -> None:
    spool = opened()
    spool.append([report(1), report(2)])
    spool.acknowledge([1], [report(2)])
    spool.append([report(1, code=7)])
    assert [(owed.attempt, owed.code) for owed in opened().load()] == [(2, 0), (1, 7)]
