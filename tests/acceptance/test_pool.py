"""A lab's pool as its users see it: `up`, submit, look, wait, cancel, retry, leave."""

import json
import os
import signal
from typing import Any

import pytest

from tercel.core.states import TaskState
from tests.lab import HASTY, RECORD, Lab, names
from tests.processes import becomes, connections, is_running

UNTIL_TOLD = f"{RECORD}; while [ ! -e go ]; do sleep 0.02; done"


def go(lab: Lab) -> None:
    (lab.work / "go").touch()


async def test_the_life_of_a_job(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    assert "none under way" in lab.ok("status")
    assert (
        lab.ok("submit", "-J", "greet", "--array", "0-2", "--", "sh", "-c", "echo hello $TERCEL_TASK_ID")
        == "1\n"
    )
    assert "3 finished" in lab.ok("wait", "1")
    assert lab.ok("logs", "1.2") == "hello 2\n"
    assert sorted(lab.ok("logs", "1", "--label").splitlines()) == [f"1.{n}: hello {n}" for n in range(3)]
    assert "greet" in lab.ok("list", "--all")
    assert "greet" not in lab.ok("list")
    assert "finished" in lab.ok("show", "1.2")
    assert lab.ok("explain", "1.0").startswith("1.0: ")
    assert lab.json("show", "last")["counts"]["finished"] == 3


async def test_a_failed_job_is_retried_under_the_same_ids(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    line = f"{RECORD}; [ $TERCEL_TASK_ID != 1 ] || [ -e fixed ] || {{ echo broken >&2; exit 4; }}"
    lab.ok("submit", "--array", "0-2", line)
    failed = lab.run("wait", "1")
    assert failed.returncode == 1
    assert "1.1 failed: exited with code 4: broken" in failed.stderr
    assert lab.json("show", "1")["counts"] == {
        "waiting": 0, "paused": 0, "blocked": 0, "ready": 0, "offered": 0, "staging_in": 0, "running": 0, "staging_out": 0, "finished": 2, "failed": 1, "cancelled": 0,
    }  # fmt: skip
    (lab.work / "fixed").touch()
    assert lab.json("retry", "1")["retried"] == 1
    assert lab.run("wait", "1").returncode == 0
    task = lab.json("show", "1.1")
    assert task["state"] == "finished"
    assert [attempt["code"] for attempt in task["attempts"]] == [4, 0]
    assert lab.runs() == {"1.0": 1, "1.1": 2, "1.2": 1}
    assert lab.json("retry", "1")["retried"] == 0, "finished tasks are left alone"


async def test_tasks_are_tried_again_as_often_as_their_job_says(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    lab.ok("submit", "--retries", "2", f"{RECORD}; exit 5")
    assert lab.run("wait", "1").returncode == 1
    assert lab.runs() == {"1.0": 3}
    assert [attempt["code"] for attempt in lab.json("show", "1.0")["attempts"]] == [5, 5, 5]


async def test_cancel_ends_what_runs_and_what_waits(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    lab.ok("submit", "--array", "0-5", f"echo $$ >> pids; {UNTIL_TOLD}")
    await lab.running(1, 2)
    explained = lab.ok("explain", "1.5")
    assert "waits for a free slot" in explained
    assert "2 tasks cancelled" in lab.ok("cancel", "1.0,5", "--reason", "not these")
    assert "4 tasks cancelled" in lab.ok("cancel", "1")
    assert lab.run("wait", "1").returncode == 1
    assert lab.json("show", "1")["counts"]["cancelled"] == 6
    assert "not these" in lab.ok("explain", "1.5")
    pids = [int(pid) for pid in (lab.work / "pids").read_text().split()]
    await becomes(lambda: not [pid for pid in pids if is_running(pid)], "what ran is ended")
    assert lab.json("cancel", "1")["cancelled"] == 0
    assert len(lab.runs()) == len(pids), "what waited never ran"


async def test_a_time_limit_ends_the_task_and_says_so(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    lab.ok("submit", "-t", "0.3s", "sleep 1000")
    assert lab.run("wait", "1").returncode == 1
    assert "time limit" in lab.json("show", "1.0")["why"]


async def test_explain_names_what_no_worker_has(lab: Lab) -> None:
    await lab.up("--cpus", "2", "--mem", "1G")
    lab.ok("submit", "-c", "64", "true")
    lab.ok("submit", "--mem", "64G", "true")
    assert "cpus ≥ 64: 0 of 1 worker have them; the largest has 2" in lab.ok("explain", "1.0")
    assert "memory ≥ 64 GB: 0 of 1 worker have it; the largest has 1 GB" in lab.ok("explain", "2")
    lab.ok("submit", "--cwd", "/no/such/place", "true")
    await becomes(
        lambda: "waits for dir:/no/such/place" in lab.ok("explain", "3.0"), "what it waits for is told"
    )
    (told,) = (line for line in lab.ok("history", "3.0").splitlines() if "blocked" in line)
    assert "launch at " in told
    assert "ENOENT; " in told


async def test_the_environment_of_a_task(lab: Lab) -> None:
    os.environ["TERCEL_TEST_UNSEEN"] = "x"
    try:
        await lab.up("--cpus", "1")
    finally:
        del os.environ["TERCEL_TEST_UNSEEN"]
    lab.ok("submit", "--array", "7", "--env", "MINE=a b", "--env", "HOME", "env -0; pwd > where")
    lab.ok("wait", "1")
    found = dict(entry.split("=", 1) for entry in lab.ok("logs", "1.7").split("\0") if entry)
    assert found["TERCEL_JOB_ID"] == "1"
    assert found["TERCEL_TASK_ID"] == found["SLURM_ARRAY_TASK_ID"] == "7"
    assert int(found["TERCEL_ATTEMPT"]) > 0
    assert found["TERCEL_NODE"]
    assert found["TERCEL_SANDBOX"].startswith(str(lab.data))
    assert found["MINE"] == "a b"
    assert found["HOME"] == lab.env["HOME"]
    assert not {name for name in found if "TOKEN" in name}, "a task must not learn the worker's token"
    assert (lab.work / "where").read_text().strip() == str(lab.work)
    lab.ok(
        "submit",
        "--cwd",
        "sandbox",
        "--task-id-argument",
        "--array",
        "3",
        "--",
        "sh",
        "-c",
        'pwd; ls -A; echo "$@"',
        "x",
    )
    lab.ok("wait", "2")
    where, argument = lab.ok("logs", "2.3").splitlines()
    assert where.startswith(str(lab.data))
    assert argument == "3"


async def test_follow_shows_output_while_it_is_written(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    lab.ok("submit", "echo first; echo aside >&2; while [ ! -e go ]; do sleep 0.02; done; echo second")
    follower = lab.tercel("logs", "--follow", "1.0")
    errors = lab.tercel("logs", "--follow", "--stderr", "1")
    await follower.says("first\n")
    await errors.says("aside\n")
    assert follower.alive
    go(lab)
    assert await follower.ended() == 0, follower.said
    assert await errors.ended() == 0, errors.said
    assert follower.wrote == "first\nsecond\n"
    assert errors.wrote == "aside\n"
    assert lab.ok("logs", "1") == "first\nsecond\n"


async def test_follow_waits_for_a_task_that_has_not_begun(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s")
    lab.ok("submit", "echo here it is")
    follower = lab.tercel("logs", "--follow", "1.0")
    lab.worker("w", 1, "", *HASTY)
    assert await follower.ended() == 0, follower.said
    assert follower.wrote == "here it is\n"


async def test_wait_survives_a_restart_of_the_manager(lab: Lab) -> None:
    manager = await lab.manager_up("--heartbeat", "1s")
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-3"))
    await lab.running(id, 2)
    waiting = [
        lab.tercel("wait", str(id)),
        lab.tercel("wait", f"{id}.0-1"),
        lab.tercel("--json", "wait", "all"),
    ]
    # The first asks at once for nothing but the stream of events; the others have asked something before.
    for process, count in zip(waiting, (1, 2, 2), strict=True):
        await becomes(lambda p=process, n=count: connections(p.pid, lab.port) >= n, "it waits")  # type: ignore[misc]
    lab.ok("status")  # answered after those that came before it
    manager.kill()
    for process in waiting:
        await process.says("the manager is away")
    await lab.manager_up("--heartbeat", "1s")
    go(lab)
    assert [await process.ended() for process in waiting] == [0, 0, 0], [process.said for process in waiting]
    assert waiting[0].wrote == f"{id}: 4 finished\n"
    assert json.loads(waiting[2].wrote)["jobs"][0]["counts"]["finished"] == 4
    assert lab.runs() == dict.fromkeys(names(id, 4), 1)


async def test_wait_for_some_tasks_does_not_wait_for_the_others(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    lab.ok(
        "submit",
        "--array",
        "0-3",
        f"{RECORD}; [ $TERCEL_TASK_ID -lt 3 ] || while [ ! -e go ]; do sleep 0.02; done",
    )
    early = lab.tercel("wait", "1.0-1")
    assert await early.ended() == 0, early.said
    await lab.ran("1.2")
    assert "2 finished" in lab.ok("wait", "1.0-1"), "they have ended before anybody asked"
    assert lab.json("show", "1")["counts"]["finished"] < 4
    go(lab)
    lab.ok("wait", "1")


# -- leaving ----------------------------------------------------------------------------------------------


async def test_a_worker_told_to_leave_finishes_what_runs(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    lab.watch_records()
    worker = lab.worker("leaving", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-5"))
    await lab.running(id, 2)
    worker.signal(signal.SIGTERM)
    await becomes(
        lambda: lab.json("pool")["workers"][0]["state"] == "draining", "the pool shows that it drains"
    )
    lab.worker("staying", 2, "", *HASTY)
    await lab.running(id, 4)
    assert worker.alive
    go(lab)
    assert await worker.ended() == 0, worker.said
    await lab.done([id])
    assert lab.runs() == dict.fromkeys(names(id, 6), 1)
    pool = lab.json("pool", "--all")["workers"]
    assert {one["state"] for one in pool if one["id"] == lab.worker_id("leaving")} == {"offline"}
    assert not lab.replaced_records()


async def test_a_worker_told_twice_leaves_at_once_and_its_tasks_run_elsewhere(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    worker = lab.worker("leaving", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-1", retries=0))
    await lab.running(id, 2)
    worker.signal(signal.SIGTERM)
    await worker.says("finishing what runs")
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.said
    await becomes(lambda: not lab.worker_processes("leaving"), "nothing of it runs on")
    lab.worker("staying", 2, "", *HASTY)
    go(lab)
    [view] = await lab.done([id])
    assert view.counts.finished == 2
    assert lab.runs() == dict.fromkeys(names(id, 2), 2)
    assert lab.store("SELECT task, spent FROM history ORDER BY task") == [(0, 0), (1, 0)], (
        "no retry was spent"
    )


async def test_a_worker_can_be_drained_from_afar(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    worker = lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-1"))
    await lab.running(id, 1)
    assert lab.json("worker", "drain", lab.worker_id())["draining"] == 1
    go(lab)
    assert await worker.ended() == 0, worker.said
    assert lab.runs() == {f"{id}.0": 1}
    assert "draining" in lab.ok("explain", f"{id}.1") or "no worker is connected" in lab.ok(
        "explain", f"{id}.1"
    )


async def test_up_told_to_stop_finishes_what_runs_and_keeps_the_rest(lab: Lab) -> None:
    up = await lab.up("--cpus", "2")
    lab.watch_records()
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-5"))
    await lab.running(id, 2)
    up.signal(signal.SIGTERM)
    await up.says("running tasks may end now")
    go(lab)
    assert await up.ended() == 0, up.said
    assert not lab.access_file.exists()
    assert not lab.left()
    assert lab.runs() == dict.fromkeys(names(id, 2), 1)
    again = await lab.up("--cpus", "2")
    await again.says("4 tasks from before")
    await lab.done([id])
    assert lab.runs() == dict.fromkeys(names(id, 6), 1)
    assert not lab.replaced_records()


async def test_up_killed_and_started_again_goes_on_at_once(lab: Lab) -> None:
    up = await lab.up("--cpus", "2", "--grace", "1h")
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-5"))
    await lab.running(id, 2)
    up.kill()
    await becomes(lambda: not lab.left(), "its spawners and tasks go with it")
    await lab.up("--cpus", "2", "--grace", "1h")
    go(lab)
    await lab.done([id])
    assert sorted(lab.runs().values()) == [1, 1, 1, 1, 2, 2]


async def test_up_twice_on_one_directory_is_refused(lab: Lab) -> None:
    await lab.up("--cpus", "1")
    second = lab.run("up", "--port", "0", "--data", str(lab.data))
    assert second.returncode == 2
    assert "another manager" in second.stderr
    assert lab.run("status").returncode == 0, "the first one is unharmed"


async def test_nobody_answers_where_no_manager_is(lab: Lab) -> None:
    for words in (("status",), ("submit", "true"), ("wait", "1"), ("logs", "1"), ("pool",), ("list",)):
        done = lab.run(*words)
        assert done.returncode == 3, words
        assert "no manager runs here: start one with `tercel up`" in done.stderr
    named = lab.run("--server", lab.url, "status", env={"TERCEL_TOKEN": "a.b"})
    assert named.returncode == 3
    assert "no manager answers" in named.stderr


# -- what programs read -----------------------------------------------------------------------------------


def documents(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert found
    assert all(document["schema"] == 1 for document in found), text
    return found


async def test_every_command_speaks_json(lab: Lab) -> None:
    up = await lab.up("--cpus", "2", "--json")
    await becomes(lambda: up.wrote.endswith("\n"), "it announces itself")
    [announced] = documents(up.wrote)
    assert announced["url"] == lab.url
    (lab.work / "lines").write_text("echo one\necho two\n")
    assert documents(
        lab.ok("--json", "submit", "--array", "0-2", "-J", "n", "echo hi; [ $TERCEL_TASK_ID != 2 ]")
    ) == [{"schema": 1, "id": 1, "tasks": 3, "name": "n"}]
    assert lab.run("--json", "wait", "1").returncode == 1
    submitted, ended = documents(lab.ok("submit", "--json", "--wait", "--each-line", "lines"))
    assert submitted["tasks"] == ended["counts"]["finished"] == 2
    commands = [
        ("submit", "--dry-run", "true"),
        ("run", "--dry-run", "true"),
        ("status",),
        ("list", "--all"),
        ("show", "1"),
        ("show", "1.2"),
        ("show", "1.0-1"),
        ("logs", "1.0"),
        ("logs", "1"),
        ("logs", "2.0", "--follow"),
        ("wait", "2"),
        ("wait", "1.0-1"),
        ("cancel", "all"),
        ("retry", "2"),
        ("explain", "1"),
        ("explain", "1.2"),
        ("pool",),
        ("worker", "list", "--all"),
        ("token", "create", "--role", "user", "--user", "ada"),
        ("token", "list"),
        ("version",),
    ]
    for words in commands:
        done = lab.run("--json", *words)
        assert done.returncode == 0, (words, done.stderr)
        documents(done.stdout)
    ran = documents(lab.ok("run", "--json", "--each-line", "lines"))
    assert [document["event"] for document in ran] == ["submitted", "output", "output", "ended"]
    assert sorted(document["stdout"] for document in ran if document["event"] == "output") == [
        "one\n",
        "two\n",
    ]
    token = lab.json("token", "create", "--role", "worker")
    assert lab.json("token", "revoke", token["id"])
    for words in (("show", "99"), ("logs", "1.99"), ("submit",), ("cancel", "x y"), ("no-such-command",)):
        wrong = lab.run("--json", *words)
        assert wrong.returncode == 2, words
        [problem] = documents(wrong.stdout)
        assert problem["error"], words
        assert problem["kind"] in ("usage", "not_found"), words
    [drained] = documents(lab.ok("--json", "worker", "drain", lab.json("pool")["workers"][0]["id"]))
    assert drained["draining"] == 1


async def test_states_in_json_are_those_of_the_model(lab: Lab) -> None:
    await lab.manager_up()
    lab.ok("submit", "--array", "0-1", "true")
    shown = lab.json("show", "1.0-1")["tasks"]
    assert [TaskState(task["state"]) for task in shown] == [TaskState.READY, TaskState.READY]
    assert all("no worker is connected" in task["why"] for task in shown)


@pytest.mark.parametrize("words", [("status",), ("list",), ("pool",)])
async def test_output_for_people_has_no_colours_where_nobody_looks(lab: Lab, words: tuple[str, ...]) -> None:
    await lab.up("--cpus", "1")
    assert "\x1b" not in lab.ok(*words)
