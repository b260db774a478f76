"""POST /flows and what jobs wait for: all or nothing, and each reason told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tercel.core.model import Role
from tercel.wire.api import Explanation, FlowSubmitted, JobView
from tercel.wire.messages import SCATTERED, Offer, Reports, Scattered
from tests.api.house import Answer, House, done, open_house


async def post_flow(house: House, *jobs: dict[str, Any], token: str = "", **more: Any) -> Answer:
    full = [
        job if {"argv", "line", "lines", "grid"} & job.keys() else {"argv": ["true"], **job} for job in jobs
    ]
    return await house.ask("POST", "/v1/flows", token=token, json={"jobs": full, **more})


async def submit_flow(house: House, *jobs: dict[str, Any], **more: Any) -> list[int]:
    return [job.id for job in (await post_flow(house, *jobs, **more)).of(FlowSubmitted).jobs]


async def counts(house: House, *ids: int) -> list[dict[str, int]]:
    """What there is, by state."""
    views = [await house.job(id) for id in ids]
    return [
        {name: number for name in view.counts.__struct_fields__ if (number := getattr(view.counts, name))}
        for view in views
    ]


# -- flows ------------------------------------------------------------------------------------------------


async def test_the_jobs_of_a_flow_are_numbered_in_order_and_know_each_other(house: House) -> None:
    answer = await post_flow(
        house,
        {"name": "prep"},
        {"name": "fit", "array": "0-9", "after": [{"job": -1}]},
        {"name": "score", "array": "0-9", "after": [{"job": -2, "each": True}]},
    )
    assert answer.status == 201
    assert [(job.id, job.tasks, job.name) for job in answer.of(FlowSubmitted).jobs] == [
        (1, 1, "prep"),
        (2, 10, "fit"),
        (3, 10, "score"),
    ]
    views = [await house.job(id) for id in (1, 2, 3)]
    assert [view.flow for view in views] == [1, 1, 1]
    assert [[after.job for after in view.after] for view in views] == [[], [1], [2]]
    assert await counts(house, 1, 2, 3) == [{"ready": 1}, {"waiting": 10}, {"waiting": 10}]
    assert await house.explain("2") == "10 waiting: wait for 1.0 to finish"
    assert await house.explain("3.4") == "waits for the task of the same number of job 2 to finish"


async def test_steps_run_when_what_they_need_has_finished(house: House) -> None:
    await submit_flow(
        house,
        {},
        {"array": "0-1", "after": [{"job": -1}]},
        {"array": "0-1", "after": [{"job": -2, "each": True}]},
    )
    worker = await house.worker(cpus=2)
    await worker.report(await worker.offered(1))
    first, second = await worker.offered(2), await worker.offered(2)
    assert await counts(house, 3) == [{"waiting": 2}]
    await worker.report(second)
    third = await worker.offered(3)
    assert third.task == second.task
    assert (await house.job(3)).counts.waiting == 1
    await worker.report(first)
    await worker.report(third)
    await worker.report(await worker.offered(3))
    assert (await house.ended(3)).counts.finished == 2
    await house.sound()


async def test_a_flow_sent_again_under_its_key_is_the_same_jobs(house: House) -> None:
    flow = [{"name": "a"}, {"name": "b", "after": [{"job": -1}]}]
    first, again = [await post_flow(house, *flow, key="k") for _ in range(2)]
    assert (first.status, again.status) == (201, 200)
    assert [job.id for job in first.of(FlowSubmitted).jobs] == [
        job.id for job in again.of(FlowSubmitted).jobs
    ]
    assert all(job.repeated for job in again.of(FlowSubmitted).jobs)
    assert (await house.status()).jobs == 2


async def test_a_flow_sent_twice_at_once_under_its_key_is_the_same_jobs(house: House) -> None:
    answers = await asyncio.gather(*(post_flow(house, {}, {}, key="k") for _ in range(4)))
    assert {tuple(job.id for job in answer.of(FlowSubmitted).jobs) for answer in answers} == {(1, 2)}
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 201]


async def test_a_key_that_was_another_flows_is_refused(house: House) -> None:
    await submit_flow(house, {}, key="k")
    answer = await post_flow(house, {}, {}, key="k")
    assert (answer.status, answer.problem.field) == (400, "key")
    assert (await house.status()).jobs == 1


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("bad", "status", "field", "says"),
    [
        ({"cpus": -1}, 400, "jobs[2].cpus", "job 'bad' of the flow: cpus is -1"),
        ({"array": "9-0"}, 400, "jobs[2].array", "ends before it begins"),
        (
            {"after": [{"job": -4}]},
            400,
            "jobs[2].after",
            "it waits for job 4 of its flow, which does not come before it",
        ),
        ({"after": [{"job": -3}]}, 400, "jobs[2].after", "it waits for job 3 of its flow"),
        ({"after": [{"job": -9}]}, 400, "jobs[2].after", "it waits for job 9 of its flow"),
        ({"after": [{"job": 0}]}, 400, "jobs[2].after[0]", "jobs are numbered from 1"),
        ({"after": [{"job": 77}]}, 404, "jobs[2].after", "there is no job 77 to wait for"),
        ({"after": [{"job": -2, "tasks": [[50, 60]]}]}, 400, "jobs[2].after", "has none of the tasks"),
        (
            {"array": "0-10", "after": [{"job": -2, "each": True}]},
            400,
            "jobs[2].after",
            "task 10 cannot wait for task 10 of job -2, which does not have it",
        ),
        ({"queue": "nosuch"}, 404, "jobs[2].queue", "there is no queue 'nosuch'"),
        ({"edges": [[0, 77, 0, 0]]}, 404, "jobs[2].edges", "there is no job 77 to wait for"),
        ({"key": "k"}, 400, "jobs[2].key", "a flow has one key for all its jobs"),
    ],
)
async def test_one_bad_job_refuses_the_whole_flow(
    house: House, bad: dict[str, Any], status: int, field: str, says: str
) -> None:
    answer = await post_flow(
        house, {"name": "a"}, {"name": "b", "array": "0-9"}, {"name": "bad", **bad}, {"name": "d"}
    )
    assert (answer.status, answer.problem.field) == (status, field)
    assert says in answer.problem.detail
    assert (await house.status()).jobs == 0
    assert (await submit_flow(house, {})) == [1], "no number was spent"
    await house.sound()


@pytest.mark.parametrize(
    "body", [{"jobs": []}, {}, {"jobs": [{}]}, {"jobs": [{"argv": ["true"], "step": 1}]}]
)
async def test_a_flow_of_nothing_is_refused(house: House, body: dict[str, Any]) -> None:
    answer = await house.ask("POST", "/v1/flows", json=body)
    assert answer.status == 400
    assert answer.problem.detail
    assert (await house.status()).jobs == 0


async def test_a_flow_of_1000_jobs_in_a_chain_runs_in_order(house: House) -> None:
    ids = await submit_flow(house, {}, *({"after": [{"job": -number}]} for number in range(1, 1000)))
    assert ids == list(range(1, 1001))
    worker = await house.worker()
    for id in ids:
        offer = await worker.offered()
        assert offer.job == id
        await worker.report(offer)
    assert (await house.ended(1000)).counts.finished == 1
    await house.sound()


# -- after jobs that are there ----------------------------------------------------------------------------


async def test_a_job_after_one_that_finished_is_ready_at_once(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    await worker.report(await worker.offered())
    await house.ended(1)
    await house.submit(after=[{"job": 1}], cpus=9)
    assert await counts(house, 2) == [{"ready": 1}]


async def test_a_job_after_one_that_failed_is_skipped_at_once_and_says_why(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    await worker.report(await worker.offered(), code=1)
    await house.ended(1)
    await house.submit(array="0-9", after=[{"job": 1}])
    ended = await house.ended(2)
    assert ended.counts.cancelled == 10
    assert (await house.task(2, 4)).why == "skipped: it needs 1.0, which failed"
    assert await house.explain("2.4") == "skipped: it needs 1.0, which failed"
    assert await house.explain("2") == (
        "ended: 0 finished, 0 failed, 10 cancelled; 2.0: skipped: it needs 1.0, which failed"
    )
    await house.submit(after=[{"job": 1, "kind": "any"}], cpus=9)
    await house.submit(after=[{"job": 1, "kind": "notok"}], cpus=9)
    assert await counts(house, 3, 4) == [{"ready": 1}, {"ready": 1}]


async def test_what_was_skipped_waits_again_when_its_need_is_retried(house: House) -> None:
    worker = await house.worker()
    await submit_flow(house, {}, {"after": [{"job": -1}]}, {"after": [{"job": -2}]})
    await worker.report(await worker.offered(), code=1)
    assert (await house.ended(3)).counts.cancelled == 1
    assert (
        await house.explain("3")
        == "ended: 0 finished, 0 failed, 1 cancelled; skipped: it needs 1.0, which failed"
    )
    assert (await house.ask("POST", "/v1/retry", json={"select": ["1"]})).json["count"] == 1
    assert await counts(house, 2, 3) == [{"waiting": 1}, {"waiting": 1}]
    for id in (1, 2, 3):
        await worker.report(await worker.offered(id))
    assert (await house.ended(3)).counts.finished == 1
    await house.sound()


async def test_nobody_waits_for_what_is_another_users(house: House) -> None:
    mine = await house.submit(array="0-1")
    other = (await house.token(Role.USER, "eve")).secret
    for needs in ({"after": [{"job": mine.id}]}, {"edges": [[0, mine.id, 0, 0]]}):
        answer = await house.ask("POST", "/v1/jobs", token=other, json={"argv": ["true"], **needs})
        assert answer.status == 404
        assert (
            answer.problem.detail
            == f"there is no job {mine.id} to wait for (or it is not yours): see `tercel list`"
        )
    assert (await house.status()).jobs == 1


async def test_a_flow_is_stopped_when_a_step_says_so(house: House) -> None:
    await submit_flow(
        house,
        {"array": "0-1", "on_failure": "stop"},
        {"name": "beside", "cpus": 9},
        {"after": [{"job": -1}]},
    )
    worker = await house.worker(cpus=2)
    first, second = await worker.offered(1), await worker.offered(1)
    await worker.report(first, code=1)
    for id in (2, 3):
        assert (await house.ended(id)).counts.cancelled == 1
    why = (await house.task(2, 0)).why
    assert "1.0" in why and "failed" in why, why
    await worker.report(second)
    await house.sound()


# -- edges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knows", [(SCATTERED,), ()])
async def test_tasks_that_are_no_neighbours_are_offered_in_one_message_if_their_worker_knows_that(
    house: House, knows: tuple[str, ...]
) -> None:
    """A worker of an earlier version is given them one after the other."""
    await house.submit(lines=["a", "b", "c", "d", "e", "f"], edges=[[1, 0, 0, 0], [4, 0, 3, 3]])
    worker = await house.worker(cpus=6, knows=knows)

    def given() -> list[tuple[int, int, str]]:
        return [
            (task, offer.first_attempt + at, (offer.lines or ())[at])
            for offer in worker.heard
            if isinstance(offer, Offer | Scattered)
            for at, task in enumerate(
                offer.tasks if isinstance(offer, Scattered) else range(offer.first, offer.last + 1)
            )
        ]

    got = await worker.until(lambda: given() if len(given()) == 4 else None)
    first = got[0][1]
    assert got == [(0, first, "a"), (2, first + 1, "c"), (3, first + 2, "d"), (5, first + 3, "f")]
    assert len(worker.all(Scattered)) == (1 if knows else 0)
    await worker.say(Reports([done(1, task, attempt) for task, attempt, _ in got]))
    rest = await worker.until(lambda: given()[4:] if len(given()) == 6 else None)
    assert [(task, line) for task, _, line in rest] == [(1, "b"), (4, "e")]
    await house.sound()


async def test_neighbours_are_offered_as_such_also_to_a_worker_that_knows_others(house: House) -> None:
    """However many they are, that is one small message."""
    await house.submit(array="0-9")
    worker = await house.worker(cpus=10, knows=(SCATTERED,))
    offer = await worker.next(Offer)
    assert (offer.first, offer.last) == (0, 9)
    assert not worker.all(Scattered)


async def test_tasks_of_a_job_wait_for_one_another(house: House) -> None:
    await house.submit(array="0-3", edges=[[2, 0, 0, 1], [3, 0, 2, 2]])
    assert await counts(house, 1) == [{"waiting": 2, "ready": 2}]
    assert await house.explain("1.2") == "waits for 1.0, 1.1 to finish"
    assert await house.explain("1.3") == "waits for 1.2 to finish"
    worker = await house.worker(cpus=4)
    first, second = await worker.offered(), await worker.offered()
    await worker.report(first)
    assert await house.explain("1.2") == "waits for 1.1 to finish"
    await worker.report(second, code=1)
    ended = await house.ended(1)
    assert (ended.counts.finished, ended.counts.failed, ended.counts.cancelled) == (1, 1, 2)
    assert (await house.task(1, 3)).why == "skipped: it needs 1.1, which failed"


async def test_tasks_wait_for_tasks_of_another_job(house: House) -> None:
    await house.submit(array="0-9")
    await house.submit(array="0-1", edges=[[1, 1, 3, 4]])
    assert await counts(house, 2) == [{"waiting": 1, "ready": 1}]
    assert await house.explain("2.1") == "waits for 1.3, 1.4 to finish"


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("edges", "says"),
    [
        ([[0, 0, 1, 1], [1, 0, 2, 2], [2, 0, 0, 0]], "wait for one another in a circle: "),
        ([[1, 0, 1, 1]], "in a circle: 1 -> 1"),
        ([[9, 0, 0, 0]], "[9, 0, 0, 0] is not [task, job, first, last]"),
        ([[0, 0, 9, 9]], "task 0 needs task 9, which the job does not have"),
        ([[0, -1, 0, 0]], "is not [task, job, first, last]"),
        ([[0, 0, 2, 1]], "is not [task, job, first, last]"),
        ([[0, 1, 0, 99]], "task 0 needs 1.0, which does not exist"),
    ],
)
async def test_edges_that_cannot_be_are_refused(house: House, edges: list[list[int]], says: str) -> None:
    await house.submit(array="0-9")
    answer = await house.ask("POST", "/v1/jobs", json={"argv": ["true"], "array": "0-2", "edges": edges})
    assert (answer.status, answer.problem.field) == (400, "edges")
    assert says in answer.problem.detail
    assert (await house.status()).jobs == 1


async def test_a_circle_of_tasks_is_named(house: House) -> None:
    edges = [[0, 0, 1, 1], [1, 0, 2, 2], [2, 0, 0, 0]]
    answer = await house.ask("POST", "/v1/jobs", json={"argv": ["true"], "array": "0-3", "edges": edges})
    told = answer.problem.detail.partition("circle: ")[2].split(" -> ")
    assert told[0] == told[-1]
    assert sorted(set(told)) == ["0", "1", "2"]


async def test_after_a_restart_all_waits_as_before(home: Path) -> None:
    async with open_house(home / "data") as house:
        await submit_flow(house, {}, {"array": "0-2", "edges": [[2, 0, 0, 1]], "after": [{"job": -1}]})
        before = [await house.get(f"/v1/jobs/{id}", JobView) for id in (1, 2)]
        reasons = (await house.ask("GET", "/v1/explain?task=2")).of(Explanation)
    async with open_house(home / "data") as house:
        assert [await house.get(f"/v1/jobs/{id}", JobView) for id in (1, 2)] == before
        assert (await house.ask("GET", "/v1/explain?task=2")).of(Explanation) == reasons
        await house.sound()
