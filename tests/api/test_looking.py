"""The directories of workers over HTTP: who may look, what is asked, how it is told, and workers that lie about it."""

import asyncio
import getpass
import math
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.errors import StoreFull
from tercel.core.model import Needs, Role
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report
from tercel.manager import looking, looks, sightings
from tercel.manager.findings import ADVICE, WHY, findings
from tercel.wire import looking as said
from tercel.wire.api_looking import (
    DirectoryView,
    EntryView,
    FileTail,
    KeptView,
    LeftView,
    PartView,
    SandboxView,
)
from tercel.wire.looking import (
    KINDS,
    TAIL_BYTES,
    AtDirectory,
    AtFile,
    AtLog,
    AtSandbox,
    Contents,
    Entry,
    File,
    KeptSandbox,
    Left,
    Listing,
    Part,
    Tail,
    Unseen,
)
from tercel.wire.messages import LOOK, PROTOCOL, Bye, Cancel, Hello, Look, Reports, Seen, Started
from tercel.worker.looking import Books, contents
from tercel.worker.sandboxes import Asked, listing, read
from tercel.worker.walking import Budget
from tests.api.house import Answer, House, Scripted, open_house
from tests.api.scene import Scene

pytestmark = pytest.mark.C(15)

replace = msgspec.structs.replace
ME = getpass.getuser()
EMPTY = Contents("/scratch/w", 10**12, 9 * 10**11, 0, 0.0, [], [], [])
LISTED = Listing(7, "/scratch/w/kept/1.0.7", False, 100.0, [File("out.txt", "file", 3, 99.0)], [7])
NUMBER = 2**64 - 1


class Place:
    """A manager with a worker that can be looked into, and one who asks."""

    def __init__(self, house: House, worker: Scripted) -> None:
        self.house = house
        self.worker = worker
        self._asked = 0

    def ask(self, what: str, token: str = "") -> "asyncio.Task[Answer]":
        path = f"/v1/workers/{self.worker.name}/{what}"
        return asyncio.create_task(self.house.ask("GET", path, token=token))

    async def heard(self) -> Look:
        self._asked += 1
        return await self.worker.next(Look, self._asked - 1)

    async def told(self, what: str, found: Any, token: str = "") -> Answer:
        """What comes of a question that the worker answers so."""
        asking = self.ask(what, token)
        await self.worker.say(Seen((await self.heard()).number, found))
        return await asking


@pytest.fixture
async def place(house: House) -> AsyncIterator[Place]:
    yield Place(house, await house.worker(knows=(LOOK,)))
    await house.sound()


async def ran(place: Place, token: str = "", **fields: Any) -> Report:
    """A job's task that the worker has run."""
    await place.house.submit(token=token)
    offer = await place.worker.offered()
    await place.worker.report(offer, **fields)
    return offer


# -- the whole --------------------------------------------------------------------------------------------


async def test_a_directory_is_told_with_whose_the_sandboxes_are(place: Place) -> None:
    ada = await place.house.token(Role.USER, "ada")
    mine = await ran(place, ada.secret, code=3)
    kept = [
        KeptSandbox(mine.job, mine.task, mine.attempt, 5.0, 4096, 2),
        KeptSandbox(mine.job + 1, mine.task, mine.attempt, 4.5, 4096, 2),
        KeptSandbox(mine.job, mine.task, mine.attempt + 1, 4.0, 4096, 2),
        KeptSandbox(99, 0, 12345, 3.0, 8192, 2),
    ]
    part = Part("kept", 16384, 6, 3.0, [Entry("99.0.12345", 8192, 3.0)])
    running = Part("sandboxes", 4096, 1, 3.0, [Entry("9.3", 4096, 3.0, "1.0")])
    left = [Left("trash", "trash/1.old.3", 77, 2.0)]
    found = replace(EMPTY, parts=[part, running], kept=kept, left=left, log="/var/log/w.log")
    view = (await place.told("directory", found)).of(DirectoryView)
    assert (view.worker, view.node, view.dir, view.log) == (
        place.worker.name,
        "n",
        "/scratch/w",
        "/var/log/w.log",
    )
    assert [(k.id, k.owner, k.known, k.recorded) for k in view.kept] == [
        ("1.0", "ada", True, True),
        ("2.0", "", False, False),
        ("1.0", "ada", True, False),
        ("99.0", "", False, False),
    ]
    assert view.kept[0].path == f"/scratch/w/kept/1.0.{mine.attempt}"
    assert view.parts[0].largest[0].name == "99.0.12345"
    assert view.parts[1].largest[0].task == "1.0"
    (shown,) = view.left
    assert (shown.path, shown.why, shown.advice) == (
        "/scratch/w/trash/1.old.3",
        WHY["trash"],
        ADVICE["trash"],
    )
    assert any("2 kept sandboxes are of jobs that this manager does not know" in f for f in view.findings)
    assert any("1 kept sandbox is of an attempt not on record" in f for f in view.findings)
    assert place.worker.all(Look)[0].what == AtDirectory()


@pytest.mark.must("f")
async def test_what_a_task_wrote_in_all_its_attempts_is_not_read_to_know_whose_its_sandboxes_are(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been tried thousands of times, and a hundred of its sandboxes may be there."""
    await place.house.submit(retries=2)
    offers = []
    for _ in range(3):
        offers.append(await place.worker.offered())
        await place.worker.report(offers[-1], code=1)
    store, asked = place.house.manager.store, []
    real = store.tried
    monkeypatch.setattr(store, "history", lambda *_: pytest.fail("all its outputs are read"))
    monkeypatch.setattr(store, "tried", lambda *task: asked.append(task) or real(*task))
    kept = [KeptSandbox(1, 0, offer.attempt, 5.0, 4096, 2) for offer in offers]
    view = (await place.told("directory", replace(EMPTY, kept=kept))).of(DirectoryView)
    assert [k.known for k in view.kept] == [True] * 3
    assert asked == [(1, 0)]
    assert (await place.told("jobs/1/tasks/0/files", LISTED)).status == 200


async def test_a_sandbox_is_known_before_its_attempt_is_told_to_have_ended(place: Place) -> None:
    """It is kept a moment before its report comes."""
    await place.house.submit()
    offer = await place.worker.offered()
    kept = [KeptSandbox(1, 0, offer.attempt + more, 5.0, 4096, 2) for more in (0, 1)]
    view = (await place.told("directory", replace(EMPTY, kept=kept))).of(DirectoryView)
    assert [k.recorded for k in view.kept] == [True, False]


async def test_a_sandbox_of_an_attempt_that_was_at_another_worker_is_not_on_record(place: Place) -> None:
    mine = await ran(place)
    other = Place(place.house, await place.house.worker(knows=(LOOK,)))
    kept = [KeptSandbox(mine.job, mine.task, mine.attempt, 5.0, 4096, 2)]
    for at, known in ((place, True), (other, False)):
        view = (await at.told("directory", replace(EMPTY, kept=kept))).of(DirectoryView)
        assert [(k.owner, k.known, k.recorded) for k in view.kept] == [(ME, True, known)]


async def test_while_nothing_can_be_saved_nobodys_sandboxes_are_those_of_unknown_jobs(place: Place) -> None:
    """People are told to remove what is nobody's."""
    await place.house.submit()
    offer = await place.worker.offered()
    disk = place.house.disk()
    disk.fail(StoreFull("no room"))
    await place.worker.say(Reports([offer]))
    await place.house.until(lambda: place.house.manager.trouble, "the disk is full")
    kept = [KeptSandbox(job, 0, offer.attempt, 5.0, 4096, 2) for job in (1, 99)]
    view = (await place.told("directory", replace(EMPTY, kept=kept))).of(DirectoryView)
    assert [k.known for k in view.kept] == [True, False]
    disk.fail(None)
    await place.worker.acknowledged(offer.attempt)


async def test_the_end_of_a_log_is_told_to_admins_alone(place: Place) -> None:
    tail = (await place.told("log", Tail("/var/log/w.log", 1000, 993, 5.0, b"\xffJoined"))).of(FileTail)
    assert (tail.worker, tail.path, tail.offset, tail.data) == (
        place.worker.name,
        "/var/log/w.log",
        993,
        b"\xffJoined",
    )
    assert place.worker.all(Look)[0].what == AtLog()
    none = await place.told("log", Unseen("it writes no log file: start it with --log FILE"))
    assert none.status == 404
    assert "start it with --log FILE" in none.problem.detail
    ada = await place.house.token(Role.USER, "ada")
    for what in ("log", "directory"):
        assert (await place.ask(what, ada.secret)).status == 403
    assert len(place.worker.all(Look)) == 2


# -- a task's -------------------------------------------------------------------------------------------


@pytest.mark.must("f")
async def test_a_tasks_files_are_its_owners_to_see(place: Place) -> None:
    ada, bob = [await place.house.token(Role.USER, name) for name in ("ada", "bob")]
    mine = await ran(place, ada.secret, code=3)
    files = f"jobs/{mine.job}/tasks/0/files"
    found = replace(LISTED, attempt=mine.attempt, kept=[mine.attempt])
    for token in (ada.secret, place.house.admin):
        view = (await place.told(files, found, token)).of(SandboxView)
        assert (view.id, view.attempt, view.running) == ("1.0", mine.attempt, False)
        assert [f.path for f in view.files] == ["out.txt"]
    assert place.worker.all(Look)[0].what == AtSandbox(1, 0, [mine.attempt])
    tail = await place.told(
        f"jobs/1/tasks/0/file?path=deep/out.txt&attempt={mine.attempt}",
        Tail("f", 2, 0, 1.0, b"hi"),
        ada.secret,
    )
    assert tail.of(FileTail).data == b"hi"
    assert place.worker.all(Look)[2].what == AtFile(1, 0, [mine.attempt], "deep/out.txt")
    for what in (files, "jobs/1/tasks/0/file?path=out.txt"):
        assert (await place.ask(what, bob.secret)).status == 404
    assert len(place.worker.all(Look)) == 3, "of what bob asked for, the worker has heard nothing"


async def test_only_attempts_that_this_worker_had_are_asked_for(place: Place) -> None:
    await place.house.submit(retries=2)
    first = await place.worker.offered()
    await place.worker.report(first, code=1)
    second = await place.worker.offered()
    await place.worker.say(Started([second.attempt]))
    await place.worker.settled()
    found = replace(LISTED, attempt=second.attempt, running=True, since=1.0)
    view = (await place.told("jobs/1/tasks/0/files", found)).of(SandboxView)
    assert view.running and view.since > 1e9, "by the manager's books it began then"
    assert place.worker.all(Look)[0].what == AtSandbox(1, 0, [first.attempt, second.attempt])
    other = Place(place.house, await place.house.worker(knows=(LOOK,)))
    answer = await other.ask("jobs/1/tasks/0/files")
    assert answer.status == 404
    assert answer.problem.detail == (
        f"1.0 was never at worker {other.worker.name}: it was at {place.worker.name}"
    )
    answer = await place.ask(f"jobs/1/tasks/0/files?attempt={second.attempt + 2**40}")
    assert (answer.status, answer.problem.field) == (404, "attempt")
    answer = await place.ask("jobs/1/tasks/7/files")
    assert (answer.status, answer.problem.field) == (404, "task")
    answer = await place.ask(f"jobs/1/tasks/0/file?path={'x' * 4097}")
    assert (answer.status, answer.problem.field) == (400, "path")
    await place.worker.report(second)


# -- what is not on record ------------------------------------------------------------------------------


async def cancelled(place: Place, token: str = "") -> Report:
    """A task that the worker ran and was told to end."""
    job = await place.house.submit(token=token)
    offer = await place.worker.offered(job.id)
    await place.worker.say(Started([offer.attempt]))
    await place.worker.settled()
    await place.house.ask("POST", "/v1/cancel", json={"select": [str(job.id)]})
    await place.worker.next(Cancel)
    await place.worker.report(offer, end=End.CANCELLED)
    return offer


async def test_what_was_kept_of_a_cancelled_task_is_its_owners_and_nobody_is_told_to_remove_it(
    place: Place,
) -> None:
    ada, bob = [await place.house.token(Role.USER, name) for name in ("ada", "bob")]
    mine = await cancelled(place, ada.secret)
    now = place.house.manager.clock()
    kept = KeptSandbox(mine.job, mine.task, mine.attempt, now, 4096, 2)
    there = replace(EMPTY, kept=[kept])

    view = (await place.told("directory", there)).of(DirectoryView)
    assert [(k.owner, k.known, k.recorded) for k in view.kept] == [("ada", True, False)]
    assert not any("rm -r" in finding for finding in view.findings)

    files, found = f"jobs/{mine.job}/tasks/0/files", replace(LISTED, attempt=mine.attempt, since=now)
    asking = place.ask(files, ada.secret)
    for answer in (there, found):
        await place.worker.say(Seen((await place.heard()).number, answer))
    assert (await asking).of(SandboxView).attempt == mine.attempt
    assert place.worker.all(Look)[-1].what == AtSandbox(mine.job, 0, [mine.attempt])

    asking = place.ask(f"jobs/{mine.job}/tasks/0/file?path=out&attempt={mine.attempt}", ada.secret)
    for answer in (found, Tail("out", 2, 0, 1.0, b"hi")):
        await place.worker.say(Seen((await place.heard()).number, answer))
    assert (await asking).of(FileTail).data == b"hi"
    heard = len(place.worker.all(Look))
    assert (await place.ask(files, bob.secret)).status == 404
    assert len(place.worker.all(Look)) == heard


@pytest.mark.must("f")
async def test_what_another_managers_job_of_the_same_number_left_is_not_shown(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "STARTS", 1)
    mine = await cancelled(place)
    strange = mine.attempt - 2**32 + 5, mine.attempt + 2**32
    """Of the start before the last that counts, and of one that is still to come."""
    before = (await place.house.job(mine.job)).submitted_at - 1.0
    kept = [
        KeptSandbox(mine.job, 0, mine.attempt, before, 4096, 2),
        *(KeptSandbox(mine.job, 0, attempt, before + 10.0, 4096, 2) for attempt in strange),
        KeptSandbox(mine.job + 1, 0, mine.attempt, before + 10.0, 4096, 2),
    ]
    files = f"jobs/{mine.job}/tasks/0/files"
    answer = await place.told(files, replace(EMPTY, kept=kept))
    assert (answer.status, answer.problem.field) == (404, "worker")
    answer = await place.told(f"{files}?attempt={mine.attempt}", replace(LISTED, since=before))
    assert (answer.status, answer.problem.field) == (404, "attempt")
    for attempt in strange:
        answer = await place.ask(f"{files}?attempt={attempt}")
        assert (answer.status, answer.problem.field) == (404, "attempt")
    other = await ran(place)
    elsewhere = Place(place.house, await place.house.worker(knows=(LOOK,)))
    answer = await elsewhere.ask(f"jobs/{other.job}/tasks/0/files?attempt={other.attempt}")
    assert (answer.status, answer.problem.field) == (404, "attempt"), "it is known to have been elsewhere"


async def test_a_task_that_has_not_run_has_no_files(place: Place) -> None:
    await place.house.submit(cpus=64)
    answer = await place.ask("jobs/1/tasks/0/files")
    assert (answer.status, "has not run yet" in answer.problem.detail) == (404, True)


# -- workers that cannot be asked -------------------------------------------------------------------------


async def test_a_worker_that_is_gone_is_told_with_its_directory(house: House) -> None:
    info = WorkerInfo(node="node7", capacity=Needs(1000, 2**30), dir="/scratch/w7")
    worker = await house.worker("w7", info=info, knows=(LOOK,))
    await worker.say(Bye("done"))
    await worker.hung_up()
    await house.until(lambda: not house.manager.machine.workers["w7"].online, "it is gone")
    answer = await house.ask("GET", "/v1/workers/w7/directory")
    assert answer.status == 404
    assert answer.problem.detail.startswith("worker w7 is offline since ")
    assert answer.problem.detail.endswith("its directory was /scratch/w7 on node7")
    nobody = await house.ask("GET", "/v1/workers/nobody/directory")
    assert (nobody.status, nobody.problem.detail) == (
        404,
        "there is no worker 'nobody': see `tercel pool --all`",
    )


async def test_an_older_worker_is_not_asked(house: House) -> None:
    """It would take the question for a broken protocol, and end its link."""
    worker = await house.worker()
    answer = await house.ask("GET", f"/v1/workers/{worker.name}/directory")
    assert (answer.status, answer.problem.field) == (400, "worker")
    assert "older version" in answer.problem.detail
    await worker.settled()
    assert worker.all(Look) == []


async def test_a_worker_that_is_just_joining_is_asked_a_moment_later(house: House) -> None:
    """Before its Welcome nothing is sent to it, so it would not answer."""
    disk = house.disk()
    disk.hold()
    submitting = asyncio.create_task(house.submit())
    await disk.reached()
    worker = Scripted(await house.dial(), "w")
    joining = asyncio.create_task(worker.join(knows=(LOOK,)))
    await house.until(lambda: "w" in house.manager.machine.workers, "it has said Hello")
    answer = await house.ask("GET", "/v1/workers/w/directory")
    assert (answer.status, "just joining" in answer.problem.detail) == (503, True)
    disk.release()
    await asyncio.gather(submitting, joining)
    await worker.close()


def test_older_peers_understand_hello_and_are_understood() -> None:
    """A manager that does not know of `knows` reads over it; of a worker that does not say it, nothing is known."""
    hello = Hello(PROTOCOL, "w", "1", WorkerInfo(node="n"), [], (LOOK,))
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(hello))

    class Older(msgspec.Struct, frozen=True, array_like=True, tag="Hello"):
        protocol: int
        worker: str
        instance: str
        info: WorkerInfo
        held: list[Any]

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=Older).worker == "w"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told[:-1]), type=Hello).knows == ()


async def test_a_worker_that_does_not_answer_is_not_waited_for_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "ANSWER_S", 0.01)
    answer = await place.ask("directory")
    assert answer.status == 503
    assert "has not answered" in answer.problem.detail
    late = await place.heard()
    monkeypatch.undo()
    await place.worker.say(Seen(late.number, EMPTY))
    assert (await place.told("directory", EMPTY)).status == 200


async def test_a_worker_whose_link_is_lost_meanwhile_is_told_to_be_so(place: Place) -> None:
    asking = place.ask("directory")
    await place.heard()
    await place.worker.close()
    answer = await asking
    assert answer.status == 503
    assert "link was lost" in answer.problem.detail


async def test_what_the_worker_cannot_do_now_may_be_asked_again(place: Place) -> None:
    answer = await place.told("directory", Unseen("its file system hangs\x1b[2J\n", passing=True))
    assert answer.status == 503
    assert "hangs" in answer.problem.detail
    assert "\x1b" not in answer.problem.detail


async def test_no_more_questions_are_under_way_than_it_takes(place: Place) -> None:
    asking = [place.ask("directory") for _ in range(looks.UNDER_WAY_MOST + 1)]
    await place.worker.next(Look, looks.UNDER_WAY_MOST - 1)
    done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    (refused,) = [task.result() for task in done]
    assert (refused.status, "too many" in refused.problem.detail) == (503, True)
    assert len(place.worker.all(Look)) == looks.UNDER_WAY_MOST
    await place.worker.say(*(Seen(look.number, EMPTY) for look in place.worker.all(Look)))
    assert sorted([(await task).status for task in asking]) == [200] * looks.UNDER_WAY_MOST + [503]


# -- lies -------------------------------------------------------------------------------------------------

_PART = Part("kept", 1, 1, 1.0, [])
_KEPT = KeptSandbox(1, 0, 7, 1.0, 1, 1)
_LEFT = Left("trash", "trash/x", 1, 1.0)
LIES: list[tuple[str, Any]] = [
    *(("directory", replace(EMPTY, **lie)) for lie in (
        {"dir": "x" * 5000},
        {"log": "x" * 5000},
        {"free_bytes": NUMBER},
        {"disk_bytes": -1},
        {"reports": -1},
        {"reports_since": math.nan},
        {"parts": [_PART] * 1000},
        {"kept": [_KEPT] * (said.KEPT_MOST + 1)},
        {"left": [_LEFT] * (said.LEFT_MOST + 1)},
    )),
    *(("directory", replace(EMPTY, parts=[replace(_PART, **lie)])) for lie in (
        {"name": "\x1b[2J"},
        {"cut": "x" * 10_000},
        {"size_bytes": NUMBER},
        {"entries": -5},
        {"oldest_at": math.inf},
        {"largest": [Entry("x", 1, 1.0)] * 100},
        {"largest": [Entry("x" * 5000, 1, 1.0)]},
        {"largest": [Entry("x", -1, 1.0)]},
        {"largest": [Entry("x", 1, math.nan)]},
        {"largest": [Entry("x", 1, 1.0, "37.4; rm -rf /")]},
    )),
    *(("directory", replace(EMPTY, kept=[replace(_KEPT, **lie)])) for lie in (
        {"job": NUMBER}, {"task": -1}, {"attempt": NUMBER}, {"size_bytes": -1}, {"since": math.nan}, {"cut": "\n"},
    )),
    *(("directory", replace(EMPTY, left=[replace(_LEFT, **lie)])) for lie in (
        {"kind": "rm -rf /"}, {"name": "x" * 5000}, {"size_bytes": -1}, {"since": -math.inf},
    )),
    *(("files", replace(LISTED, **lie)) for lie in (
        {"attempt": -1},
        {"dir": "x" * 5000},
        {"since": math.nan},
        {"files": LISTED.files * (said.FILES_MOST + 1)},
        {"files": [File("x" * 4000, "file", 1, 1.0)] * 100},
        {"files": [File("x", "\x1b", 1, 1.0)]},
        {"files": [File("x", "file", -1, 1.0)]},
        {"files": [File("x", "file", 1, math.nan)]},
        {"kept": [7] * 1000},
        {"kept": [-7]},
        {"cut": "x" * 10_000},
    )),
    *(("log", Tail("f", *lie)) for lie in (
        (TAIL_BYTES + 1, 0, 1.0, b"x" * (TAIL_BYTES + 1)),
        (1, 0, 1.0, b"more"),
        (10, -1, 1.0, b"x"),
        (NUMBER, 0, 1.0, b"x"),
        (1, 0, math.nan, b"x"),
    )),
    ("log", Tail("x" * 5000, 1, 0, 1.0, b"x")),
    ("log", EMPTY),
    ("log", LISTED),
    ("directory", LISTED),
    ("files", EMPTY),
    ("files", Tail("f", 1, 0, 1.0, b"x")),
]  # fmt: skip


@pytest.mark.must("f")
async def test_a_worker_that_says_what_cannot_be_is_cut_off_and_harms_nobody(home: Path) -> None:
    async with open_house(home / "data") as house:
        for number, (what, lie) in enumerate(LIES):
            liar = await house.worker(f"liar{number}", cpus=1, knows=(LOOK,))
            place = Place(house, liar)
            if what == "files":
                job = (await house.submit()).id
                await liar.report(await liar.offered(job))
                what = f"jobs/{job}/tasks/0/files"
            answer = await place.told(what, lie)
            assert answer.status == 503, lie
            await liar.hung_up()
        await house.still_works()


@pytest.mark.must("f")
def test_whatever_a_task_makes_of_its_files_an_honest_worker_is_believed() -> None:
    """Or a task could have its worker's link cut whenever somebody looks."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as place:
        dir = Path(place).resolve()
        sandbox, names = dir / "kept/37.4.1001", ("past", "sparse", "a" * 255, "\x1b[2J\n")
        (dir / "trash").mkdir()
        sandbox.mkdir(parents=True)
        for path in (dir / "trash/future", *(sandbox / name for name in names)):
            path.touch()
        with suppress(OSError):  # not every file system has such files
            os.truncate(sandbox / "sparse", 2**63 - 2**20)
        for path, at in ((dir / "trash/future", 2**55), (sandbox / "past", -(2**55))):
            with suppress(OSError, OverflowError):
                os.utime(path, (at, at))
        asked, budget = Asked(37, 4, [1001], None), Budget(1000, math.inf)
        for found in (
            contents(dir, Books(), None, 2.0**50, budget),
            listing(dir, asked, budget),
            *(read(dir, asked, name) for name in names),
        ):
            assert sightings.seen(found) == found


@pytest.mark.must("f")
@pytest.mark.parametrize("number", [0, 7, -1, NUMBER])
async def test_an_answer_that_nobody_asked_for_ends_the_link(scene: Scene, number: int) -> None:
    await scene.bad.say(Seen(number, EMPTY))
    assert "nobody asked" in await scene.cut_off()


@pytest.mark.must("f")
async def test_the_same_answer_again_and_again_is_of_no_consequence(place: Place) -> None:
    assert (await place.told("directory", EMPTY)).status == 200
    await place.worker.say(*[Seen(0, replace(EMPTY, dir="x" * 1000))] * 1000)
    await place.worker.settled()
    assert (await place.told("directory", EMPTY)).status == 200


# -- what is worth a look -----------------------------------------------------------------------------------


def view(**more: Any) -> DirectoryView:
    fields: dict[str, Any] = {
        "worker": "w",
        "node": "n",
        "dir": "/d",
        "disk_bytes": 1000 * 2**30,
        "free_bytes": 900 * 2**30,
        "reports": 0,
        "reports_since": 0.0,
        "parts": [],
        "kept": [],
        "left": [],
        "log": "",
        "findings": [],
    }
    return DirectoryView(**(fields | more))


def part(name: str, size_bytes: int, cut: str = "") -> PartView:
    return PartView(name=name, size_bytes=size_bytes, entries=1, oldest_at=0.0, largest=[], cut=cut)


def sandbox(known: bool = True) -> KeptView:
    return KeptView(
        id="1.0",
        job=1,
        task=0,
        attempt=7,
        since=0.0,
        size_bytes=2**30,
        entries=1,
        path="/d/kept/x",
        known=known,
    )


LEFT_VIEW = LeftView(path="/d/x", size_bytes=2**20, since=0.0, why="", advice="")


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (view(), []),
        (view(parts=[part("kept", 2**30)], kept=[sandbox()]), []),
        (view(free_bytes=2**29), ["the disk is nearly full: 512 MB of 1000 GB free, so it takes no tasks"]),
        (view(free_bytes=60 * 2**30), ["the disk is getting full: 60 GB of 1000 GB free"]),
        (view(reports=1, reports_since=9990.0), []),
        (view(reports=1), []),
        (
            view(reports=1200, reports_since=9990.0),
            [
                "the spool holds 1,200 results, the oldest for 10 s: the manager was away, or takes long to save them"
            ],
        ),
        (
            view(reports=1, reports_since=2800.0),
            [
                "the spool holds 1 result, the oldest for 2 h: the manager was away, or takes long to save them"
            ],
        ),
        (
            view(parts=[part("values", 11 * 2**30), part("kept", 41 * 2**30, "more")], kept=[sandbox()] * 3),
            [
                "3 kept sandboxes use at least 41 GB: `rm -r` those that were looked at, or submit without --sandbox keep",
                "values kept for the next calls take 11 GB: --cache-size says how much they may",
                "not all could be counted: kept (more)",
            ],
        ),
        (
            view(
                parts=[
                    PartView(
                        name="sandboxes",
                        size_bytes=41 * 2**30,
                        entries=1,
                        oldest_at=0.0,
                        largest=[EntryView(name="9.3", size_bytes=1, changed_at=0.0, task="37.4")],
                    )
                ]
            ),
            ["sandboxes in use take 41 GB: `tercel worker look w 37.4` lists a task's files"],
        ),
        (
            view(kept=[sandbox(), sandbox(known=False)], left=[LEFT_VIEW] * 2),
            [
                "1 kept sandbox is of a job that this manager does not know (any more) (1 GB): `rm -r` it on n",
                "2 things are left over that no attempt needs: 2 MB",
            ],
        ),
        (
            view(kept=[replace(sandbox(), recorded=False)] * 2),
            [
                "2 kept sandboxes are of attempts not on record, as cancelled ones are (2 GB): whoever owns the job may still want them"
            ],
        ),
    ],
    ids=range(12),
)
def test_what_is_worth_a_look_is_said_first(seen: DirectoryView, told: list[str]) -> None:
    assert findings(seen, 10_000.0) == told


def test_a_command_that_is_proposed_names_a_worker_as_a_shell_takes_it() -> None:
    large = PartView(name="sandboxes", size_bytes=41 * 2**30, entries=1, oldest_at=0.0, largest=[])
    [told] = findings(view(worker="w;id", parts=[large]), 10_000.0)
    assert "`tercel worker look 'w;id' JOB.TASK`" in told


def test_of_everything_that_is_left_over_it_is_said_why_and_what_to_do() -> None:
    assert set(WHY) == set(ADVICE) == set(KINDS)
