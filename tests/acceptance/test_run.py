"""`tercel run` as a newcomer uses it: no manager, an empty directory, real commands, and impatience."""

import signal
import sys
from pathlib import Path

import pytest

from tests.lab import RECORD, Lab, names
from tests.processes import Process, becomes, is_running

LASTING = f"{RECORD}; while [ ! -e go ]; do sleep 0.02; done"


def ids(lab: Lab) -> list[int]:
    """The pids that tasks wrote."""
    path = lab.work / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_an_array_runs_here_and_now(lab: Lab) -> None:
    done = lab.run("run", "--array", "0-4", "--", "sh", "-c", "echo task $TERCEL_TASK_ID")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"task {task}" for task in range(5)]
    assert "5 finished" in done.stderr


def test_each_line_of_a_file_is_a_task(lab: Lab) -> None:
    (lab.work / "commands.txt").write_text("echo one\n\n# not this\necho two | tr a-z A-Z\n")
    done = lab.run("run", "--each-line", "commands.txt", "--label")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["1.0: one", "1.1: TWO"]
    assert "2 blank or comment lines of commands.txt skipped" in done.stderr


def test_lines_may_come_from_a_pipe(lab: Lab) -> None:
    lines = "".join(f"echo {number}\n" for number in range(300))
    done = lab.run("run", "--each-line", "-", given=lines)
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, done.stdout.split())) == list(range(300))


def test_a_failed_task_is_named_and_gives_exit_code_1(lab: Lab) -> None:
    done = lab.run("run", "--array", "0-2", "--", "sh", "-c", 'echo oops >&2; [ "$TERCEL_TASK_ID" != 1 ]')
    assert done.returncode == 1
    assert "1.1 failed: exited with code 1: oops" in done.stderr
    assert "2 finished" in done.stderr


def test_a_command_that_does_not_exist_is_the_tasks_failure(lab: Lab) -> None:
    done = lab.run("run", "--", "./no-such-program")
    assert done.returncode == 1
    assert "no-such-program" in done.stderr


def test_exit_codes_and_output_of_one_command_pass_through_live(lab: Lab) -> None:
    done = lab.run("run", "printf 'no newline'; printf err >&2")
    assert (done.returncode, done.stdout) == (0, "no newline")
    assert "err" in done.stderr


async def test_ctrl_c_cancels_the_job(lab: Lab) -> None:
    run = lab.tercel("run", "--array", "0-3", "--", "sh", "-c", f"echo $$ >> pids; {LASTING}")
    await becomes(lambda: len(ids(lab)) >= 1, "a task runs")
    run.signal(signal.SIGINT)
    assert await run.ended() == 130
    assert "cancelling job 1" in run.said
    await becomes(lambda: not [pid for pid in ids(lab) if is_running(pid)], "nothing of it runs on")
    assert not lab.left()
    # The next one finds nothing left to do but its own.
    after = lab.run("run", "echo", "again")
    assert (after.returncode, after.stdout) == (0, "again\n")
    assert "unfinished" not in after.stderr


async def test_a_second_ctrl_c_leaves_at_once(lab: Lab) -> None:
    """Even if the task will not end."""
    line = "trap '' TERM INT; echo $$ >> pids; while :; do sleep 0.05; done"
    run = lab.tercel("run", "--", "sh", "-c", line)
    await becomes(lambda: len(ids(lab)) == 1, "the task runs")
    run.signal(signal.SIGINT)
    await run.says("cancelling job")
    run.signal(signal.SIGINT)
    assert await run.ended() == 130
    await becomes(lambda: not lab.left(), "nothing of it runs on")


async def test_sigterm_leaves_the_rest_to_the_next_one(lab: Lab) -> None:
    run = lab.tercel("run", "--array", "0-3", "--", "sh", "-c", LASTING)
    await becomes(lambda: len(lab.runs()) >= 1, "a task runs")
    run.signal(signal.SIGTERM)
    assert await run.ended() == 143
    assert "goes on with the next" in run.said
    await becomes(lambda: not lab.left(), "nothing of it runs on")
    (lab.work / "go").touch()
    after = lab.run("run", "true")
    assert after.returncode == 0
    assert "4 unfinished tasks of earlier jobs (1) come first" in after.stderr
    assert lab.runs().keys() == names(1, 4)


@pytest.mark.must("a")
async def test_a_killed_run_is_finished_by_the_next_and_what_was_done_is_not_redone(lab: Lab) -> None:
    line = f"[ $TERCEL_TASK_ID -lt 4 ] || while [ ! -e go ]; do sleep 0.02; done; {RECORD}"
    run = lab.tercel("run", "--array", "0-9", "--", "sh", "-c", line)
    await lab.ran(*names(1, 4))
    # Those four are not only done but known to be: only then is it wrong to do them again.
    await becomes(lambda: lab_records(lab) == 4, "the first four are recorded")
    run.kill()
    await becomes(lambda: not lab.left(), "its spawners and tasks go with it")
    (lab.work / "go").touch()

    after = lab.run("run", "echo", "mine")
    assert after.returncode == 0, after.stderr
    assert after.stdout == "mine\n"
    assert "6 unfinished tasks of earlier jobs (1) come first" in after.stderr
    assert lab.runs() == dict.fromkeys(names(1, 10), 1)
    assert lab_records(lab) == 11


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "told to leave"])
async def test_a_run_whose_manager_went_with_another_run_takes_its_place(
    lab: Lab, how: signal.Signals
) -> None:
    first = lab.tercel("run", "--array", "0-1", "--", "sh", "-c", LASTING)
    await lab.ran(*names(1, 2))
    second = lab.tercel("run", "--array", "0-3", "--", "sh", "-c", f"{RECORD}; echo $TERCEL_JOB_ID")
    await second.says("job 2: 4 tasks")
    first.signal(how)
    await first.ended()
    await second.says("this one goes on in its place")
    (lab.work / "go").touch()
    assert await second.ended() == 0
    assert "job 2: 4 finished" in second.said
    assert lab.runs().keys() == names(1, 2) | names(2, 4)
    assert lab_records(lab) == 6


def lab_records(lab: Lab) -> int:
    lab.data = Path(lab.env["XDG_DATA_HOME"]) / "tercel"
    return int(lab.store("SELECT count(*) FROM outcome WHERE state = 1")[0][0])


async def test_two_runs_at_once_share_one_manager(lab: Lab) -> None:
    both = [lab.tercel("run", "--array", "0", "--", "sh", "-c", f"echo {n}; {LASTING}") for n in ("a", "b")]
    await becomes(lambda: {name.partition(".")[0] for name in lab.runs()} == {"1", "2"}, "both jobs run")
    managers = [process for process in both if is_manager(lab, process)]
    assert len(managers) == 1
    assert lab.json("status")["jobs"] == 2
    (lab.work / "go").touch()
    assert [await process.ended() for process in both] == [0, 0], [process.said for process in both]
    assert [process.wrote for process in both] == ["a\n", "b\n"]
    assert lab.runs() == {"1.0": 1, "2.0": 1}
    assert not lab.left()


def is_manager(lab: Lab, process: Process) -> bool:
    return lab.access().pid == process.pid


async def test_the_first_run_stays_until_the_second_is_served(lab: Lab) -> None:
    first = lab.tercel("run", "--", "sh", "-c", f"{RECORD}; while [ ! -e first ]; do sleep 0.02; done")
    await lab.ran("1.0")
    second = lab.tercel(
        "run", "--", "sh", "-c", f"{RECORD}; while [ ! -e second ]; do sleep 0.02; done; echo served"
    )
    await lab.ran("2.0")
    (lab.work / "first").touch()
    await first.says("1 other job still under way")
    assert first.alive
    (lab.work / "second").touch()
    assert await second.ended() == 0, second.said
    assert second.wrote == "served\n"
    assert await first.ended() == 0, first.said


def test_a_dry_run_does_nothing(lab: Lab) -> None:
    done = lab.run("run", "--dry-run", "--array", "0-9", "--", "sh", "-c", RECORD)
    assert done.returncode == 0
    assert "Nothing is submitted" in done.stdout
    assert not lab.runs()
    assert not lab.access_file.exists()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--array", "9-0", "--", "true"),
        ("--each-line", "missing.txt"),
        ("--each-line", "/dev/null"),
        ("--mem", "lots", "--", "true"),
        ("--cpus", "0", "--", "true"),
        ("--no-such-option", "--", "true"),
    ],
)
def test_wrong_usage_starts_nothing(lab: Lab, words: tuple[str, ...]) -> None:
    done = lab.run("run", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("tercel: ")
    assert "Traceback" not in done.stderr
    assert not lab.access_file.exists()


def test_a_reader_that_has_enough_ends_the_job(lab: Lab) -> None:
    """`tercel run … | head -1` must not run on for nobody."""
    command = (
        f"{sys.executable} -m tercel run --array 0-999 -- sh -c 'echo $TERCEL_TASK_ID; sleep 0.1' | head -n 1"
    )
    shell = lab.start("sh", "-c", command)
    assert shell.wait() == 0
    assert not lab.left()
    assert len(shell.wrote.splitlines()) == 1
