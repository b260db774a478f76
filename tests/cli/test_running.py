"""tercel run, against a manager that does as it is told; then really, with one inside."""

import asyncio
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tercel.cli import main
from tercel.cli.outputs import BATCH_TASKS, labelled
from tercel.core.states import TaskState
from tercel.sdk import asking_events
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import FakeManager, Request, attempt, events, job, problem, stream, task

LOGS = "/v1/jobs/37/tasks/0/logs"


def submitted(tasks: int) -> api.Submitted:
    return api.Submitted(id=37, tasks=tasks, name="")


def event(done: bool = False, spoke: Any = (), ended: Any = (), **counts: int) -> api.Event:
    return api.Event(job=37, counts=api.Counts(**counts), spoke=list(spoke), ended=list(ended), done=done)


def outputs(request: Request) -> api.TaskList:
    """Every task that is asked for wrote its number."""
    found: list[api.TaskView] = []
    for part in request.query["tasks"][0].split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            found.append(task(number, stdout=f"{number}\n", stderr="", exit_code=0))
    limit = int(request.query["limit"][0])
    return api.TaskList(tasks=found[:limit], more=len(found) > limit)


def shown(out: str) -> list[int]:
    return sorted(int(line) for line in out.splitlines())


# -- many tasks -------------------------------------------------------------------------------------------


def test_outputs_are_fetched_in_batches_and_only_of_tasks_that_spoke(
    tercel: Tercel, manager: FakeManager
) -> None:
    manager.says("POST", "/v1/jobs", submitted(10_000))
    manager.says("GET", "/v1/jobs/37/tasks", outputs)
    manager.says(
        "GET",
        "/v1/events",
        events(
            event(ended=[(0, 99)], finished=100),
            event(ended=[(100, 4999)], spoke=[(100, 2999)], finished=5000),
            event(ended=[(5000, 9999)], spoke=[(7000, 7000), (9000, 9000)], finished=10_000, done=True),
        ),
    )
    done = tercel("run", "--array", "0-9999", "--", "./fit.sh")
    assert done.code == 0
    assert shown(done.out) == [*range(100, 3000), 7000, 9000]
    assert len(manager.asked("GET", "/v1/jobs/37/tasks")) <= 2902 // BATCH_TASKS + 3
    assert "job 37: 10,000 finished in" in done.err


def test_a_page_that_ends_early_is_asked_on_for(tercel: Tercel, manager: FakeManager) -> None:
    def one_at_a_time(request: Request) -> api.TaskList:
        page = outputs(request)
        return api.TaskList(tasks=page.tasks[:1], more=len(page.tasks) > 1)

    manager.says("POST", "/v1/jobs", submitted(4))
    manager.says("GET", "/v1/jobs/37/tasks", one_at_a_time)
    manager.says("GET", "/v1/events", events(event(spoke=[(0, 1), (3, 3)], finished=4, done=True)))
    assert shown(tercel("run", "--array", "0-3", "--", "x").out) == [0, 1, 3]


def test_nothing_is_shown_twice_or_lost_when_the_manager_restarts(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_events, "RECONNECT_MOST_S", 0.01)
    monkeypatch.setattr("tercel.cli.outputs.RETRY_AFTER_S", 0.01)
    manager.says("POST", "/v1/jobs", submitted(100))
    manager.says("GET", "/v1/jobs/37/tasks", problem(503, "starting"), outputs)
    manager.says(
        "GET",
        "/v1/events",
        events(event(spoke=[(0, 49)], running=50, finished=50), whole=False),
        events(event(spoke=[(0, 79)], finished=80), event(spoke=[(80, 99)], finished=100, done=True)),
    )
    done = tercel("run", "--array", "0-99", "--", "x")
    assert done.code == 0
    assert shown(done.out) == list(range(100))


def test_outputs_that_are_not_text_are_shown_as_they_are(
    manager: FakeManager, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    manager.says("POST", "/v1/jobs", submitted(2))
    page = api.TaskList(tasks=[task(0, stdout="a\n"), task(1, stdout="\ufffd", stderr="e\ufffd")], more=False)
    manager.says("GET", "/v1/jobs/37/tasks", page)
    manager.says("GET", "/v1/jobs/37/tasks/1/logs", stream(b"\xff"), stream(b"e\x80"))
    manager.says("GET", "/v1/events", events(event(spoke=[(0, 1)], finished=2, done=True)))
    assert main(["run", "--array", "0-1", "--", "x"]) == 0
    out, err = capfdbinary.readouterr()
    assert out == b"a\n\xff"
    assert b"e\x80" in err
    assert [r.query["stream"] for r in manager.asked("GET", "/v1/jobs/37/tasks/1/logs")] == [["out"], ["err"]]


def test_labels_tell_whose_line_it_is(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/jobs", submitted(1))
    manager.says("GET", "/v1/jobs/37/tasks", outputs)
    manager.says("GET", "/v1/events", events(event(spoke=[(0, 0)], finished=1, done=True)))
    assert tercel("run", "--label", "--", "x").out == "37.0: 0\n"
    assert labelled("1.2", b"a\nb") == b"1.2: a\n1.2: b\n"


@pytest.mark.parametrize("tasks", [1, 2])
def test_who_had_too_little_memory_is_told_how_to_give_more(
    tercel: Tercel, manager: FakeManager, tasks: int
) -> None:
    ended = attempt(state=TaskState.FAILED, end="exceeded", exceeded="memory")
    failed = task(0, state=TaskState.FAILED, why="used 3 GB of 2 GB of memory", attempts=[ended])
    manager.says("POST", "/v1/jobs", submitted(tasks))
    manager.says("GET", "/v1/jobs/37", job(mem_bytes=2 * 2**30))
    manager.says("GET", LOGS, stream(b""), stream(b""))
    manager.says("GET", "/v1/jobs/37/tasks/0", failed)
    manager.says("GET", "/v1/jobs/37/tasks", api.TaskList(tasks=[failed], more=False))
    manager.says("GET", "/v1/events", events(event(finished=tasks - 1, failed=1, done=True)))
    done = tercel("run", "--array", f"0-{tasks - 1}", "--", "x")
    assert done.code == 1
    assert "`tercel retry 37 --with-mem 4096M` runs" in done.err


def test_failures_are_counted_named_and_end_with_1(tercel: Tercel, manager: FakeManager) -> None:
    failed = task(3, state=TaskState.FAILED, why="exit code 7", stderr="x\nno such file\n")

    def page(request: Request) -> api.TaskList:
        assert request.query["state"] == ["failed"]
        return api.TaskList(tasks=[failed], more=True)

    manager.says("POST", "/v1/jobs", submitted(10))
    manager.says("GET", "/v1/jobs/37/tasks", page)
    manager.says("GET", "/v1/events", events(event(finished=3, failed=7, done=True)))
    done = tercel("run", "--array", "0-9", "--", "x")
    assert done.code == 1
    assert "tercel: 37.3 failed: exit code 7: no such file\n" in done.err
    assert "and 6 more; `tercel logs 37.3 --stderr`" in done.err
    failed = task(
        3, state=TaskState.FAILED, why="exit code 127: x: not found", stderr="tercel: x: not found\n"
    )
    assert (
        "tercel: 37.3 failed: exit code 127: x: not found\n" in tercel("run", "--array", "0-9", "--", "x").err
    )


def test_on_a_terminal_a_bar_shows_the_progress_and_leaves_no_trace(manager: FakeManager) -> None:
    seen = threading.Event()
    manager.says("POST", "/v1/jobs", submitted(2))
    manager.says("GET", "/v1/jobs/37/tasks", outputs)
    halfway = event(finished=1, running=1, ended=[(0, 0)])
    ended = event(finished=2, ended=[(1, 1)], spoke=[(1, 1)], done=True)
    manager.says(
        "GET", "/v1/events", stream(*events(halfway).pieces, lambda: seen.wait(60), *events(ended).pieces)
    )
    master, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tercel", "run", "--array", "0-1", "--", "x"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(terminal)
    shown = b""
    while b"1/2" not in shown:
        shown += os.read(master, 65536)
    seen.set()
    assert process.communicate(timeout=60) == (b"1\n", None)
    with suppress(OSError):  # all is read, and the other side is closed
        while piece := os.read(master, 65536):
            shown += piece
    os.close(master)
    assert process.returncode == 0
    assert b"1 running" in shown
    assert shown.rstrip().endswith(b"tercel: job 37: 2 finished in " + shown.rstrip().rpartition(b" in ")[2])
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h")  # the cursor is back


def test_with_json_everything_is_json_lines(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/jobs", submitted(1))
    manager.says("GET", "/v1/jobs/37/tasks", outputs)
    manager.says("GET", "/v1/events", events(event(spoke=[(0, 0)], finished=1, done=True)))
    first, output, last = tercel("run", "--json", "--", "x").json_lines
    assert {line["schema"] for line in (first, output, last)} == {1}
    assert (first["event"], first["id"], first["tasks"]) == ("submitted", 37, 1)
    assert (output["event"], output["id"], output["stdout"]) == ("output", "37.0", "0\n")
    assert (last["event"], last["counts"]["finished"], last["exit_code"]) == ("ended", 1, 0)


# -- one task ---------------------------------------------------------------------------------------------


def test_one_task_is_shown_while_it_runs(tercel: Tercel, manager: FakeManager) -> None:
    followed = threading.Event()

    def logs(request: Request) -> Any:
        if request.query["stream"] == ["err"]:
            return stream(b"oh\n")
        return stream(b"a\n", followed.set, b"b")

    manager.says("POST", "/v1/jobs", submitted(1))
    manager.says("GET", LOGS, logs)
    manager.says("GET", "/v1/jobs/37/tasks/0", task(0, attempts=[attempt(out_bytes=3, err_bytes=3)]))
    manager.says(
        "GET",
        "/v1/events",
        stream(
            *events(event(running=1)).pieces,
            lambda: followed.wait(20),  # the task ends only after its output was shown
            *events(event(finished=1, done=True)).pieces,
        ),
    )
    assert tercel("run", "--", "x") == (0, "a\nb", "oh\n")


def test_what_following_missed_is_shown_at_the_end(tercel: Tercel, manager: FakeManager) -> None:
    def logs(request: Request) -> Any:
        if request.query["stream"] == ["err"]:
            return stream(b"")
        return stream(b"one\n", whole=False) if "follow" in request.query else stream(b"one\n", b"two\n")

    manager.says("POST", "/v1/jobs", submitted(1))
    manager.says("GET", LOGS, logs)
    manager.says("GET", "/v1/jobs/37/tasks/0", task(0, attempts=[attempt(out_bytes=8)]))
    manager.says("GET", "/v1/events", events(event(finished=1, done=True)))
    assert tercel("run", "--", "x").out == "one\ntwo\n"


def test_output_of_which_a_part_was_never_seen_is_not_shown_twice(
    tercel: Tercel, manager: FakeManager
) -> None:
    """It wrote more than is kept, faster than it could be followed."""

    def logs(request: Request) -> Any:
        if request.query["stream"] == ["err"]:
            return stream(b"")
        return stream(b"begin\n", b"end\n") if "follow" in request.query else stream(b"nd\n")

    manager.says("POST", "/v1/jobs", submitted(1))
    manager.says("GET", LOGS, logs)
    manager.says(
        "GET", "/v1/jobs/37/tasks/0", task(0, attempts=[attempt(out_bytes=30 * 2**20, out_cut=True)])
    )
    manager.says("GET", "/v1/events", events(event(finished=1, done=True)))
    done = tercel("run", "--", "x")
    assert (done.code, done.out) == (0, "begin\nend\n")
    assert "37.0 wrote 30.0 MiB to stdout; of that 10 B were kept long enough to be shown" in done.err


# -- really -----------------------------------------------------------------------------------------------


def real(*words: str, **more: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tercel", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_without_a_manager_one_runs_inside(home: Path) -> None:
    assert finish(real("run", "--", "echo", "hello")) == (0, "hello\n", "")
    code, out, err = finish(real("run", "echo out; echo err >&2; exit 3"))
    assert (code, out) == (1, "out\n")
    assert err.startswith("err\ntercel: 2.0 failed: ")
    data = home / "xdg_data_home" / "tercel"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert not list((home / "xdg_runtime_dir" / "tercel").iterdir())


def test_tasks_do_not_see_the_tokens(home: Path) -> None:
    env = {**os.environ, "TERCEL_TOKEN": "a.secret"}
    code, out, _ = finish(real("run", "--", "sh", "-c", "echo ${TERCEL_TOKEN:-none}", env=env))
    assert (code, out) == (0, "none\n")


async def becomes(ask: Any, process: "subprocess.Popen[str]") -> None:
    while not ask():
        assert process.poll() is None, process.communicate()
        await asyncio.sleep(0.01)


async def test_ctrl_c_cancels_the_job_and_says_so() -> None:
    process = real("run", "--array", "0-3", "--", "sh", "-c", "touch here; sleep 60")
    await becomes(Path("here").exists, process)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "cancelling job 1; Ctrl-C again leaves at once" in err
    assert "job 1: 4 cancelled" in err


async def test_what_a_killed_run_left_is_finished_by_the_next() -> None:
    process = real(
        "run",
        "--array",
        "0-1",
        "--",
        "sh",
        "-c",
        "test -e go || { touch here; sleep 60; }; touch $TERCEL_TASK_ID",
    )
    await becomes(Path("here").exists, process)
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 143
    assert "left; job 1 goes on with the next" in err
    Path("go").touch()
    code, out, err = finish(real("run", "--", "echo", "hello"))
    assert (code, out) == (0, "hello\n")
    assert "2 unfinished tasks of earlier jobs (1) come first" in err
    assert Path("0").exists() and Path("1").exists()


async def test_a_leftover_that_this_machine_cannot_run_does_not_keep_the_next_run_from_ending() -> None:
    process = real("run", "--array", "0-1", "--cpus", "1000", "--", "true")
    assert process.stderr is not None
    assert "job 1: 2 tasks" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143
    code, out, err = finish(real("run", "--", "echo", "hello"))
    assert (code, out) == (0, "hello\n")
    assert "job 1 is left: 2 ready: waits for cpus ≥ 1000: 0 of 1 worker have them" in err
    assert "`tercel cancel 1` gives up on that" in err


async def test_a_second_run_uses_the_manager_of_the_first() -> None:
    first = real("run", "--", "sh", "-c", "touch here; while [ ! -e go ]; do sleep 0.02; done")
    await becomes(Path("here").exists, first)
    second = real(
        "run", "--", "sh", "-c", "touch there; while [ ! -e go2 ]; do sleep 0.02; done; echo second"
    )
    await becomes(Path("there").exists, second)
    Path("go").touch()
    # The first one's own job is done, but it stays for the second's.
    Path("go2").touch()
    assert finish(second) == (0, "second\n", "")
    assert finish(first)[0] == 0


def test_two_runs_that_start_at_the_same_moment_share_one_manager() -> None:
    both = [real("run", "--", "sh", "-c", f"sleep 0.5; echo {name}") for name in ("a", "b")]
    assert [finish(process)[:2] for process in both] == [(0, "a\n"), (0, "b\n")]


def test_a_manager_that_is_named_is_never_replaced_by_one_inside(
    tercel: Tercel, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERCEL_TOKEN", "a.b")
    monkeypatch.setenv("TERCEL_SERVER", "http://127.0.0.1:1")
    done = tercel("run", "--", "true")
    assert done.code == 3
    assert "http://127.0.0.1:1" in done.err
    assert not (home / "xdg_data_home" / "tercel" / "tercel.db").exists()


def test_a_directory_that_is_not_there_is_told_before_anything_runs(tercel: Tercel, home: Path) -> None:
    done = tercel("run", "--cwd", "nowhere", "--", "true")
    assert (done.code, done.err) == (2, f"tercel: there is no directory {home}/work/nowhere\n")


def test_a_directory_that_is_closed_to_the_user_is_told_before_anything_runs(
    tercel: Tercel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", closed)
    done = tercel("run", "--cwd", "/root/x", "--", "true")
    assert (done.code, done.err) == (
        2,
        "tercel: the directory /root/x cannot be entered: Permission denied\n",
    )


def test_a_reader_that_leaves_ends_the_run_quietly() -> None:
    process = real("run", "--array", "0-99999", "--", "echo", "hi")
    assert process.stdout is not None
    assert process.stdout.readline() == "hi\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr is not None
    assert "nobody reads the output any more: job 1 is cancelled" in process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_harm_nobody(closed: str) -> None:
    line = f'"$0" -m tercel run -- sh -c "echo out; echo err >&2; touch ran" {closed}'
    done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout == ("" if " >&-" in f" {closed}" else "out\n")
    assert done.stderr == ("" if "2>&-" in closed else "err\n")
    assert Path("ran").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "words", [["--", "echo", "hi"], ["--array", "0-1", "--", "echo", "hi"], ["--json", "true"]]
)
def test_a_full_disk_under_the_output_is_not_called_a_bug(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tercel", "run", *words], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert done.returncode == 3
    assert b"tercel: cannot write to stdout: No space left on device\n" in done.stderr
