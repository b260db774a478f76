"""What workers ask and say of the files that they move, the honest and the others; what is registered, and when."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.errors import StoreFull
from tercel.core.files import Hitch, Location, Made, Trouble
from tercel.core.reports import End
from tercel.core.states import Stage
from tercel.core.throttles import parse_rates
from tercel.wire.api_files import FileStanding
from tercel.wire.messages import (
    Ack,
    Book,
    Booked,
    Cancel,
    FromWorker,
    Locate,
    Located,
    Marked,
    Offer,
    Park,
    Removed,
    Reports,
    Resume,
    Stages,
    Undo,
    Welcome,
)
from tests.api.house import House, Scripted, open_house

pytestmark = [pytest.mark.must("d"), pytest.mark.C(13)]

ONE, OTHER = f"blake3:{'1' * 64}", f"blake3:{'2' * 64}"
URL = "sftp://store/r"
GOOD = Made("r", URL, 5, ONE, "lfn:r")


async def submit(house: House, **fields: Any) -> int:
    values: dict[str, Any] = {"outputs": [{"name": "r", "to": ["lfn:r", URL]}], "retries": 0}
    return (await house.submit(**(values | fields))).id


def located(house: House, name: str = "lfn:r") -> Location:
    return house.manager.catalogue.located([name])[0]


async def registered(house: House, worker: Scripted, made: Made = GOOD) -> None:
    job = await submit(house)
    await worker.report(await worker.offered(job), files=(made,))
    assert (await house.ended(job)).counts.finished == 1


# -- asked ------------------------------------------------------------------------------------------------


async def test_worker_is_told_where_files_are_in_the_order_in_which_it_asked(house: House) -> None:
    worker = await house.worker()
    await registered(house, worker)
    await worker.say(Locate(7, ["lfn:none", "lfn:r", "lfn:r"]))
    answer = await worker.next(Located)
    known = Location("lfn:r", ONE, 5, (URL,))
    assert (answer.number, answer.files) == (7, [Location("lfn:none"), known, known])


@pytest.mark.parametrize(
    "said",
    [
        Locate(1, ["lfn:x"] * 1001),
        Locate(1, [""]),
        Locate(1, ["lfn:" + "x" * 5000]),
        Book(1, ["http://h:80"] * 11),
        Book(1, [""]),
        Marked("", URL, "why"),
        Marked("lfn:r", "x" * 5000, "why"),
    ],
    ids=lambda said: type(said).__name__,
)
async def test_who_asks_what_no_worker_asks_is_cut_off_and_harms_nobody(
    house: House, said: FromWorker
) -> None:
    worker = await house.worker()
    await worker.say(said)
    await worker.hung_up()
    await house.still_works()


async def test_odd_names_are_simply_not_known(house: House) -> None:
    worker = await house.worker()
    names = ["../../etc/passwd", "lfn:a\nb", "lfn:..", "%", "lfn:\0", "' OR 1=1", "ü" * 1000]
    await worker.say(Locate(1, names))
    assert (await worker.next(Located)).files == [Location(name) for name in names]
    await house.sound()


async def test_transfers_are_not_throttled_unless_that_was_asked_for(house: House) -> None:
    worker = await house.worker()
    assert not worker.all(Welcome)[0].throttled
    await worker.say(*(Book(n, ["http://h:80"]) for n in range(5)))
    assert [(await worker.next(Booked, n)).wait_s for n in range(5)] == [0.0] * 5


async def test_throttled_transfers_have_the_next_free_slots_whoever_asks(home: Path) -> None:
    async with open_house(home / "data", rates=parse_rates(["transfers=2/1000s"])) as house:
        one, two = await house.worker(), await house.worker()
        assert one.all(Welcome)[0].throttled
        await one.say(Book(1, ["http://h:80"]), Book(2, ["http://h:80"]), Book(3, ["http://other:80"]))
        assert [(await one.next(Booked, n)).wait_s for n in range(3)] == [0.0] * 3
        await two.say(Book(1, ["http://h:80"]), Book(2, []))
        waits = [(await two.next(Booked, n)).wait_s for n in range(2)]
        assert 900.0 < waits[0] <= 1000.0
        assert waits[1] == 0.0


async def test_bad_replica_is_given_to_nobody_and_one_that_nobody_knows_is_none(house: House) -> None:
    worker = await house.worker()
    await registered(house, worker)
    await worker.say(
        Marked("lfn:none", URL, "why"), Marked("lfn:r", "sftp://elsewhere/r", "why"), Marked("lfn:r", "r", "")
    )
    await worker.settled()
    assert located(house).urls == (URL,)
    await worker.say(Marked("lfn:r", URL, "its bytes\nare others"))
    await worker.settled()
    assert located(house) == Location("lfn:r", ONE, 5, ())
    found = await house.get("/v1/files/one?name=lfn:r", FileStanding)
    assert [replica.bad for replica in found.replicas] == ["its bytes are others"]
    await worker.say(Marked("lfn:r", URL, ""))
    await worker.settled()
    assert located(house).urls == (), "what is bad does not become good by being marked"
    await house.sound()


# -- told -------------------------------------------------------------------------------------------------


async def test_stages_are_counted_and_only_of_who_has_the_attempt(house: House) -> None:
    worker, other = await house.worker(), await house.worker(cpus=1)
    to = [f"{URL}{{task}}", "lfn:r/{task}"]
    job = await submit(house, cpus=1, array="0-1", outputs=[{"name": "r", "to": to}])
    report, theirs = await worker.offered(job), await other.offered(job)
    await worker.say(Stages([report.attempt, theirs.attempt, 10**9, -1], []))
    await worker.settled()
    counts = (await house.job(job)).counts
    assert (counts.staging_in, counts.offered) == (1, 1)
    assert (await house.status()).counts.staging_in == 1
    assert "files" in await house.explain(f"{job}.{report.task}")
    await worker.say(Stages([], [report.attempt, theirs.attempt, 10**9]))
    await worker.settled()
    counts = (await house.job(job)).counts
    assert (counts.staging_out, counts.offered) == (1, 1)
    assert (await house.status()).counts.staging_out == 1
    assert "delivers what it left" in await house.explain(f"{job}.{report.task}")
    await worker.say(Stages([report.attempt], []))
    await worker.settled()
    assert (await house.job(job)).counts.staging_out == 1, "it does not go back"
    await house.sound()
    made = msgspec.structs.replace(GOOD, url=f"{URL}{report.task}", name=f"lfn:r/{report.task}")
    await worker.report(report, files=(made,))
    assert (await house.job(job)).counts.finished == 1


async def test_removed_is_only_believed_of_who_has_the_task(house: House) -> None:
    worker = await house.worker()
    job = await submit(house, outputs=[{"name": "r", "to": [URL], "when": "always"}])
    made = msgspec.structs.replace(GOOD, name="")
    await worker.report(await worker.offered(job), files=(made,), code=1)
    await house.ended(job)
    answer = await house.ask("POST", "/v1/rollback", json={"select": [f"{job}"], "to": "staged"})
    assert answer.status < 300, answer
    again = await worker.offered(job)
    undo = await worker.next(Undo)
    assert (undo.job, undo.task, undo.urls) == (job, 0, [URL])
    assert worker.heard.index(undo) < worker.heard.index(worker.all(Offer)[-1]), "before it can begin"
    other = await house.worker()
    await other.say(Removed(job, 0), Removed(10**9, 0), Removed(job, 10**9))
    await other.settled()
    assert 0 in house.manager.machine.jobs[job].left
    await worker.say(Removed(job, 0))
    await worker.settled()
    assert 0 not in house.manager.machine.jobs[job].left
    await worker.report(again, files=(made,))
    await house.sound()


# -- reported ---------------------------------------------------------------------------------------------


async def test_files_are_registered_with_the_outcome_and_acknowledged_after_it(house: House) -> None:
    worker, disk = await house.worker(), house.disk()
    job = await submit(house)
    report = msgspec.structs.replace(await worker.offered(job), files=(GOOD,))
    disk.fail(StoreFull("no room"), once=True)
    await worker.say(Reports([report]))
    await worker.acknowledged(report.attempt)
    assert house.manager.store.files(["lfn:r"])
    assert (await house.job(job)).counts.finished == 1
    file = await house.get("/v1/files/one?name=lfn:r", FileStanding)
    assert (file.job, file.task) == (job, 0)
    await worker.say(Reports([report]))
    await worker.settled()
    assert (await house.job(job)).counts.finished == 1, "told twice, it is registered once"
    await house.sound()


@pytest.mark.parametrize(
    "made",
    [
        Made("r", URL, -1, ONE, "lfn:r"),
        Made("r", URL, 2**61, ONE, "lfn:r"),
        Made("r", URL, 5, "", "lfn:r"),
        Made("r", URL, 5, "blake3:12", "lfn:r"),
        Made("r", URL, 5, "crc32:" + "1" * 64, "lfn:r"),
        Made("", URL, 5, ONE, "lfn:r"),
        Made("r" * 5000, URL, 5, ONE, "lfn:r"),
        Made("r", "", 5, ONE, "lfn:r"),
        Made("r", "r", 5, ONE, "lfn:r"),
        Made("r", "sftp://s/a\nb", 5, ONE, "lfn:r"),
        Made("r", "sftp://s/" + "x" * 5000, 5, ONE, "lfn:r"),
        Made("r", "tercel:../../etc/passwd", 5, ONE, "lfn:r"),
        Made("r", f"tercel:{OTHER}", 5, ONE, "lfn:r"),
        Made("r", URL, 5, ONE, "lfn:../x"),
        Made("r", URL, 5, ONE, "lfn:"),
        Made("r", URL, 5, ONE, "lfn:a\nb"),
        Made("r", URL, 5, ONE, "up:0f/x"),
        Made("r", URL, 5, ONE, "http://s/x"),
        Made("r", URL, 5, ONE, "x"),
    ],
    ids=range(19),
)
async def test_files_that_cannot_be_are_not_registered_and_the_task_is_not_finished_by_them(
    house: House, made: Made
) -> None:
    worker = await house.worker()
    job = await submit(house)
    report = await worker.offered(job)
    await worker.say(Reports([msgspec.structs.replace(report, files=(made,))]))
    await worker.settled()
    counts = (await house.job(job)).counts
    assert counts.finished == 0, counts
    assert not house.manager.catalogue.files([made.name or made.url])
    await house.still_works()


@pytest.mark.parametrize(
    "hitch",
    [
        Hitch(Stage.REGISTER, Trouble.REFUSED, "lfn:r", "a lie", kept=True),
        Hitch(Stage.RUN, Trouble.DOWN, "https://h/", "a lie"),
        Hitch(Stage.STAGE_IN, Trouble.DOWN, "https://h/", "kept", kept=True),
        Hitch(Stage.STAGE_OUT, Trouble.DOWN, "https://h/", "n", math.nan, kept=True),
        Hitch(Stage.STAGE_OUT, Trouble.DOWN, "https://h/", "n", math.inf, kept=True),
        Hitch(Stage.STAGE_OUT, Trouble.DOWN, "https://h/", "n", -5.0, kept=True),
        Hitch(Stage.STAGE_OUT, Trouble.DOWN, "https://h/\nx", "n\x1b[2J", 0.0, kept=True),
        Hitch(Stage.STAGE_OUT, Trouble.DOWN, "x" * 10_000, "n" * 10_000, 0.0, kept=True),
        Hitch(Stage.STAGE_OUT, Trouble.DENIED, "", "", 0.0, kept=True),
        Hitch(Stage.STAGE_IN, Trouble.FULL, "", ""),
        Hitch(Stage.STAGE_OUT, Trouble.REFUSED, "https://h/", "for good", kept=True),
    ],
    ids=range(11),
)
async def test_odd_hitches_stall_nothing_and_nobody(house: House, hitch: Hitch) -> None:
    worker = await house.worker()
    job = await submit(house)
    report = await worker.offered(job)
    await worker.say(Reports([msgspec.structs.replace(report, end=End.UNSTAGED, hitch=hitch)]))
    await worker.settled()
    assert worker.all(Park) == []
    view = await house.job(job)
    assert view.counts.failed + view.counts.blocked + view.counts.offered == 1, view.counts
    if not view.counts.offered:
        assert await house.explain(f"{job}.0")
    await house.still_works()
    await house.ask("POST", f"/v1/jobs/{job}/cancel")
    await house.sound()


async def test_name_that_is_taken_parks_the_attempt_and_is_not_acknowledged_until_it_is_free(
    house: House,
) -> None:
    worker = await house.worker()
    await registered(house, worker)
    job = await submit(house)
    report = msgspec.structs.replace(
        await worker.offered(job), files=(msgspec.structs.replace(GOOD, digest=OTHER),)
    )
    await worker.say(Reports([report]))
    assert (await worker.next(Park)).attempts == [report.attempt]
    assert not any(report.attempt in ack.attempts for ack in worker.all(Ack))
    assert (await house.job(job)).counts.blocked == 1
    assert "lfn:r" in await house.explain(f"{job}.0")
    assert located(house).digest == ONE
    assert (await house.ask("DELETE", "/v1/files?name=lfn:r")).status < 300
    assert (await worker.next(Resume)).attempts == [report.attempt]
    await worker.report(report)
    assert located(house).digest == OTHER
    assert worker.all(Cancel) == []
    await house.sound()
