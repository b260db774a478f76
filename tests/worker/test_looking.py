"""What a worker says of its own directory: real directories, with all that tasks can put there."""

import asyncio
import errno
import os
import shutil
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.cli import logfile
from tercel.core.errors import NotFound, UsageError
from tercel.core.model import Needs
from tercel.manager import sightings
from tercel.wire.looking import (
    FILES_MOST,
    NAMES_BYTES,
    SIZE_MOST,
    TAIL_BYTES,
    AtDirectory,
    AtFile,
    AtLog,
    AtSandbox,
    Contents,
    Found,
    Listing,
    Part,
    Tail,
    Unseen,
)
from tercel.wire.messages import LOOK, Ack, Bye, Hello, Look, Seen, Welcome
from tercel.worker import looking, sandboxes, showing
from tercel.worker.agent import Agent
from tercel.worker.looking import LEFT_AFTER_S, Books, contents
from tercel.worker.sandboxes import Asked, Running, listing, log_tail, read
from tercel.worker.showing import Showing
from tercel.worker.walking import DEPTH_MOST, TOO_MANY, Budget, below, measure, opened, read_below
from tests.worker.stage import FakeLink, FakeRunner, Stage

pytestmark = pytest.mark.C(15)


def plenty() -> Budget:
    return Budget(100_000, time.monotonic() + 300)


def kept(dir: Path, *names: str, of: str = "37.4.1001") -> Path:
    """A kept sandbox with these files in it."""
    sandbox = dir / "kept" / of
    sandbox.mkdir(parents=True)
    for name in names:
        (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox / name).write_text(name)
    return sandbox


def asked(*attempts: int, running: Running | None = None) -> Asked:
    return Asked(37, 4, list(attempts or (1001,)), running)


def part(found: Contents, name: str) -> Part:
    return next(part for part in found.parts if part.name == name)


def seen(dir: Path, books: Books | None = None, now: float = 0.0, budget: Budget | None = None) -> Contents:
    return contents(dir, books or Books(), None, now or time.time(), budget or plenty())


# -- the whole --------------------------------------------------------------------------------------------


def test_every_part_is_counted_with_its_largest_and_oldest(tmp_path: Path) -> None:
    kept(tmp_path, "out.txt", "deep/er/file")
    (tmp_path / "kept/37.4.1001/big").write_bytes(b"x" * 300_000)
    kept(tmp_path, "small", of="38.0.1002")
    (tmp_path / "spool").write_bytes(b"r" * 5000)
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs/77.out").write_bytes(b"o" * 20_000)
    os.utime(tmp_path / "outputs/77.out", (1000.0, 1000.0))
    found = seen(tmp_path, Books(frozenset({77}), 3, 12.5))
    assert (found.dir, found.reports, found.reports_since) == (str(tmp_path), 3, 12.5)
    assert 0 < found.free_bytes <= found.disk_bytes
    assert part(found, "kept").entries == 8
    assert part(found, "kept").size_bytes >= 300_000
    assert part(found, "kept").largest[0].name == "37.4.1001"
    assert part(found, "spool").size_bytes >= 5000
    assert (part(found, "outputs").entries, part(found, "outputs").oldest_at) == (1, 1000.0)
    assert part(found, "values") == Part("values", 0, 0, 0.0, [])
    assert not any(part.cut for part in found.parts)
    assert {(k.job, k.task, k.attempt, k.entries) for k in found.kept} == {(37, 4, 1001, 6), (38, 0, 1002, 2)}
    assert found.kept[0].size_bytes + found.kept[1].size_bytes == part(found, "kept").size_bytes
    assert found.left == []


def test_what_no_attempt_needs_is_told_apart(tmp_path: Path) -> None:
    for name in ("outputs/77.out", "outputs/78.err", f"sandboxes/{os.getpid()}.0/0", "sandboxes/1.0/0/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("trash/5.old.1", "kept/notes", "thesis/chapter"):
        (tmp_path / name).mkdir(parents=True)
    for name in looking.OWN | looking.SPOOL:
        (tmp_path / name).touch()
    found = seen(tmp_path, Books(frozenset({77})), now=time.time() + LEFT_AFTER_S + 1)
    assert {(left.kind, left.name) for left in found.left} == {
        ("output", "outputs/78.err"),
        ("sandbox", "sandboxes/1.0"),
        ("trash", "trash/5.old.1"),
        ("kept", "kept/notes"),
        ("foreign", "thesis"),
    }
    fresh = {left.kind for left in seen(tmp_path, Books(frozenset({77}))).left}
    assert fresh == {"sandbox", "kept", "foreign"}, "what has just been made may be somebody's in a moment"


def test_a_walk_ends_when_its_budget_is_spent_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowded = kept(tmp_path)
    for number in range(500):
        (crowded / f"{number}").touch()
    kept(tmp_path, "a", of="38.0.1002")
    found = seen(tmp_path, budget=Budget(200, time.monotonic() + 300))
    assert "entries" in part(found, "kept").cut
    assert part(found, "kept").entries < 200
    assert [(k.job, bool(k.cut)) for k in sorted(found.kept, key=lambda k: k.job)] == [
        (37, True),
        (38, False),
    ]
    late = seen(tmp_path, budget=Budget(100_000, time.monotonic() - 1))
    assert "too long" in part(late, "kept").cut
    monkeypatch.setattr(looking, "DIRECT_MOST", 1)
    assert (part(seen(tmp_path), "kept").cut, len(seen(tmp_path).kept)) == (
        "more entries than are counted",
        1,
    )


def test_what_is_larger_than_its_share_gets_what_the_others_leave(tmp_path: Path) -> None:
    """It is what fills the disk, and what people look for."""
    for number in range(20):
        kept(tmp_path, "small", of=f"38.{number}.1002")
    crowded = kept(tmp_path)
    for number in range(500):
        (crowded / f"{number}").touch()
    found = seen(tmp_path, budget=Budget(5000, time.monotonic() + 300))
    assert {(k.job, k.entries, k.cut) for k in found.kept} == {(37, 501, ""), (38, 2, "")}
    assert not part(found, "kept").cut


def test_a_second_look_that_ends_earlier_takes_nothing_back(tmp_path: Path) -> None:
    """What is left for it may be less than the first share was."""
    for of in ("37.4.1001", "38.0.1002"):
        crowded = kept(tmp_path, of=of)
        for number in range(500):
            (crowded / f"{number}").touch()
    found = seen(tmp_path, budget=Budget(300, time.monotonic() + 300))
    assert [k.cut for k in found.kept] == [TOO_MANY] * 2
    assert all(k.entries > 20 for k in found.kept)


def test_on_a_slow_file_system_a_walk_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        kept(tmp_path, "a", of=f"38.{number}.1002")
    now, real = 0.0, os.stat

    def slow(*args: Any, **more: Any) -> os.stat_result:
        nonlocal now
        now += 1.0
        return real(*args, **more)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(os, "stat", slow)
    found = seen(tmp_path, budget=Budget(100_000, 30.0))
    assert 0 < len(found.kept) < 30
    assert part(found, "kept").cut == "it would take too long to count"
    assert now < 35


def test_what_cannot_be_seen_keeps_nothing_else_from_being_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that a task has mounted is dead, say."""
    for name in ("kept/37.4.1001", "kept/38.0.1002", "dead", "thesis"):
        (tmp_path / name).mkdir(parents=True)
    real = os.stat

    def dead(path: Any, *args: Any, **more: Any) -> os.stat_result:
        if path in ("37.4.1001", "dead"):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "stat", dead)
    found = seen(tmp_path)
    assert [k.job for k in found.kept] == [38]
    assert [left.name for left in found.left] == ["thesis"]
    why = "entries that cannot be read: Transport endpoint is not connected"
    assert (part(found, "kept").cut, part(found, "other").cut) == (why, why)


def test_why_not_all_was_seen_is_told_with_every_reason_but_not_without_end() -> None:
    budget = plenty()
    budget.miss("deep")
    budget.miss("many", "deep")
    assert budget.cut == "deep; many"
    for number in range(1000):
        budget.miss(f"error {number}")
    assert budget.cut == "deep; many; error 0; error 1"


def test_its_own_log_is_nobodys_rubbish(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    for name in ("worker.log", "worker.log.1.gz", "worker.log.5.gz", "worker.log.old"):
        (tmp_path / name).touch()
    found = contents(tmp_path, Books(), log, time.time(), plenty())
    assert [left.name for left in found.left] == ["worker.log.old"]
    assert looking.LOGS_MOST == logfile.KEPT
    assert part(found, "own").entries == 3
    elsewhere = contents(tmp_path, Books(), tmp_path / "x/worker.log", time.time(), plenty())
    assert len(elsewhere.left) == 4


def test_disks_and_files_of_any_size_are_told_as_what_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or looking at such a worker would cost it its link."""
    kept(tmp_path, "a", of="37.4.1001")
    kept(tmp_path, "b", of="38.0.1002")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**63, 0, 2**63))  # type: ignore[attr-defined]
    monkeypatch.setattr(looking, "measure", lambda *_: (2**62, 1))
    assert sightings.seen(seen(tmp_path)).disk_bytes == SIZE_MOST  # type: ignore[union-attr]


def test_what_is_mounted_somewhere_is_not_counted() -> None:
    """It is another disk's, and may be without end."""
    budget = Budget(1000, time.monotonic() + 60)
    with opened("/") as root:
        status = os.stat("proc", dir_fd=root, follow_symlinks=False)
        assert measure(root, "proc", status, budget)[1] == 1
    assert budget.cut == ""


def test_links_are_counted_and_never_followed(tmp_path: Path) -> None:
    dir, outside = tmp_path / "dir", tmp_path / "outside"
    outside.mkdir()
    (outside / "huge").write_bytes(b"x" * 1_000_000)
    sandbox = kept(dir, "a")
    (sandbox / "away").symlink_to(outside)
    (sandbox / "loop").symlink_to(sandbox)
    (dir / "values").symlink_to(outside)
    found = seen(dir)
    assert part(found, "kept").entries == 4
    assert part(found, "kept").size_bytes < 500_000
    assert part(found, "values").entries == 0
    assert part(found, "values").cut
    assert [(f.path, f.kind) for f in listing(dir, asked(), plenty()).files] == [
        ("a", "file"),
        ("away", "link"),
        ("loop", "link"),
    ]


# -- a sandbox --------------------------------------------------------------------------------------------


def test_the_newest_of_the_kept_is_listed_and_the_others_are_named(tmp_path: Path) -> None:
    kept(tmp_path, "old", of="37.4.1001")
    kept(tmp_path, "new", "deep/file", of="37.4.1005")
    kept(tmp_path, "theirs", of="37.4.1009")
    found = listing(tmp_path, asked(1001, 1005), plenty())
    assert (found.attempt, found.running, found.kept) == (1005, False, [1001, 1005])
    assert found.dir == str(tmp_path / "kept/37.4.1005")
    assert [(f.path, f.kind) for f in found.files] == [
        ("deep", "directory"),
        ("new", "file"),
        ("deep/file", "file"),
    ]
    assert found.cut == ""
    with pytest.raises(NotFound, match=r"no sandbox of 37\.4 is here.*keep-on-failure"):
        listing(tmp_path, asked(1002), plenty())
    with pytest.raises(NotFound, match="no sandbox"):
        listing(tmp_path / "kept", asked(), plenty())


def test_one_that_runs_is_shown_before_what_was_kept(tmp_path: Path) -> None:
    kept(tmp_path, "old")
    for number in ("0", "1"):  # of the first something could not be removed
        (tmp_path / "sandboxes/9.3" / number).mkdir(parents=True)
    (tmp_path / "sandboxes/9.3/1/now").write_text("so far")
    running = asked(1001, 1005, running=Running(1005, "9.3"))
    found = listing(tmp_path, running, plenty())
    assert (found.attempt, found.running, found.kept) == (1005, True, [1001])
    assert [f.path for f in found.files] == ["now"]
    assert read(tmp_path, running, "now").data == b"so far"


def test_a_long_list_is_cut_off(tmp_path: Path) -> None:
    sandbox = kept(tmp_path)
    for number in range(FILES_MOST + 1):
        (sandbox / f"{number}").touch()
    found = listing(tmp_path, asked(), plenty())
    assert len(found.files) == FILES_MOST
    assert "more than" in found.cut
    budget = plenty()
    budget.miss("deeper than it goes")
    assert listing(tmp_path, asked(), budget).cut == "deeper than it goes; more than the first 2,000 entries"
    wordy = kept(tmp_path, of="37.4.1002")
    for number in range(NAMES_BYTES // 250 + 10):
        (wordy / f"{number:0250}").touch()
    found = listing(tmp_path, asked(1002), plenty())
    assert sum(len(f.path) for f in found.files) <= NAMES_BYTES
    assert "more than" in found.cut


def test_a_bottomless_directory_has_an_end(tmp_path: Path) -> None:
    sandbox = kept(tmp_path)
    fd = os.open(sandbox, os.O_RDONLY)
    for _ in range(DEPTH_MOST * 3):  # deeper than any path can be long
        os.mkdir("d" * 100, dir_fd=fd)
        below_it = os.open("d" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below_it
    os.close(fd)
    assert listing(tmp_path, asked(), plenty()).cut
    assert "deeper than" in part(seen(tmp_path), "kept").cut


NAMES = (
    b"new\nline",
    b"\x1b[31mred\x1b[0m",
    b"no\xfftext",
    b"\xe2\x80\xaeright-to-left",
    b" ",
    b"-rf",
    b"\\x41",
)


def test_names_may_be_anything(tmp_path: Path) -> None:
    sandbox = kept(tmp_path)
    for name in NAMES:
        Path(os.fsdecode(os.fsencode(sandbox) + b"/" + name)).write_bytes(name)
    found = {f.path for f in listing(tmp_path, asked(), plenty()).files}
    assert found == {name.decode("utf-8", "backslashreplace") for name in NAMES}
    for name in NAMES:
        assert read(tmp_path, asked(), name.decode("utf-8", "backslashreplace")).data == name


# -- a file -----------------------------------------------------------------------------------------------


def test_the_end_of_a_file_is_told(tmp_path: Path) -> None:
    sandbox = kept(tmp_path, "deep/er/file")
    assert read(tmp_path, asked(), "deep/er/file").data == b"deep/er/file"
    (sandbox / "long").write_bytes(b"x" * TAIL_BYTES + b"the end")
    tail = read(tmp_path, asked(), "long")
    assert (tail.offset, len(tail.data), tail.size_bytes) == (7, TAIL_BYTES, TAIL_BYTES + 7)
    assert tail.data.endswith(b"the end")
    (sandbox / "sparse").touch()
    os.truncate(sandbox / "sparse", 2**40)
    assert len(read(tmp_path, asked(), "sparse").data) == TAIL_BYTES


@pytest.mark.must("f")
@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            ".",
            "..",
            "../38.0.1002/secret",
            "deep/../../38.0.1002/secret",
            "/etc/passwd",
            "deep//a",
            "deep/",
        ),
        *(
            "secret\0",
            "none",
            "a/below",
            "x" * 5000,
            "é" * 200,
            "link",
            "away/secret",
            "chain/secret",
            "round",
        ),
        *("pipe", "deep", "null", "socket"),
    ],
)
def test_nothing_but_regular_files_of_the_sandbox_is_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    dir = tmp_path / "dir"
    sandbox = kept(dir, "a", "deep/a")
    other = kept(dir, "secret", of="38.0.1002")
    (sandbox / "link").symlink_to(other / "secret")
    (sandbox / "away").symlink_to(other)
    (sandbox / "chain").symlink_to("away")
    (sandbox / "round").symlink_to("round")
    os.mkfifo(sandbox / "pipe")
    os.mknod(sandbox / "socket", stat.S_IFSOCK | 0o600)
    if os.geteuid() == 0:
        os.mknod(sandbox / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    with pytest.raises(UsageError):
        read(dir, asked(), path)


@pytest.mark.must("f")
def test_what_is_no_regular_file_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a pipe lets whoever writes to it go on, and to open a device may do anything."""
    os.mkfifo(kept(tmp_path) / "pipe")
    tried: list[object] = []
    real = os.open

    def watched(path: Any, *args: Any, **more: Any) -> int:
        tried.append(path)
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", watched)
    with pytest.raises(UsageError, match="no regular file"):
        read(tmp_path, asked(), "pipe")
    assert "37.4.1001" in tried and "pipe" not in tried


@pytest.mark.must("f")
@pytest.mark.parametrize("place", ["kept", "kept/37.4.1001", "sandboxes", "sandboxes/9.3", "sandboxes/9.3/0"])
def test_a_task_that_puts_a_link_in_the_way_shows_nothing_of_others(tmp_path: Path, place: str) -> None:
    dir, theirs = tmp_path / "dir", tmp_path / "theirs"
    kept(dir, "a")
    (dir / "sandboxes/9.3/0").mkdir(parents=True)
    kept(theirs, "secret")
    (theirs / "9.3/0").mkdir(parents=True)
    (theirs / "secret").touch()
    (dir / place).rename(tmp_path / "aside")
    (dir / place).symlink_to(theirs)
    question = asked(running=Running(1001, "9.3") if "sandboxes" in place else None)
    for look in (lambda: listing(dir, question, plenty()), lambda: read(dir, question, "secret")):
        with pytest.raises((OSError, NotFound)):
            look()


@contextmanager
def as_nobody() -> Iterator[None]:
    """Whom permissions bind: tests may run as root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_may_not_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    sandbox = kept(tmp_path, "mine", "shut/inside", "open/file")
    os.chmod(sandbox / "mine", 0)
    os.chmod(sandbox / "shut", 0)
    os.chmod(sandbox, 0o755)
    fd = os.open(sandbox, os.O_RDONLY)
    try:
        with as_nobody():
            budget = plenty()
            assert [path for path, _ in below(fd, budget, ordered=True)] == [
                "mine",
                "open",
                "shut",
                "open/file",
            ]
            assert budget.cut == "directories that cannot be entered: Permission denied"
            budget = plenty()
            _, entries = measure(fd, "shut", os.stat("shut", dir_fd=fd), budget)
            assert (entries, bool(budget.cut)) == (1, True)
            for path in ("mine", "shut/inside"):
                with pytest.raises(UsageError, match="Permission denied"):
                    read_below(fd, path)
    finally:
        os.close(fd)
        os.chmod(sandbox / "shut", 0o700)


# -- the log ----------------------------------------------------------------------------------------------


def test_the_end_of_the_log_is_told_in_whole_lines_and_without_tokens(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    token = "0a1b2c3d." + "s3cr3t_-" * 5 + "xyz"
    log.write_text(f"Joined with {token}.\nTaking tasks.\n")
    tail = log_tail(log)
    assert tail.data == b"Joined with (a token).\nTaking tasks.\n"
    assert (tail.path, tail.offset) == (str(log), 0)
    line = f"{token} {'x' * 40}\n"
    log.write_text(line * (2 * TAIL_BYTES // len(line)))
    tail = log_tail(log)
    assert b"s3cr3t" not in tail.data
    assert tail.data.startswith(b"(a token) xxx")
    with pytest.raises(NotFound, match="--log"):
        log_tail(None)
    with pytest.raises(UsageError, match="No such file"):
        log_tail(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="regular"):
        log_tail(tmp_path / "pipe")


# -- over a link ------------------------------------------------------------------------------------------


class Asking:
    """A worker that has joined, and the link over which it is asked."""

    def __init__(self, stage: Stage, link: FakeLink, hello: Hello) -> None:
        self.stage = stage
        self.link = link
        self.hello = hello
        self._number = 0

    async def ask(self, what: Any) -> Found:
        self._number += 1
        await self.link.send(Look(self._number, what))
        answer = await self.link.expect(Seen)
        assert answer.number == self._number
        return answer.found


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Asking]:
    stage = Stage(tmp_path / "dir", log=tmp_path / "worker.log")
    link = await stage.manager.link()
    hello = await link.expect(Hello)
    await link.send(Welcome(1, 60.0, []))
    yield Asking(stage, link, hello)
    stage.worker.drain()
    await link.expect(Bye)
    await asyncio.gather(stage.left(), link.end.close())


async def test_a_worker_that_is_asked_answers(asking: Asking, tmp_path: Path) -> None:
    assert LOOK in asking.hello.knows
    dir = tmp_path / "dir"
    kept(dir, "file")
    (tmp_path / "worker.log").write_text("Joined.\n")
    found = await asking.ask(AtDirectory())
    assert isinstance(found, Contents)
    assert [k.attempt for k in found.kept] == [1001]
    assert (found.reports, found.left, found.log) == (0, [], str(tmp_path / "worker.log"))
    found = await asking.ask(AtSandbox(37, 4, [1001]))
    assert isinstance(found, Listing) and [f.path for f in found.files] == ["file"]
    found = await asking.ask(AtFile(37, 4, [1001], "file"))
    assert isinstance(found, Tail) and found.data == b"file"
    found = await asking.ask(AtLog())
    assert isinstance(found, Tail) and found.data == b"Joined.\n"
    assert isinstance(await asking.ask(AtSandbox(37, 4, [1002])), Unseen)
    assert isinstance(await asking.ask(AtFile(37, 4, [1001], "../x")), Unseen)


async def test_results_that_wait_and_what_runs_are_known(asking: Asking, tmp_path: Path) -> None:
    dir, stage, link = tmp_path / "dir", asking.stage, asking.link
    await link.offer(0, 1)
    await stage.runner.until_running(100, 101)
    stage.runner.end(100, started_at=0.0, wall_s=0.0)
    await link.expect_reports(1)
    found = await asking.ask(AtDirectory())
    assert isinstance(found, Contents) and (found.reports, found.reports_since) == (1, 0.0), "it never began"
    await link.send(Ack([100]))
    await link.offer(2, 2)
    await stage.runner.until_running(102)
    stage.runner.end(102, started_at=50.0, wall_s=7.0)
    await link.expect_reports(1)
    found = await asking.ask(AtDirectory())
    assert isinstance(found, Contents) and (found.reports, found.reports_since) == (1, 57.0)
    stage.runner.sandboxes[101] = dir / "sandboxes/9.3"
    (dir / "sandboxes/9.3/0").mkdir(parents=True)
    (dir / "sandboxes/9.3/0/now").touch()
    found = await asking.ask(AtDirectory())
    assert isinstance(found, Contents)
    assert [(entry.name, entry.task) for entry in part(found, "sandboxes").largest] == [("9.3", "1.1")]
    found = await asking.ask(AtSandbox(1, 1, [101]))
    assert isinstance(found, Listing) and found.running and [f.path for f in found.files] == ["now"]
    (dir / "sandboxes/9.4/0").mkdir(parents=True)
    stage.runner.sandboxes[105] = dir / "sandboxes/9.4"
    found = await asking.ask(AtSandbox(1, 1, [101, 105]))
    assert isinstance(found, Listing) and found.attempt == 105, "the newest of those that run"
    stage.runner.end(101)
    await link.expect_reports(1)
    await link.send(Ack([101, 102]))


@pytest.mark.must("f")
async def test_what_is_in_a_sandbox_that_has_another_tenant_by_now_is_not_told(
    asking: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = tmp_path / "dir/sandboxes/9.3"
    (lane / "0").mkdir(parents=True)
    asking.stage.runner.sandboxes[101] = lane
    real = sandboxes.listing

    def ends_meanwhile(*args: Any) -> Listing:
        asking.stage.runner.sandboxes.clear()
        (lane / "0/theirs").touch()
        return real(*args)

    monkeypatch.setattr(sandboxes, "listing", ends_meanwhile)
    found = await asking.ask(AtSandbox(37, 4, [101]))
    assert found == Unseen("37.4 has just ended there: ask again", passing=True)


async def test_a_file_system_that_hangs_costs_answers_and_nothing_else(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showing, "LIMIT_S", 0.01)
    monkeypatch.setattr(showing, "GRACE_S", 0.01)
    mended = threading.Event()
    real = sandboxes.log_tail

    def hangs(log: Path | None) -> Tail:
        mended.wait()
        return real(log)

    monkeypatch.setattr(sandboxes, "log_tail", hangs)
    for what in (AtLog(), AtDirectory()):
        found = await asking.ask(what)
        assert isinstance(found, Unseen) and found.passing and "hangs" in found.why
    await asking.link.offer(0, 0)
    await asking.stage.runner.until_running(100)
    asking.stage.runner.end(100)
    await asking.link.expect_reports(1)
    await asking.link.send(Ack([100]))
    mended.set()
    monkeypatch.setattr(showing, "GRACE_S", 60.0)
    while isinstance(await asking.ask(AtDirectory()), Unseen):
        pass  # until the thread that hung has told


async def test_a_node_without_room_for_a_thread_costs_that_look_and_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that start processes without end are what people look for."""
    answers: asyncio.Queue[Seen] = asyncio.Queue()
    show = Showing(tmp_path, None, Agent(Needs(1000, 2**30)), FakeRunner(), answers.put_nowait)

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with asyncio.timeout(10):
        with monkeypatch.context() as crowded:
            crowded.setattr(threading.Thread, "start", full)
            show.ask(Look(1, AtDirectory()))
            found = (await answers.get()).found
        assert found == Unseen("it cannot be looked at: can't start new thread", passing=True)
        show.ask(Look(2, AtDirectory()))
        assert isinstance((await answers.get()).found, Contents)


async def test_a_look_whose_link_was_lost_is_not_taken_for_a_file_system_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: asyncio.Queue[Seen] = asyncio.Queue()
    agent = Agent(Needs(1000, 2**30))
    show = Showing(tmp_path, tmp_path / "log", agent, FakeRunner(), answers.put_nowait)
    (tmp_path / "log").write_text("Joined.\n")
    under_way, go_on = asyncio.Event(), threading.Event()
    loop, real = asyncio.get_running_loop(), sandboxes.log_tail

    def waits(log: Path | None) -> Tail:
        loop.call_soon_threadsafe(under_way.set)
        go_on.wait()
        return real(log)

    monkeypatch.setattr(sandboxes, "log_tail", waits)
    show.ask(Look(1, AtLog()))
    await under_way.wait()
    show.close()
    show.ask(Look(1, AtLog()))
    await asyncio.sleep(0)
    go_on.set()
    found = (await answers.get()).found
    assert isinstance(found, Tail) and found.data == b"Joined.\n"
    assert answers.empty()


@pytest.mark.must("f")
def test_a_worker_in_a_place_whose_name_is_no_text_survives_being_looked_at(tmp_path: Path) -> None:
    """What cannot be encoded would end its process."""
    dir = Path(os.fsdecode(os.fsencode(tmp_path) + b"/no\xfftext"))
    kept(dir, "file")
    log = dir / "log"
    log.write_text("Joined.\n")
    found: list[Any] = [contents(dir, Books(), log, time.time(), plenty())]
    found += [listing(dir, asked(), plenty()), log_tail(log)]
    msgspec.msgpack.encode(found)
    assert found[0].dir == f"{tmp_path}/no\\xfftext"
    with pytest.raises(UsageError) as error:
        log_tail(dir / "none")
    str(error.value).encode()


async def test_more_at_once_than_it_looks_for_are_turned_away(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    real = sandboxes.log_tail

    def waits(log: Path | None) -> Tail:
        go_on.wait()
        return real(log)

    monkeypatch.setattr(sandboxes, "log_tail", waits)
    await asking.link.send(*(Look(number, AtLog()) for number in range(showing.WAITING_MOST + 1)))
    refused = await asking.link.expect(Seen)
    assert refused == Seen(showing.WAITING_MOST, Unseen("too many look at it at once", passing=True))
    go_on.set()
    assert {(await asking.link.expect(Seen)).number for _ in range(showing.WAITING_MOST)} == set(
        range(showing.WAITING_MOST)
    )
