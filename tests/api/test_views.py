"""What clients are shown: pages, filters, outputs, attempts; always as much as has happened, and never half of it."""

import asyncio
import getpass
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.changes import LiveJob
from tercel.core.intervals import IntervalSet
from tercel.core.model import Needs, Role
from tercel.core.presence import WorkerState
from tercel.core.reports import End, Outcome, Output
from tercel.core.states import TaskState
from tercel.manager import logs, requests, views
from tercel.manager.access import Identity
from tercel.wire.api import Counted, Counts, JobList, JobView, Selection, Submission, TaskList, TaskView
from tercel.wire.messages import SEGMENT_BYTES, Brief, Offer, Presence, Reports, Segment, Started
from tests.api.house import Answer, House, Scripted, inline, open_house


async def _jobs(house: House, query: str) -> tuple[list[int], bool]:
    page = await house.get(f"/v1/jobs{query}", JobList)
    return [job.id for job in page.jobs], page.more


async def _tasks(house: House, query: str = "", job: int = 1) -> tuple[list[int], bool]:
    page = await house.tasks(job, query)
    return [task.task for task in page.tasks], page.more


async def _ask(house: House, what: str, *select: str) -> int:
    return (await house.ask("POST", f"/v1/{what}", json={"select": list(select)})).of(Counted).count


# -- jobs -------------------------------------------------------------------------------------------------


async def test_jobs_are_shown_newest_first_in_pages(house: House) -> None:
    for number in range(1, 8):
        await house.submit(name=f"job-{number}")
    assert await _ask(house, "cancel", "2", "5") == 2
    assert await _jobs(house, "") == ([7, 6, 4, 3, 1], False)
    assert await _jobs(house, "?all=true") == ([7, 6, 5, 4, 3, 2, 1], False)
    assert await _jobs(house, "?limit=2") == ([7, 6], True)
    assert await _jobs(house, "?limit=2&before=6") == ([4, 3], True)
    assert await _jobs(house, "?limit=2&before=3") == ([1], False)
    assert await _jobs(house, "?all=true&limit=3&before=6") == ([5, 4, 3], True)
    assert await _jobs(house, "?all=true&limit=3&before=4") == ([3, 2, 1], False)
    for query in ("?before=1", "?before=0", "?before=1&all=true", "?before=0&all=true"):
        assert await _jobs(house, query) == ([], False)
    assert await _jobs(house, f"?before={2**53}") == ([7, 6, 4, 3, 1], False)


async def test_what_a_job_reads_and_leaves_is_shown_but_not_in_lists(house: House) -> None:
    inputs = [{"source": "lfn:calib", "name": "c.db"}]
    outputs = [{"name": "x", "to": ["lfn:fit/{task}"], "optional": True}]
    await house.submit(inputs=inputs, outputs=outputs)
    view = await house.get("/v1/jobs/1", JobView)
    assert msgspec.json.decode(msgspec.json.encode([view.inputs, view.outputs])) == [inputs, outputs]
    [listed] = (await house.get("/v1/jobs", JobList)).jobs
    assert (listed.inputs, listed.outputs) == ([], [])
    again = (await house.ask("GET", "/v1/jobs/1/submission")).of(Submission)
    assert (list(again.inputs), list(again.outputs)) == (view.inputs, view.outputs)


async def test_a_job_is_shown_as_it_was_submitted(house: House) -> None:
    job = await house.submit(
        argv=["./fit.sh", "a b"],
        name="fit",
        array="0-9:3,20%2",
        cpus=0.5,
        mem_bytes=500 * 2**20,
        time_limit_s=60,
        priority=3,
        retries=2,
        cwd="/tmp",
        env={"SECRET": "hunter2"},
    )
    assert (job.tasks, job.name) == (5, "fit")
    view = await house.job(job.id)
    assert view.command == "./fit.sh 'a b'"
    assert (view.tasks, view.array, view.cpus, view.mem_bytes) == (5, "0-9:3,20%2", 0.5, 500 * 2**20)
    assert (view.time_limit_s, view.priority, view.retries, view.cwd) == (60, 3, 2, "/tmp")
    assert view.counts == Counts(ready=5)
    assert view.ended_at is None
    answer = await house.ask("GET", f"/v1/jobs/{job.id}")
    assert b"hunter2" not in answer.body, "an environment is the submitter's own business"


async def test_a_job_of_lines_is_shown_by_its_first(house: House) -> None:
    await house.submit(lines=["echo one", "echo two"])
    view = await house.job(1)
    assert (view.command, view.tasks, view.array) == ("echo one", 2, "")


async def test_a_list_of_jobs_with_huge_arrays_is_not_huge(house: House) -> None:
    array = ",".join(map(str, range(0, 20_000, 2)))
    for _ in range(3):
        await house.submit(array=array)
    assert len((await house.ask("GET", "/v1/jobs")).body) < 10_000
    assert (await house.job(1)).array == array


# -- tasks ------------------------------------------------------------------------------------------------


@pytest.fixture
async def mixed(house: House) -> AsyncIterator[House]:
    """A job of ten: 0-2 finished, 3 failed, 4 cancelled, 5 runs, 6 is offered, 7-9 are ready."""
    worker = await house.worker(cpus=7)
    await house.submit(array="0-9")
    offers = [await worker.offered() for _ in range(7)]
    await worker.say(Started([offers[5].attempt]))
    assert await _ask(house, "cancel", "1.4") == 1
    # No room is made by what ends: the rest stays ready.
    await worker.say(Presence(WorkerState.BUSY, Needs(0, 0)))
    for offer in offers[:3]:
        await worker.report(offer, out=inline(b"done"))
    await worker.report(offers[3], code=3, err=inline(b"oh no"))
    yield house
    await house.sound()


STATES = {
    "finished": [0, 1, 2],
    "failed": [3],
    "cancelled": [4],
    "running": [5],
    "offered": [6],
    "ready": [7, 8, 9],
}


async def test_counts_add_up(mixed: House) -> None:
    counts = (await mixed.job(1)).counts
    assert counts == Counts(finished=3, failed=1, cancelled=1, running=1, offered=1, ready=3)
    assert (await mixed.status()).counts == counts


@pytest.mark.parametrize(("state", "tasks"), STATES.items())
async def test_tasks_are_chosen_by_their_state(mixed: House, state: str, tasks: list[int]) -> None:
    page = await mixed.tasks(1, f"?state={state}")
    assert [task.task for task in page.tasks] == tasks
    assert {task.state for task in page.tasks} == {state}
    assert page.more is False


async def test_tasks_are_chosen_by_several_states_and_numbers(mixed: House) -> None:
    assert await _tasks(mixed, "?state=failed&state=ready") == ([3, 7, 8, 9], False)
    assert await _tasks(mixed, "?state=failed&state=ready&tasks=0-7") == ([3, 7], False)
    assert await _tasks(mixed, "?tasks=8,1,3-4,100") == ([1, 3, 4, 8], False)
    assert await _tasks(mixed, "?tasks=1-1000000000000") == (list(range(1, 10)), False)
    assert await _tasks(mixed, "?tasks=55") == ([], False)
    assert await _tasks(mixed, "?state=ready&state=ready") == ([7, 8, 9], False)


async def test_tasks_come_in_pages(mixed: House) -> None:
    assert await _tasks(mixed, "?limit=4") == ([0, 1, 2, 3], True)
    assert await _tasks(mixed, "?limit=4&after=3") == ([4, 5, 6, 7], True)
    assert await _tasks(mixed, "?limit=4&after=7") == ([8, 9], False)
    assert await _tasks(mixed, "?limit=2&after=7") == ([8, 9], False)
    assert await _tasks(mixed, "?after=9") == ([], False)
    assert await _tasks(mixed, f"?after={2**53}") == ([], False)
    assert await _tasks(mixed, "?after=-1&limit=1") == ([0], True)
    assert await _tasks(mixed, "?limit=1&state=failed&after=2") == ([3], False)
    assert await _tasks(mixed, "?limit=2&tasks=1,5,9") == ([1, 5], True)
    assert await _tasks(mixed, "?limit=2&tasks=1,5,9&after=5") == ([9], False)


async def test_states_and_pages_are_the_same_after_the_job_has_ended(mixed: House) -> None:
    await _ask(mixed, "cancel", "1")
    await mixed.ended(1)
    assert await _tasks(mixed, "?state=finished") == ([0, 1, 2], False)
    assert await _tasks(mixed, "?state=failed") == ([3], False)
    assert await _tasks(mixed, "?state=cancelled&limit=3") == ([4, 5, 6], True)
    assert await _tasks(mixed, "?state=cancelled&limit=3&after=6") == ([7, 8, 9], False)
    assert await _tasks(mixed, "?state=ready&state=running") == ([], False)
    assert await _tasks(mixed, "?limit=9") == (list(range(9)), True)
    assert (await mixed.job(1)).counts == Counts(finished=3, failed=1, cancelled=6)


async def test_a_page_of_a_hundred_million_tasks_is_quick(house: House) -> None:
    await house.submit(array="0-99999999")
    assert await _tasks(house, "?limit=2&after=99999990") == ([99999991, 99999992], True)
    assert await _tasks(house, "?limit=2&state=ready&after=99999997") == ([99999998, 99999999], False)
    assert await _ask(house, "cancel", "1.5-99999999") == 99999995
    assert await _tasks(house, "?limit=2&state=cancelled&after=99999997") == ([99999998, 99999999], False)
    assert (await house.task(1, 77777777)).state == "cancelled"


async def test_a_task_tells_how_it_ended(mixed: House) -> None:
    finished, failed, cancelled = [await mixed.task(1, task) for task in (0, 3, 4)]
    assert (finished.exit_code, finished.why, finished.id) == (0, "exited with code 0", "1.0")
    assert (failed.exit_code, failed.why) == (3, "exited with code 3")
    assert (cancelled.exit_code, cancelled.why, cancelled.attempts) == (
        None,
        f"cancelled by {getpass.getuser()}",
        [],
    )
    (attempt,) = failed.attempts
    assert (attempt.code, attempt.err_bytes, attempt.out_bytes, attempt.wall_s) == (3, 5, 0, 6.0)


@pytest.mark.parametrize(
    ("fields", "why", "code"),
    [
        ({"end": End.SIGNALLED, "code": 9}, "killed by signal 9", None),
        (
            {"end": End.TIMED_OUT, "note": "time limit of 5 s reached"},
            "exceeded its time limit: time limit",
            None,
        ),
        ({"code": 127, "note": "no such program"}, "exited with code 127: no such program", 127),
    ],
)
async def test_a_task_tells_why_it_failed(
    house: House, fields: dict[str, object], why: str, code: int | None
) -> None:
    worker = await house.worker()
    await house.submit()
    await worker.report(await worker.offered(), **fields)
    view = await house.task(1, 0)
    assert view.why.startswith(why)
    assert view.exit_code == code


async def test_every_attempt_at_a_task_is_told(house: House) -> None:
    worker = await house.worker()
    await house.submit(retries=2)
    for code in (1, 2, 0):
        await worker.report(await worker.offered(), code=code)
    view = await house.task(1, 0)
    assert [(a.code, a.state) for a in view.attempts] == [(1, "failed"), (2, "failed"), (0, "finished")]
    assert view.exit_code == 0


# -- outputs ----------------------------------------------------------------------------------------------


async def _segmented(worker: Scripted, attempt: int, data: bytes) -> Output:
    pieces = [data[at : at + SEGMENT_BYTES] for at in range(0, len(data), SEGMENT_BYTES)]
    for number, piece in enumerate(pieces):
        await worker.say(Segment(attempt, "out", number, zlib.compress(piece)))
    return Output(len(data), len(data), b"", len(pieces))


async def test_outputs_are_shown_whole_whether_small_or_in_segments(house: House) -> None:
    worker = await house.worker(cpus=2)
    await house.submit(array="0-1")
    small, large = await worker.offered(), await worker.offered()
    data = bytes(range(256)) * 4000
    await worker.report(small, out=inline(b"caf\xc3\xa9 \xff\x00"), err=inline(b"warning"))
    await worker.report(large, out=await _segmented(worker, large.attempt, data))
    page = await house.tasks(1, "?outputs=true")
    assert [(t.stdout, t.stderr) for t in page.tasks[:1]] == [("café \ufffd\x00", "warning")]
    assert page.tasks[1].stdout == data.decode("utf-8", "replace")
    for task, stream, expected in (
        (0, "out", b"caf\xc3\xa9 \xff\x00"),
        (0, "err", b"warning"),
        (1, "out", data),
        (1, "err", b""),
    ):
        answer = await house.ask("GET", f"/v1/jobs/1/tasks/{task}/logs?stream={stream}")
        assert answer.body == expected
        assert answer.headers["Content-Type"] == "application/octet-stream"
    assert (await house.tasks(1)).tasks[0].stdout is None


async def test_a_huge_output_is_read_a_little_at_a_time(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PIECES_AT_ONCE", 2)
    monkeypatch.setattr(logs, "TEXT_BYTES", SEGMENT_BYTES)
    store, read = house.manager.store, []
    segments = store.output_segments

    def noted(*args: Any, **kwargs: Any) -> list[bytes]:
        pieces = segments(*args, **kwargs)
        read.append(len(pieces))
        return pieces

    monkeypatch.setattr(store, "output_segments", noted)
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    data = b"".join(bytes([number]) * SEGMENT_BYTES for number in b"abcd") + b"e"
    await worker.report(offer, out=await _segmented(worker, offer.attempt, data))
    assert (await house.ask("GET", "/v1/jobs/1/tasks/0/logs")).body == data
    assert (await house.tasks(1, "?outputs=true")).tasks[0].stdout == "e"
    assert read == [2, 2, 1, 1]


async def test_an_output_that_was_cut_says_so_and_gives_its_tail(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    await worker.report(await worker.offered(), out=Output(10**9, 4, b"tail"), err=Output(7, 0))
    (attempt,) = (await house.task(1, 0)).attempts
    assert (attempt.out_bytes, attempt.out_cut, attempt.err_bytes, attempt.err_cut) == (10**9, True, 7, True)
    assert (await house.ask("GET", "/v1/jobs/1/tasks/0/logs")).body == b"tail"
    assert (await house.ask("GET", "/v1/jobs/1/tasks/0/logs?stream=err")).body == b""


async def test_large_outputs_end_a_page_early(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand tasks of ten megabytes must not be put into one answer."""
    monkeypatch.setattr(views, "PAGE_OUTPUT_BYTES", 1000)
    worker = await house.worker(cpus=6)
    await house.submit(array="0-5")
    for size in (400, 400, 400, 5000, 10, 10):
        await worker.report(await worker.offered(), out=inline(b"x" * size))
    seen: list[list[int]] = []
    after = -1
    while True:
        tasks, more = await _tasks(house, f"?outputs=true&after={after}")
        seen.append(tasks)
        after = tasks[-1]
        if not more:
            break
    assert seen == [[0, 1], [2], [3], [4, 5]]
    assert await _tasks(house) == ([0, 1, 2, 3, 4, 5], False)


async def test_the_output_of_a_task_that_has_not_run_is_empty(house: House) -> None:
    await house.submit()
    assert (await house.ask("GET", "/v1/jobs/1/tasks/0/logs")).body == b""
    await _ask(house, "cancel", "1")
    assert (await house.ask("GET", "/v1/jobs/1/tasks/0/logs?follow=true")).body == b""


async def test_the_output_of_a_retried_task_is_that_of_its_last_attempt(house: House) -> None:
    worker = await house.worker()
    await house.submit(retries=1)
    await worker.report(await worker.offered(), code=1, out=inline(b"first"))
    await worker.report(await worker.offered(), code=0, out=inline(b"second"))
    assert (await house.ask("GET", "/v1/jobs/1/tasks/0/logs")).body == b"second"


# -- retries ----------------------------------------------------------------------------------------------


async def test_an_ended_job_is_retried_by_its_failed_tasks_and_ends_again(house: House) -> None:
    worker = await house.worker(cpus=3)
    await house.submit(array="0-3")
    await _ask(house, "cancel", "1.3")
    for code in (0, 1, 0):
        await worker.report(await worker.offered(), code=code)
    first = await house.ended(1)
    assert first.counts == Counts(finished=2, failed=1, cancelled=1)
    assert await _ask(house, "retry", "1") == 1
    assert (await house.job(1)).ended_at is None
    again = await worker.offered()
    assert again.task == 1
    await worker.report(again)
    assert (await house.ended(1)).counts == Counts(finished=3, cancelled=1)
    assert [a.code for a in (await house.task(1, 1)).attempts] == [1, 0]
    assert await _ask(house, "retry", "1") == 0
    assert await _ask(house, "retry", "1.0-9") == 1, "a cancelled task is run if it is named"
    await worker.report(await worker.offered())
    assert (await house.ended(1)).counts == Counts(finished=4)
    await house.sound()


async def test_a_retry_of_many_ended_jobs_touches_those_that_failed(house: House) -> None:
    worker = await house.worker()
    for code in (0, 1, 0, 1):
        job = await house.submit()
        await worker.report(await worker.offered(job.id), code=code)
    assert await _ask(house, "retry", "1-1000") == 2
    assert await _jobs(house, "") == ([4, 2], False)


async def test_what_is_named_again_and_again_is_chosen_once(house: House) -> None:
    for _ in range(3):
        await house.submit(array="0-9")
    who = Identity("ada", Role.ADMIN, "")
    named = Selection(select=["2", "1-3", "1-3", "1-2", "3.0-4", "3.4-5", "3.0", "last", "last.7"])
    chosen = await requests.resolve(house.manager, who, named)
    assert sorted(chosen[:-1]) == [(1, None), (2, None), (3, None)]
    assert chosen[-1] == (3, IntervalSet([(0, 5), (7, 7)]))


async def test_a_large_job_is_brought_back_once_and_without_stopping_the_others(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked, answered = house.manager.store, threading.Event(), threading.Event()
    live = store.live

    def live_late(job: int) -> LiveJob | None:
        asked.set()
        assert answered.wait(20)
        return live(job)

    worker = await house.worker()
    await house.submit()
    await worker.report(await worker.offered(), code=1)
    await house.ended(1)
    monkeypatch.setattr(store, "live", live_late)
    retries = [asyncio.create_task(_ask(house, "retry", "1")) for _ in range(2)]
    await house.until(asked.is_set, "it is being read")
    await house.submit()
    answered.set()
    assert sorted(await asyncio.gather(*retries)) == [0, 1]
    assert (await house.job(1)).counts.failed == 0
    await house.sound()


# -- while it is being saved ------------------------------------------------------------------------------


async def test_a_job_is_never_shown_between_its_last_task_and_the_disk(house: House) -> None:
    """It has left the machine and is not yet in the store: it would be shown with no tasks at all."""
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    disk = house.disk()
    disk.hold()
    reported = asyncio.create_task(worker.report(offer))
    await disk.reached()
    paths = ("/v1/jobs/1", "/v1/jobs?all=true", "/v1/jobs/1/tasks", "/v1/explain?task=1", "/v1/events?job=1")
    asked: list[asyncio.Task[Answer]] = [asyncio.create_task(house.ask("GET", path)) for path in paths]
    await house.until(lambda: house.manager.hub._by_job, "they wait")
    assert not any(task.done() for task in asked)
    disk.release()
    job, jobs, tasks, explained, events = await asyncio.gather(*asked)
    assert job.of(JobView).counts == Counts(finished=1)
    assert jobs.of(JobList).jobs[0].counts == Counts(finished=1)
    assert tasks.of(TaskList).tasks[0].exit_code == 0
    assert explained.json["summary"] == "ended: 1 finished, 0 failed, 0 cancelled"
    assert b'"finished":1' in events.body and b'"done":true' in events.body
    await reported


async def test_a_retry_waits_until_the_end_of_the_job_is_on_disk(house: House) -> None:
    """Read from the disk too early, tasks that have just finished would be run again."""
    worker = await house.worker(cpus=3)
    await house.submit(array="0-2")
    offers = [await worker.offered() for _ in range(3)]
    await worker.report(offers[0])
    disk = house.disk()
    disk.hold()
    for offer, code in zip(offers[1:], (0, 1), strict=True):
        await worker.say(Reports([msgspec.structs.replace(offer, code=code)]))
    await house.until(lambda: not house.manager.machine.jobs, "the job has left the machine")
    retried = asyncio.create_task(_ask(house, "retry", "1"))
    await disk.reached()
    disk.release()
    assert await retried == 1
    assert (await house.job(1)).counts.finished == 2
    again = await worker.offered()
    assert again.task == 2
    await worker.report(again)
    assert (await house.ended(1)).counts == Counts(finished=3)
    await house.sound()


async def test_a_page_does_not_wait_for_the_past_of_a_job_that_is_retried(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked, retried = house.manager.store, threading.Event(), threading.Event()
    outcomes = store.outcomes

    def outcomes_after_the_retry(*args: Any, **kwargs: Any) -> list[Outcome]:
        asked.set()
        assert retried.wait(20)
        return outcomes(*args, **kwargs)

    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    monkeypatch.setattr(store, "outcomes", outcomes_after_the_retry)
    looking = asyncio.create_task(house.tasks(1))
    await house.until(asked.is_set, "it is about to look")
    await worker.report(offer, code=1)
    assert await _ask(house, "retry", "1") == 1
    retried.set()
    await asyncio.wait_for(looking, 20)
    await house.sound()


async def test_a_job_is_seen_at_once_by_whoever_knows_its_number(house: House) -> None:
    """Its number is told after the commit; in between the store knows it and the machine does not."""
    disk = house.disk()
    disk.hold()
    submitted = asyncio.create_task(house.submit())
    await disk.reached()
    looked = asyncio.create_task(house.ask("GET", "/v1/jobs/1"))
    disk.release()
    assert (await submitted).id == 1
    assert (await looked).status == 404 or (await looked).of(JobView).counts == Counts(ready=1)
    assert (await house.job(1)).counts == Counts(ready=1)


async def test_a_restarted_manager_shows_the_same(home: Path) -> None:
    async with open_house(home / "data") as house:
        worker = await house.worker(cpus=2)
        await house.submit(array="0-3", retries=1)
        first, second = await worker.offered(), await worker.offered()
        await worker.report(first, code=1, out=inline(b"bad"))
        await worker.report(second, out=inline(b"good"))
        before = await house.tasks(1, "?state=finished&outputs=true"), (await house.task(1, 0)).attempts
    async with open_house(home / "data") as house:
        after = await house.tasks(1, "?state=finished&outputs=true"), (await house.task(1, 0)).attempts
        assert after == before
        view: TaskView = before[0].tasks[0]
        assert view.stdout == "good"


# -- points -----------------------------------------------------------------------------------------------


async def test_the_tasks_of_a_sweep_are_shown_with_their_points(house: House) -> None:
    span = {"rule": "plus", "start": "0", "by": "0.5", "count": 3}
    axes = [{"name": "a", "values": ["x", "y z"]}, {"name": "b", "span": span}]
    job = await house.submit(line="run {a} {b}", grid={"axes": axes}, array="1-4%2")
    view = await house.job(job.id)
    assert (job.tasks, view.template, view.grid, view.points) == (4, True, "a (2) x b (3)", 6)
    assert view.command == "run {a} {b}"
    worker = await house.worker()
    [brief] = worker.all(Brief)
    assert brief.program.template
    assert brief.program.grid is not None
    assert brief.program.grid.point(3) == {"a": "y z", "b": "0"}
    await worker.report(await worker.offered())
    page = await house.tasks(job.id)
    assert [task.point for task in page.tasks] == [
        {"a": "x", "b": "0.5"},
        {"a": "x", "b": "1"},
        {"a": "y z", "b": "0"},
        {"a": "y z", "b": "0.5"},
    ]
    assert page.tasks[0].state is TaskState.FINISHED
    assert (await house.task(job.id, 3)).point == {"a": "y z", "b": "0"}


async def test_the_tasks_of_items_are_shown_with_their_values(house: House) -> None:
    items = ['{"n": 1, "s": "a"}', '{"n": [2, {"x": null}]}', '{"n": true}']
    job = await house.submit(argv=["run", "{n}"], items=items)
    worker = await house.worker()
    assert [line for offer in worker.all(Offer) for line in offer.lines or ()][:1] == items[:1]
    assert (await house.job(job.id)).command == "run '{n}'"
    points = [{"n": 1, "s": "a"}, {"n": [2, {"x": None}]}, {"n": True}]
    assert [task.point for task in (await house.tasks(job.id)).tasks] == points
    assert [task.point for task in (await house.tasks(job.id, "?tasks=0,2")).tasks] == points[::2]
    assert (await house.task(job.id, 1)).point == points[1]


async def test_tasks_of_other_jobs_have_no_point(house: House) -> None:
    job = await house.submit()
    answer = await house.ask("GET", f"/v1/jobs/{job.id}/tasks/0")
    assert b"point" not in answer.body
