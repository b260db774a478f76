"""Attempts that take more than they asked for are ended, the report says of what, and others do not feel it.

Each way of holding them is tried where it can be: by control groups, and by watching alone.
"""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import cloudpickle
import pytest

from tercel.core.model import Limits
from tercel.core.reports import End, Report
from tercel.runners.contract import Launch
from tercel.runners.diskfloor import DiskFloor
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import (
    WAIT_S,
    Lifeline,
    Recorder,
    call,
    groups_left,
    interpreters,
    may_use_cgroups,
    python,
    run,
    shell,
    spawners,
    text,
    value,
)
from tests.processes import becomes, is_running

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MB = 2**20
NEIGHBOUR, CULPRIT = 77, 1

HOG = "x = []\nwhile True: x.append(bytearray(b'x' * 2**20))"
"""Takes memory until it is stopped: there is no end to it but its limit (or the test's patience)."""
FORKS = 200
BOMB = f"""
import os, time
for _ in range({FORKS}):
    if os.fork() == 0:
        time.sleep(600)
print("all of them")
time.sleep(600)
"""
FILLER = """
for number in range(10_000):
    with open(f"file{number}", "wb") as file:
        file.write(b"x" * 2**20)
"""


@pytest.fixture(params=["cgroups", "watching"])
async def limited(
    request: pytest.FixtureRequest, tmp_path: Path, recorder: Recorder
) -> AsyncIterator[SpawnerPool]:
    if request.param == "cgroups" and not may_use_cgroups():
        pytest.skip("no control group here that this user may divide")
    runner = SpawnerPool(tmp_path / "worker", "node-7", cgroups=request.param == "cgroups")
    await runner.start(recorder)
    yield runner
    await runner.stop()
    assert spawners() == interpreters() == []
    assert groups_left(tmp_path / "worker") == []


async def beside_a_neighbour(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline, culprit: Launch
) -> Report:
    """The culprit's report. A task in the next lane, there before and after, ends well and as it should."""
    patient = "import os, signal; print('here'); {}; signal.sigwait([signal.SIGUSR2]); print('unharmed')"
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])"
    hold = f"f = os.open({str(lifeline.path)!r}, os.O_WRONLY); os.write(f, b'%d\\n' % os.getpid())"
    runner.launch([python(patient.format(f"{block}; {hold}"), attempt=NEIGHBOUR, lane=culprit.lane + 1)])
    pid = int(await lifeline.held())
    report = await run(runner, recorder, culprit)
    assert is_running(pid)
    os.kill(pid, signal.SIGUSR2)
    neighbour = await recorder.report(NEIGHBOUR)
    assert (neighbour.end, neighbour.code) == (End.EXITED, 0), neighbour
    assert text(neighbour.out) == "here\nunharmed\n"
    return report


# -- memory -----------------------------------------------------------------------------------------------


@pytest.mark.must("c")
async def test_a_memory_hog_is_ended_and_the_report_says_so(
    limited: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    hog = python(HOG, limits=Limits(mem_bytes=200 * MB))
    report = await beside_a_neighbour(limited, recorder, lifeline, hog)
    assert (report.end, report.exceeded) == (End.EXCEEDED, "memory"), report
    assert " of 200 MB of memory" in report.note
    assert report.note.startswith("used ")
    assert report.max_rss_bytes >= 200 * MB
    # The lane is as good as new.
    after = await run(limited, recorder, shell("echo after", attempt=2, limits=Limits(mem_bytes=200 * MB)))
    assert (after.end, after.code, text(after.out)) == (End.EXITED, 0, "after\n")


@pytest.mark.must("c")
async def test_a_hog_below_others_ends_the_whole_attempt(
    limited: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    """The kernel ends one process; who waits for its answer would wait for ever."""
    parent = (
        "import os, subprocess, sys, time\n"
        f"f = os.open({str(lifeline.path)!r}, os.O_WRONLY); os.write(f, b'x\\n'); os.set_inheritable(f, True)\n"
        f"subprocess.run([sys.executable, '-c', {HOG!r}], close_fds=False)\n"
        "time.sleep(600)"
    )
    limited.launch([python(parent, limits=Limits(mem_bytes=200 * MB))])
    await lifeline.held()
    report = await recorder.report(1)
    assert (report.end, report.exceeded) == (End.EXCEEDED, "memory")
    await lifeline.dropped()


async def test_many_small_processes_are_a_hog_too(limited: SpawnerPool, recorder: Recorder) -> None:
    """Each smaller than the spawner, which must not be the one that ends."""
    before = set(spawners())
    herd = (
        "import os, time\n"
        "while True:\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(b'x' * 4 * 2**20); time.sleep(600)\n"
        "    time.sleep(0.001)"
    )
    report = await run(limited, recorder, python(herd, limits=Limits(mem_bytes=200 * MB)))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "memory"), report
    spawner = set(spawners()) - before
    after = await run(limited, recorder, shell("echo after", attempt=2))
    assert text(after.out) == "after\n"
    assert set(spawners()) - before == spawner, "the same one"


async def test_what_forked_processes_share_counts_once(limited: SpawnerPool, recorder: Recorder) -> None:
    source = (
        "import os, time\n"
        "x = bytearray(b'x' * 100 * 2**20)\n"
        "pids = []\n"
        "for _ in range(8):\n"
        "    pid = os.fork()\n"
        "    if not pid: time.sleep(1.0); os._exit(0)\n"
        "    pids.append(pid)\n"
        "for pid in pids: os.waitpid(pid, 0)\n"
        "print('shared')"
    )
    report = await run(limited, recorder, python(source, limits=Limits(mem_bytes=300 * MB)))
    assert (report.end, report.code) == (End.EXITED, 0), report
    assert text(report.out) == "shared\n"


async def test_limits_are_of_the_job_and_not_of_the_lane(limited: SpawnerPool, recorder: Recorder) -> None:
    """A job that asked for more, or for no particular amount, is not held to what the one before asked for."""
    take = "x = bytearray(b'x' * 150 * 2**20); import time; time.sleep(0.3)"
    small = await run(limited, recorder, python(take, limits=Limits(mem_bytes=100 * MB)))
    large = await run(limited, recorder, python(take, attempt=2, limits=Limits(mem_bytes=400 * MB)))
    free = await run(limited, recorder, python(take, attempt=3))
    assert [report.end for report in (small, large, free)] == [End.EXCEEDED, End.EXITED, End.EXITED]
    assert large.max_rss_bytes >= 150 * MB


async def test_files_left_in_memory_are_not_held_against_the_next_task(
    limited: SpawnerPool, recorder: Recorder
) -> None:
    limits = Limits(mem_bytes=200 * MB)
    left = Path(f"/dev/shm/tercel-test-{os.getpid()}")
    try:
        leave = f"open({str(left)!r}, 'wb').write(bytes(150 * 2**20))"
        first = await run(limited, recorder, python(leave, limits=limits))
        take = "x = b'x' * (150 * 2**20); import time; time.sleep(0.3)"
        second = await run(limited, recorder, python(take, attempt=2, limits=limits))
        assert [(report.end, report.code) for report in (first, second)] == [(End.EXITED, 0)] * 2, second
    finally:
        left.unlink(missing_ok=True)


@pytest.mark.skipif(not may_use_cgroups(), reason="no control group here that this user may divide")
async def test_a_spawner_that_the_kernel_ends_is_the_attempts_doing(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    """A hog that makes itself the worst choice: memory ran out because of it all the same."""
    shy = f"open('/proc/self/oom_score_adj', 'w').write('-1000')\nimport time; time.sleep(0.5)\n{HOG}"
    report = await run(runner, recorder, python(shy, limits=Limits(mem_bytes=200 * MB)))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "memory"), report
    after = await run(runner, recorder, shell("echo after", attempt=2, limits=Limits(mem_bytes=200 * MB)))
    assert text(after.out) == "after\n"


# -- processes --------------------------------------------------------------------------------------------


@pytest.mark.must("c")
async def test_a_fork_bomb_is_contained(limited: SpawnerPool, recorder: Recorder, lifeline: Lifeline) -> None:
    bomb = python(BOMB, limits=Limits(pids=50))
    report = await beside_a_neighbour(limited, recorder, lifeline, bomb)
    assert (report.end, report.exceeded) == (End.EXCEEDED, "pids"), report
    by_kernel, by_watching = "reached its limit of 50 processes", "processes, 50 allowed"
    assert by_kernel in report.note or by_watching in report.note
    assert report.out is None or "all of them" not in text(report.out) or by_watching in report.note
    after = await run(limited, recorder, shell("echo after", attempt=2, limits=Limits(pids=50)))
    assert text(after.out) == "after\n"


async def test_as_many_processes_as_allowed_are_no_excess(limited: SpawnerPool, recorder: Recorder) -> None:
    """The spawner is not one of them; threads are."""
    source = (
        "import threading\n"
        "done = threading.Event()\n"
        "threads = [threading.Thread(target=done.wait, daemon=True) for _ in range(7)]\n"
        "for thread in threads: thread.start()\n"
        "done.wait(0.5); done.set(); print('eight')"
    )
    report = await run(limited, recorder, python(source, limits=Limits(pids=8)))
    assert (report.end, report.code, report.note) == (End.EXITED, 0, ""), report
    assert text(report.out) == "eight\n"
    report = await run(limited, recorder, python(source, attempt=2, limits=Limits(pids=7)))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "pids"), report


# -- disk -------------------------------------------------------------------------------------------------


@pytest.mark.must("c")
async def test_a_disk_filler_is_ended(limited: SpawnerPool, recorder: Recorder, lifeline: Lifeline) -> None:
    filler = python(FILLER + "import time; time.sleep(600)", limits=Limits(disk_bytes=30 * MB))
    report = await beside_a_neighbour(limited, recorder, lifeline, filler)
    assert (report.end, report.exceeded) == (End.EXCEEDED, "disk"), report
    assert report.note.startswith("wrote ")
    assert report.note.endswith(", 30 MB allowed")


@pytest.mark.must("c")
@pytest.mark.parametrize("command", ["head -c 1G /dev/zero > huge", "python"])
async def test_one_huge_file_stops_at_the_limit(
    limited: SpawnerPool, recorder: Recorder, command: str
) -> None:
    """By the signal for it, or, in programs that ignore that, by the error they get."""
    line = (
        command if command != "python" else f"{sys.executable} -c \"open('huge','wb').write(bytes(2**30))\""
    )
    report = await run(limited, recorder, shell(line, limits=Limits(disk_bytes=20 * MB)))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "disk"), report
    assert report.note == "wrote 20 MB, 20 MB allowed"


async def test_large_outputs_are_not_a_matter_of_the_sandbox(
    limited: SpawnerPool, recorder: Recorder
) -> None:
    """What a task prints is kept elsewhere; its disk limit does not cut it."""
    source = "import os, sys; sys.stdout.buffer.write(os.urandom(4 * 2**20))"
    report = await run(limited, recorder, python(source, limits=Limits(disk_bytes=MB)))
    assert (report.end, report.code, report.note) == (End.EXITED, 0, "")
    assert report.out is not None
    assert report.out.kept_bytes == 4 * MB


@pytest.fixture
async def on_a_small_disk(tmp_path: Path, recorder: Recorder) -> AsyncIterator[SpawnerPool]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "worker"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tercel-test", disk], check=True)
    runner = SpawnerPool(disk, "node-7")
    try:
        await runner.start(recorder)
        yield runner
        await runner.stop()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False)


FLOOD = """
import os, time
with open("flood", "wb", buffering=0) as file:
    while os.statvfs(".").f_bavail * 4096 > 2**21: file.write(bytes(2**18))
time.sleep(600)
"""


@pytest.mark.must("c")
async def test_whoever_fills_the_disk_is_ended_before_it_is_full(
    on_a_small_disk: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    """Without any limit of its own."""
    report = await beside_a_neighbour(on_a_small_disk, recorder, lifeline, python(FLOOD))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "disk"), report
    assert "filled the disk of node-7" in report.note


async def test_a_call_that_fills_the_disk_is_ended_before_it_is_full(
    on_a_small_disk: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(on_a_small_disk, recorder, call(exec, FLOOD))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "disk"), report


async def test_nobody_is_ended_for_what_others_wrote(
    on_a_small_disk: SpawnerPool, recorder: Recorder
) -> None:
    floor = DiskFloor(on_a_small_disk._dir, "node-7", lambda: on_a_small_disk._present)
    on_a_small_disk.launch([python("open('mine', 'wb').write(bytes(2**20)); import time; time.sleep(600)")])
    await recorder.until(lambda: recorder.running == [1])
    with (on_a_small_disk._dir / "theirs").open("wb") as file:
        file.write(bytes(62 * MB))
    assert not await floor.look()
    (on_a_small_disk._dir / "theirs").unlink()
    on_a_small_disk.kill([1])
    assert (await recorder.report(1)).end is End.CANCELLED


# -- cpu --------------------------------------------------------------------------------------------------

THREADS = """
import hashlib, os, threading, time
def burn():
    while not done: hashlib.sha256(bytes(10**6)).digest()
done = False
threads = [threading.Thread(target=burn) for _ in range(8)]
for thread in threads: thread.start()
import sys
{until}
used = sum(os.times()[:2])
before = time.monotonic()
time.sleep(2.0)
share = (sum(os.times()[:2]) - used) / (time.monotonic() - before)
done = True
print(share, len(os.sched_getaffinity(0)))
"""


@pytest.mark.must("c")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be shared unfairly")
async def test_a_hog_of_many_threads_gets_the_cpus_it_asked_for(
    limited: SpawnerPool, recorder: Recorder
) -> None:
    """What the kernel counted for it is what it was given: half a core, or at most one where cores are given whole."""
    go = "while not os.path.exists('go'): time.sleep(0.01)"
    limited.launch([python(THREADS.format(until=go), limits=Limits(millicpus=500))])
    await recorder.until(lambda: recorder.running == [1])  # from here on it is held
    [sandbox] = (limited._dir / "sandboxes").glob("*/0")
    (sandbox / "go").touch()
    share, cores = text((await recorder.report(1)).out).split()
    by_watching = int(cores) == 1
    assert float(share) < (1.1 if by_watching else 0.75)
    # The next one in this lane is not held to it.
    free = await run(limited, recorder, python("import os; print(len(os.sched_getaffinity(0)))", attempt=2))
    assert int(text(free.out)) == len(os.sched_getaffinity(0))


# -- functions --------------------------------------------------------------------------------------------


def hog() -> None:
    held = []
    while True:
        held.append(bytearray(b"x" * 2**20))


def pid() -> int:
    return os.getpid()


@pytest.mark.must("c")
async def test_a_call_that_takes_too_much_memory_ends_with_its_interpreter(
    limited: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    limits = Limits(mem_bytes=200 * MB)
    first = value(limited, await run(limited, recorder, call(pid, attempt=5, limits=limits)))
    report = await beside_a_neighbour(limited, recorder, lifeline, call(hog, attempt=6, limits=limits))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "memory"), report
    assert " of 200 MB of memory" in report.note
    assert report.max_rss_bytes >= 200 * MB
    after = value(limited, await run(limited, recorder, call(pid, attempt=7, limits=limits)))
    assert after != first, "another interpreter"


async def test_a_child_of_a_call_that_ran_out_of_memory_is_the_calls_doing(
    limited: SpawnerPool, recorder: Recorder
) -> None:
    """Even if the call goes on: it is told of itself and not of the one after it."""

    def parent() -> str:
        import subprocess
        import sys

        source = "x = []\nwhile True: x.append(bytearray(b'x' * 2**20))"
        subprocess.run([sys.executable, "-c", source], check=False)
        return "went on"

    limits = Limits(mem_bytes=200 * MB)
    limited.launch([call(parent, attempt=1, limits=limits), call(pid, attempt=2, limits=limits)])
    report, after = await recorder.report(1), await recorder.report(2)
    assert (report.end, report.exceeded) == (End.EXCEEDED, "memory"), report
    assert (after.end, after.code) == (End.EXITED, 0)


@pytest.mark.must("c")
async def test_a_call_that_forks_too_much_is_contained(limited: SpawnerPool, recorder: Recorder) -> None:
    def bomb() -> None:
        import os
        import time

        for _ in range(100):
            if os.fork() == 0:
                time.sleep(600)
        time.sleep(600)

    report = await run(limited, recorder, call(bomb, limits=Limits(pids=30)))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "pids"), report
    after = await run(limited, recorder, call(pid, attempt=2, limits=Limits(pids=30)))
    assert (after.end, after.code) == (End.EXITED, 0), after


@pytest.mark.must("c")
@pytest.mark.parametrize("files", [1, 1000])
async def test_a_call_that_fills_the_disk_is_ended(
    limited: SpawnerPool, recorder: Recorder, files: int
) -> None:
    def fill(files: int) -> None:
        import time

        for number in range(files):
            with open(f"file{number}", "wb") as file:
                file.write(bytes(2**30 // files))
        time.sleep(600)

    report = await run(limited, recorder, call(fill, files, limits=Limits(disk_bytes=30 * MB)))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "disk"), report
    assert report.note.endswith(", 30 MB allowed")
    after = await run(limited, recorder, call(pid, attempt=2, limits=Limits(disk_bytes=30 * MB)))
    assert (after.end, after.code) == (End.EXITED, 0), after


@pytest.mark.must("c")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be shared unfairly")
async def test_a_call_of_many_threads_gets_the_cpus_it_asked_for(
    limited: SpawnerPool, recorder: Recorder
) -> None:
    def burn() -> tuple[float, int]:
        import hashlib
        import os
        import threading
        import time

        def one() -> None:
            while not done:
                hashlib.sha256(bytes(10**6)).digest()

        done = False
        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        while not os.path.exists("go"):
            time.sleep(0.01)
        used, before = sum(os.times()[:2]), time.monotonic()
        time.sleep(2.0)
        share = (sum(os.times()[:2]) - used) / (time.monotonic() - before)
        done = True
        return share, len(os.sched_getaffinity(0))

    limited.launch([call(burn, limits=Limits(millicpus=500))])
    await recorder.until(lambda: recorder.running == [1])
    [interpreter] = interpreters()
    await becomes(lambda: is_held(interpreter), "it is held to its share", WAIT_S)
    [sandbox] = (limited._dir / "sandboxes").glob("*/0")
    (sandbox / "go").touch()
    share, cores = value(limited, await recorder.report(1))
    assert share < (1.1 if cores == 1 else 0.75)


def is_held(pid: int) -> bool:
    return "/tercel-" in Path(f"/proc/{pid}/cgroup").read_text() or len(os.sched_getaffinity(pid)) == 1


# -- warnings ---------------------------------------------------------------------------------------------


async def test_a_task_is_warned_before_its_time_is_over(limited: SpawnerPool, recorder: Recorder) -> None:
    """Only what minds the signal gets it: the shell in between would die of it."""
    source = (
        "import signal, sys, time\n"
        "def warned(*_): print('warned', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGUSR1, warned)\n"
        "time.sleep(600)"
    )
    line = f'{sys.executable} -c "{source}"; echo then $?'
    report = await run(
        limited, recorder, shell(line, time_limit_s=WAIT_S, warn_signal=f"USR1@{WAIT_S - 0.5:g}")
    )
    assert (report.end, report.code, text(report.out)) == (End.EXITED, 0, "warned\nthen 3\n")


async def test_a_task_is_warned_when_the_runner_is_asked_to(
    limited: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    line = (
        f"trap 'echo warned; exit 4' USR2; exec 9>{lifeline.path}; echo x >&9; while :; do sleep 0.01; done"
    )
    limited.launch([shell(line, warn_signal="USR2@60"), shell("echo deaf", attempt=2, lane=1)])
    await lifeline.held()
    limited.warn([1, 2, 3])
    report = await recorder.report(1)
    assert (report.end, report.code, text(report.out)) == (End.EXITED, 4, "warned\n")


async def test_a_call_is_warned_as_well(limited: SpawnerPool, recorder: Recorder, lifeline: Lifeline) -> None:
    def patient(path: str) -> str:
        import os
        import signal
        import time

        heard = []
        signal.signal(signal.SIGUSR1, lambda *_: heard.append("warned"))
        os.write(os.open(path, os.O_WRONLY), b"x\n")
        while not heard:
            time.sleep(0.01)
        return heard[0]

    limited.launch([call(patient, str(lifeline.path), warn_signal="USR1@60")])
    await lifeline.held()
    await recorder.until(lambda: recorder.running == [1])
    limited.warn([1])
    assert value(limited, await recorder.report(1)) == "warned"


# -- what the lane has for it -----------------------------------------------------------------------------


async def test_variables_of_the_lane_reach_the_process(runner: SpawnerPool, recorder: Recorder) -> None:
    def gpus() -> str:
        import os

        return os.environ["CUDA_VISIBLE_DEVICES"]

    line = shell("echo $CUDA_VISIBLE_DEVICES")
    runner.launch([Launch(0, 3, 14, 1, line.program, env={"CUDA_VISIBLE_DEVICES": "0"})])
    runner.launch([Launch(0, 3, 14, 2, line.program, env={"CUDA_VISIBLE_DEVICES": "1,2"})])
    assert text((await recorder.report(1)).out) == "0\n"
    assert text((await recorder.report(2)).out) == "1,2\n"
    made = call(gpus)
    for attempt, devices in ((3, "0"), (4, "1")):
        env = {"CUDA_VISIBLE_DEVICES": devices}
        launch = Launch(0, 3, 14, attempt, made.program, "", made.call, {}, env)
        assert value(runner, await run(runner, recorder, launch)) == devices
