"""Whether a node is fit for tasks: what is measured, its clock, its owner's command."""

import asyncio
import os
from pathlib import Path

import pytest

from tercel.worker import health
from tercel.worker.pressure import Reading
from tests.processes import becomes, is_running

GIB = 2**30


def _reading(
    disk_free: int = 50 * GIB, mem_free: int = 8 * GIB, disk: int = 100 * GIB, mem: int = 16 * GIB
) -> Reading:
    return Reading(
        cores=4, busy=None, mem_bytes=mem, mem_free_bytes=mem_free, disk_bytes=disk, disk_free_bytes=disk_free
    )


@pytest.mark.O(1)
@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (_reading(), ""),
        (_reading(disk_free=GIB // 2), "its disk is nearly full: 512 MiB free, 1,024 MiB needed"),
        (_reading(disk_free=GIB // 2, disk=2 * GIB), ""),
        (_reading(disk_free=0, disk=2 * GIB), "its disk is nearly full: 0 MiB free, 102 MiB needed"),
        (_reading(mem_free=GIB // 8), "its memory is nearly exhausted: 128 MiB free, 256 MiB needed"),
        (_reading(mem_free=GIB // 8, mem=2 * GIB), ""),
        (Reading(cores=4, busy=None), ""),
    ],
)
def test_too_little_disk_or_memory_is_unhealthy(reading: Reading, why: str) -> None:
    assert health.judge(reading, False) == why


def test_it_recovers_only_with_some_to_spare() -> None:
    nearly = _reading(disk_free=GIB + GIB // 8)
    assert health.judge(nearly, was_unhealthy=False) == ""
    assert "nearly full" in health.judge(nearly, was_unhealthy=True)
    assert health.judge(_reading(disk_free=GIB + GIB // 2), was_unhealthy=True) == ""


def test_a_clock_that_is_off_is_told() -> None:
    assert health.skew(1000.0, 1059.0) == ""
    assert health.skew(1000.0, 1075.0) == "its clock is 75 s ahead of the manager's"
    assert health.skew(9000.0, 1000.0) == "its clock is 8,000 s behind the manager's"
    assert health.skew(0.0, 1e9) == "", "an older manager does not tell its time"


def test_a_directory_that_cannot_be_written_is_unhealthy(tmp_path: Path) -> None:
    assert health.writable(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert health.writable(tmp_path / "gone").endswith("cannot be written: No such file or directory")


# -- the owner's command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("true", ""),
        ("echo all is well; exit 0", ""),
        ("echo first; echo 'the scratch disk is gone'; echo; exit 3", "the scratch disk is gone"),
        ("echo on stderr >&2; exit 1", "on stderr"),
        ("exit 7", "its health check failed with exit code 7"),
        ("kill -9 $$", "its health check was ended by signal 9"),
        (r"printf 'red \033[31m\n'; exit 1", "red  [31m"),
        ("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo at last; exit 1", "at last"),
        ("no-such-command-here", None),
    ],
)
async def test_the_owners_command_decides_and_its_last_line_says_why(command: str, why: str | None) -> None:
    told = await health.ask(command)
    assert told == why if why is not None else "not found" in told


async def test_one_that_hangs_is_killed_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECK_LIMIT_S", 0.5)
    told = await health.ask(f"sleep 600 & echo $! > {tmp_path}/pid; sleep 600")
    assert told == "its health check took longer than 0.5 s"
    pid = int((tmp_path / "pid").read_text())
    await becomes(lambda: not is_running(pid), "what it started is ended")


async def test_what_it_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    assert await health.ask(f"sleep 600 & echo $! > {tmp_path}/pid; echo bad; exit 1") == "bad"
    pid = int((tmp_path / "pid").read_text())
    await becomes(lambda: not is_running(pid), "it is ended")


async def test_one_that_is_cancelled_is_ended(tmp_path: Path) -> None:
    task = asyncio.ensure_future(
        health.ask(f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 600")
    )
    await becomes((tmp_path / "pid").exists, "it runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(int((tmp_path / "pid").read_text()))


async def test_descriptors_do_not_leak() -> None:
    await health.ask("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await health.ask("echo x; exit 1")
    assert len(os.listdir("/proc/self/fd")) == before
