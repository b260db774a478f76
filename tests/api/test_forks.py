"""Forks through the API: jobs replayed from a moment, with some things changed."""

import asyncio
from typing import Any

import pytest

from tercel.core.errors import StoreFull
from tercel.core.model import Role
from tercel.core.states import TaskState
from tercel.wire.api import Counted, Forked, JobView
from tests.api.house import Answer, House, Scripted, inline

pytestmark = pytest.mark.C(8)


async def fork(house: House, *select: str, token: str = "", **fields: Any) -> Answer:
    return await house.ask("POST", "/v1/fork", token=token, json={"select": list(select), **fields})


async def forked(house: House, *select: str, token: str = "", **fields: Any) -> Forked:
    return (await fork(house, *select, token=token, **fields)).of(Forked)


def command(line: str, step: str = "") -> list[dict[str, Any]]:
    return [{"step": step, "fields": ["argv", "line"], "spec": {"line": line}}]


def counts(told: Forked) -> list[tuple[int, int, int, int]]:
    return [(job.kept, job.unfinished, job.changed, job.needy) for job in told.jobs]


async def finish(worker: Scripted, job: int, count: int) -> None:
    """So many tasks; each says which it was."""
    for _ in range(count):
        report = await worker.offered(job)
        await worker.report(report, out=inline(f"{report.job}.{report.task}".encode()))


async def log(house: House, job: int, task: int) -> bytes:
    return (await house.ask("GET", f"/v1/jobs/{job}/tasks/{task}/logs")).body


async def flow(house: House) -> None:
    """Job 1, four lines; job 2 needs each its own; job 3 needs all of those."""
    jobs = [
        {"name": "fit", "lines": ["a", "b", "c", "d"]},
        {"name": "plot", "line": "plot", "array": "0-3", "after": [{"job": -1, "each": True}]},
        {"name": "report", "line": "report", "after": [{"job": -2}]},
    ]
    answer = await house.ask("POST", "/v1/flows", json={"jobs": jobs})
    assert answer.status == 201, answer


async def state(house: House, *ids: int) -> list[JobView]:
    return [await house.job(id) for id in ids]


async def test_what_is_affected_runs_again_with_what_needs_it_and_all_else_is_kept(house: House) -> None:
    await flow(house)
    worker = await house.worker()
    await finish(worker, 0, 9)
    await house.ended(3)
    before = await state(house, 1, 2, 3)
    changes = [{"step": "fit", "lines": ["a", "B", "c", "D"]}]

    told = await forked(house, "2", changes=changes, only_affected=True)

    assert [(job.job, job.id, job.name) for job in told.jobs] == [
        (1, 4, "fit"),
        (2, 5, "plot"),
        (3, 6, "report"),
    ]
    assert counts(told) == [(2, 0, 2, 0), (2, 0, 0, 2), (0, 0, 0, 1)]
    assert (await house.job(4)).counts.finished == 2
    assert await log(house, 4, 0) == b"1.0", "its output is that of then"
    assert (await house.job(5)).counts.waiting == 2
    assert (await house.job(6)).after[0].job == 5
    assert {(await house.job(id)).flow for id in (4, 5, 6)} == {4}
    await house.sound()
    await finish(worker, 0, 5)
    await house.ended(6)
    assert [await log(house, 4, task) for task in range(4)] == [b"1.0", b"4.1", b"1.2", b"4.3"]
    assert [await log(house, 5, task) for task in range(4)] == [b"2.0", b"5.1", b"2.2", b"5.3"]
    assert house.manager.store.lines(4, [(0, 3)]) == ["a", "B", "c", "D"]
    assert await state(house, 1, 2, 3) == before, "what was forked is as it was"
    assert (await house.task(4, 0)).attempts[0].attempt != (await house.task(1, 0)).attempts[0].attempt
    await house.still_works()


async def test_without_only_affected_all_of_a_changed_job_runs_again(house: House) -> None:
    await flow(house)
    worker = await house.worker()
    await finish(worker, 0, 9)
    await house.ended(3)
    told = await forked(house, "1", changes=command("plot -v", "plot"), dry_run=True)
    assert counts(told) == [(4, 0, 0, 0), (0, 0, 4, 0), (0, 0, 0, 1)]
    same = await forked(house, "1", changes=command("plot", "plot"), dry_run=True)
    assert counts(same) == [(4, 0, 0, 0), (4, 0, 0, 0), (1, 0, 0, 0)]
    assert any("nothing runs again" in note for note in same.notes)
    harmless = [{"fields": ["priority", "mem_bytes"], "spec": {"priority": 3, "mem_bytes": 5}}]
    assert counts(await forked(house, "1", changes=harmless, dry_run=True)) == counts(same)
    assert len((await house.ask("GET", "/v1/jobs?all=true")).json["jobs"]) == 3
    assert (await house.submit(hold=True)).id == 4, "no number was taken"


async def test_a_step_of_a_flow_with_a_name_is_found_by_its_last_part_where_that_is_one_job(
    house: House,
) -> None:
    names = ["study/fit", "study/plot", "other/plot"]
    jobs = [{"name": name, "line": "x"} for name in names]
    assert (await house.ask("POST", "/v1/flows", json={"jobs": jobs})).status == 201
    told = await forked(house, "1", changes=command("fit -v", "fit"))
    assert house.manager.machine.jobs[told.jobs[0].id].row.spec.line == "fit -v"
    whole = await forked(house, "1", changes=command("plot -v", "study/plot"))
    assert house.manager.machine.jobs[whole.jobs[1].id].row.spec.line == "plot -v"
    refused = await fork(house, "1", changes=command("plot -v", "plot"))
    assert "several jobs are called 'plot': write the number of one (2, 3)" in refused.problem.detail
    assert (
        "no job 'study' is forked" in (await fork(house, "1", changes=command("x", "study"))).problem.detail
    )


async def test_it_is_told_that_a_job_was_submitted_only_after_the_moment(house: House) -> None:
    before = house.manager.clock()
    await house.submit(array="0-3")
    told = await forked(house, "1", at=before, dry_run=True)
    assert counts(told) == [(0, 4, 0, 0)]
    assert told.notes == ["job 1 was submitted only after that moment"]
    assert (await forked(house, "1", dry_run=True)).notes == []


async def test_failed_cancelled_and_unfinished_tasks_run_again_as_if_for_the_first_time(house: House) -> None:
    job = await house.submit(array="0-3", retries=1, name="fit", key="mine")
    worker = await house.worker()
    await finish(worker, job.id, 1)
    for _ in range(2):
        await worker.report(await worker.offered(job.id), code=3)
    await worker.offered(job.id)
    await house.ask("POST", "/v1/cancel", json={"select": ["1.3"]})

    told = await forked(house, "1", name="again")

    assert counts(told) == [(1, 3, 0, 0)]
    view = await house.job(2)
    assert (view.name, view.owner, view.retries, view.counts.finished) == (
        "again",
        (await house.job(1)).owner,
        1,
        1,
    )
    states = [await house.task(2, task) for task in range(4)]
    assert sum(len(task.attempts) for task in states) == 1, "of what runs again nothing is told"
    copy = house.manager.machine.jobs[2]
    assert (copy.failures, copy.row.key) == ({}, "")
    await house.sound()


async def test_what_is_held_or_blocked_is_ready_in_the_copy(house: House) -> None:
    await house.ask("PUT", "/v1/queues/gate", json={"paused": True, "reason": "closed"})
    rule = {"on": "exit:75", "tester": "enabled:queue=gate", "at": "here", "policy": "every 1m for 1d"}
    job = await house.submit(array="0-2", block_on=[rule])
    worker = await house.worker()
    await worker.report(await worker.offered(job.id), code=75)
    await house.until(lambda: len(house.manager.machine.jobs[1].blocked) == 1, "it is blocked")
    await worker.close()
    await house.ask("POST", "/v1/hold", json={"select": ["1.2"]})

    assert counts(await forked(house, "1")) == [(0, 3, 0, 0)]

    assert (await house.job(2)).counts.ready == 3
    was = (await house.job(1)).counts
    assert (was.paused, was.blocked) == (1, 1)
    (condition,) = house.manager.machine.conditions.values()
    assert condition.count == 1
    await house.sound()


async def test_a_copy_asks_before_it_starts_as_its_original_did(house: House) -> None:
    await house.worker()
    rule = {"on": "start", "tester": "time:2099-01-01T00:00"}
    await house.submit(block_on=[rule])
    await house.ask("POST", "/v1/fork", json={"select": ["1"]})
    assert [(await house.job(id)).counts.blocked for id in (1, 2)] == [1, 1]


async def test_a_fork_is_as_of_a_moment_also_if_all_ran_again_since(house: House) -> None:
    job = await house.submit(array="0-1")
    worker = await house.worker()
    clock = house.manager.clock
    now = [clock()]
    house.manager.clock = lambda: now[0]
    await finish(worker, job.id, 1)
    first, now[0] = now[0], now[0] + 10
    await finish(worker, job.id, 1)
    await house.ended(job.id)
    second, now[0] = now[0], now[0] + 10
    await house.ask("POST", "/v1/retry", json={"select": ["1"], "all": True})
    for _ in range(2):
        await worker.report(await worker.offered(job.id), out=inline(b"later"))
    await house.ended(job.id)
    now[0] += 10

    assert counts(await forked(house, "1", at=first - 1)) == [(0, 2, 0, 0)]
    assert counts(await forked(house, "1", at=first)) == [(1, 1, 0, 0)]
    assert counts(await forked(house, "1", at=second)) == [(2, 0, 0, 0)]
    assert counts(await forked(house, "1")) == [(2, 0, 0, 0)]

    await house.ask("POST", "/v1/hold", json={"select": ["all"]})
    await house.ask("POST", "/v1/retry", json={"select": ["1"], "all": True})
    assert counts(await forked(house, "1", dry_run=True)) == [(0, 2, 0, 0)], "now they are to run again"

    assert [await log(house, 4, task) for task in (0, 1)] == [b"1.0", b"1.1"]
    assert [await log(house, 5, task) for task in (0, 1)] == [b"later", b"later"]
    assert [len((await house.task(id, 0)).attempts) for id in (4, 5)] == [1, 2]
    ended = await house.job(4)
    assert (ended.ended_at is not None, ended.counts.finished) == (True, 2)
    await house.sound()


async def test_a_need_of_a_job_outside_stays_and_is_waited_for(house: House) -> None:
    outside = await house.submit()
    needy = await house.submit(after=[{"job": outside.id}])
    told = await forked(house, str(needy.id), hold=True)
    assert told.jobs[0].id == 3
    view = await house.job(3)
    assert [after.job for after in view.after] == [outside.id]
    worker = await house.worker()
    await finish(worker, outside.id, 1)
    await finish(worker, needy.id, 1)
    assert (await house.job(3)).counts.paused == 1, "it is held"
    assert (await house.ask("POST", "/v1/release", json={"select": ["3"]})).of(Counted).count == 1
    await finish(worker, 3, 1)
    assert (await house.ended(3)).counts.finished == 1
    gone = await forked(house, str(needy.id))
    assert counts(gone) == [(1, 0, 0, 0)]


async def test_where_a_copy_is_from_is_told_without_the_values_of_variables(house: House) -> None:
    await house.submit(line="go", env={"A": "1"})
    changes = [
        *command("go faster"),
        {"fields": ["env"], "spec": {"env": {"TOKEN": "secret"}}},
        {"fields": ["mem_bytes"], "spec": {"mem_bytes": 2**20}},
    ]
    await forked(house, "1", changes=changes, only_affected=True)
    view = await house.job(2)
    assert view.forked.startswith("from job 1 as of ")
    assert "go faster" in view.forked and "env.TOKEN" in view.forked and "mem_bytes" in view.forked
    assert "secret" not in view.forked
    assert (await house.job(1)).forked == ""
    assert house.manager.machine.jobs[2].row.spec.env == {"A": "1", "TOKEN": "secret"}
    (note,) = house.manager.store.notes(2, 0)
    assert (note.what, note.note) == ("forked", view.forked)


async def test_people_fork_what_they_may_see_and_the_copy_is_theirs(house: House) -> None:
    ada, eve = [(await house.token(Role.USER, name)).secret for name in ("ada", "eve")]
    await house.submit(token=ada, queue="ada", hold=True)
    assert (await fork(house, "1", token=eve)).status == 404
    await forked(house, "1", token=ada)
    await forked(house, "1")
    views = [await house.job(id) for id in (2, 3)]
    assert [(view.owner, view.queue) for view in views] == [("ada", "ada"), (views[1].owner,) * 2]
    assert views[1].owner != "ada"
    await house.ask("PUT", "/v1/queues/chem", json={})
    await forked(house, "1", queue="chem")
    assert (await house.job(4)).queue == "chem"
    worker_token = house.served.worker_token
    assert (await fork(house, "1", token=worker_token)).status == 403


WRONG = [
    ({"select": []}, "select"),
    ({"select": ["all"]}, "select"),
    ({"select": ["99"]}, "select"),
    ({"select": ["1.1"]}, "select"),
    ({"at": 4e9}, "at"),
    ({"at": -5}, "at"),
    ({"queue": "absent"}, "queue"),
    ({"name": "one"}, "name"),
    ({"changes": command("x")}, "changes[0].step"),
    ({"changes": command("x", "absent")}, "changes[0].step"),
    ({"changes": command("x", "fit")}, "changes[0].fields"),
    ({"changes": command(" ", "plot")}, "changes"),
    ({"changes": [{"step": "fit", "lines": ["a"]}]}, "changes[0].lines"),
    ({"changes": [{"step": "plot", "lines": ["a"] * 4}]}, "changes[0].lines"),
    ({"changes": [{"step": "fit", "items": ["{}"] * 4}]}, "changes[0].items"),
    ({"changes": [{"step": "fit", "lines": ["a", "b", "", "d"]}]}, "changes"),
    ({"changes": [{"fields": ["array"], "spec": {"array": "0-9"}}]}, "changes[0].fields"),
    ({"changes": [{"fields": ["after"]}]}, "changes[0].fields"),
    ({"changes": [{"fields": ["nonsense"]}]}, "changes[0].fields"),
    ({"changes": [{"step": "fit"}]}, "changes[0].fields"),
    ({"changes": [{"fields": ["cpus"], "spec": {"cpus": -1}}]}, "changes"),
    ({"changes": [{"fields": ["where"], "spec": {"where": "worker."}}]}, "changes"),
    ({"changes": [{"fields": ["queue"], "spec": {"queue": "absent"}}]}, "queue"),
    (
        {"changes": [{"fields": ["block_on"], "spec": {"block_on": [{"on": "exit:7", "tester": "x:y"}]}}]},
        "changes",
    ),
]


@pytest.mark.must("e")
async def test_what_cannot_be_forked_so_is_refused_and_nothing_is_changed(house: House) -> None:
    await flow(house)
    await house.ask("POST", "/v1/cancel", json={"select": ["all"]})
    await house.ended(3)
    before = (await house.ask("GET", "/v1/jobs?all=true")).json
    for wrong, field in WRONG:
        refused = await house.ask("POST", "/v1/fork", json={"select": ["1"], **wrong})
        assert refused.status in (400, 404), (wrong, refused)
        assert refused.problem.field == field, (wrong, refused)
    assert (await house.ask("GET", "/v1/jobs?all=true")).json == before
    assert (await house.submit(hold=True)).id == 4
    await house.still_works()


async def test_a_disk_that_is_full_in_the_middle_leaves_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await flow(house)

    def full(*_: Any) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(house.manager.store, "adopt", full)
        assert (await fork(house, "1")).status == 507
    assert house.manager.store.job(4) is None
    assert [job.id for job in (await forked(house, "1")).jobs] == [7, 8, 9]
    await house.sound()


async def test_forks_at_the_same_time_come_one_after_the_other(house: House) -> None:
    await flow(house)
    told = await asyncio.gather(*(forked(house, "1") for _ in range(5)))
    assert sorted(job.id for one in told for job in one.jobs) == list(range(4, 19))
    await house.sound()
    assert (await house.job(4)).counts.ready == 4
    task = await house.task(5, 0)
    assert task.state is TaskState.WAITING
