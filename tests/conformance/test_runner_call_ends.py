"""Calls that do not end by themselves: killed, out of time, withdrawn, dead with their interpreter."""

import asyncio
import ctypes
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest

from tercel.core.reports import End
from tercel.runners import call_ends, call_lane, trees
from tercel.runners.call_process import InterpreterProcess
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import (
    Lifeline,
    Recorder,
    call,
    function_of,
    interpreters,
    run,
    text,
    value,
    whole,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def double(x: int) -> int:
    return 2 * x


def hold(path: Path) -> int:
    """Hold a lifeline, which tells that the call runs. It is closed by nobody but the kernel."""
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"%d\n" % os.getpid())
    return fd


def hold_and_wait(path: Path) -> None:
    print("here")
    hold(path)
    time.sleep(1000)


def crash() -> None:
    print("last words")
    os.kill(os.getpid(), signal.SIGSEGV)


async def _others_go_on(runner: SpawnerPool, recorder: Recorder, *attempts: int) -> None:
    for attempt in attempts:
        report = await recorder.report(attempt)
        assert (report.end, report.code) == (End.EXITED, 0)
        assert value(runner, report) == 2 * attempt


# -- crashes ----------------------------------------------------------------------------------------------


async def test_crash_takes_one_call_and_no_other(runner: SpawnerPool, recorder: Recorder) -> None:
    double_it = function_of(double)
    before = [call(double_it, at, attempt=at) for at in range(10, 30)]
    after = [call(double_it, at, attempt=at) for at in range(30, 40)]
    runner.launch([*before, call(crash), *after])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.SIGNALLED, signal.SIGSEGV)
    assert report.note == "its interpreter ended by SIGSEGV"
    assert report.started_at > 0
    assert text(report.out) == "last words\n"
    assert "Segmentation fault" in text(report.err)
    assert "in crash" in text(report.err)
    await _others_go_on(runner, recorder, *range(10, 40))
    assert recorder.order == [*range(10, 30), 1, *range(30, 40)]


@pytest.mark.parametrize(("code", "told"), [(3, 3), (0, 1)])
async def test_call_that_ends_its_interpreter_has_failed(
    runner: SpawnerPool, recorder: Recorder, code: int, told: int
) -> None:
    runner.launch([call(os._exit, code), call(double, 2, attempt=2)])
    report = await recorder.report(1)
    assert (report.end, report.code, report.value) == (End.EXITED, told, None)
    assert report.note == f"its interpreter was ended by the function with code {code}"
    await _others_go_on(runner, recorder, 2)


async def test_large_output_of_a_call_that_crashed_is_kept(runner: SpawnerPool, recorder: Recorder) -> None:
    def flood() -> None:
        print("x" * 300_000)
        crash()

    report = await run(runner, recorder, call(flood))
    assert whole(runner, report, "out") == b"x" * 300_000 + b"\nlast words\n"


async def test_every_call_that_crashes_is_told_once(runner: SpawnerPool, recorder: Recorder) -> None:
    runner.launch(
        [call(crash if at % 2 else double, *([] if at % 2 else [at]), attempt=at) for at in range(10)]
    )
    await _others_go_on(runner, recorder, 0, 2, 4, 6, 8)
    for at in range(1, 10, 2):
        assert (await recorder.report(at)).end is End.SIGNALLED


async def test_call_that_closes_every_descriptor_takes_only_itself(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    def close() -> None:
        os.closerange(0, 1000)
        time.sleep(1000)

    runner.launch([call(close), call(double, 2, attempt=2)])
    assert (await recorder.report(1)).end is End.SIGNALLED
    await _others_go_on(runner, recorder, 2)


async def test_interpreter_lost_between_calls_costs_nothing(runner: SpawnerPool, recorder: Recorder) -> None:
    await run(runner, recorder, call(double, 1))
    (pid,) = interpreters()
    os.kill(pid, signal.SIGKILL)
    runner.launch([call(double, 2, attempt=2), call(double, 3, attempt=3)])
    await _others_go_on(runner, recorder, 2, 3)


async def test_children_and_threads_of_a_call_end_with_its_interpreter(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    path = lifeline.path

    def leave_behind() -> None:
        threading.Thread(target=time.sleep, args=(1000,)).start()
        multiprocessing.get_context("fork").Process(target=hold_and_wait, args=(path,)).start()
        subprocess.Popen(["setsid", "sleep", "1000"])

    assert (await run(runner, recorder, call(leave_behind))).code == 0
    await lifeline.held()
    assert (await run(runner, recorder, call(crash, attempt=2))).end is End.SIGNALLED
    await lifeline.dropped()
    await run(runner, recorder, call(double, 3, attempt=3))
    assert len(trees.descendants(os.getpid())) == 1


# -- kills ------------------------------------------------------------------------------------------------


async def test_kill_ends_what_runs_and_what_has_not_started(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    touched = tmp_path / "touched"
    runner.launch(
        [
            call(hold_and_wait, lifeline.path),
            call(touched.touch, attempt=2),
            call(double, 3, attempt=3),
        ]
    )
    await lifeline.held()
    runner.kill([1, 2, 77])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.CANCELLED, signal.SIGTERM)
    assert text(report.out) == "here\n"
    report = await recorder.report(2)
    assert (report.end, report.note) == (End.CANCELLED, "cancelled before it started")
    await _others_go_on(runner, recorder, 3)
    assert not touched.exists()
    await lifeline.dropped()


async def test_call_that_ignores_term_is_killed_after_the_grace(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    path = lifeline.path

    def stubborn() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hold(path)
        while True:
            time.sleep(1000)

    runner.launch([call(stubborn, kill_grace_s=0.3), call(double, 2, attempt=2)])
    await lifeline.held()
    runner.kill([1])
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.CANCELLED, signal.SIGKILL)
    assert "0.3 s after TERM" in report.note
    await lifeline.dropped()
    await _others_go_on(runner, recorder, 2)


async def test_signal_for_a_call_that_ends_in_that_moment_does_not_meet_the_next(
    runner: SpawnerPool,
    recorder: Recorder,
    lifeline: Lifeline,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path, go, sent = lifeline.path, tmp_path / "go", tmp_path / "sent"
    really_signal = InterpreterProcess.signal

    def until(flag: Path, held: bool) -> int:
        if held:
            hold(path)
        while not flag.exists():
            time.sleep(0.001)
        return 4

    def signal_late(self: InterpreterProcess, number: int) -> None:
        """It was decided on; then the call ends by itself, and the interpreter does what it does next."""
        if number == signal.SIGTERM:
            go.touch()
            while self.board.standing().attempt == 1 and not _waits(self):
                pass
        really_signal(self, number)
        sent.touch()

    monkeypatch.setattr(InterpreterProcess, "signal", signal_late)
    runner.launch([call(until, go, True, kill_grace_s=30.0), call(until, sent, False, attempt=2)])
    await lifeline.held()
    runner.kill([1])
    assert (await recorder.report(1)).end is End.CANCELLED
    await _others_go_on(runner, recorder, 2)


def _waits(process: InterpreterProcess) -> bool:
    """For the lane: nothing runs, all is reported, and it sleeps."""
    state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "S" and not process.board.standing().running and not process.board.reports()


async def test_call_that_makes_an_end_of_itself_at_term_keeps_its_interpreter(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    path = lifeline.path

    def save() -> str:
        def stop(*_: object) -> None:
            raise InterruptedError("saved")

        signal.signal(signal.SIGTERM, stop)
        os.close(hold(path))
        time.sleep(1000)
        return ""

    runner.launch([call(save), call(os.getpid, attempt=2)])
    pid = int(await lifeline.held())
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.note) == (End.CANCELLED, "InterruptedError: saved")
    assert value(runner, await recorder.report(2)) == pid


def _hold_the_gil(path: Path) -> None:
    hold(path)
    ctypes.PyDLL(None).sleep(1000)


def _spin(path: Path) -> None:
    import re

    hold(path)
    re.match(r"(a+)+$", "a" * 100 + "b")


@pytest.mark.parametrize("busy", [_hold_the_gil, _spin])
@pytest.mark.parametrize("how", ["kill", "time limit"])
async def test_c_code_that_never_gives_way_is_ended(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline, busy: Callable[[Path], None], how: str
) -> None:
    limit_s = 0.2 if how == "time limit" else 0.0
    runner.launch([call(busy, lifeline.path, time_limit_s=limit_s), call(double, 2, attempt=2)])
    await lifeline.held()
    if how == "kill":
        runner.kill([1])
    report = await recorder.report(1)
    assert report.end is (End.CANCELLED if how == "kill" else End.TIMED_OUT)
    assert report.code == signal.SIGTERM
    if how == "time limit":
        assert report.note == "time limit of 0.2 s reached"
        assert report.wall_s >= 0.2
    await lifeline.dropped()
    await _others_go_on(runner, recorder, 2)


async def test_time_limit_is_each_calls_own(runner: SpawnerPool, recorder: Recorder) -> None:
    """Together they take longer than the limit of one."""
    nap = function_of(lambda: time.sleep(0.02))
    runner.launch([call(nap, attempt=at, time_limit_s=0.5) for at in range(40)])
    for at in range(40):
        assert (await recorder.report(at)).end is End.EXITED


async def test_kills_among_many_short_calls_hit_only_those_they_are_meant_for(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    """Whether it has ended, runs, or waits: never another one."""
    double_it = function_of(double)
    runner.launch([call(double_it, at, attempt=at) for at in range(2000)])
    await recorder.report(0)
    for at in range(5, 2000, 50):
        runner.kill([at])
        await asyncio.sleep(0)
    await recorder.until(lambda: len(recorder.reports) == 2000)
    for at in range(2000):
        meant = at % 50 == 5
        assert recorder.reports[at].end is End.EXITED or (meant and recorder.reports[at].end is End.CANCELLED)


async def test_kill_of_the_running_one_in_a_stream_of_short_calls_never_meets_the_next(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    def spin(at: int) -> int:
        end = time.perf_counter() + 0.0001
        while time.perf_counter() < end:
            pass
        return 2 * at

    made = function_of(spin)
    killed: set[int] = set()
    for turn in range(15):
        attempts = range(1000 * turn, 1000 * turn + 300)
        runner.launch([call(made, at, attempt=at) for at in attempts])
        await recorder.report(attempts[5])
        process = runner._lanes[0, True]._process  # type: ignore[union-attr]
        assert process is not None
        killed.add(process.board.standing().attempt)
        runner.kill([max(killed)])
        await recorder.until(lambda attempts=attempts: recorder.reports.keys() >= set(attempts))  # type: ignore[misc]
    for attempt, report in recorder.reports.items():
        assert report.end is End.EXITED or (attempt in killed and report.end is End.CANCELLED)
        assert report.end is End.CANCELLED or value(runner, report) == 2 * attempt


# -- withdrawing, following, announcing -------------------------------------------------------------------


async def test_withdrawn_calls_come_back_while_another_runs(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    runner.launch([call(hold_and_wait, lifeline.path), *(call(double, at, attempt=at) for at in (2, 3, 4))])
    await lifeline.held()
    await recorder.until(lambda: recorder.running == [1])
    runner.withdraw([1, 2, 4, 77])
    for attempt in (2, 4):
        report = await recorder.report(attempt)
        assert (report.end, report.started_at) == (End.INTERRUPTED, 0.0)
    assert set(recorder.reports) == {2, 4}
    runner.kill([1])
    await _others_go_on(runner, recorder, 3)
    del recorder.reports[2]
    runner.launch([call(double, 2, attempt=2)])
    await _others_go_on(runner, recorder, 2)


async def test_withdrawing_among_many_short_calls_loses_and_doubles_none(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    log = os.fspath(tmp_path / "log")

    def note(at: int) -> int:
        with open(log, "a") as file:
            file.write(f"{at}\n")
        return 2 * at

    made = function_of(note)
    runner.launch([call(made, at, attempt=at) for at in range(3000)])
    await recorder.report(0)
    for at in range(0, 3000, 10):
        runner.withdraw(list(range(at, at + 5)))
        await asyncio.sleep(0)
    await recorder.until(lambda: len(recorder.reports) == 3000)
    done = [at for at, report in recorder.reports.items() if report.end is End.EXITED]
    assert sorted(map(int, Path(log).read_text().split())) == sorted(done)
    assert all(at % 10 < 5 for at in recorder.reports.keys() - set(done))


async def test_call_that_lasts_is_announced_and_reports_before_it_do_not_wait(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    runner.launch([call(double, 2, attempt=2), call(hold_and_wait, lifeline.path)])
    await lifeline.held()
    await _others_go_on(runner, recorder, 2)
    await recorder.until(lambda: recorder.running == [1])
    runner.kill([1])
    await recorder.report(1)
    assert recorder.running == [1]


@pytest.mark.parametrize("large", [False, True])
async def test_output_of_a_running_call_can_be_followed(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, large: bool
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    more = "x" * (300_000 if large else 10)

    def talk() -> None:
        print("first")
        print("oops", file=sys.stderr)
        with open(gate) as file:
            file.read()
        print(more)

    runner.launch([call(double, 2, attempt=2), call(talk)])
    runner.follow(1, True)
    await recorder.until(lambda: recorder.told(1) == b"first\n" and recorder.told(1, "err") == b"oops\n")
    with open(gate, "w"):
        pass
    await recorder.report(1)
    assert recorder.told(1) == f"first\n{more}\n".encode()
    offsets = [(offset, len(data)) for offset, data in recorder.tails[1, "out"]]
    assert all(a + size == b for (a, size), (b, _) in itertools.pairwise(offsets))
    assert recorder.told(2) == b""


async def test_call_that_prints_without_end_takes_a_bounded_amount_of_memory(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    path = lifeline.path

    def flood() -> None:
        line = "x" * 99 + "\n"
        written = 0
        while written < 200_000_000:
            written += sys.stdout.write(line * 1000)
        hold(path)
        time.sleep(1000)

    runner.launch([call(flood, output_limit_bytes=100_000)])
    pid = int(await lifeline.held())
    await recorder.until(lambda: recorder.running == [1])

    def kept() -> int:
        return os.stat(f"/proc/{pid}/fd/1").st_blocks * 512

    async with asyncio.timeout(60):
        while kept() > 2**21:
            await asyncio.sleep(0.01)
    runner.kill([1])
    report = await recorder.report(1)
    assert report.out is not None
    assert (report.out.total_bytes, report.out.kept_bytes) == (200_000_000, 100_000)
    assert whole(runner, report, "out") == ("x" * 99 + "\n").encode() * 1000


# -- the runner's own mishaps -----------------------------------------------------------------------------


async def test_interpreter_that_cannot_start_interrupts(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        report = await run(runner, recorder, call(double, 1))
        assert report.end is End.INTERRUPTED
        assert "no interpreter can be started" in report.note
        patch.setattr(sys, "executable", "/bin/false")
        runner.launch([call(double, 1, attempt=2), call(double, 1, attempt=3)])
        for attempt in (2, 3):
            report = await recorder.report(attempt)
            assert report.end is End.INTERRUPTED
            assert "its interpreter was lost" in report.note
    await run(runner, recorder, call(double, 4, attempt=4))
    await _others_go_on(runner, recorder, 4)


async def test_interpreter_that_cannot_start_for_the_jobs_variables_tells_its_last_words(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(runner, recorder, call(double, 1, env={"PYTHONHOME": "/no/such/place"}))
    assert report.end is End.INTERRUPTED
    assert "its interpreter was lost: " in report.note


async def test_job_whose_interpreters_never_start_is_refused_after_some_tries_and_others_are_not(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    ends = []
    for attempt in range(1, call_ends.TRIES + 1):
        bad = call(double, 1, job=7, attempt=attempt, env={"PYTHONHOME": "/no/such/place"})
        ends.append((await run(runner, recorder, bad)).end)
        await run(runner, recorder, call(double, 4, job=8, attempt=100 + attempt))
    assert ends == [End.INTERRUPTED] * (call_ends.TRIES - 1) + [End.REFUSED]
    note = (await recorder.report(call_ends.TRIES)).note
    assert "its interpreter was lost: " in note
    assert "again and again" in note


async def test_interpreters_that_are_killed_before_they_start_are_no_reason_to_refuse(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    for attempt in range(1, call_ends.TRIES + 2):
        assert (await run(runner, recorder, call(double, 1, attempt=attempt))).end is End.INTERRUPTED


async def test_variables_that_no_process_can_be_given_fail_only_their_job(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    runner.launch([call(double, 1, env={"X": "a\0b"}), call(double, 2, attempt=2)])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.EXITED, 126)
    assert "null byte" in report.note
    await _others_go_on(runner, recorder, 2)


async def test_interpreter_that_has_grown_is_replaced_between_calls(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    def leak() -> int:
        sys.modules["leak"] = bytearray(2**30 + 2**27)  # type: ignore[assignment]
        return os.getpid()

    runner.launch(
        [call(leak), *(call(lambda: (time.sleep(0.01), os.getpid()), attempt=at) for at in (2, 3, 4, 5))]
    )
    first = value(runner, await recorder.report(1))
    last = value(runner, await recorder.report(5))[1]
    assert last != first
    assert interpreters() == [last]


async def test_idle_interpreter_ends_and_another_takes_its_place(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_lane, "IDLE_S", 0.05)
    await run(runner, recorder, call(double, 1))
    async with asyncio.timeout(60):
        while interpreters():
            await asyncio.sleep(0.01)
    runner.launch([call(double, 2, attempt=2)])
    await _others_go_on(runner, recorder, 2)


async def test_stop_interrupts_what_runs_and_leaves_nothing(
    tmp_path: Path, recorder: Recorder, lifeline: Lifeline
) -> None:
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    runner.launch(
        [call(double, 1), call(hold_and_wait, lifeline.path, attempt=2), call(double, 3, attempt=3)]
    )
    runner.launch([call(double, 4, attempt=4, lane=1)])
    await lifeline.held()
    await recorder.report(4)
    await runner.stop()
    await lifeline.dropped()
    ends = {attempt: report.end for attempt, report in recorder.reports.items()}
    assert ends == {1: End.EXITED, 2: End.INTERRUPTED, 3: End.INTERRUPTED, 4: End.EXITED}
    assert trees.descendants(os.getpid()) == []
    assert list((tmp_path / "worker" / "sandboxes").iterdir()) == []


async def test_calls_that_ended_are_reported_when_the_worker_stops_at_once(
    tmp_path: Path, recorder: Recorder
) -> None:
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    double_it = function_of(double)
    runner.launch([call(double_it, at, attempt=at) for at in range(400)])
    await recorder.report(3)
    await runner.stop()
    assert set(recorder.reports) == set(range(400))
    done = [at for at, report in recorder.reports.items() if report.end is End.EXITED]
    assert done == list(range(len(done)))


WORKER = """
import asyncio, sys
from pathlib import Path
from tercel.core.model import Call, Function, Program
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool

class Listener:
    def started(self, attempts): pass
    def ended(self, reports): print(reports, flush=True)
    def tail(self, *_): pass

async def main(dir, function, arguments):
    runner = SpawnerPool(Path(dir), "node-7")
    await runner.start(Listener())
    program = Program(function=Function(code=bytes.fromhex(function)))
    runner.launch([Launch(0, 1, 0, 1, program, "", Call(bytes.fromhex(arguments)))])
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_no_interpreter_outlives_a_killed_worker(tmp_path: Path, lifeline: Lifeline) -> None:
    function = cloudpickle.dumps(hold_and_wait).hex()
    arguments = cloudpickle.dumps(((lifeline.path,), {})).hex()
    worker = subprocess.Popen([sys.executable, "-c", WORKER, tmp_path / "worker", function, arguments])
    await lifeline.held()
    worker.kill()
    worker.wait()
    await lifeline.dropped()
