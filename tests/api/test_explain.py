"""Why a task is not running, in one sentence, with counts."""

import getpass
from pathlib import Path

import pytest

from tercel.core.model import Needs
from tercel.core.presence import WorkerState
from tercel.core.reports import End
from tercel.wire.messages import Presence, Started
from tests.api.house import GIB, House, inline, open_house


async def test_nobody_is_there(house: House) -> None:
    await house.submit()
    assert await house.explain("1.0") == (
        "no worker is connected: start one with `tercel worker` (or run `tercel up`)"
    )


async def test_nobody_has_enough_memory(house: House) -> None:
    for size in (4, 16, 8):
        await house.worker(mem_bytes=size * GIB)
    await house.submit(mem_bytes=64 * GIB)
    assert await house.explain("1.0") == (
        "waits for memory ≥ 64 GB: 0 of 3 workers have it; the largest has 16 GB"
    )


async def test_nobody_has_enough_cpus(house: House) -> None:
    await house.worker(cpus=2)
    await house.submit(cpus=8)
    assert await house.explain("1.0") == "waits for cpus ≥ 8: 0 of 1 worker have them; the largest has 2"


async def test_nobody_has_both(house: House) -> None:
    await house.worker(cpus=8, mem_bytes=GIB)
    await house.worker(cpus=1, mem_bytes=64 * GIB)
    await house.submit(cpus=8, mem_bytes=64 * GIB)
    assert await house.explain("1.0") == (
        "waits for cpus ≥ 8 and memory ≥ 64 GB together: 0 of 2 workers have both"
    )
    await house.submit(cpus=9, mem_bytes=65 * GIB)
    assert await house.explain("2.0") == (
        "waits for cpus ≥ 9: 0 of 2 workers have them; the largest has 8; "
        "and for memory ≥ 65 GB: 0 of 2 workers have it; the largest has 64 GB"
    )


async def test_all_are_busy(house: House) -> None:
    worker = await house.worker()
    await house.worker(cpus=1, mem_bytes=0)
    await house.submit(mem_bytes=GIB)
    await worker.offered()
    await house.submit(mem_bytes=GIB)
    await house.submit(array="0-4", mem_bytes=GIB)
    assert await house.explain("2.0") == (
        "waits for a free slot: 1 of 2 workers could run it, all busy; it is next in line"
    )
    assert await house.explain("3.4") == (
        "waits for a free slot: 1 of 2 workers could run it, all busy; 1 task of 1 job come before it"
    )


async def test_those_who_could_refused(house: House) -> None:
    worker = await house.worker("gpu-7")
    await house.submit(cwd="/data/ada")
    await worker.report(await worker.offered(), end=End.REFUSED, note="/data/ada does not exist there")
    assert await house.explain("1.0") == (
        "1 of 1 worker could run it but refused: gpu-7: /data/ada does not exist there"
    )


async def test_those_who_could_are_leaving(house: House) -> None:
    worker = await house.worker("w")
    await worker.say(Presence(WorkerState.DRAINING, Needs(1000, GIB)))
    await worker.settled()
    await house.submit()
    assert await house.explain("1.0") == "1 of 1 worker could run it, but all of them are draining"


async def test_the_job_itself_allows_no_more_at_a_time(house: House) -> None:
    worker = await house.worker(cpus=4)
    await house.submit(array="0-9%2")
    await worker.offered()
    await worker.offered()
    assert await house.explain("1.9") == ("its job runs at most 2 tasks at a time, and so many are under way")


async def test_it_is_at_a_worker(house: House) -> None:
    worker = await house.worker("w")
    await house.submit()
    offer = await worker.offered()
    assert await house.explain("1.0") == "is at w, about to start or waiting there for a slot"
    await worker.say(Started([offer.attempt]))
    await worker.settled()
    assert (await house.explain("1.0")).startswith("runs on w since ")


async def test_its_worker_is_away(home: Path) -> None:
    async with open_house(home / "data", grace_s=1000) as house:
        worker = await house.worker("w")
        await house.submit(array="0-1")
        offer = await worker.offered()
        await worker.say(Started([offer.attempt]))
        await worker.settled()
        await worker.close()
        await house.until(lambda: not house.manager.machine.workers["w"].online, "it is gone")
        text = await house.explain("1.0")
        assert text.startswith("ran on w, which is away; others get it in ")
        assert text.endswith(" s unless that worker returns")
        assert await house.explain("1.1") == "no worker is connected; 1 worker may still come back"
    async with open_house(home / "data", grace_s=1000) as house:
        assert (await house.explain("1.0")).startswith("was offered to w, which is away")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "exited with code 0"),
        ({"code": 3}, "exited with code 3"),
        ({"end": End.SIGNALLED, "code": 9, "note": "out of memory?"}, "killed by signal 9: out of memory?"),
    ],
)
async def test_it_has_ended(house: House, fields: dict[str, object], text: str) -> None:
    worker = await house.worker()
    await house.submit()
    await worker.report(await worker.offered(), out=inline(b"x"), **fields)
    assert await house.explain("1.0") == text


async def test_it_was_cancelled(house: House) -> None:
    await house.submit()
    await house.ask("POST", "/v1/cancel", json={"select": ["1"], "reason": "wrong data"})
    assert await house.explain("1.0") == f"cancelled by {getpass.getuser()}: wrong data"
    assert await house.explain("1") == (
        f"ended: 0 finished, 0 failed, 1 cancelled; cancelled by {getpass.getuser()}: wrong data"
    )


async def test_of_a_job_that_ended_badly_the_first_of_each_kind_is_told(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="4-9")
    await worker.report(await worker.offered(), code=3)
    await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
    await house.ended(1)
    assert await house.explain("1") == (
        f"ended: 0 finished, 1 failed, 5 cancelled; 1.4: exited with code 3; 1.5: cancelled by {getpass.getuser()}"
    )


async def test_a_job_is_explained_by_how_many_of_its_tasks_are_where_and_why(house: House) -> None:
    worker = await house.worker("w", cpus=3)
    await house.submit(array="0-9")
    offers = [await worker.offered() for _ in range(3)]
    await worker.say(Started([offers[0].attempt, offers[1].attempt]))
    await worker.settled()
    answer = await house.ask("GET", "/v1/explain?task=1")
    reasons = [(r["state"], r["count"], r["text"]) for r in answer.json["reasons"]]
    assert reasons == [
        ("ready", 7, "waits for a free slot: 1 of 1 worker could run it, all busy; it is next in line"),
        ("running", 2, "runs"),
        ("offered", 1, "is at w, about to start or waiting there for a slot"),
    ]
    assert answer.json["summary"].startswith("7 ready: waits for a free slot")
    assert answer.json["id"] == "1"


async def test_every_task_that_does_not_run_has_a_reason(house: House) -> None:
    """DESIGN.md section 3: no silent stall."""
    worker = await house.worker(cpus=2)
    await house.submit(array="0-5", mem_bytes=GIB // 2)
    await house.submit(array="0-1", cpus=100)
    await house.submit(array="0-3%1", cpus=0.001)
    await worker.settled()
    for job, tasks in ((1, 6), (2, 2), (3, 4)):
        for task in range(tasks):
            text = await house.explain(f"{job}.{task}")
            assert len(text) > 10
            assert (await house.task(job, task)).why == text
