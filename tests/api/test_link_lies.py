"""A worker that lies. Whatever it says: the books are right, and nothing of the others is touched."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tercel.core.files import Made
from tercel.core.model import Needs
from tercel.core.presence import Held, WorkerState
from tercel.core.reports import End, Output, Report
from tercel.manager import hearing
from tercel.wire.messages import (
    Bye,
    Cached,
    Offer,
    Presence,
    Reports,
    Returned,
    Started,
    Welcome,
)
from tests.api.house import GIB, House, Scripted, done, inline
from tests.api.scene import Scene

pytestmark = pytest.mark.must("f")


# -- reports ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lie",
    [
        lambda scene: done(1, 0, 12345),
        lambda scene: done(1, 0, 0),
        lambda scene: done(1, 0, -1),
        lambda scene: done(1, 0, 2**64 - 1),
        lambda scene: done(1, 99, 12345),
        lambda scene: done(1, -1, 12345),
        lambda scene: done(1, 2**64 - 1, 12345),
        lambda scene: done(77, 0, 12345),
        lambda scene: done(-1, 0, 12345),
        lambda scene: done(2**64 - 1, 0, 12345),
        lambda scene: scene.theirs,
        lambda scene: msgspec.structs.replace(scene.theirs, code=1),
        lambda scene: msgspec.structs.replace(scene.theirs, end=End.REFUSED, note="no"),
        lambda scene: msgspec.structs.replace(scene.theirs, end=End.INTERRUPTED),
        lambda scene: msgspec.structs.replace(scene.mine, task=scene.theirs.task),
        lambda scene: msgspec.structs.replace(scene.mine, task=4),
        lambda scene: msgspec.structs.replace(scene.mine, job=2),
        lambda scene: msgspec.structs.replace(scene.theirs, attempt=scene.mine.attempt),
        lambda scene: msgspec.structs.replace(scene.mine, attempt=scene.theirs.attempt),
        lambda scene: msgspec.structs.replace(scene.mine, attempt=scene.mine.attempt + 1),
    ],
    ids=range(20),
)
async def test_a_report_of_an_attempt_that_is_not_the_workers_moves_nothing(
    scene: Scene, lie: Callable[[Scene], Report]
) -> None:
    await scene.bad.report(lie(scene))
    await scene.unmoved()


async def test_a_lie_about_a_task_is_noted_against_the_worker(scene: Scene) -> None:
    await scene.bad.report(done(1, 99, 12345))
    (bad, good) = (await scene.house.pool()).workers
    assert "does not exist" in bad.note
    assert good.note == ""


async def test_the_same_report_twice_counts_once(scene: Scene) -> None:
    contrary = msgspec.structs.replace(scene.mine, code=1)
    await scene.bad.say(Reports([scene.mine, scene.mine, contrary]))
    await scene.bad.say(Reports([contrary]))
    await scene.bad.settled()
    job = await scene.house.job(1)
    assert (job.counts.finished, job.counts.failed) == (1, 0)


ABSURD: list[dict[str, Any]] = [
    {"wall_s": math.nan},
    {"wall_s": math.inf},
    {"wall_s": -math.inf},
    {"wall_s": -5.0},
    {"wall_s": 1e308},
    {"cpu_s": math.nan},
    {"cpu_s": 1e308},
    {"started_at": math.nan},
    {"started_at": -math.inf},
    {"started_at": 1e308},
    {"max_rss_bytes": 2**64 - 1},
    {"max_rss_bytes": -(2**63)},
    {"note": "x" * 10**6},
    {"note": "\x1b[2J\x00\n"},
    {"out": Output(2**64 - 1, 2**64 - 1, b"", 2**64 - 1)},
    {"out": Output(-(2**63), -(2**63), b"", -(2**63))},
    {"out": inline(bytes(2**20)), "err": inline(bytes(2**20))},
    {"out": Output(10, 10, b"", 3)},
]


@pytest.mark.parametrize("fields", ABSURD, ids=lambda fields: str(fields)[:40])
async def test_absurd_numbers_in_a_report_do_not_hide_that_the_work_is_done(
    scene: Scene, fields: dict[str, Any]
) -> None:
    await scene.bad.report(scene.mine, **fields)
    view = await scene.house.task(1, scene.mine.task)
    assert (view.state, view.exit_code) == ("finished", 0)
    (attempt,) = view.attempts
    assert attempt.wall_s >= 0 and attempt.cpu_s >= 0 and attempt.max_rss_bytes >= 0
    assert len(attempt.note) <= 1000 and attempt.note.isprintable()
    assert 0 <= attempt.out_bytes < 2**62
    for path in ("/v1/jobs/1/tasks?outputs=true", f"/v1/jobs/1/tasks/{view.task}/logs", "/v1/pool"):
        answer = await scene.house.ask("GET", path)
        assert answer.status == 200
        assert len(answer.body) < 2**20
    # A worker may be right about the next thing.
    await scene.bad.report(await scene.bad.offered())


@pytest.mark.parametrize("code", [2**64 - 1, 2**63, -1, -(2**63)])
async def test_an_absurd_exit_code_is_a_failure_and_not_the_managers(scene: Scene, code: int) -> None:
    await scene.bad.report(scene.mine, code=code)
    view = await scene.house.task(1, scene.mine.task)
    assert (view.state, view.exit_code) == ("failed", 255)
    assert (await scene.house.ask("POST", "/v1/retry", json={"select": ["1"]})).json == {"count": 1}


async def test_numbers_that_cannot_be_are_noted_against_the_worker(scene: Scene) -> None:
    await scene.bad.report(scene.mine, wall_s=math.nan)
    assert "cannot be" in (await scene.house.pool()).workers[0].note


async def test_times_that_never_were_do_not_spoil_the_dispatch_of_the_job(scene: Scene) -> None:
    """How long tasks take decides how many are offered ahead: one NaN among them would decide everything."""
    await scene.bad.report(scene.mine, wall_s=math.inf)
    await scene.bad.report(await scene.bad.offered(), wall_s=math.nan)
    await scene.bad.report(await scene.bad.offered(), wall_s=-1e308)
    job = scene.house.manager.machine.jobs[1]
    assert job.mean_wall_s is not None and math.isfinite(job.mean_wall_s)


async def test_a_worker_that_refuses_everything_keeps_nothing_from_the_others(scene: Scene) -> None:
    for _ in range(3):
        await scene.bad.report(scene.mine, end=End.REFUSED, note="no directory")
    explanation = await scene.house.explain("1")
    assert "could run it" in explanation


# -- what it says it holds --------------------------------------------------------------------------------


def _held(report: Report, *, started: bool = True, ended: bool = False, **fields: int) -> Held:
    values = {"job": report.job, "task": report.task, "attempt": report.attempt} | fields
    return Held(**values, started=started, ended=ended)


async def _again(scene: Scene, *held: Held, instance: str = "1") -> Welcome:
    """`bad` connects again, and is `bad` from now on."""
    before = scene.bad
    scene.bad = Scripted(await scene.house.dial(), "bad")
    scene.house._workers.append(scene.bad)
    welcome = await scene.bad.join(held=held, instance=instance)
    await before.hung_up()
    return welcome


async def test_a_worker_that_connects_twice_is_heard_on_its_last_link(scene: Scene) -> None:
    first = scene.bad
    welcome = await _again(scene, _held(scene.mine))
    assert welcome.drop == []
    assert first.over.is_set()
    assert (await scene.house.pool()).online == 2
    await scene.bad.report(scene.mine)
    assert (await scene.house.job(1)).counts.finished == 1


async def test_workers_that_fight_over_a_name_harm_only_each_other(scene: Scene) -> None:
    for turn in range(10):
        await _again(scene, instance=str(turn))
        await scene.sound()
    assert (await scene.house.pool()).online == 2


HOLDS: dict[str, Callable[[Scene], list[Held]]] = {
    "what never was": lambda s: [Held(1, 0, 12345, True, False)],
    "what never was, ended": lambda s: [Held(1, 0, 12345, True, True)],
    "what is anothers": lambda s: [_held(s.theirs)],
    "what is anothers, ended": lambda s: [_held(s.theirs, ended=True)],
    "a task that is not there": lambda s: [Held(1, 99, 12345, True, False)],
    "a job that is not there": lambda s: [Held(99, 0, 12345, True, False)],
    "negative numbers": lambda s: [Held(-1, -1, -1, True, False)],
    "huge numbers": lambda s: [Held(2**64 - 1, 2**64 - 1, 2**64 - 1, False, False)],
    "its own, twice": lambda s: [_held(s.mine), _held(s.mine)],
    "its own, contradicting itself": lambda s: [_held(s.mine), _held(s.mine, started=False, ended=True)],
    "its own, under another task": lambda s: [_held(s.mine, task=s.theirs.task)],
    "its own, under another job": lambda s: [_held(s.mine, job=7)],
    "a ready task": lambda s: [Held(1, 4, s.mine.attempt + 1, True, False)],
    "nothing": lambda s: [],
    "very much": lambda s: [Held(1, i, 10**6 + i, True, False) for i in range(100_000)],
}


@pytest.mark.parametrize("held", HOLDS.values(), ids=HOLDS)
async def test_what_a_worker_says_it_holds_is_believed_only_of_what_it_was_given(
    scene: Scene, held: Callable[[Scene], list[Held]]
) -> None:
    said = held(scene)
    welcome = await _again(scene, *said)
    strange = {h.attempt for h in said if not h.ended} - {scene.mine.attempt}
    assert set(welcome.drop) == strange
    await scene.unmoved()


# -- presence, starts, returns ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "capacity",
    [Needs(-1, 0), Needs(0, -1), Needs(2**63, 0), Needs(1000, 2**64 - 1), Needs(-(2**63), -(2**63))],
)
async def test_a_capacity_that_cannot_be_ends_the_link(scene: Scene, capacity: Needs) -> None:
    await scene.bad.say(Presence(WorkerState.AVAILABLE, capacity))
    assert "no machine has" in await scene.cut_off()


async def test_more_kept_data_than_a_worker_can_have_ends_the_link_and_is_forgotten(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "MAX_CACHED", 100)
    for first in range(0, 150, 50):
        await scene.bad.say(Cached([(f"b{number}", 1) for number in range(first, first + 50)], []))
    assert "kept more than 100" in await scene.cut_off()
    assert scene.house.manager.machine.workers["bad"].cached == {}
    await scene.sound()


async def test_a_worker_that_gives_nothing_is_given_nothing(scene: Scene) -> None:
    await scene.bad.say(Presence(WorkerState.AVAILABLE, Needs(0, 0)))
    await scene.bad.report(scene.mine)
    await scene.bad.settled()
    assert len(scene.bad.all(Offer)) == 1
    assert (await scene.house.pool()).cpus == 2


@pytest.mark.parametrize("state", WorkerState)
async def test_a_state_is_taken_as_it_is_said(scene: Scene, state: WorkerState) -> None:
    await scene.bad.say(Presence(state, Needs(1000, GIB)))
    await scene.bad.settled()
    await scene.unmoved()
    assert (await scene.house.pool()).workers[0].state in (state, WorkerState.BUSY)


async def test_starts_and_returns_of_what_is_not_the_workers_move_nothing(scene: Scene) -> None:
    strange = [scene.theirs.attempt, 0, -1, 12345, 2**64 - 1, -(2**63)]
    await scene.bad.say(
        Started(strange), Returned(strange), Started(strange * 1000), Returned(strange * 1000)
    )
    await scene.bad.settled()
    await scene.unmoved()


async def test_the_same_task_may_be_started_and_returned_only_once(scene: Scene) -> None:
    mine = scene.mine.attempt
    await scene.bad.say(Presence(WorkerState.AVAILABLE, Needs(0, 0)))
    await scene.bad.say(Started([mine, mine]), Started([mine]), Returned([mine, mine]), Returned([mine]))
    await scene.bad.settled()
    await scene.unmoved()
    await scene.bad.report(scene.mine)
    await scene.unmoved()


async def test_a_worker_that_says_bye_and_holds_tasks_gives_them_back(scene: Scene) -> None:
    await scene.bad.say(Started([scene.mine.attempt]))
    await scene.bad.say(Bye("see you"), Started([scene.mine.attempt]))
    await scene.bad.hung_up()
    await scene.good.report(scene.goods.pop())
    await scene.good.settled()


# -- files ------------------------------------------------------------------------------------------------


DIGEST = f"blake3:{'0' * 64}"
OUTPUTS = [
    {"name": "o", "to": ["file:///data/{task}"]},
    {"name": "d/*", "to": ["s3://bucket/{job}/", "lfn:hist/{job}/{task}/"], "optional": True},
    {"name": "k", "to": ["lfn:kept/{task}"], "optional": True},
]


@pytest.mark.parametrize(
    "made",
    [
        Made("o", "file:///etc/passwd", 3, DIGEST),
        Made("o", "file:///data/1", 3, DIGEST),
        Made("o", f"tercel:{DIGEST}", 3, DIGEST),
        Made("o", "file:///data/0", 3, DIGEST, "lfn:calib/2027"),
        Made("d/a", "s3://bucket/1/a", 3, DIGEST),
        Made("d/a", "s3://bucket/1/a", 3, DIGEST, "lfn:hist/1/1/a"),
        Made("d/../../x", "s3://bucket/1/../../x", 3, DIGEST, "lfn:hist/1/0/x"),
        Made("k", "file:///data/0", 3, DIGEST, "lfn:kept/0"),
        Made("k", f"tercel:blake3:{'1' * 64}", 3, DIGEST, "lfn:kept/0"),
        Made("k", f"tercel:{DIGEST}", 3, DIGEST, "lfn:kept/1"),
    ],
)
async def test_files_that_a_job_does_not_declare_are_not_registered_nor_ever_removed(
    house: House, made: Made
) -> None:
    """Its next attempt would remove them, wherever they are, on another worker's behalf."""
    await house.submit(argv=["true"], array="0-0", outputs=OUTPUTS)
    bad = await house.worker("bad")
    await bad.report(await bad.offered(), files=(Made("o", "file:///data/0", 3, DIGEST), made))
    view = await house.task(1, 0)
    assert view.state == "failed" and "does not declare" in view.attempts[0].note
    assert (await house.ask("GET", "/v1/files")).json["files"] == []
    await house.sound()


async def test_files_that_a_job_declares_are_registered(house: House) -> None:
    await house.submit(argv=["true"], array="0-0", outputs=OUTPUTS)
    worker = await house.worker("good")
    await worker.report(
        await worker.offered(),
        files=(
            Made("o", "file:///data/0", 3, DIGEST),
            Made("d/a", "s3://bucket/1/a", 3, DIGEST, "lfn:hist/1/0/a"),
        ),
    )
    assert (await house.task(1, 0)).state == "finished"
    names = [one["name"] for one in (await house.ask("GET", "/v1/files")).json["files"]]
    assert sorted(names) == ["file:///data/0", "lfn:hist/1/0/a"]
