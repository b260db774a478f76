"""Conditions over HTTP: what blocks tasks, who tests it, who may decide about it, how it is told, and that it lasts."""

import asyncio
import math
import socket
from pathlib import Path
from typing import Any

import pytest

from tercel.core.conditions import Verdict
from tercel.core.model import Role
from tercel.core.reports import End
from tercel.wire.api import ConditionList, ConditionView, Counted, JobList, Submission, SwitchList
from tercel.wire.messages import Probe, Probed
from tests.api.house import Answer, House, Scripted, inline, open_house
from tests.api.scene import Scene

LICENCE = {"on": "exit:75", "tester": "tcp:licence.lab:27000", "policy": "every 1h for 2d"}
"""So seldom that it is tested only when somebody asks for it."""


async def blocked(house: House, worker: Scripted, job: int = 0, code: int = 75) -> None:
    """The next task that is offered meets the fault."""
    await worker.report(await worker.offered(job), code=code)


async def conditions(house: House, query: str = "", token: str = "") -> list[ConditionView]:
    return (await house.get(f"/v1/conditions{query}", ConditionList, token)).conditions


async def change(house: House, what: str, id: int = 1, token: str = "", **body: Any) -> Answer:
    path = f"/v1/conditions/{id}/{what}"
    return await house.ask("POST", path, token=token, json=body if what in ("release", "fail") else None)


# -- what blocks, and what goes on ------------------------------------------------------------------------


@pytest.mark.T(3, 4, 5, 6)
async def test_tasks_that_meet_the_same_fault_share_one_condition_and_one_probe(house: House) -> None:
    worker = await house.worker(cpus=2)
    await house.submit(array="0-1", block_on=[LICENCE])
    await house.submit(block_on=[LICENCE | {"tester": " TCP:Licence.lab:27000"}])
    for _ in range(3):
        await blocked(house, worker)
    (one,) = await conditions(house)
    assert (one.tester, one.tasks, one.job_count, one.tests) == ("tcp:licence.lab:27000", 3, 2, 0)
    assert [(job.job, job.tasks, job.count) for job in one.jobs] == [(1, "0-1", 2), (2, "0", 1)]
    assert one.next_test_at == pytest.approx(one.opened_at + 3600)
    assert one.gives_up_at == pytest.approx(one.opened_at + 2 * 86_400)
    assert (await house.job(1)).counts.blocked == 2
    assert (await house.status()).counts.blocked == 3

    assert (await change(house, "test")).of(Counted).count == 1
    probe = await worker.next(Probe)
    assert (probe.tester, probe.cwd, probe.env) == ("tcp:licence.lab:27000", "", {})
    assert (await conditions(house))[0].testing
    await worker.say(Probed(probe.number, Verdict(False, 0, "connection refused\x1b[2J")))
    await worker.settled()
    (one,) = await conditions(house)
    assert (one.tests, one.note, one.testing) == (1, "connection refused [2J", False)

    await change(house, "test")
    await worker.say(Probed((await worker.next(Probe, 1)).number, Verdict(True)))
    for _ in range(3):
        await worker.report(await worker.offered())
    assert (await house.ended(1)).counts.finished == 2
    assert (await house.ended(2)).counts.finished == 1
    assert len(worker.all(Probe)) == 2
    assert await conditions(house) == []
    (one,) = await conditions(house, "?all=true")
    assert (one.closed, one.tasks, one.next_test_at, one.jobs) == ("cleared", 0, None, [])


async def test_a_blocked_task_says_what_it_waits_for_and_how_its_attempts_ended(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    await blocked(house, worker)
    task = await house.task(1, 0)
    assert (task.state, task.condition) == ("blocked", 1)
    assert [(attempt.state, attempt.code, attempt.blame) for attempt in task.attempts] == [
        ("blocked", 75, "outside")
    ]
    told = "waits for tcp:licence.lab:27000 (C1): not tested yet; first tested in 60 min, given up in 48 h"
    assert task.why == told
    assert await house.explain("1.0") == told
    assert await house.explain("1") == f"1 blocked: {told}"
    assert [view.task for view in (await house.tasks(1, "?state=blocked")).tasks] == [0]


async def test_what_a_blocked_task_wrote_can_be_read_also_when_it_was_given_up(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    await worker.report(await worker.offered(1), code=75, out=inline(b"asked"), err=inline(b"no licence"))
    await house.until(lambda: house.manager.machine.conditions, "it is blocked")

    async def written() -> tuple[bytes, bytes]:
        logs = "/v1/jobs/1/tasks/0/logs"
        return (await house.ask("GET", logs)).body, (await house.ask("GET", f"{logs}?stream=err")).body

    assert await written() == (b"asked", b"no licence")
    assert (await change(house, "fail", why="enough")).status == 200
    await house.ended(1)
    assert await written() == (b"asked", b"no licence")


async def test_a_failure_that_no_rule_names_says_how_one_could(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    await blocked(house, worker, code=3)
    task = await house.task(1, 0)
    assert (task.state, task.condition) == ("failed", None)
    assert task.hint == "if this is not its fault: --block-on 'exit:3 -> TESTER'"
    assert await conditions(house) == []


@pytest.mark.T(3)
async def test_a_blocked_task_tells_in_which_stage_it_met_what_it_waits_for(house: House) -> None:
    worker = await house.worker(cpus=2)
    await house.submit(array="0-1", cwd="/data")
    tried = [await worker.offered() for _ in range(2)]
    for report, end in zip(tried, (End.REFUSED, End.INTERRUPTED), strict=True):
        await worker.report(report, end=end, errno="ENOENT", note="no /data")
    (row,) = await conditions(house)
    assert (row.tester, row.tasks) == ("dir:/data", 2)
    told = [await house.task(1, task) for task in (0, 1)]
    assert [task.stage for task in told] == ["launch", "run"]
    assert {task.resumes_in for task in told} == {"ready"}
    await house.ask("POST", f"/v1/conditions/{row.id}/release", json={})
    assert (await house.task(1, 0)).stage is None


async def test_a_task_that_is_held_tells_that_it_will_be_blocked_again(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="0-1", block_on=[LICENCE])
    await blocked(house, worker)
    await blocked(house, worker)
    await house.ask("POST", "/v1/hold", json={"select": ["1.0"]})
    task = await house.task(1, 0)
    assert (task.state, task.resumes_in) == ("paused", "blocked")
    assert "waits for tcp:licence.lab:27000 again" in task.why
    await house.ask("POST", "/v1/release", json={"select": ["1.0"]})
    assert (await house.task(1, 0)).state == "blocked"


async def test_a_command_is_tested_in_the_directory_and_with_the_variables_of_its_job(house: House) -> None:
    worker = await house.worker()
    rule = {"on": "exit:75", "tester": "command:./ok.sh", "policy": "every 1h"}
    await house.submit(block_on=[rule], cwd="/data/lab", env={"LAB": "1"})
    await blocked(house, worker)
    await change(house, "test")
    probe = await worker.next(Probe)
    assert (probe.tester, probe.cwd, probe.env) == ("command:./ok.sh", "/data/lab", {"LAB": "1"})
    # Variables may hold secrets: they are shown to nobody.
    assert b"LAB" not in (await house.ask("GET", "/v1/conditions/1")).body


@pytest.mark.T(8)
async def test_the_manager_tests_what_is_to_be_tested_there(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        rule = {"on": "exit:75", "tester": f"tcp:127.0.0.1:{port}", "at": "manager", "policy": "every 1h"}
        worker = await house.worker()
        await house.submit(block_on=[rule])
        await blocked(house, worker)
        assert (await conditions(house))[0].place == "manager"
        await change(house, "test")
        await worker.report(await worker.offered())
        assert (await house.ended(1)).counts.finished == 1
        assert worker.all(Probe) == []


@pytest.mark.T(8, 9)
async def test_the_managers_books_are_asked_nowhere_else(house: House) -> None:
    await house.ask("PUT", "/v1/queues/chem", json={"paused": True})
    worker = await house.worker()
    await house.submit(block_on=[{"on": "exit:75", "tester": "enabled: queue = chem", "policy": "every 1h"}])
    await blocked(house, worker)
    await change(house, "test")
    (one,) = await conditions(house)
    assert (one.tester, one.place, one.tests) == ("enabled:queue=chem", "here", 1)
    assert one.note.startswith("paused by ")
    assert one.gives_up_at is None, "its turn comes"
    await house.ask("PUT", "/v1/queues/chem", json={"paused": False})
    assert (await worker.offered()).job == 1, "whoever waits for a queue hears that it goes on"


async def test_a_test_of_a_worker_that_is_gone_is_asked_of_another(house: House) -> None:
    first = await house.worker()
    await house.submit(block_on=[LICENCE])
    await blocked(house, first)
    await change(house, "test")
    await first.next(Probe)
    await first.close()
    second = await house.worker()
    await second.say(Probed((await second.next(Probe)).number, Verdict(True)))
    assert (await second.offered()).job == 1


async def test_nobody_can_test_what_no_connected_worker_can(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    await blocked(house, worker)
    await worker.close()
    await house.until(lambda: not house.manager.machine.workers[worker.name].online, "it is gone")
    assert (await change(house, "test")).of(Counted).count == 0
    assert (await conditions(house))[0].tests == 0


async def test_conditions_outlive_the_manager(home: Path) -> None:
    async with open_house(home / "data") as house:
        worker = await house.worker()
        name = worker.name
        await house.submit(block_on=[LICENCE])
        await blocked(house, worker)
        await change(house, "pause")
        before = await conditions(house)
    async with open_house(home / "data") as house:
        (after,) = await conditions(house)
        assert (after.id, after.paused, after.jobs) == (before[0].id, before[0].paused, before[0].jobs)
        again = Scripted(await house.dial(), name)
        await again.join()
        await change(house, "resume")
        await again.say(Probed((await again.next(Probe)).number, Verdict(True)))
        assert (await again.offered()).job == 1
        await again.close()


# -- who decides ------------------------------------------------------------------------------------------


async def test_so_many_are_released_as_are_asked_for(house: House) -> None:
    worker = await house.worker(cpus=3)
    await house.submit(array="0-2", block_on=[LICENCE])
    for _ in range(3):
        await blocked(house, worker)
    assert (await change(house, "release", count=2)).of(Counted).count == 2
    (one,) = await conditions(house)
    assert one.tasks == 1
    assert (await change(house, "release")).of(Counted).count == 1
    for _ in range(3):
        await worker.report(await worker.offered())
    assert (await house.ended(1)).counts.finished == 3
    assert (await conditions(house, "?all=true"))[0].closed.startswith("released by ")


async def test_what_is_given_up_fails_and_says_who_did_it(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="0-1", block_on=[LICENCE])
    for _ in range(2):
        await blocked(house, worker)
    assert (await change(house, "fail", why="no budget")).of(Counted).count == 2
    assert (await house.ended(1)).counts.failed == 2
    task = await house.task(1, 1)
    assert task.why.startswith("blocked on tcp:licence.lab:27000: given up by ")
    assert task.why.endswith(": no budget")
    assert task.hint == ""


async def test_a_paused_condition_is_tested_only_by_hand(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    await blocked(house, worker)
    assert (await change(house, "pause")).of(Counted).count == 1
    assert (await change(house, "pause")).of(Counted).count == 0
    (one,) = await conditions(house)
    assert one.paused.startswith("paused by ") and one.next_test_at is None
    assert "`tercel blocked resume C1` lets it be tested" in await house.explain("1.0")
    assert (await change(house, "test")).of(Counted).count == 1
    await worker.say(Probed((await worker.next(Probe)).number, Verdict(False)))
    assert (await change(house, "resume")).of(Counted).count == 1
    assert (await change(house, "resume")).of(Counted).count == 0


async def test_a_user_sees_and_changes_only_their_own(house: House) -> None:
    ada, bob = [(await house.token(Role.USER, user)).secret for user in ("ada", "bob")]
    worker = await house.worker()
    await house.submit(token=ada, block_on=[LICENCE])
    await house.submit(token=bob, block_on=[LICENCE])
    for _ in range(2):
        await blocked(house, worker)
    assert [one.owner for one in await conditions(house)] == ["bob", "ada"]
    assert [one.owner for one in await conditions(house, token=ada)] == ["ada"]
    assert [one.owner for one in await conditions(house, "?all=true", token=bob)] == ["bob"]
    for what in ("test", "release", "fail", "pause", "resume"):
        assert (await change(house, what, 1, token=bob)).problem.status == 404
    assert (await house.ask("GET", "/v1/conditions/1", token=bob)).status == 404
    assert (await house.job(1)).counts.blocked == 1
    assert (await change(house, "release", 1, token=ada)).of(Counted).count == 1
    assert (await change(house, "release", 2)).of(Counted).count == 1


async def test_conditions_come_in_pages_newest_first(house: House) -> None:
    worker = await house.worker()
    for port in (1, 2, 3):
        await house.submit(block_on=[LICENCE | {"tester": f"tcp:a:{port}"}])
        await blocked(house, worker)
    page = await house.get("/v1/conditions?limit=2", ConditionList)
    assert ([one.id for one in page.conditions], page.more) == ([3, 2], True)
    await change(house, "release", 1)
    rest = await house.get("/v1/conditions?limit=2&before=2&all=true", ConditionList)
    assert ([one.id for one in rest.conditions], rest.more) == ([1], False)
    assert await conditions(house, "?before=2") == []


async def test_what_nothing_waits_for_any_more_cannot_be_changed(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    await blocked(house, worker)
    await change(house, "release")
    for what in ("test", "release", "fail", "pause", "resume"):
        problem = (await change(house, what)).problem
        assert (problem.status, problem.field) == (400, "condition")
        assert "nothing waits for C1 any more: released by " in problem.detail
        assert (await change(house, what, 99)).problem.status == 404


# -- rules ------------------------------------------------------------------------------------------------


def rule(**fields: str) -> dict[str, str]:
    return {"on": "exit:75", "tester": "tcp:a:1"} | fields


BAD_RULES: list[tuple[dict[str, str], str]] = [
    (rule(on="exit:0"), "exit codes of failures are 1 to 255"),
    (rule(on="exit:"), "nothing that a rule can begin with"),
    (rule(on="sometimes"), "nothing that a rule can begin with"),
    (rule(on="stderr:/(/"), "is not a pattern"),
    (rule(on="signal:NONE"), "there is no such signal"),
    (rule(tester="tpc:a:1"), "'tpc' is no kind of tester; did you mean tcp?"),
    (rule(tester="tcp:a"), "tcp"),
    (rule(tester="tcp"), "is not a tester"),
    (rule(tester=""), "say what shows that it is mended"),
    (rule(tester="x" * 5000), "a tester has at most"),
    (rule(tester="quota:queue=chem<0"), "never clears"),
    (rule(tester="worker:worker.gpu >= 1"), "gpu"),
    (rule(tester="quota:queue=chem<5", at="site"), "@site: quota asks the manager's own books"),
    (rule(at="here"), "@here: tcp is tested @manager, @site or @worker"),
    (rule(at="moon"), "@moon: a tester runs @manager, @site or @worker"),
    (rule(on="start", at="worker"), "start @worker"),
    (rule(policy="often"), "is not a policy"),
    (rule(policy="every 0s for 1h"), "tests are from 1 s to 7 days apart"),
    (rule(policy="every 2h for 1h"), "it would never be tested"),
    (rule(policy="every 1s for 999999h"), "a policy lasts from 1 s to 366 days"),
    (rule(policy="every 1s at most 0 tests"), "at most 0 tests"),
    (rule(policy="backoff 10m to 5s for 1h"), "the longest pause is shorter than the first"),
]


@pytest.mark.must("e")
@pytest.mark.parametrize(("bad", "said"), BAD_RULES, ids=range(len(BAD_RULES)))
async def test_a_bad_rule_is_refused_by_name_and_changes_nothing(
    house: House, bad: dict[str, str], said: str
) -> None:
    good = rule()
    worker = await house.worker()
    for path, body, prefix in (
        ("/v1/jobs", {"argv": ["true"], "block_on": [good, bad]}, ""),
        (
            "/v1/flows",
            {"jobs": [{"argv": ["true"]}, {"argv": ["true"], "name": "fit", "block_on": [good, bad]}]},
            "job 'fit' of the flow: ",
        ),
    ):
        problem = (await house.ask("POST", path, json=body)).problem
        assert problem.status == 400
        assert problem.detail.startswith(f"{prefix}block_on[1]: "), problem.detail
        assert said in problem.detail
        assert problem.field.endswith("block_on")
    assert (await house.get("/v1/jobs?all=true", JobList)).jobs == []
    await house.submit(block_on=[good])
    answer = await house.ask("POST", "/v1/revise", json={"select": ["1"], "block_on": [good, bad]})
    assert answer.status == 400 and said in answer.problem.detail
    assert (await house.job(1)).block_on[0].tester == "tcp:a:1"
    assert len((await house.job(1)).block_on) == 1
    await blocked(house, worker)
    assert (await house.job(1)).counts.blocked == 1


async def test_too_many_rules_are_refused(house: House) -> None:
    answer = await house.ask("POST", "/v1/jobs", json={"argv": ["true"], "block_on": [rule()] * 51})
    assert "at most 50 rules" in answer.problem.detail


async def test_a_job_can_be_submitted_again_as_it_was_kept(house: House) -> None:
    rules = [rule(tester="TCP:A:1"), rule(on="start", tester="file:/x"), rule(tester="quota:user=ada < 5")]
    await house.submit(block_on=rules)
    kept = await house.get("/v1/jobs/1/submission", Submission)
    assert [(one.tester, one.at) for one in kept.block_on] == [
        ("tcp:a:1", "site"),
        ("file:/x", "site"),
        ("quota:user=ada<5", "here"),
    ]
    await house.submit(argv=["true"], block_on=[_fields(one) for one in kept.block_on])
    assert (await house.job(2)).block_on == list(kept.block_on)


def _fields(one: Any) -> dict[str, str]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


async def test_rules_of_an_unfinished_job_can_be_revised(house: House) -> None:
    await house.submit(argv=["true"])
    answer = await house.ask(
        "POST", "/v1/revise", json={"select": ["1"], "block_on": [rule(tester="TCP:a:1")]}
    )
    assert answer.of(Counted).count == 1
    worker = await house.worker()
    await blocked(house, worker)
    assert (await conditions(house))[0].tester == "tcp:a:1"


# -- workers that lie -------------------------------------------------------------------------------------


@pytest.mark.must("d")
@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(True, -1),
        Verdict(True, 2**62),
        Verdict(False, 0, "", math.nan),
        Verdict(False, 0, "", -1.0),
        Verdict(False, 0, "", math.inf),
    ],
    ids=range(5),
)
async def test_an_impossible_verdict_ends_the_link(house: House, verdict: Verdict) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    await blocked(house, worker)
    await change(house, "test")
    await worker.say(Probed((await worker.next(Probe)).number, verdict))
    await worker.hung_up()
    (one,) = await conditions(house)
    assert (one.tests, one.tasks) == (0, 1)
    await house.sound()


@pytest.mark.must("d")
async def test_a_verdict_is_taken_only_from_who_was_asked(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    await blocked(house, worker)
    await change(house, "test")
    number = (await worker.next(Probe)).number
    liar = await house.worker(cpus=1, mem_bytes=1)
    await liar.say(Probed(number, Verdict(True)))
    await liar.hung_up()
    assert (await house.job(1)).counts.blocked == 1
    await worker.say(Probed(number, Verdict(False)))
    await worker.settled()
    assert (await conditions(house))[0].tests == 1


async def test_a_verdict_that_comes_too_late_is_of_no_consequence(scene: Scene) -> None:
    await scene.bad.say(Probed(12345, Verdict(True)), Probed(-1, Verdict(True)))
    await scene.bad.settled()
    await scene.unmoved()


@pytest.mark.must("d")
async def test_a_test_that_hangs_at_the_manager_holds_up_nobody(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        tester = f"http://127.0.0.1:{server.getsockname()[1]}/"
        worker = await house.worker()
        await house.submit(block_on=[rule(tester=tester, at="manager", policy="every 1h")])
        await blocked(house, worker)
        await change(house, "test")
        asked, _ = await asyncio.get_running_loop().sock_accept(server)
        with asked:  # and never answered
            assert (await conditions(house))[0].testing
            await house.still_works()
            assert (await conditions(house))[0].testing
            assert (await change(house, "release")).of(Counted).count == 1


# -- the manager's own user -------------------------------------------------------------------------------


@pytest.mark.parametrize("tester", ["command:./ok.sh", "file:/etc/shadow", "ssh-auth:root@login.lab"])
async def test_only_an_admin_may_have_more_than_the_network_tested_at_the_manager(
    house: House, tester: str
) -> None:
    ada = (await house.token(Role.USER, "ada")).secret
    body = {"argv": ["true"], "block_on": [rule(tester=tester, at="manager")]}
    problem = (await house.ask("POST", "/v1/jobs", token=ada, json=body)).problem
    assert problem.status == 403
    assert problem.detail.startswith("block_on[0]: only an admin may have ")
    assert (await house.get("/v1/jobs?all=true", JobList)).jobs == []
    await house.submit(token=ada, block_on=[rule(tester="tcp:a:1", at="manager")])
    revision = {"select": ["1"], "block_on": body["block_on"]}
    assert (await house.ask("POST", "/v1/revise", token=ada, json=revision)).status == 403
    assert (await house.ask("POST", "/v1/jobs", json=body)).status == 201


# -- what people turn off ---------------------------------------------------------------------------------


async def test_turning_it_off_once_more_keeps_the_reason_unless_another_is_given(house: House) -> None:
    async def off(**why: str) -> tuple[int, str, float]:
        body = {"name": "app=matlab", "off": True, **why}
        count = (await house.ask("POST", "/v1/switches", json=body)).of(Counted).count
        (one,) = (await house.get("/v1/switches", SwitchList)).switches
        return count, one.off.partition(": ")[2], one.since

    count, why, since = await off(why="upgrade")
    assert (count, why) == (1, "upgrade")
    assert await off() == (0, "upgrade", since)
    assert await off(why="upgrade") == (0, "upgrade", since)
    assert (await off(why="no licences"))[:2] == (1, "no licences")


@pytest.mark.T(8)
async def test_what_asks_about_an_application_waits_while_it_is_off(house: House, tmp_path: Path) -> None:
    worker = await house.worker()
    off = {"name": "app=matlab", "off": True, "why": "upgrade"}
    assert (await house.ask("POST", "/v1/switches", json=off)).of(Counted).count == 1
    (one,) = (await house.get("/v1/switches", SwitchList)).switches
    assert one.name == "app=matlab"
    assert one.off.endswith(": upgrade")
    rule = {"on": "start", "tester": "enabled:app=matlab", "policy": "every 1h for 2d"}
    await house.submit(block_on=[rule])
    (condition,) = await conditions(house)
    assert condition.note.startswith("off by ") and condition.note.endswith(": upgrade")
    assert (await house.ask("POST", "/v1/switches", json={"name": "app=matlab", "off": False})).of(
        Counted
    ).count == 1
    assert (await house.get("/v1/switches", SwitchList)).switches == []
    await change(house, "test")
    await worker.offered(1)


@pytest.mark.must("e")
@pytest.mark.parametrize(
    "name", ["", "matlab", "app=", "queue=x", "app=a b", "app=" + "x" * 200, "app=é", "app=x\n"]
)
async def test_only_systems_and_applications_are_turned_off(house: House, name: str) -> None:
    answer = await house.ask("POST", "/v1/switches", json={"name": name, "off": True})
    assert answer.status == 422 or answer.status == 400, answer
    assert "is no switch" in answer.problem.detail
    assert (await house.get("/v1/switches", SwitchList)).switches == []
