"""Quarantine, tags and reservations over HTTP: who may, what it does, how it is told, and that it lasts."""

import getpass
import re
from pathlib import Path
from typing import Any

import pytest

from tercel.core.model import Needs, Role
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End
from tercel.wire.api import Counted, ReservationList, ReservationView, Tags, WorkerView
from tercel.wire.messages import Refused
from tests.api.house import Answer, House, Scripted, open_house

ME = getpass.getuser()


async def view(house: House, worker: Scripted) -> WorkerView:
    return next(one for one in (await house.pool()).workers if one.id == worker.name)


async def ask(house: House, worker: Scripted, what: str, **body: Any) -> Answer:
    return await house.ask("POST", f"/v1/workers/{worker.name}/{what}", json=body)


async def reserve(house: House, **body: Any) -> Answer:
    return await house.ask("POST", "/v1/reservations", json={"for_s": 3600.0} | body)


# -- quarantine -------------------------------------------------------------------------------------------


@pytest.mark.must("b")
async def test_a_worker_in_quarantine_takes_nothing_until_it_is_released(house: House) -> None:
    worker = await house.worker()
    assert (await ask(house, worker, "quarantine", reason="its fan is loud")).of(Counted).count == 1
    await house.submit()
    shown = await view(house, worker)
    assert shown.quarantined == f"by {ME}: its fan is loud"
    assert shown.why.startswith(f"quarantined by {ME}: its fan is loud; `tercel worker release ")
    assert "quarantined" in await house.explain("1.0")
    assert (await house.ask("POST", f"/v1/workers/{worker.name}/release")).of(Counted).count == 1
    assert (await worker.offered()).job == 1
    assert (await house.ask("POST", f"/v1/workers/{worker.name}/release")).of(Counted).count == 0
    assert (await view(house, worker)).why == ""


async def test_a_worker_with_an_odd_name_comes_back_if_it_was_here_before_such_were_refused(
    home: Path,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tercel.manager.hearing._PLAIN_NAME", re.compile(".*"))
        async with open_house(home / "data") as house:
            worker = await house.worker("w;id")
            await ask(house, worker, "quarantine")
    async with open_house(home / "data") as house:
        await house.worker("w;id")
        other = Scripted(await house.dial(), "w;ls")
        with pytest.raises(AssertionError, match="the link is closed"):
            await other.join()
        assert "letters, digits" in (await other.next(Refused)).reason
        await other.close()


async def test_quarantine_tags_and_reservations_outlive_the_manager(home: Path) -> None:
    async with open_house(home / "data") as house:
        worker = await house.worker()
        name = worker.name
        await ask(house, worker, "quarantine")
        await ask(house, worker, "tags", add=["gpu"])
        made = (await reserve(house, user="bob", where='"gpu" in worker.tags')).of(ReservationView)
        assert made.workers == [name]
    async with open_house(home / "data") as house:
        again = Scripted(await house.dial(), name)
        await again.join()
        shown = await view(house, again)
        assert (shown.quarantined, shown.tags, shown.reservation) == (f"by {ME}", ["gpu"], made.id)
        listed = await house.get("/v1/reservations", ReservationList)
        assert [(one.id, one.user, one.workers) for one in listed.reservations] == [(made.id, "bob", [name])]
        await again.close()


async def test_a_reason_is_short_and_printable(house: House) -> None:
    worker = await house.worker()
    for reason in ("x" * 501, "a\nb"):
        assert (await ask(house, worker, "quarantine", reason=reason)).problem.field == "reason"
    assert (await view(house, worker)).quarantined == ""


async def test_the_faults_of_a_worker_are_counted_and_its_attempts_blamed(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="0-1", retries=1)
    report = await worker.offered()
    await worker.report(report, code=3)
    await worker.report(await worker.offered(), end=End.INTERRUPTED, wall_s=1.5, note="its disk is full")
    assert (await view(house, worker)).faults == {"failed": 1, "interrupted": 1}
    tasks = [await house.task(1, number) for number in (0, 1)]
    assert sorted(attempt.blame for task in tasks for attempt in task.attempts) == ["task", "worker"]


# -- tags -------------------------------------------------------------------------------------------------


async def test_tags_are_added_to_and_taken_from_what_a_worker_says(house: House) -> None:
    info = WorkerInfo(node="n", capacity=Needs(1000, 0), tags=("old", "STAR"))
    worker = await house.worker(info=info)
    changed = await ask(house, worker, "tags", add=["gpu"], remove=["old"])
    assert changed.of(Tags).tags == ["STAR", "gpu"]
    await house.submit(requires=["gpu", "STAR"])
    assert (await worker.offered()).job == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "add"),
        ({"add": ["a b"]}, "add"),
        ({"remove": [""]}, "remove"),
        ({"add": ["a"], "remove": ["a"]}, "add"),
        ({"add": [f"t{n}" for n in range(20_000)]}, "add"),
        ({"tags": ["a"]}, "tags"),
    ],
)
async def test_bad_tags_change_nothing(house: House, body: dict[str, Any], field: str) -> None:
    worker = await house.worker()
    answer = await ask(house, worker, "tags", **body)
    assert (answer.status, answer.problem.field) == (400, field)
    assert (await view(house, worker)).tags == []


# -- reservations -----------------------------------------------------------------------------------------


@pytest.mark.must("b")
async def test_a_reserved_worker_is_for_those_it_is_reserved_for(house: House) -> None:
    bob = await house.token(Role.USER, "bob")
    lab = WorkerInfo(node="n", capacity=Needs(1000, 0), site="lab1")
    worker = await house.worker(info=lab)
    made = (await reserve(house, user="bob", where='worker.site == "lab1"')).of(ReservationView)
    assert (made.owner, made.workers, made.lend) == (ME, [worker.name], False)
    await house.submit()
    assert "reserved for user bob" in await house.explain("1.0")
    shown = await view(house, worker)
    assert (shown.site, shown.reservation) == ("lab1", made.id)
    assert shown.why.startswith("reserved for user bob for another ")
    await house.submit(token=bob.secret)
    assert (await worker.offered()).job == 2
    assert (await house.ask("DELETE", f"/v1/reservations/{made.id}")).of(Counted).count == 1
    assert (await house.ask("DELETE", f"/v1/reservations/{made.id}")).problem.status == 404


async def test_a_lent_worker_runs_others_tasks_while_it_would_be_idle(house: House) -> None:
    worker = await house.worker()
    await reserve(house, queue="vision", lend=True)
    await house.submit()
    assert (await worker.offered()).job == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "queue"),
        ({"queue": "no such name!"}, "queue"),
        ({"user": "x" * 65}, "user"),
        ({"queue": "lab", "for_s": 0}, "for_s"),
        ({"queue": "lab", "for_s": -5.0}, "for_s"),
        ({"queue": "lab", "for_s": 1e300}, "for_s"),
        ({"queue": "lab", "where": "worker.sit == 'x'"}, "where"),
        ({"queue": "lab", "where": "worker.site"}, "where"),
        ({"queue": "lab", "where": "task.owner == 'ada'"}, "where"),
        ({"queue": "lab", "where": "worker.mem_free > 1"}, "where"),
        ({"queue": "lab", "where": "worker.time_left > 1.0"}, "where"),
        ({"queue": "lab", "where": "worker.cached_bytes > 1"}, "where"),
        ({"queue": "lab", "where": "worker.cpus > 1" + " && worker.cpus > 1" * 1000}, "where"),
    ],
)
async def test_a_bad_reservation_reserves_nothing(house: House, body: dict[str, Any], field: str) -> None:
    answer = await reserve(house, **body)
    assert (answer.status, answer.problem.field) == (400, field)
    assert (await house.get("/v1/reservations", ReservationList)).reservations == []


async def test_the_number_of_a_reservation_is_never_anothers(home: Path) -> None:
    async with open_house(home / "data") as house:
        first = (await reserve(house, user="bob")).of(ReservationView).id
        second = (await reserve(house, user="bob")).of(ReservationView).id
        for id in (second, first):
            await house.ask("DELETE", f"/v1/reservations/{id}")
    async with open_house(home / "data") as house:
        assert (await house.get("/v1/reservations", ReservationList)).reservations == []
        third = (await reserve(house, user="bob")).of(ReservationView).id
        assert third > second > first
        await house.ask("DELETE", f"/v1/reservations/{third}")
        assert (await reserve(house, user="bob")).of(ReservationView).id > third


async def test_who_reserves_is_told_what_may_not_be_as_it_was_meant(house: House) -> None:
    await house.token(Role.USER, "bob")
    worker = await house.worker()
    await house.ask("PUT", "/v1/queues/vision", json={})
    first = (await reserve(house, queue="vision", user="bob")).of(ReservationView)
    assert first.notes == []
    second = (await reserve(house, queue="visoin", user="zoe", where="worker.cpus > 0.0")).of(ReservationView)
    assert second.workers == []
    assert second.notes == [
        "there is no queue visoin so far; did you mean vision?",
        "there is no user zoe so far",
        f"reservation {first.id} has 1 of its workers until it ends: {worker.name}",
    ]
