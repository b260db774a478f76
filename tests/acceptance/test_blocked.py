"""Something outside is broken: tasks wait for it instead of failing, one probe watches it, and they go on when it is mended.

Real managers, workers, servers and scripts.
"""

import json

import pytest

from tests.acceptance.outages import blocked, condition, probed, server
from tests.lab import HASTY, Lab, free_port
from tests.processes import eventually

DIAL = "python3 -c 'import socket, sys; socket.create_connection((\"127.0.0.1\", int(sys.argv[1])), 5)'"


def needs_server(port: int) -> str:
    """A line that exits with 75 while nothing listens there."""
    return f"{DIAL} {port} 2>/dev/null || exit 75; echo done"


@pytest.mark.T(3, 4, 5, 6)
async def test_tasks_wait_while_a_server_is_down_and_go_on_when_it_is_up(lab: Lab) -> None:
    await lab.up()
    port = free_port()
    rule = f"exit:75 -> tcp:127.0.0.1:{port}; every 1s for 1h"
    lab.ok("submit", "--array", "0-4", "--block-on", rule, "--", "sh", "-c", needs_server(port))
    await blocked(lab, 1, 5)
    await probed(lab, 2)
    (row,) = lab.json("blocked")["conditions"]
    assert (row["tester"], row["tasks"]) == (f"tcp:127.0.0.1:{port}", 5)
    assert "connection refused" in row["note"]
    assert f"waits for tcp:127.0.0.1:{port} (C1)" in lab.ok("explain", "1.0")
    with server(port):
        (job,) = await lab.done([1])
    assert (job.counts.finished, job.counts.failed) == (5, 0)
    assert lab.json("blocked")["conditions"] == []
    (row,) = lab.json("blocked", "--all")["conditions"]
    assert row["closed"] == "cleared"
    attempts = lab.json("show", "1.0")["attempts"]
    assert [attempt["state"] for attempt in attempts] == ["blocked", "finished"]


@pytest.mark.T(8)
async def test_an_output_means_blocked_and_a_script_of_the_user_says_when_it_is_over(lab: Lab) -> None:
    await lab.up()
    (lab.work / "go.sh").write_text(
        "#!/bin/sh\n[ -e freed ] || { echo 'write: Disk quota exceeded' >&2; exit 1; }\necho stored\n"
    )
    (lab.work / "quota-ok.sh").write_text('#!/bin/sh\n[ "$LIMIT" = 5 ] && [ -e freed ]\n')
    for name in ("go.sh", "quota-ok.sh"):
        (lab.work / name).chmod(0o755)
    rule = "stderr:/Disk quota exceeded/ -> command:./quota-ok.sh; every 1s for 1h"
    lab.ok("submit", "--env", "LIMIT=5", "--block-on", rule, "--", "./go.sh")
    await blocked(lab, 1, 1)
    await probed(lab, 1)
    (lab.work / "freed").touch()
    (job,) = await lab.done([1])
    assert job.counts.finished == 1
    assert lab.ok("logs", "1.0") == "stored\n"
    told = "blocked on command:./quota-ok.sh (stderr:/Disk quota exceeded/): write: Disk quota exceeded"
    assert told in lab.ok("history", "1.0")


@pytest.mark.T(3, 8)
async def test_what_is_known_of_curl_and_ssh_is_waited_for_without_a_tester(lab: Lab) -> None:
    await lab.up()
    port = free_port()
    rule = ("--block-on", "known; every 1s for 1h")
    lab.ok("submit", *rule, "--", "curl", "-sS", f"http://127.0.0.1:{port}/")
    lab.ok("submit", *rule, "--", "ssh", "-o", "BatchMode=yes", "-p", str(port), "127.0.0.1", "true")
    lab.ok("submit", *rule, "--", "sh", "-c", "echo 'cannot connect' >&2; exit 7")
    await blocked(lab, 1, 1)
    await blocked(lab, 2, 1)
    testers = {row["tester"] for row in lab.json("blocked")["conditions"]}
    assert testers == {f"tcp:127.0.0.1:{port}", f"ssh:127.0.0.1:{port}"}
    (unknown,) = await lab.done([3])
    assert unknown.counts.failed == 1, "what is not known is a failure"
    lab.ok("cancel", "2")
    with server(port):  # it hangs up: curl's error is another one then, and not known
        await lab.done([1])
    states = [attempt["state"] for attempt in lab.json("show", "1.0")["attempts"]]
    assert states == ["blocked", "failed"]


@pytest.mark.must("a")
@pytest.mark.C(7)
async def test_blocked_tasks_outlive_a_manager_that_is_killed(lab: Lab) -> None:
    manager = await lab.manager_up("--heartbeat", "1s")
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    port = free_port()
    rule = f"exit:75 -> tcp:127.0.0.1:{port}; every 1s for 1h"
    lab.ok("submit", "--array", "0-9", "--block-on", rule, "--", "sh", "-c", needs_server(port))
    await blocked(lab, 1, 10)
    await probed(lab, 1)
    before = await condition(lab)
    manager.kill()
    await lab.manager_up("--heartbeat", "1s")
    after = await condition(lab)
    assert (after.id, after.opened_at, after.tasks) == (before.id, before.opened_at, 10)
    assert after.tests >= before.tests
    await probed(lab, after.tests + 1)
    with server(port):
        (job,) = await lab.done([1])
    assert (job.counts.finished, job.counts.failed) == (10, 0)


async def test_what_stays_broken_is_given_up_with_that_reason(lab: Lab) -> None:
    await lab.up()
    port = free_port()
    rule = f"exit:75 -> tcp:127.0.0.1:{port} @manager; every 1s for 1h at most 2 tests"
    lab.ok("submit", "--block-on", rule, "--retries", "5", "--", "sh", "-c", needs_server(port))
    (job,) = await lab.done([1])
    assert job.counts.failed == 1
    task = lab.json("show", "1.0")
    assert task["why"].startswith(f"blocked on tcp:127.0.0.1:{port}: gave up after 2 tests in ")
    assert "connection refused" in task["why"]
    # What the outside did spends no retry: it ran once.
    assert [attempt["state"] for attempt in task["attempts"]] == ["blocked"]


async def test_people_release_and_give_up_what_is_blocked(lab: Lab) -> None:
    await lab.up()
    rule = "exit:75 -> file:never; every 1h for 2d".replace("never", str(lab.work / "never"))
    line = "[ -e fixed ] || exit 75"
    lab.ok("submit", "--array", "0-3", "--block-on", rule, "--", "sh", "-c", line)
    await blocked(lab, 1, 4)
    (lab.work / "fixed").touch()
    assert lab.ok("blocked", "release", "C1", "--count", "1") == "1 task released\n"

    async def one_finished() -> bool:
        view = await lab.ask(lambda client: client.job(1))
        return view is not None and view.counts.finished == 1

    await eventually(one_finished, "the one that was released finishes")
    assert lab.ok("blocked", "fail", "C1", "--why", "no budget") == "3 tasks failed\n"
    (job,) = await lab.done([1])
    assert (job.counts.finished, job.counts.failed) == (1, 3)
    assert "no budget" in lab.ok("explain", "1")
    assert lab.ok("retry", "1") == "3 tasks will run again\n"
    (job,) = await lab.done([1])
    assert job.counts.finished == 4


async def test_nothing_starts_before_what_it_needs_is_there(lab: Lab) -> None:
    await lab.up()
    rule = f"start -> file:{lab.work / 'ready'}; every 1s for 1h"
    lab.ok("submit", "--array", "0-2", "--block-on", rule, "--", "touch", "ran")
    await blocked(lab, 1, 3)
    await probed(lab, 1)
    assert not (lab.work / "ran").exists()
    (lab.work / "ready").touch()
    (job,) = await lab.done([1])
    assert job.counts.finished == 3


async def test_a_run_says_what_its_tasks_are_blocked_on_and_waits_for_it(lab: Lab) -> None:
    port = free_port()
    rule = f"exit:75 -> tcp:127.0.0.1:{port}; every 1s for 1h"
    run = lab.tercel("run", "--block-on", rule, "--", "sh", "-c", needs_server(port))

    async def told() -> bool:
        return f"1 blocked on tcp:127.0.0.1:{port} (C1)" in run.said

    await eventually(told, "it says what is wrong")
    with server(port):

        async def over() -> bool:
            return not run.alive

        await eventually(over, "the run ends")
    assert (run.popen.returncode, run.wrote) == (0, "done\n")


async def test_an_interrupted_run_cancels_what_is_blocked(lab: Lab) -> None:
    rule = f"exit:75 -> file:{lab.work / 'never'}; every 1h for 2d"
    run = lab.tercel("run", "--array", "0-1", "--block-on", rule, "--", "sh", "-c", "exit 75")

    async def told() -> bool:
        return "2 blocked on file:" in run.said

    await eventually(told, "it says what is wrong")
    run.signal(2)

    async def over() -> bool:
        return not run.alive

    await eventually(over, "the run ends")
    assert run.popen.returncode == 130
    assert "2 cancelled" in run.said


@pytest.mark.must("e")
async def test_bad_rules_change_nothing(lab: Lab) -> None:
    await lab.up()
    for rule, said in (
        ("exit:75 tcp:a:1", "is not a rule"),
        ("exit:75 -> tpc:a:1", "did you mean tcp?"),
        ("exit:75 -> tcp:nowhere", "tcp"),
        ("exit:75 -> tcp:a:1; every 0s for 1h", "tests are from 1 s"),
        ("exit:75 -> tcp:a:1; every 2h for 1h", "it would never be tested"),
        ("exit:75 -> tcp:a:1; every 1h for 9999d", "a policy lasts from"),
    ):
        refused = lab.run("submit", "--block-on", rule, "--", "true")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in refused.stderr
    assert json.loads(lab.ok("--json", "list", "--all"))["jobs"] == []
    assert lab.json("blocked", "--all")["conditions"] == []


@pytest.mark.must("b")
async def test_an_outage_in_which_the_manager_is_killed_while_half_are_blocked(lab: Lab) -> None:
    manager = await lab.manager_up("--heartbeat", "1s")
    worker = lab.worker("w", 4, "", *HASTY)
    await lab.workers_online(1)
    port = free_port()
    rule = f"exit:75 -> tcp:127.0.0.1:{port}; every 1s for 1h"
    line = '[ -e licence ] || exit 75; echo "$TERCEL_TASK_ID" >> done'
    lab.ok("submit", "--array", "0-999", "--block-on", rule, "--", "sh", "-c", line)

    async def half() -> bool:
        view = await lab.ask(lambda client: client.job(1))
        return view is not None and view.counts.blocked >= 500

    await eventually(half, "half of them are blocked")
    manager.kill()
    await lab.manager_up("--heartbeat", "1s")
    await blocked(lab, 1, 1000)
    (lab.work / "licence").touch()
    with server(port):
        (job,) = await lab.done([1])
    assert (job.counts.finished, job.counts.failed) == (1000, 0)
    done = (lab.work / "done").read_text().split()
    assert sorted(map(int, done)) == list(range(1000)), "each of them did its work, and once"
    (row,) = lab.json("blocked", "--all")["conditions"]
    assert row["closed"] == "cleared"
    assert worker.alive
