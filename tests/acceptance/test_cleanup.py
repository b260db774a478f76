"""Cleanup and sandboxes with real processes: finished first, then the cleanup, then the next task; whatever happens to it."""

import os
import signal
from pathlib import Path

import pytest

from tercel import Executor
from tercel.core.presence import WorkerState
from tercel.core.states import TaskState
from tercel.wire.api import Submission, WorkerView
from tests.lab import HASTY, Lab
from tests.processes import becomes, eventually, is_running
from tests.sdk import work

pytestmark = pytest.mark.K(12, 13, 14)

ROOT = Path(__file__).parents[2]
UNTIL_TOLD = "while [ ! -e go ]; do sleep 0.02; done"


def note(what: str) -> str:
    return f'echo "{what} $TERCEL_TASK_ID" >> story'


def story(lab: Lab) -> list[str]:
    path = lab.work / "story"
    return path.read_text().splitlines() if path.exists() else []


async def told(lab: Lab, line: str) -> None:
    await becomes(lambda: line in story(lab), f"the story says {line!r}")


async def the_worker(lab: Lab) -> WorkerView:
    async with lab.client() as client:
        [worker] = (await client.pool()).workers
    return worker


async def worker_is(lab: Lab, state: WorkerState, note: str = "") -> None:
    async def ask() -> bool:
        worker = await the_worker(lab)
        return worker.state is state and note in worker.note

    await eventually(ask, f"the worker is {state} {note}")


async def test_each_task_is_finished_then_cleaned_up_after_and_only_then_comes_the_next(lab: Lab) -> None:
    await lab.manager_up()
    lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    line = f"{note('runs')}; exit $TERCEL_TASK_ID"
    cleanup = f"{UNTIL_TOLD}; {note('cleaned after $TERCEL_END $TERCEL_EXIT_CODE')}"
    id = await lab.submit(lab.shell(line, array="0-2", cleanup=cleanup))

    await worker_is(lab, WorkerState.CLEANING)
    async with lab.client() as client:
        assert (await client.task(id, 0)).state is TaskState.FINISHED, "before its cleanup is over"
        assert (await client.task(id, 1)).state is TaskState.READY, (
            "no offer is made into a place being cleaned"
        )
    assert story(lab) == ["runs 0"]
    (lab.work / "go").touch()
    [view] = await lab.done([id])

    assert (view.counts.finished, view.counts.failed) == (1, 2)
    await told(lab, "cleaned after exited 2 2")
    assert story(lab) == [
        *("runs 0", "cleaned after exited 0 0"),
        *("runs 1", "cleaned after exited 1 1"),
        *("runs 2", "cleaned after exited 2 2"),
    ]
    await worker_is(lab, WorkerState.AVAILABLE)


async def test_a_cleanup_finds_what_its_task_left_in_its_sandbox_and_the_next_task_does_not(lab: Lab) -> None:
    await lab.manager_up()
    lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    line = f"ls >> {lab.work}/found; touch left-by-$TERCEL_TASK_ID"
    cleanup = f"ls > {lab.work}/cleaned-$TERCEL_TASK_ID"
    id = await lab.submit(Submission(line=line, cleanup=cleanup, array="0-1", key="k"))
    await lab.done([id])
    for number in (0, 1):
        path = lab.work / f"cleaned-{number}"
        await becomes(lambda path=path: path.exists() and path.read_text(), f"{path} is written")
        assert path.read_text() == f"left-by-{number}\n"
    assert (lab.work / "found").read_text() == ""


async def test_a_cleanup_that_hangs_is_killed_with_its_tree_and_told(lab: Lab) -> None:
    await lab.manager_up()
    worker = lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    hanging = "setsid sh -c 'echo $$ > hanging; exec sleep 1000' & wait"
    id = await lab.submit(lab.shell(note("runs"), cleanup=hanging, cleanup_limit_s=0.3, kill_grace_s=0.1))
    [view] = await lab.done([id])
    assert view.counts.finished == 1
    await worker_is(
        lab, WorkerState.AVAILABLE, f"the cleanup after {id}.0 was killed: it took longer than 0.3 s"
    )
    assert not is_running(int((lab.work / "hanging").read_text()))
    assert f"The cleanup after {id}.0 was killed" in worker.said

    # It goes on, and what is told of it ends with the next cleanup that is well.
    id = await lab.submit(lab.shell(note("runs"), cleanup=note("cleaned")))
    await lab.done([id])
    await told(lab, "cleaned 0")

    async def silent() -> bool:
        return (await the_worker(lab)).note == ""

    await eventually(silent, "nothing is said of it any more")


async def test_a_cleanup_that_fails_is_told_with_its_last_words(lab: Lab) -> None:
    await lab.manager_up()
    worker = lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell("true", cleanup="echo no such disk >&2; exit 7"))
    await lab.done([id])
    await worker_is(lab, WorkerState.AVAILABLE, f"the cleanup after {id}.0 failed with exit code 7")
    await becomes(lambda: "no such disk" in worker.said, "the worker's log has its last words")
    assert "failed with exit code 7" in lab.ok("pool")


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_what_was_ended_is_cleaned_up_after_as_well(lab: Lab, how: str) -> None:
    await lab.manager_up()
    lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    limit_s = 0.3 if how == "timeout" else 0.0
    cleanup = note("cleaned after $TERCEL_END")
    id = await lab.submit(lab.shell(f"{note('runs')}; sleep 1000", cleanup=cleanup, time_limit_s=limit_s))
    await told(lab, "runs 0")
    if how == "cancel":
        await lab.running(id, 1)
        lab.ok("cancel", str(id))
    await lab.done([id])
    await told(lab, f"cleaned after {'timed_out' if how == 'timeout' else 'cancelled'} 0")
    await worker_is(lab, WorkerState.AVAILABLE)


@pytest.mark.must("b")
async def test_a_worker_that_dies_while_cleaning_costs_nothing_and_is_expected_back(lab: Lab) -> None:
    """As one that starts its machine anew: everything of it is killed, from within its cleanup."""
    await lab.manager_up("--heartbeat", "1s", "--grace", "1s")
    worker = lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    suicide = f"echo $$ > cleaner; kill -9 {worker.pid}; sleep 1000"
    id = await lab.submit(lab.shell(note("runs"), array="0-1%1", cleanup=suicide, retries=0))

    await worker_is(lab, WorkerState.OFFLINE, "was cleaning up; it is expected back")
    cleaner = int((lab.work / "cleaner").read_text())
    await becomes(lambda: not is_running(cleaner), "the cleanup died with its worker")
    async with lab.client() as client:
        [first, second] = (await client.tasks(id)).tasks
    assert (first.state, second.state) == (TaskState.FINISHED, TaskState.READY)
    assert "was cleaning up" in lab.ok("pool", "--all")

    (lab.work / "story").write_text("")
    lab.worker("w", 1, "", *HASTY)  # the same worker, on the same directory: it would be killed by name only
    await lab.done([id])
    assert story(lab) == ["runs 1"], "the first task is not run again"
    async with lab.client() as client:
        assert [len((await client.task(id, number)).attempts) for number in (0, 1)] == [1, 1]


async def test_without_a_link_the_cleanup_waits_until_the_report_is_acknowledged(lab: Lab) -> None:
    manager = await lab.manager_up("--heartbeat", "1s", "--grace", "60s")
    lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(f"{note('runs')}; {UNTIL_TOLD}; {note('ends')}", cleanup=note("cleaned")))
    await lab.running(id, 1)
    manager.signal(signal.SIGSTOP)
    (lab.work / "go").touch()
    await told(lab, "ends 0")
    manager.kill()
    await lab.manager_up("--heartbeat", "1s", "--grace", "60s")
    await lab.done([id])
    await told(lab, "cleaned 0")
    assert story(lab) == ["runs 0", "ends 0", "cleaned 0"]


async def test_a_drained_worker_leaves_when_it_has_cleaned_up(lab: Lab) -> None:
    await lab.manager_up()
    worker = lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(note("runs"), cleanup=f"{UNTIL_TOLD}; {note('cleaned')}"))
    await worker_is(lab, WorkerState.CLEANING)
    lab.ok("worker", "drain", lab.worker_id("w"))
    await worker_is(lab, WorkerState.DRAINING)
    (lab.work / "go").touch()
    await becomes(lambda: not worker.alive, "the worker has left")
    assert story(lab) == ["runs 0", "cleaned 0"]
    assert (await lab.done([id]))[0].counts.finished == 1


async def test_calls_of_functions_are_cleaned_up_after_too(lab: Lab) -> None:
    lab.env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    await lab.manager_up()
    lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    access = lab.access()
    resources = {"cleanup": f"echo $TERCEL_TASK_ID >> {lab.work}/story"}
    with Executor(access.url, token=access.token, resources=resources) as pool:
        assert list(pool.map(work.square, range(5))) == [0, 1, 4, 9, 16]
    await becomes(lambda: len(story(lab)) == 5, "all are cleaned up after")
    assert story(lab) == ["0", "1", "2", "3", "4"]
    await worker_is(lab, WorkerState.AVAILABLE)


# -- sandboxes ---------------------------------------------------------------------------------------------


@pytest.mark.C(11)
@pytest.mark.parametrize(
    ("keep", "code", "kept"),
    [("keep", 0, True), ("keep", 3, True), ("keep-on-failure", 0, False), ("keep-on-failure", 3, True)],
)
async def test_a_sandbox_is_kept_as_its_job_says_and_its_place_is_told(
    lab: Lab, keep: str, code: int, kept: bool
) -> None:
    await lab.manager_up()
    lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    words = ("--cwd", "sandbox", "--sandbox", keep, "--", "sh", "-c", f"echo data > result; exit {code}")
    id = int(lab.ok("submit", *words))
    await lab.done([id])
    async with lab.client() as client:
        [attempt] = (await client.task(id, 0)).attempts
    place = lab.worker_dir("w") / "kept" / f"{id}.0.{attempt.attempt}"
    if kept:
        assert "sandbox kept: " in attempt.note
        assert attempt.note.endswith(f":{place}")
        assert (place / "result").read_text() == "data\n"
        assert str(place) in lab.ok("show", f"{id}.0")
    else:
        assert "sandbox" not in attempt.note
        assert not place.exists()


async def test_only_the_newest_sandboxes_are_kept(lab: Lab) -> None:
    await lab.manager_up()
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    line = "mkdir -p deep/er; touch deep/er/$TERCEL_TASK_ID; chmod 0 deep; exit 1"
    id = await lab.submit(Submission(line=line, sandbox="keep-on-failure", array="0-129", key="k"))
    await lab.done([id])
    kept = sorted((lab.worker_dir("w") / "kept").iterdir(), key=lambda path: int(path.name.split(".")[1]))
    assert 95 <= len(kept) <= 102
    numbers = {int(path.name.split(".")[1]) for path in kept}
    assert numbers >= set(range(40, 130))
