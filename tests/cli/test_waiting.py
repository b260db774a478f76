"""tercel wait: pushed, never polled; through restarts of the manager."""

import threading

import pytest

from tercel.cli import blockage
from tercel.cli.screen import Screen
from tercel.cli.waiting import Tally, say_why_nothing_runs
from tercel.core.states import TaskState
from tercel.sdk import AsyncClient, asking_events
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import DROP, FakeManager, Request, events, job, stream, task


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_events, "RECONNECT_MOST_S", 0.01)


def done(id: int = 37, **counts: int) -> api.Event:
    return api.Event(job=id, counts=api.Counts(**counts), done=True)


@pytest.mark.parametrize(
    ("counts", "code"), [({"finished": 3}, 0), ({"finished": 2, "failed": 1}, 1), ({"cancelled": 3}, 1)]
)
def test_the_exit_code_tells_whether_everything_was_done(
    tercel: Tercel, manager: FakeManager, counts: dict[str, int], code: int
) -> None:
    manager.says("GET", "/v1/events", events(done(**counts)))
    manager.says("GET", "/v1/jobs/37/tasks", api.TaskList(tasks=[task(1, why="exit code 2")], more=False))
    assert tercel("wait", "37").code == code
    [waited] = tercel("wait", "37", "--json").json["jobs"]
    assert waited["id"] == "37"
    assert {name: count for name, count in waited["counts"].items() if count} == counts


def test_a_restart_of_the_manager_does_not_end_a_wait(tercel: Tercel, manager: FakeManager) -> None:
    running = api.Event(job=37, counts=api.Counts(running=1))
    manager.says("GET", "/v1/events", events(running, whole=False), DROP, DROP, events(done(finished=1)))
    waited = tercel("wait", "37")
    assert (waited.code, waited.out) == (0, "37: 1 finished\n")
    assert waited.err.count("the manager is away") == 1
    assert len(manager.requests) == 4


def test_several_jobs_are_waited_for_over_one_stream(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/events", events(done(38, finished=1), done(37, finished=2)))
    assert tercel("wait", "37", "38").out == "37: 2 finished\n38: 1 finished\n"
    assert [r.query["job"] for r in manager.requests] == [["37", "38"]]


def test_all_means_the_jobs_under_way(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[job(38)], more=False))
    manager.says("GET", "/v1/events", events(done(38, finished=1)))
    assert tercel("wait", "all").code == 0
    assert "all" not in manager.requests[0].query


def test_nothing_under_way_is_waited_for_at_once(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[], more=False))
    assert tercel("wait", "all") == (0, "", "")


def test_tasks_are_waited_for_without_the_rest_of_their_job(tercel: Tercel, manager: FakeManager) -> None:
    def some(*ended: tuple[int, int]) -> api.Event:
        return api.Event(job=37, counts=api.Counts(ready=5, finished=5), ended=list(ended))

    def page(request: Request) -> api.TaskList:
        assert request.query["tasks"] == ["3-5"]
        return api.TaskList(tasks=[task(3), task(4, state=TaskState.FAILED), task(5)], more=False)

    manager.says("GET", "/v1/jobs/37", job(ended_at=None))
    manager.says("GET", "/v1/jobs/37/tasks", page)
    manager.says("GET", "/v1/events", events(some((0, 3)), some((5, 5)), some((4, 4)), some((9, 9))))
    waited = tercel("wait", "37.3-5")
    assert (waited.code, waited.out) == (1, "37.3-5: 2 finished, 1 failed\n")
    assert manager.asked("GET", "/v1/events")[0].query == {"job": ["37"], "tasks": ["true"]}


def test_a_job_that_does_not_exist_is_not_waited_for(tercel: Tercel, manager: FakeManager) -> None:
    assert tercel("wait", "37").code == 2


async def test_a_job_that_nobody_can_run_is_explained_without_being_asked(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tercel.cli.waiting.STALLED_S", 0.0)
    manager.says("GET", "/v1/jobs/37", job(counts=api.Counts(ready=2), ended_at=None))
    reason = api.Explanation(id="37", summary="waits for memory ≥ 64 GB", reasons=[])
    manager.says("GET", "/v1/explain", reason)
    async with AsyncClient() as client:
        await say_why_nothing_runs(client, Screen(), [37])
        manager.says("GET", "/v1/jobs/37", job(counts=api.Counts(ready=1, running=1), ended_at=None))
        await say_why_nothing_runs(client, Screen(), [37])
    assert capsys.readouterr().err == "tercel: job 37: waits for memory ≥ 64 GB\n"


@pytest.mark.parametrize("words", [["wait", "37"], ["wait", "37.0"], ["submit", "--wait", "--", "x"]])
def test_whoever_waits_for_a_job_that_nobody_can_run_is_told(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("tercel.cli.waiting.STALLED_S", 0.0)
    told = threading.Event()
    note = Screen.note

    def hear(screen: Screen, text: str) -> None:
        note(screen, text)
        if "64 GB" in text:
            told.set()

    def end(_: Request) -> object:
        assert told.wait(30)
        return events(api.Event(job=37, counts=api.Counts(finished=1), ended=[(0, 0)], done=True))

    monkeypatch.setattr(Screen, "note", hear)
    manager.says("POST", "/v1/jobs", api.Submitted(id=37, tasks=1, name=""))
    manager.says("GET", "/v1/jobs/37", job(counts=api.Counts(ready=1), tasks=1, array="", ended_at=None))
    manager.says("GET", "/v1/jobs/37/tasks", api.TaskList(tasks=[task(0)], more=False))
    reason = api.Explanation(id="37", summary="waits for memory ≥ 64 GB", reasons=[])
    manager.says("GET", "/v1/explain", reason)
    manager.says("GET", "/v1/events", end)
    assert "tercel: job 37: waits for memory ≥ 64 GB\n" in tercel(*words).err


def test_the_tasks_of_many_jobs_are_counted_together_and_each_once() -> None:
    tally = Tally()
    tally.heard(api.Event(job=1, counts=api.Counts(ready=3)))
    tally.heard(api.Event(job=2, counts=api.Counts(running=2, finished=1)))
    tally.heard(api.Event(job=1, counts=api.Counts(finished=2, failed=1), done=True))
    assert tally.total == api.Counts(running=2, finished=3, failed=1)
    assert tally.latest[1] == api.Counts(finished=2, failed=1)


def test_who_waits_for_what_is_held_is_told_at_once_what_lets_it_go(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockage, "GATHER_S", 0.0)
    monkeypatch.setattr(blockage, "LOOK_EVERY_S", 0.0)
    said = threading.Semaphore(0)
    note = Screen.note

    def hear(screen: Screen, text: str) -> None:
        note(screen, text)
        if "held" in text:
            said.release()

    def told() -> None:
        assert said.acquire(timeout=30)

    def stood(**counts: int) -> bytes:
        return events(api.Event(job=37, counts=api.Counts(**counts))).pieces[0]  # type: ignore[return-value]

    monkeypatch.setattr(Screen, "note", hear)
    pieces = [
        stood(running=1, paused=8),
        stood(paused=8, waiting=1, finished=1),
        told,
        stood(paused=8, waiting=1, finished=1),
        stood(running=9, finished=1),
        stood(paused=2, finished=8),
        told,
        *events(done(finished=10)).pieces,
    ]
    manager.says("GET", "/v1/events", stream(*pieces))
    assert tercel("wait", "37").err.splitlines() == [
        "tercel: 8 tasks held: `tercel release 37` lets them go",
        "tercel: 2 tasks held: `tercel release 37` lets them go",
    ]
