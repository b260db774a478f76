"""Queues over HTTP: who may change them, what they keep from starting, and how that is told."""

import getpass
from pathlib import Path
from typing import Any

import pytest

from tercel.core.model import Role
from tercel.wire.api import QueueList, QueueView
from tests.api.house import Answer, House, open_house

ME = getpass.getuser()


async def put(house: House, name: str, token: str = "", **settings: Any) -> Answer:
    return await house.ask("PUT", f"/v1/queues/{name}", token=token, json=settings)


async def queues(house: House) -> dict[str, QueueView]:
    return {queue.name: queue for queue in (await house.get("/v1/queues", QueueList)).queues}


@pytest.mark.B(3)
@pytest.mark.T(12)
async def test_a_users_own_queue_comes_with_the_first_job(house: House) -> None:
    assert await queues(house) == {}
    await house.submit(array="0-9")
    own = (await queues(house))[ME]
    assert (own.owner, own.weight, own.jobs, own.ready, own.running, own.fair) == (ME, 1.0, 1, 10, 0, 1.0)
    assert (await house.job(1)).queue == ME
    await house.submit(queue=ME)
    assert (await queues(house))[ME].jobs == 2


async def test_the_own_queue_may_be_named_in_the_first_job(house: House) -> None:
    await house.submit(queue=ME)
    assert (await house.job(1)).queue == ME


async def test_an_admin_makes_a_queue_and_changes_what_is_named(house: House) -> None:
    made = (await put(house, "vision", weight=3, max_running=200, user_max=50)).of(QueueView)
    assert (made.weight, made.max_running, made.max_queued, made.user_max, made.paused) == (
        3.0,
        200,
        0,
        50,
        "",
    )
    changed = (await put(house, "vision", max_queued=1000)).of(QueueView)
    assert (changed.weight, changed.max_running, changed.max_queued, changed.user_max) == (3.0, 200, 1000, 50)
    changed = (await put(house, "vision", max_running=0)).of(QueueView)
    assert (changed.weight, changed.max_running) == (3.0, 0)


async def test_queues_and_their_settings_outlive_the_manager(home: Path) -> None:
    async with open_house(home / "data") as house:
        await put(house, "vision", weight=3, max_running=7, paused=True, reason="new disks")
        await house.submit(queue="vision")
    async with open_house(home / "data") as house:
        kept = (await queues(house))["vision"]
        assert (kept.weight, kept.max_running, kept.paused) == (3.0, 7, f"paused by {ME}: new disks")
        await house.worker()
        assert (await house.explain("1.0")).startswith("its queue vision is paused by ")
    async with open_house(home / "data") as house:
        assert (await put(house, "vision", paused=False)).of(QueueView).paused == ""
        worker = await house.worker()
        await worker.report(await worker.offered(1))
        assert (await house.ended(1)).counts.finished == 1


async def test_fair_parts_follow_the_weights_of_queues_with_work(house: House) -> None:
    for name, weight in (("a", 3), ("b", 1), ("idle", 96)):
        await put(house, name, weight=weight)
    await house.submit(queue="a")
    await house.submit(queue="b")
    fair = {name: queue.fair for name, queue in (await queues(house)).items()}
    assert fair == {"a": 0.75, "b": 0.25, "idle": 0.0}


async def test_a_job_for_a_queue_that_is_not_there_is_refused(house: House) -> None:
    await put(house, "vision")
    answer = await house.ask("POST", "/v1/jobs", json={"argv": ["true"], "queue": "visoin"})
    assert (answer.status, answer.problem.field) == (404, "queue")
    assert answer.problem.detail == "there is no queue 'visoin': vision (see `tercel queue list`)"
    assert (await house.status()).jobs == 0


# -- who may ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"weight": 5}, {"max_running": 0}, {"max_queued": 1}, {"user_max": 1}])
async def test_only_admins_set_weights_and_caps(house: House, settings: dict[str, Any]) -> None:
    user = (await house.token(Role.USER, "ada")).secret
    await house.submit(token=user)
    before = await queues(house)
    for name in ("ada", "vision", ME):
        answer = await put(house, name, token=user, **settings)
        assert (answer.status, answer.problem.field) == (403, "queue")
        assert "only an admin" in answer.problem.detail
    assert await queues(house) == before


async def test_a_user_pauses_only_the_own_queue(house: House) -> None:
    await put(house, "vision")
    user = (await house.token(Role.USER, "ada")).secret
    answer = await put(house, "vision", token=user, paused=True)
    assert answer.status == 403
    assert (await queues(house))["vision"].paused == ""
    paused = (await put(house, "ada", token=user, paused=True, reason="lunch")).of(QueueView)
    assert paused.paused == "paused by ada: lunch"
    await house.submit(token=user)
    assert await house.explain("1.0") == (
        "its queue ada is paused by ada: lunch; `tercel queue resume ada` lets it go on"
    )
    assert (await put(house, "ada", token=user, paused=False)).of(QueueView).paused == ""


async def test_nobody_but_an_admin_removes_a_queue(house: House) -> None:
    await put(house, "vision")
    user = (await house.token(Role.USER, "ada")).secret
    assert (await house.ask("DELETE", "/v1/queues/vision", token=user)).status == 403
    assert "vision" in await queues(house)


async def test_a_queue_is_removed_only_when_nothing_unfinished_is_in_it(house: House) -> None:
    await put(house, "vision", weight=3)
    await house.submit(queue="vision")
    answer = await house.ask("DELETE", "/v1/queues/vision")
    assert (answer.status, answer.problem.field) == (400, "queue")
    assert answer.problem.detail == "queue vision has 1 unfinished job: let it end, or cancel it, first"
    await house.submit(queue="vision")
    answer = await house.ask("DELETE", "/v1/queues/vision")
    assert answer.problem.detail == "queue vision has 2 unfinished jobs: let them end, or cancel them, first"
    await house.ask("POST", "/v1/cancel", json={"select": ["all"]})
    assert (await house.ask("DELETE", "/v1/queues/vision")).json == {"count": 1}
    assert "vision" not in await queues(house)
    assert (await house.ask("DELETE", "/v1/queues/vision")).status == 404


async def test_a_job_of_a_queue_that_is_gone_may_be_retried(home: Path) -> None:
    """It brings back a queue of that name, with the usual settings."""
    async with open_house(home / "data") as house:
        await put(house, "vision", weight=3)
        await house.submit(queue="vision")
        await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
        await house.ask("DELETE", "/v1/queues/vision")
        assert (await house.ask("POST", "/v1/retry", json={"select": ["1.0"]})).json == {"count": 1}
        assert (await queues(house))["vision"].weight == 1.0
        await house.sound()
    async with open_house(home / "data") as house:
        worker = await house.worker()
        await worker.report(await worker.offered(1))
        assert (await house.ended(1)).counts.finished == 1


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("name", "settings", "field"),
    [
        ("vision", {"weight": 0}, "weight"),
        ("vision", {"weight": -1}, "weight"),
        ("vision", {"weight": 1e9}, "weight"),
        ("vision", {"max_running": -1}, "max_running"),
        ("vision", {"max_queued": 2**40}, "max_queued"),
        ("vision", {"user_max": 1.5}, "user_max"),
        ("vision", {"paused": "yes"}, "paused"),
        ("vision", {"paused": True, "reason": "x" * 501}, "reason"),
        ("vision", {"paused": True, "reason": "a\nb"}, "reason"),
        ("vision", {"wieght": 1}, ""),
        ("a%20b", {}, "queue"),
        ("-a", {}, "queue"),
        ("a" * 65, {}, "queue"),
    ],
)
async def test_settings_that_cannot_be_make_no_queue(
    house: House, name: str, settings: dict[str, Any], field: str
) -> None:
    answer = await put(house, name, **settings)
    assert answer.status == 400
    assert field in answer.problem.field
    assert await queues(house) == {}
    await house.sound()


# -- caps are soft ----------------------------------------------------------------------------------------


@pytest.mark.T(9)
async def test_beyond_max_running_tasks_wait_and_say_so(house: House) -> None:
    await put(house, "vision", max_running=2)
    await house.submit(queue="vision", array="0-4")
    worker = await house.worker(cpus=4)
    first, second = await worker.offered(), await worker.offered()
    assert (await house.job(1)).counts.ready == 3
    assert await house.explain("1.4") == (
        "its queue vision runs at most 2 tasks at a time, and so many are under way"
    )
    assert (await queues(house))["vision"].running == 2
    await worker.report(first)
    third = await worker.offered()
    await put(house, "vision", max_running=0)
    for report in (second, third, await worker.offered(), await worker.offered()):
        await worker.report(report)
    assert (await house.ended(1)).counts.finished == 5


async def test_beyond_user_max_tasks_of_one_user_wait_and_others_go_on(house: House) -> None:
    await put(house, "vision", user_max=1)
    user = (await house.token(Role.USER, "ada")).secret
    await house.submit(queue="vision", array="0-4")
    await house.submit(queue="vision", token=user, array="0-4")
    worker = await house.worker(cpus=4)
    offers = [await worker.offered(), await worker.offered()]
    assert sorted(offer.job for offer in offers) == [1, 2]
    assert await house.explain("2.4") == (
        "its queue vision runs at most 1 task of one user at a time, and so many of ada are under way"
    )
    await house.sound()


async def test_beyond_max_queued_whole_jobs_stand_back_and_say_so(house: House) -> None:
    await put(house, "vision", max_queued=10)
    await house.submit(queue="vision", array="0-9")
    await house.submit(queue="vision", array="0-2", priority=0)
    worker = await house.worker(cpus=1)
    offer = await worker.offered()
    assert offer.job == 1
    assert await house.explain("2.0") == (
        "its queue vision takes up to 10 queued tasks at a time and has 10: "
        "this job comes when some of those have ended"
    )
    assert (await house.ask("POST", "/v1/cancel", json={"select": ["1.4-9"]})).json == {"count": 6}
    await worker.report(offer)
    assert (await worker.offered()).job == 2, "it has come, and is more urgent"
    await house.sound()


async def test_a_job_larger_than_max_queued_runs_all_the_same(house: House) -> None:
    await put(house, "vision", max_queued=2)
    await house.submit(queue="vision", array="0-4")
    worker = await house.worker()
    for _ in range(5):
        await worker.report(await worker.offered())
    assert (await house.ended(1)).counts.finished == 5


async def test_what_runs_goes_on_while_its_queue_is_paused(house: House) -> None:
    worker = await house.worker(cpus=1)
    await house.submit(array="0-1")
    offer = await worker.offered()
    paused = (await put(house, ME, paused=True)).of(QueueView)
    assert (paused.paused, paused.running, paused.ready) == (f"paused by {ME}", 1, 1)
    await worker.report(offer)
    assert await house.explain("1.1") == (
        f"its queue {ME} is paused by {ME}; `tercel queue resume {ME}` lets it go on"
    )
    await put(house, ME, paused=False)
    await worker.report(await worker.offered())
    assert (await house.ended(1)).counts.finished == 2
