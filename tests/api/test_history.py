"""What befell tasks, undoing it, and removing what is old, over HTTP."""

import getpass
from collections.abc import Sequence
from typing import Any

import pytest

from tercel.core.changes import Change, JobResumed, Noted, OutputKept, Reopened
from tercel.core.model import Role
from tercel.core.reports import End
from tercel.manager.rollback import named_ranges
from tercel.wire.api import Cleaned, History, RolledBack
from tests.api.house import House

ME = getpass.getuser()


async def change(house: House, what: str, *select: str, **more: Any) -> None:
    answer = await house.ask("POST", f"/v1/{what}", json={"select": select, **more})
    assert answer.status == 200, answer


async def roll_back(house: House, *select: str, **more: Any) -> RolledBack:
    return (await house.ask("POST", "/v1/rollback", json={"select": select, **more})).of(RolledBack)


async def events(house: House, path: str) -> list[tuple[str, str]]:
    told = await house.get(f"/v1/jobs/{path}/history", History)
    assert [event.at for event in told.events] == sorted(event.at for event in told.events)
    return [(event.what, event.text) for event in told.events]


# -- history ----------------------------------------------------------------------------------------------


@pytest.mark.C(15)
@pytest.mark.must("a")
async def test_every_transition_of_a_task_is_told_with_cause_and_blame(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="0-1", retries=1, hold=True)
    await change(house, "release", "1", reason="go")
    offer = await worker.offered()
    await worker.report(offer, end=End.INTERRUPTED, started_at=1.0, note="no memory")
    for code in (3, 4):
        again = await worker.offered()
        while again.task != offer.task:
            await worker.report(again)
            again = await worker.offered()
        await worker.report(again, code=code)
    await house.until(lambda: house.manager.machine.jobs[1].failed, "it failed")
    await change(house, "hold", "1")
    await change(house, "retry", "1", reason="once more")
    await change(house, "cancel", "1", reason="enough")
    told = await house.get(f"/v1/jobs/1/tasks/{offer.task}/history", History)
    what = [event.what for event in told.events if event.what != "started"]
    assert what[:2] == ["accepted", "released"]
    assert sorted(what[2:5]) == ["failed", "failed", "interrupted"]
    assert what[-2:] == ["retried", "cancelled"]
    by_word = {event.what: event for event in told.events}
    assert by_word["accepted"].text == f"from {ME}"
    assert by_word["released"].text == f"by {ME}: go"
    assert by_word["retried"].text == f"by {ME}: once more"
    assert by_word["cancelled"].text == f"cancelled by {ME}: enough"
    assert by_word["interrupted"].blame
    assert by_word["failed"].blame == "task"
    assert by_word["failed"].code in (3, 4)
    assert by_word["failed"].worker == worker.name
    assert told.now == "cancelled"


@pytest.mark.C(15)
async def test_the_history_of_a_job_tells_once_what_its_tasks_began_to_wait_for(house: House) -> None:
    worker = await house.worker(cpus=3)
    rule = {"on": "exit:75", "tester": "tcp:licence.lab:27000", "policy": "every 1h for 2d"}
    await house.submit(array="0-2", block_on=[rule])
    for _ in range(3):
        await worker.report(await worker.offered(), code=75)
    told = [text for what, text in await events(house, "1") if what == "blocked"]
    assert told == ["the first of its job to wait for tcp:licence.lab:27000"]


@pytest.mark.C(15)
async def test_ten_thousand_held_tasks_are_one_note(house: House) -> None:
    await house.submit(array="0-9999")
    await change(house, "hold", "1", reason="wait")
    await change(house, "revise", "1", priority=5)
    assert await events(house, "1/tasks/4321") == [
        ("accepted", f"from {ME}"),
        ("held", f"by {ME}: wait"),
        ("revised", f"by {ME}: priority 1000 -> 5"),
    ]
    told = (await house.get("/v1/jobs/1/history", History)).events
    assert [(event.what, event.count, event.tasks) for event in told] == [
        ("accepted", 10_000, "0-9999"),
        ("held", 10_000, "0-9999"),
        ("revised", 10_000, "0-9999"),
    ]
    assert len(house.manager.store.job_notes(1, skip=0, limit=100)) == 2


async def test_tasks_that_many_like_notes_tell_of_are_named_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.submit(array="0-99", hold=True)
    store = house.manager.store
    notes = [Noted(1, ((2 * n, 2 * n),), 1e9 + n, "blocked", "C1") for n in range(50)]
    await house.manager.on_disk(lambda: (store.write(notes), store.commit()))
    named: list[object] = []

    def counted(ranges: Any) -> str:
        named.append(ranges)
        return named_ranges(ranges)

    monkeypatch.setattr("tercel.manager.history.named_ranges", counted)
    told = (await house.get("/v1/jobs/1/history", History)).events
    blocked = next(event for event in told if event.what == "blocked")
    assert (blocked.at, blocked.until, blocked.count) == (1e9, 1e9 + 49, 50)
    assert blocked.tasks.startswith("0,2,4,")
    assert len(named) == len(told)


@pytest.mark.C(15)
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_of_a_jobs_history_are_all_of_it(house: House, limit: int) -> None:
    await house.submit(array="0-99")
    store = house.manager.store
    times = [1e9, 1e9, 1e9 + 0.25, 1e9 + 0.5, 1e9 + 1, 1e9 + 1, 1e9 + 1, 2e9, 3e9 + 0.75]
    notes = [Noted(1, ((n, n),), at, "blocked", f"C{n}") for n, at in enumerate(times)]
    await house.manager.on_disk(lambda: (store.write(notes), store.commit()))
    whole = await house.get("/v1/jobs/1/history", History)
    page = await house.get(f"/v1/jobs/1/history?limit={limit}", History)
    told = list(page.events)
    while page.more:
        page = await house.get(f"/v1/jobs/1/history?limit={limit}&skip={page.next}", History)
        assert 0 < len(page.events) <= limit
        told += page.events
    assert told == whole.events
    assert len(told) == 1 + len(notes)


@pytest.mark.C(15)
async def test_the_history_of_a_task_that_was_tried_very_often_is_read_in_pages(house: House) -> None:
    worker = await house.worker()
    await house.submit(retries=60)
    for _ in range(61):
        await worker.report(await worker.offered(), code=1)
    await house.ended(1)
    first = await house.get("/v1/jobs/1/tasks/0/history?limit=100", History)
    assert first.more
    rest = await house.get(f"/v1/jobs/1/tasks/0/history?skip={first.next}&limit=1000", History)
    assert not rest.more
    what = [event.what for event in first.events + rest.events]
    assert (what.count("started"), what.count("failed")) == (61, 61)


async def test_a_task_that_was_blocked_very_often_says_how_many_attempts_are_left_out(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[{"on": "exit:75", "tester": "tcp:a.lab:1", "policy": "every 1h for 2d"}])
    for _ in range(30):
        await worker.report(await worker.offered(), code=75)
        assert (await house.ask("POST", "/v1/conditions/1/release", json={})).status == 200
    await worker.report(await worker.offered())
    view = (await house.ended(1), await house.task(1, 0))[1]
    notes = [attempt.note for attempt in view.attempts]
    said = "blocked on tcp:a.lab:1 (exit:75)"
    assert notes == [said] * 20 + [f"after 9 more like it: {said}", ""]
    told = await house.get("/v1/jobs/1/tasks/0/history?limit=1000", History)
    (last,) = [event.text for event in told.events if "more like it" in event.text]
    assert last == f"exited with code 75: after 9 more like it: {said}"


async def test_a_history_is_shown_to_its_owner_only_and_of_what_there_is(house: House) -> None:
    await house.submit()
    stranger = (await house.token(Role.USER, "bob")).secret
    for path in ("1/history", "1/tasks/0/history"):
        assert (await house.ask("GET", f"/v1/jobs/{path}", token=stranger)).status == 404
    assert (await house.ask("GET", "/v1/jobs/1/tasks/7/history")).status == 404
    assert (await house.ask("GET", "/v1/jobs/1/history?skip=-1")).status == 400


# -- rollback ---------------------------------------------------------------------------------------------


async def chain(house: House) -> Any:
    """Job 1 finished, but for one task that failed; 2 used task 0 of it, 3 needs all of it and was skipped."""
    worker = await house.worker()
    await house.submit(array="0-2", name="first")
    await house.submit(after=[{"job": 1, "tasks": [[0, 0]]}])
    await house.submit(after=[{"job": 1}])
    for _ in range(3):
        offer = await worker.offered(1)
        await worker.report(offer, code=int(offer.task == 2))
    await worker.report(await worker.offered(2))
    for job in (1, 2, 3):
        await house.ended(job)
    return worker


@pytest.mark.C(6)
@pytest.mark.must("a")
async def test_a_rollback_is_listed_first_and_then_done_also_of_jobs_that_have_ended(house: House) -> None:
    worker = await chain(house)
    listed = await roll_back(house, "1", dry_run=True)
    assert [(part.job, part.tasks, part.failed, part.used, part.skipped) for part in listed.parts] == [
        (1, "2", 1, 0, 0),
        (3, "0", 0, 0, 1),
    ]
    assert not house.manager.machine.jobs, "nothing was changed"
    whole = await roll_back(house, "1", dry_run=True, states=["finished", "failed", "cancelled"])
    assert [(part.job, part.finished, part.used) for part in whole.parts] == [(1, 2, 0), (2, 0, 1), (3, 0, 0)]
    done = await roll_back(house, "1", states=["finished", "failed"], to="staged", reason="wrong data")
    assert (done.count, done.to, done.dry_run) == (5, "accepted", False)
    for job, tasks in ((1, 3), (2, 1), (3, 1)):
        for _ in range(tasks):
            await worker.report(await worker.offered(job))
    for job in (1, 2, 3):
        assert (await house.ended(job)).counts.failed == 0
    why = f"to accepted by {ME}: wrong data"
    assert ("rolled back", why) in await events(house, "1/tasks/2")
    assert ("rolled back", f"{why}: it had used what was undone") in await events(house, "2/tasks/0")
    third = [what for what, _ in await events(house, "3/tasks/0") if what != "started"]
    assert third == ["accepted", "skipped", "waits again", "finished"]
    assert len((await house.task(1, 2)).attempts) == 2
    await house.sound()


@pytest.mark.C(6)
@pytest.mark.C(9)
async def test_all_of_a_rollback_is_one_batch_for_the_store(house: House) -> None:
    await chain(house)
    batches: list[list[Change]] = []
    write = house.manager.store.write

    def kept(changes: Sequence[Change]) -> None:
        batches.append(list(changes))
        write(changes)

    house.manager.store.write = kept  # type: ignore[method-assign]
    await roll_back(house, "1", states=["finished", "failed"])
    reopening = [batch for batch in batches if any(isinstance(change, Reopened) for change in batch)]
    (batch,) = reopening
    assert {change.job for change in batch if isinstance(change, Reopened)} == {1, 2, 3}
    assert {change.job for change in batch if isinstance(change, JobResumed)} == {1, 2, 3}
    assert {change.job for change in batch if isinstance(change, Noted)} == {1, 2, 3}


@pytest.mark.C(6)
async def test_only_leaves_alone_what_used_the_results(house: House) -> None:
    await chain(house)
    done = await roll_back(house, "1.0", only=True)
    assert [part.job for part in done.parts] == [1]
    assert (await house.job(2)).counts.finished == 1


@pytest.mark.C(6)
async def test_what_is_under_way_is_in_the_way_unless_forced(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    await house.submit(after=[{"job": 1}])
    await worker.report(await worker.offered(1))
    running = await worker.offered(2)
    refused = await house.ask("POST", "/v1/rollback", json={"select": ["1.0"]})
    assert refused.status == 400
    assert "2.0 under way" in refused.problem.detail
    assert (await house.job(1)).counts.finished == 1
    done = await roll_back(house, "1.0", force=True)
    assert done.under_way == ["2.0"]
    await worker.report(running, end=End.CANCELLED)
    await worker.report(await worker.offered(1))
    await worker.report(await worker.offered(2))
    assert (await house.ended(2)).counts.finished == 1
    await house.sound()


@pytest.mark.C(6, 9)
async def test_retries_are_whole_again_and_what_was_left_half_done_is_dropped(house: House) -> None:
    worker = await house.worker()
    await house.submit(retries=1)
    lost = await worker.offered()
    await worker.report(lost, end=End.INTERRUPTED, started_at=1.0, wall_s=1.0)
    for _ in range(2):
        await worker.report(await worker.offered(), code=1)
    await house.ended(1)
    await house.manager.save([OutputKept(lost.attempt, "out", 0, b"half a piece")])
    assert (await roll_back(house, "1", dry_run=True)).parts[0].outputs == 1
    assert (await roll_back(house, "1")).parts[0].outputs == 1
    assert house.manager.store.output_segments(lost.attempt, "out") == []
    await worker.report(await worker.offered(), code=1)
    await worker.report(await worker.offered(), code=0)
    assert (await house.ended(1)).counts.finished == 1


@pytest.mark.C(6)
async def test_tasks_are_chosen_by_when_they_ended(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="0-1")
    early = await worker.offered()
    await worker.report(early)
    await worker.acknowledged(early.attempt)
    between = house.manager.clock()
    await worker.report(await worker.offered(), code=1)
    await house.ended(1)
    assert (await roll_back(house, "1", since=between, dry_run=True)).count == 1
    assert (await roll_back(house, "1", since=0.0, dry_run=True)).count == 2
    assert (await roll_back(house, "1", since=between + 1e6)).count == 0


async def test_chosen_tasks_that_are_blocked_or_held_have_not_ended_and_are_left_alone(house: House) -> None:
    await house.ask("PUT", "/v1/queues/gate", json={"paused": True, "reason": "closed"})
    rule = {"on": "exit:75", "tester": "enabled:queue=gate", "at": "here", "policy": "every 1m for 1d"}
    worker = await house.worker()
    await house.submit(array="0-2", block_on=[rule])
    for code in (75, 1):
        await worker.report(await worker.offered(), code=code)
    running = await worker.offered()
    await change(house, "hold", f"1.{running.task}")
    await worker.report(running, end=End.INTERRUPTED, started_at=1.0)
    await house.until(lambda: house.manager.machine.jobs[1].paused, "it rests")
    before = (await house.job(1)).counts
    assert (before.blocked, before.paused, before.failed) == (1, 1, 1)
    done = await roll_back(house, "1.0-2", force=True)
    assert (done.count, done.under_way) == (1, [])
    after = (await house.job(1)).counts
    assert (after.blocked, after.paused, after.failed) == (1, 1, 0)


async def test_what_cannot_be_rolled_back_is_refused_and_changes_nothing(house: House) -> None:
    await chain(house)
    stranger = (await house.token(Role.USER, "bob")).secret
    for asked, status in (
        ({"select": []}, 400),
        ({"select": ["1"], "states": ["running"]}, 400),
        ({"select": ["1"], "to": "ran"}, 400),
        ({"select": ["99"]}, 404),
        ({"select": ["1.77"]}, 404),
        ({"select": ["1"], "reason": "x" * 501}, 400),
    ):
        assert (await house.ask("POST", "/v1/rollback", json=asked)).status == status, asked
    foreign = await house.ask("POST", "/v1/rollback", token=stranger, json={"select": ["1"]})
    assert foreign.status == 404
    assert not house.manager.machine.jobs


async def test_anothers_job_that_used_the_results_is_not_touched(house: House) -> None:
    bob = (await house.token(Role.USER, "bob")).secret
    worker = await house.worker()
    await house.submit(token=bob)
    await house.submit(after=[{"job": 1}])  # an admin may need anybody's
    await worker.report(await worker.offered(1))
    await worker.report(await worker.offered(2))
    await house.ended(2)
    refused = await house.ask("POST", "/v1/rollback", token=bob, json={"select": ["1.0"]})
    assert refused.status == 403
    done = await house.ask("POST", "/v1/rollback", token=bob, json={"select": ["1.0"], "only": True})
    assert done.of(RolledBack).count == 1


# -- clean ------------------------------------------------------------------------------------------------


@pytest.mark.C(15)
async def test_ended_jobs_of_an_age_are_removed_with_what_they_left(house: House) -> None:
    await chain(house)
    await house.submit()
    house.manager.clock = lambda: 1e10
    body = {"older_s": 3600.0, "dry_run": True}
    found = (await house.ask("POST", "/v1/clean", json=body)).of(Cleaned)
    assert (found.jobs, found.dry_run) == (2, True), "1 only after those that need it"
    gone = (await house.ask("POST", "/v1/clean", json={"older_s": 3600.0})).of(Cleaned)
    assert (gone.jobs, gone.tasks) == (3, 5)
    for job in (1, 2, 3):
        assert (await house.ask("GET", f"/v1/jobs/{job}")).status == 404
    assert (await house.job(4)).counts.ready + (await house.job(4)).counts.offered == 1
    assert (await house.submit()).id == 5, "no number is used again"
    await house.sound()


async def test_only_an_admin_removes_and_not_by_an_absurd_age(house: House) -> None:
    user = (await house.token(Role.USER, "bob")).secret
    assert (await house.ask("POST", "/v1/clean", token=user, json={"older_s": 9.0})).status == 403
    for older in (0, -5, 1e30):
        refused = await house.ask("POST", "/v1/clean", json={"older_s": older})
        assert refused.status == 400
        assert refused.problem.detail.startswith("--older (older_s) is how long ago it ended")
