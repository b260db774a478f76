"""Calls of Python functions in warm interpreters: what they return, raise, print, and find around them."""

import os
import pickle
import signal
import sys
from pathlib import Path

import cloudpickle
import pytest

from tercel.core.model import Function
from tercel.core.reports import End, Report
from tercel.runners.call_process import InterpreterProcess
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import (
    Recorder,
    Ref,
    call,
    function_of,
    interpreters,
    run,
    shell,
    spawners,
    text,
    value,
    whole,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Point:
    """Of a module that the interpreter cannot import."""

    def __init__(self, x: int) -> None:
        self.x = x


class Crooked(Exception):
    """Cannot be unpickled: it is made of two arguments and keeps one."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


def double(x: int) -> int:
    return 2 * x


def fail(message: str) -> None:
    raise ValueError(message)


def _error(runner: SpawnerPool, report: Report) -> tuple[BaseException, str]:
    assert report.end is End.EXITED
    assert report.code == 1
    found: tuple[BaseException, str] = value(runner, report)
    return found


# -- values -----------------------------------------------------------------------------------------------


async def test_value_comes_back_and_the_interpreter_stays(runner: SpawnerPool, recorder: Recorder) -> None:
    pids = set()
    for attempt in range(3):
        report = await run(runner, recorder, call(lambda x: (2 * x, os.getpid()), attempt, attempt=attempt))
        assert (report.end, report.code, report.note, report.out) == (End.EXITED, 0, "", None)
        doubled, pid = value(runner, report)
        assert doubled == 2 * attempt
        pids.add(pid)
    assert pids == set(interpreters())
    assert len(pids) == 1


async def test_a_thousand_calls_in_two_lanes_are_each_reported_once_and_in_order(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    function = function_of(double)
    runner.launch([call(function, at, attempt=at, lane=at % 2) for at in range(1000)])
    await recorder.until(lambda: len(recorder.reports) == 1000)
    assert [value(runner, recorder.reports[at]) for at in range(1000)] == [2 * at for at in range(1000)]
    for lane in range(2):
        in_lane = [at for at in recorder.order if at % 2 == lane]
        assert in_lane == sorted(in_lane)


async def test_reports_that_were_sent_come_before_those_that_wait_though_nobody_read_them_yet(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InterpreterProcess, "_on_readable", lambda process: None)  # the timer is always first
    function = function_of(double)
    runner.launch([call(function, at, attempt=at) for at in range(300)])
    await recorder.until(lambda: len(recorder.reports) == 300)
    assert recorder.order == list(range(300))


@pytest.mark.parametrize("compressible", [True, False])
async def test_a_large_value_waits_in_pieces(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, compressible: bool
) -> None:
    made = bytes(20_000_000) if compressible else os.urandom(1000) * 20_000
    report = await run(
        runner, recorder, call(lambda seed, n: seed * n, made[:1000], 20_000, output_limit_bytes=10)
    )
    assert report.value is not None
    assert report.value.segments > 70
    assert value(runner, report) == made
    assert runner.kept() == {1}
    runner.forget([1])
    assert list((tmp_path / "worker" / "outputs").iterdir()) == []


async def test_a_large_value_outlives_the_runner(tmp_path: Path, recorder: Recorder) -> None:
    first, second = (SpawnerPool(tmp_path / "worker", "node-7") for _ in range(2))
    await first.start(recorder)
    report = await run(first, recorder, call(bytes, 100_000))
    await first.stop()
    await second.start(Recorder())
    assert second.kept() == {1}
    assert value(second, report) == bytes(100_000)
    await second.stop()


async def test_a_value_there_is_no_room_for_is_the_nodes_fault(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    (tmp_path / "worker" / "outputs").rmdir()
    report = await run(runner, recorder, call(lambda: bytes(100_000)))
    assert report.end is End.INTERRUPTED
    assert "no room for its value on node-7" in report.note
    (tmp_path / "worker" / "outputs").mkdir()


async def test_values_and_exceptions_of_classes_that_nobody_can_import_travel_whole(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(runner, recorder, call(lambda: [Point(5)]))
    (point,) = value(runner, report)
    assert isinstance(point, Point)
    assert point.x == 5


async def test_keys_in_the_arguments_stand_for_inputs(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(pickle.dumps([1, 2]))
    inputs: dict[str, bytes | str] = {"t1.1": pickle.dumps("one"), "b77": str(large)}
    report = await run(runner, recorder, call(lambda *all: all, Ref("t1.1"), [Ref("b77")], 3, inputs=inputs))
    assert value(runner, report) == ("one", [[1, 2]], 3)


async def test_a_large_function_is_an_input_too(runner: SpawnerPool, recorder: Recorder) -> None:
    function = function_of(double, code=b"", value="bf")
    launch = call(function, 4, inputs={"bf": cloudpickle.dumps(double)})
    assert value(runner, await run(runner, recorder, launch)) == 8


async def test_a_lost_input_is_the_nodes_fault(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    launch = call(double, Ref("t1.1"), inputs={"t1.1": str(tmp_path / "gone")})
    report = await run(runner, recorder, launch)
    assert (report.end, report.value) == (End.INTERRUPTED, None)
    assert "an input is lost" in report.note


# -- exceptions -------------------------------------------------------------------------------------------


async def test_exception_comes_back_with_its_traceback(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(runner, recorder, call(fail, "bad\nthing"))
    error, trace = _error(runner, report)
    assert (type(error), str(error)) == (ValueError, "bad\nthing")
    assert report.note == "ValueError: bad"
    assert trace.startswith("Traceback")
    assert "in fail" in trace
    assert "interpreter.py" not in trace
    assert text(report.err) == trace


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
async def test_an_exception_that_would_end_a_program_is_a_result(
    runner: SpawnerPool, recorder: Recorder, error: BaseException
) -> None:
    def leave() -> None:
        raise error

    runner.launch([call(leave), call(double, 2, attempt=2)])
    found, _ = _error(runner, await recorder.report(1))
    assert repr(found) == repr(error)
    assert value(runner, await recorder.report(2)) == 4


async def test_exception_that_cannot_be_unpickled_has_a_stand_in(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    def crook() -> None:
        raise Crooked("one", "two")

    error, trace = _error(runner, await run(runner, recorder, call(crook)))
    assert type(error) is RuntimeError
    assert str(error).endswith("Crooked: one")
    assert "Crooked" in trace


async def test_exception_without_a_message_to_be_had_is_told_all_the_same(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise OSError("no")

        def __reduce__(self) -> str:
            raise OSError("no")

    def mute() -> None:
        raise Mute

    report = await run(runner, recorder, call(mute))
    error, _ = _error(runner, report)
    assert "Mute: (its message cannot be had: OSError)" in str(error)


async def test_value_that_cannot_be_pickled_is_an_exception(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(runner, recorder, call(lambda: (x for x in "abc")))
    error, _ = _error(runner, report)
    assert isinstance(error, pickle.PicklingError)
    assert "returned a builtins.generator, which cannot be pickled" in str(error)


async def test_missing_module_is_named_with_the_node(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    (tmp_path / "only_here_today.py").write_text("def answer():\n    return 42\n")
    code = b"\x80\x04\x8c\x0fonly_here_today\x8c\x06answer\x93."
    report = await run(runner, recorder, call(Function(code=code)))
    error, _ = _error(runner, report)
    assert isinstance(error, ModuleNotFoundError)
    assert "node-7 has no module only_here_today" in report.note
    where = ("/no/such/place", str(tmp_path))
    found = await run(runner, recorder, call(Function(code=code, path=where), attempt=2))
    assert value(runner, found) == 42
    again = await run(runner, recorder, call(Function(code=code), attempt=3, job=4))
    assert "no module" in again.note, "the path of one job is not another's"


async def test_function_of_another_python_is_refused(runner: SpawnerPool, recorder: Recorder) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    runner.launch([call(Function(code=b"not a pickle", python="3.2")), call(double, 1, attempt=2)])
    report = await recorder.report(1)
    assert report.end is End.REFUSED
    assert report.note == f"node-7 runs Python {here}, the function was pickled under 3.2"
    assert value(runner, await recorder.report(2)) == 2


@pytest.mark.parametrize("code", [b"", b"not a pickle"])
async def test_what_is_no_pickle_fails_as_such(runner: SpawnerPool, recorder: Recorder, code: bytes) -> None:
    report = await run(runner, recorder, call(Function(code=code)))
    assert (report.end, report.code) == (End.EXITED, 1)
    assert "unpickling the call" in report.note


# -- what a call finds around it --------------------------------------------------------------------------


def say(out: str, err: str) -> None:
    print(out)
    print(err, file=sys.stderr, end="")


async def test_each_call_has_its_own_output(runner: SpawnerPool, recorder: Recorder) -> None:
    calls = [call(say, f"o{at}", f"e{at}", attempt=at) for at in range(5)]
    runner.launch([*calls, call(lambda: None, attempt=5)])
    for at in range(5):
        report = await recorder.report(at)
        assert (text(report.out), text(report.err)) == (f"o{at}\n", f"e{at}")
    report = await recorder.report(5)
    assert (report.out, report.err) == (None, None)


async def test_of_a_long_output_the_tail_is_kept(runner: SpawnerPool, recorder: Recorder) -> None:
    def count() -> None:
        for at in range(200_000):
            print(at)

    report = await run(runner, recorder, call(count, output_limit_bytes=100_000))
    assert report.out is not None
    assert report.out.total_bytes == sum(len(f"{at}\n") for at in range(200_000))
    assert report.out.kept_bytes == 100_000
    assert whole(runner, report, "out").endswith(b"199998\n199999\n")


def _close_stdout() -> None:
    sys.stdout.close()


def _close_descriptors() -> None:
    os.close(1)
    os.close(2)


def _replace_stdout() -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def _redirect() -> None:
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


@pytest.mark.parametrize("do", [_close_stdout, _close_descriptors, _replace_stdout, _redirect])
async def test_what_a_call_does_to_its_outputs_concerns_no_other(
    runner: SpawnerPool, recorder: Recorder, do: object
) -> None:
    runner.launch([call(do, attempt=1), call(say, "o", "e", attempt=2)])  # type: ignore[arg-type]
    assert (await recorder.report(1)).end is End.EXITED
    report = await recorder.report(2)
    assert (text(report.out), text(report.err)) == ("o\n", "e")


async def test_each_call_begins_in_an_empty_directory_of_its_own(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    def litter() -> tuple[str, list[str]]:
        found = (os.getcwd(), os.listdir())
        Path("file").write_text("x")
        os.chdir("/tmp")
        return found

    runner.launch([call(litter, attempt=at) for at in range(3)])
    for at in range(3):
        here, found = value(runner, await recorder.report(at))
        assert "/sandboxes/" in here
        assert found == []


async def test_job_with_a_directory_runs_there_or_is_refused(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    assert value(runner, await run(runner, recorder, call(os.getcwd, cwd=str(tmp_path)))) == str(tmp_path)
    report = await run(runner, recorder, call(os.getcwd, cwd="/no/such/place", attempt=2))
    assert report.end is End.REFUSED
    assert "cannot enter directory /no/such/place on node-7" in report.note


def look(*names: str) -> list[str | None]:
    return [os.environ.get(name) for name in names]


async def test_variables_say_which_task_it_is_and_are_put_right_between_calls(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERCEL_TOKEN", "secret")
    monkeypatch.setenv("BASE", "base")

    def spoil() -> list[str | None]:
        seen = look(
            "MINE", "BASE", "TERCEL_TASK_ID", "TERCEL_ATTEMPT", "TERCEL_JOB_ID", "TERCEL_NODE", "TERCEL_TOKEN"
        )
        os.environ["MINE"] = "spoilt"
        del os.environ["BASE"]
        os.environ["ADDED"] = "x"
        os.environ = {}  # type: ignore[assignment]  # noqa: B003
        return seen

    env = {"MINE": "m"}
    runner.launch([call(spoil, attempt=at, env=env) for at in (1, 2)])
    for at in (1, 2):
        assert value(runner, await recorder.report(at)) == ["m", "base", "14", str(at), "3", "node-7", None]
    kept = await run(runner, recorder, call(look, "ADDED", attempt=3, env=env))
    assert value(runner, kept) == ["x"], "within a job: a module that was imported may count on it"
    other = await run(runner, recorder, call(look, "ADDED", "TERCEL_JOB_ID", attempt=4, env=env, job=4))
    assert value(runner, other) == [None, "4"]


async def test_job_with_another_environment_has_another_interpreter(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    def who() -> tuple[int, str | None]:
        return os.getpid(), os.environ.get("WHO")

    runner.launch([call(who, attempt=at, job=at // 2, env={"WHO": f"w{at // 4}"}) for at in range(8)])
    seen = [value(runner, await recorder.report(at)) for at in range(8)]
    assert [name for _, name in seen] == ["w0"] * 4 + ["w1"] * 4
    assert len({pid for pid, _ in seen[:4]}) == len({pid for pid, _ in seen[4:]}) == 1
    assert seen[0] != seen[4]


async def test_signals_are_put_right_between_calls(runner: SpawnerPool, recorder: Recorder) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 3600)

    def see() -> tuple[bool, tuple[float, float]]:
        return signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.getitimer(signal.ITIMER_REAL)

    runner.launch([call(ignore), call(see, attempt=2)])
    assert value(runner, await recorder.report(2)) == (True, (0.0, 0.0))


async def test_forked_child_that_comes_back_from_the_call_is_not_the_interpreter(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    def fork() -> str:
        child = os.fork()
        if child == 0:
            print("child")
            return "from the child"
        os.waitpid(child, 0)
        return "from the parent"

    def fork_and_raise() -> str:
        child = os.fork()
        if child == 0:
            raise ValueError("from the child")
        os.waitpid(child, 0)
        return "from the parent"

    runner.launch([call(fork), call(double, 1, attempt=3), call(fork_and_raise, attempt=2)])
    report = await recorder.report(1)
    assert value(runner, report) == "from the parent"
    assert text(report.out) == "child\n"
    assert value(runner, await recorder.report(2)) == "from the parent"
    assert value(runner, await recorder.report(3)) == 2


async def test_commands_and_calls_share_a_lane_in_turn(runner: SpawnerPool, recorder: Recorder) -> None:
    assert text((await run(runner, recorder, shell("echo a"))).out) == "a\n"
    assert value(runner, await run(runner, recorder, call(double, 1, attempt=2))) == 2
    assert text((await run(runner, recorder, shell("echo b", attempt=3))).out) == "b\n"
    assert len(interpreters()) == len(spawners()) == 1, "both stay warm"
