"""--log: a file that stays small, is its owner's alone, and whose faults stop nobody."""

import asyncio
import gzip
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tercel.cli import logfile
from tercel.cli.logfile import KEPT, LogFile
from tercel.core.errors import UsageError
from tests.cli.conftest import Tercel
from tests.cli.test_services import started

SMALL = 1000
LINE = "line {:094d}\n"
"""A hundred bytes: ten fill a small file."""
UNREADABLE = b"GET / HTTP/1.1\r\nAuthorization : Bearer 5e6f.very-secret\r\n\r\n"
"""What a manager logs a line about."""


def write(file: LogFile, numbers: range) -> None:
    for number in numbers:
        file.write(LINE.format(number).encode())


def numbers(text: str) -> list[int]:
    return [int(line.split()[1]) for line in text.splitlines()]


def packed(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}.gz")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    return directory / "manager.log"


@contextmanager
def files_at_most(size_bytes: int) -> Iterator[None]:
    """As a full disk: a write up to there is cut, one beyond it fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# -- the file ---------------------------------------------------------------------------------------------


@pytest.mark.C(15)
def test_a_full_log_is_compressed_and_the_oldest_is_dropped(path: Path) -> None:
    write(LogFile(path, SMALL), range(75))
    assert numbers(path.read_text()) == [70, 71, 72, 73, 74]
    for age in range(1, KEPT + 1):
        first = 70 - 10 * age
        assert numbers(gzip.decompress(packed(path, age).read_bytes()).decode()) == [
            *range(first, first + 10)
        ]
    assert len(list(path.parent.iterdir())) == KEPT + 1


def test_logs_are_their_owners_alone_also_if_the_file_was_not(path: Path) -> None:
    path.write_text("of before\n")
    path.chmod(0o644)
    write(LogFile(path, SMALL), range(11))
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    assert gzip.decompress(packed(path, 1).read_bytes()).startswith(b"of before\n")


def test_a_line_larger_than_the_file_may_be_is_written_whole(path: Path) -> None:
    file = LogFile(path, SMALL)
    file.write(b"x" * 3 * SMALL + b"\n")
    file.write(b"next\n")
    assert path.read_text() == "next\n"
    assert len(gzip.decompress(packed(path, 1).read_bytes())) == 3 * SMALL + 1


def test_what_a_killed_process_left_of_a_rotation_is_written_over(path: Path) -> None:
    packed(path, 1).with_name("manager.log.part.gz").write_text("half")
    write(LogFile(path, SMALL), range(11))
    assert sorted(file.name for file in path.parent.iterdir()) == ["manager.log", "manager.log.1.gz"]


def test_on_a_full_disk_lines_are_lost_whole_and_counted_and_one_warning_is_given(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = LogFile(path)
    write(file, range(3))
    with files_at_most(350):
        write(file, range(3, 10))
    write(file, range(10, 12))
    *before, counted, after, last = path.read_text().splitlines()
    assert numbers("\n".join(before)) == [0, 1, 2]
    assert counted == "... and 7 lines that could not be written"
    assert numbers(f"{after}\n{last}") == [10, 11]
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot write the log {path}: File too large; lines are lost until it works again"
    ]


def test_a_log_that_cannot_be_rotated_grows_no_further_and_is_tried_again(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfile, "ROTATE_AGAIN_S", 0.0)
    file = LogFile(path, SMALL)
    with files_at_most(SMALL):
        write(file, range(10))
    with files_at_most(20):  # less than a compressed one needs
        write(file, range(10, 15))
    assert numbers(path.read_text()) == [*range(10)]
    assert [*path.parent.iterdir()] == [path], "a part of a compressed one would be in the way"
    assert len(caplog.records) == 1
    write(file, range(15, 16))
    assert path.read_text() == f"... and 5 lines that could not be written\n{LINE.format(15)}"
    assert packed(path, 1).exists()


def test_a_log_that_somebody_moved_is_begun_anew(path: Path) -> None:
    file = LogFile(path)
    write(file, range(2))
    path.rename(path.with_name("yesterday"))
    write(file, range(2, 4))
    path.unlink()
    write(file, range(4, 5))
    assert numbers(path.with_name("yesterday").read_text()) == [0, 1]
    assert numbers(path.read_text()) == [4]
    with pytest.raises(UsageError, match="another process"):
        LogFile(path)


# -- where it may be --------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_a_log_is_refused_before_anything_starts(tercel: Tercel, home: Path) -> None:
    os.mkfifo("pipe")
    for place, why in {
        "no/such/log": "there is no directory no/such to write log into",
        ".": "cannot write the log .: Is a directory",
        "pipe": "cannot write the log pipe: No such device or address",
        "/dev/null": "cannot write the log /dev/null: it is not a regular file",
    }.items():
        for command in (
            ("manager", "--port", "0"),
            ("up", "--port", "0"),
            ("worker", "h", "--token-file", "t"),
        ):
            Path("t").write_text("a.b")
            Path("t").chmod(0o600)
            done = tercel(*command, "--log", place)
            assert (done.code, done.out, done.err) == (2, "", f"tercel: {why}\n")
    assert not list((home / "xdg_data_home" / "tercel").iterdir())


def test_a_log_in_a_directory_where_it_cannot_be_rotated_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda place, _: place != path.parent)  # root may write anywhere
    with pytest.raises(UsageError, match="cannot rotate the log"):
        LogFile(path)


def test_two_processes_do_not_share_a_log(tercel: Tercel, path: Path) -> None:
    file = LogFile(path)
    done = tercel("manager", "--port", "0", "--log", str(path))
    assert done.code == 2
    assert done.err == (
        f"tercel: another process writes its log to {path}; stop it, or give this one a file of its own\n"
    )
    write(file, range(1))
    assert numbers(path.read_text()) == [0]


# -- a service that uses it -------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "filed"), [("debug", "DIW"), ("info", "IW"), ("warning", "W")])
def test_the_level_is_that_of_the_file_and_warnings_go_to_stderr_too(
    path: Path, level: str, filed: str
) -> None:
    program = (
        "import logging, pathlib; from tercel.cli.logbook import LogOptions\n"
        f"with LogOptions(pathlib.Path({str(path)!r}), {level!r}).kept(quiet=False):\n"
        "    logging.debug('D'); logging.info('I'); logging.warning('W')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [line[-1] for line in path.read_text().splitlines()] == list(filed)
    assert done.stderr.endswith(" WARNING root: W\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.C(15)
def test_what_ends_a_service_is_in_its_log_too(home: Path, path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = ["manager", "--port", str(taken.getsockname()[1]), "--log", str(path)]
        done = subprocess.run(
            [sys.executable, "-m", "tercel", *command], capture_output=True, text=True, check=False, cwd=home
        )
    assert done.returncode != 0
    said = done.stderr.strip().splitlines()[-1].removeprefix("tercel: ")
    assert path.read_text().strip().endswith(f"ERROR tercel: it ends: {said}")


async def test_a_worker_logs_into_its_file(home: Path, path: Path) -> None:
    Path("token").write_text("5e6f.very-secret")
    Path("token").chmod(0o600)
    process = started(
        "worker", "http://127.0.0.1:1", "--token-file", "token", "--cpus", "1", "--log", str(path)
    )
    await becomes_logged(path, " WARNING tercel.worker: ")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert " WARNING tercel.worker: " in err
    assert "very-secret" not in path.read_text() + err


async def send(url: str, head: bytes) -> bytes:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(head)
    answer = await reader.read()
    writer.close()
    return answer


async def becomes_logged(path: Path, text: str) -> str:
    while not path.exists() or text not in path.read_text():
        await asyncio.sleep(0.01)
    return path.read_text()


async def test_a_manager_logs_into_its_file_and_shows_no_token_there(home: Path, path: Path) -> None:
    process = started(
        "up", "--port", "0", "--cpus", "1", "--json", "--log", str(path), "--log-level", "debug"
    )
    assert process.stdout is not None
    document = json.loads(await asyncio.to_thread(process.stdout.readline))
    access = json.loads(Path(document["access"]).read_text())
    await becomes_logged(path, " INFO tercel.manager: worker ")
    await send(document["url"], UNREADABLE)
    logged = await becomes_logged(path, "not HTTP from")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Bearer (hidden)" in logged
    for secret in ("very-secret", access["token"], access["worker_token"]):
        assert secret not in path.read_text() + err
    assert " INFO " not in err, "that is what the file is for"


async def test_a_manager_whose_log_cannot_be_written_any_more_goes_on_and_warns_once(
    home: Path, path: Path
) -> None:
    process = started("manager", "--port", "0", "--json", "--log", str(path))
    assert process.stdout is not None and process.stderr is not None
    url = json.loads(await asyncio.to_thread(process.stdout.readline))["url"]
    path.parent.rename(home / "away")
    for _ in range(3):
        assert b"not HTTP" in await send(url, UNREADABLE)
    warning = await asyncio.to_thread(process.stderr.readline)
    assert f"WARNING tercel.log: cannot write the log {path}: No such file or directory" in warning
    path.parent.mkdir()
    await send(url, UNREADABLE)
    logged = await becomes_logged(path, "not HTTP")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert logged.startswith("... and ")
    assert "cannot write" not in err


@pytest.mark.parametrize(
    ("words", "shown"), [([], True), (["--log-level", "warning"], False), (["--quiet"], False)]
)
async def test_without_a_file_the_level_is_that_of_stderr(home: Path, words: list[str], shown: bool) -> None:
    process = started("manager", "--port", "0", "--json", *words)
    assert process.stdout is not None
    url = json.loads(await asyncio.to_thread(process.stdout.readline))["url"]
    await send(url, UNREADABLE)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert ("not HTTP" in err) is shown
    assert "very-secret" not in err


async def test_a_killed_managers_log_is_free_for_the_next_while_its_tasks_run(home: Path, path: Path) -> None:
    words = ("up", "--port", "0", "--cpus", "1", "--json", "--log", str(path))
    first = started(*words)
    assert first.stdout is not None
    await asyncio.to_thread(first.stdout.readline)
    subprocess.run([sys.executable, "-m", "tercel", "submit", "touch here; sleep 5"], check=True)
    while not Path("here").exists():
        await asyncio.sleep(0.01)
    first.kill()
    first.communicate(timeout=60)
    second = started(*words)
    assert second.stdout is not None
    assert json.loads(await asyncio.to_thread(second.stdout.readline))["url"]
    second.send_signal(signal.SIGTERM)
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=60)
    assert second.returncode == 0
