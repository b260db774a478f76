"""Measuring a real node: whose processor time it is, memory, disk."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tercel.worker import meter
from tercel.worker.meter import Meter
from tests.processes import becomes, is_running

BURN = "import time, sys\nwhile time.process_time() < {seconds}: pass\n"
MORE_S = 0.3


def _burner(seconds: float, more: str = "") -> list[str]:
    return [sys.executable, "-S", "-c", BURN.format(seconds=seconds) + more]


def _own_grew(since_s: float) -> Callable[[], bool]:
    return lambda: meter._own_use()[0] - since_s >= MORE_S


@pytest.mark.B(13)
async def test_processes_below_this_one_are_our_own_while_they_run() -> None:
    before_s = meter._own_use()[0]
    with subprocess.Popen(["sh", "-c", f"'{sys.executable}' -S -c 'while True: pass' & wait"]) as shell:
        try:
            await becomes(_own_grew(before_s), "its processor time is ours")
        finally:
            for pid in meter.trees.descendants(shell.pid):
                meter.trees.signal_all([pid], 9)
            shell.kill()


@pytest.mark.B(13)
def test_processes_below_this_one_are_our_own_when_they_have_ended() -> None:
    before_s = meter._own_use()[0]
    subprocess.run(_burner(2 * MORE_S), check=True)
    assert meter._own_use()[0] - before_s >= MORE_S


@pytest.mark.B(13)
async def test_processes_that_are_not_below_this_one_are_others(tmp_path: Path) -> None:
    """A daemon: its parent has ended."""
    line = f"'{sys.executable}' -S -c 'while True: pass' & echo $! > '{tmp_path}/pid'"
    subprocess.run(["sh", "-c", line], check=True)
    pid = int((tmp_path / "pid").read_text())
    try:
        process = meter.psutil.Process(pid)
        await becomes(lambda: process.ppid() not in (meter.os.getpid(), 0), "it is nobody's child")
        if pid in meter.trees.descendants(meter.os.getpid()):
            pytest.skip("this process adopts orphans")
        before_s = meter._own_use()[0]
        begun_s = sum(process.cpu_times()[:2])
        await becomes(lambda: sum(process.cpu_times()[:2]) - begun_s >= 10 * MORE_S, "it has worked")
        own_s = meter._own_use()[0] - before_s
        assert own_s < sum(process.cpu_times()[:2]) - begun_s
    finally:
        meter.trees.signal_all([pid], 9)
        await becomes(lambda: not is_running(pid), "it is gone")


async def test_a_reading_tells_of_this_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "SHORTEST_S", 0.2)
    measuring = Meter(tmp_path)
    await becomes(lambda: measuring.read().busy is not None, "some time has passed")
    reading = measuring.read()
    assert reading.busy is None, "too soon after the last to tell"
    assert reading.cores >= 1
    assert 0 < reading.mem_free_bytes <= reading.mem_bytes
    assert 0 < reading.disk_free_bytes <= reading.disk_bytes
    assert reading.load >= 0


async def test_cores_in_use_are_no_more_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "SHORTEST_S", 0.1)
    measuring = Meter(tmp_path)
    found: list[float] = []

    def look() -> bool:
        if (busy := measuring.read().busy) is not None:
            found.append(busy)
        return len(found) >= 5

    await becomes(look, "five measurements")
    assert all(0 <= busy <= len(measuring._cores) for busy in found)


def test_a_directory_that_is_gone_tells_no_disk(tmp_path: Path) -> None:
    reading = Meter(tmp_path / "gone").read()
    assert (reading.disk_bytes, reading.disk_free_bytes) == (0, 0)
