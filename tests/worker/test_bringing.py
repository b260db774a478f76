"""Files that tasks read: brought from a real server into a real cache, once, checked, whatever happens meanwhile."""

import asyncio
import errno
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tercel.core.files import Input, Location, Output, Trouble
from tercel.core.reports import End
from tercel.core.states import Stage
from tercel.data.cache import Cache, CacheBusy
from tercel.wire.messages import Book, Booked, Locate, Located, Marked, Removed, Undo
from tercel.worker import fetching_files
from tests.data.servers import WebServer, web
from tests.worker.yard import PATIENCE_S, asked, digest, hasten, yard

DATA = b"read me"
ONE_LOOP = True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    directory = tmp_path / "served"
    directory.mkdir()
    (directory / "x").write_bytes(DATA)
    (directory / "y").write_bytes(DATA[::-1])
    with web(directory) as server:
        yield server


# -- once -------------------------------------------------------------------------------------------------


async def test_file_that_many_tasks_need_is_fetched_once(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        attempts = one.offer(tasks=5, inputs=[f"{server.url}/x", f"{server.url}/y"])
        assert await one.brought(*attempts) == [{"x": DATA, "y": DATA[::-1]}] * 5
        assert sorted(asked(server, "GET")) == ["/x", "/y"]
        for attempt in attempts:
            one.end(attempt)
        (later,) = one.offer(inputs=[f"{server.url}/x"])
        assert await one.brought(later) == [{"x": DATA}]
        assert asked(server, "HEAD") == [], "tasks of one job get the same, without asking"
        assert len(asked(server, "GET")) == 2


async def test_other_job_asks_whether_it_is_still_the_same_and_fetches_it_only_if_not(
    tmp_path: Path, server: WebServer
) -> None:
    async with yard(tmp_path) as one:
        await one.brought(*one.offer(1, inputs=[f"{server.url}/x"]))
        await one.brought(*one.offer(2, inputs=[f"{server.url}/x"]))
        assert (asked(server, "GET"), asked(server, "HEAD")) == (["/x"], ["/x"])
        (server.directory / "x").write_bytes(b"new")
        assert await one.brought(*one.offer(3, inputs=[f"{server.url}/x"])) == [{"x": b"new"}]
        assert await one.brought(*one.offer(1, inputs=[f"{server.url}/x"])) == [{"x": DATA}]


@pytest.mark.parametrize("fault", ["403", "405", "503"])
async def test_who_may_read_a_file_but_not_ask_about_it_fetches_it(
    tmp_path: Path, server: WebServer, fault: str
) -> None:
    """As with an address that is signed for GET alone."""
    async with yard(tmp_path) as one:
        await one.brought(*one.offer(1, inputs=[f"{server.url}/x"]))
        server.faults["/x"] = [fault]
        assert await one.brought(*one.offer(2, inputs=[f"{server.url}/x"])) == [{"x": DATA}]
        assert asked(server, "GET") == ["/x", "/x"]


async def test_source_that_says_nothing_of_its_state_is_fetched_for_each_job(
    tmp_path: Path, server: WebServer
) -> None:
    server.faults["/x"] = ["no-ranges", "no-ranges"]
    async with yard(tmp_path) as one:
        await one.brought(*one.offer(1, inputs=[f"{server.url}/x"]))
        (server.directory / "x").write_bytes(b"new")
        assert await one.brought(*one.offer(2, inputs=[f"{server.url}/x"])) == [{"x": b"new"}]
        assert asked(server, "GET") == ["/x", "/x"]


async def test_two_workers_of_a_node_fetch_a_file_once(tmp_path: Path, server: WebServer) -> None:
    server.faults["/x"] = ["hold 3", "", "", ""]
    shared = tmp_path / "cache"
    async with yard(tmp_path, "one", cache_dir=shared) as one, yard(tmp_path, "two", cache_dir=shared) as two:
        (first,) = one.offer(inputs=[f"{server.url}/x"])
        await one.until(lambda: asked(server, "GET"))
        (second,) = two.offer(inputs=[f"{server.url}/x"])
        server.let_go.set()
        assert await one.brought(first) == await two.brought(second) == [{"x": DATA}]
        # What was cut is gone on with; the other asks only whether it is still that.
        assert len(asked(server, "GET")) == 2


async def test_names_with_digests_are_fetched_once_by_two_workers_and_asked_about_by_none(
    tmp_path: Path, server: WebServer
) -> None:
    shared = tmp_path / "cache"
    known = {"lfn:x": Location("lfn:x", digest(DATA), len(DATA), (f"{server.url}/x",))}
    async with yard(tmp_path, "one", cache_dir=shared) as one, yard(tmp_path, "two", cache_dir=shared) as two:
        one.known = two.known = known
        (first,), (second,) = one.offer(inputs=["lfn:x"]), two.offer(inputs=["lfn:x"])
        assert await one.brought(first) == await two.brought(second) == [{"x": DATA}]
    assert (asked(server, "GET"), asked(server, "HEAD")) == (["/x"], [])


async def test_file_that_is_read_under_two_names_is_there_twice(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        inputs = [Input(source=f"{server.url}/x", name=name) for name in ("a", "b")]
        assert await one.brought(*one.offer(inputs=inputs)) == [{"a": DATA, "b": DATA}]
        assert asked(server, "GET") == ["/x"]


# -- nobody wants it any more -----------------------------------------------------------------------------


async def test_one_of_two_that_wait_for_a_fetch_is_cancelled_and_the_other_gets_it(
    tmp_path: Path, server: WebServer
) -> None:
    server.faults["/x"] = ["hold 3"]
    async with yard(tmp_path) as one:
        gone, stays = one.offer(tasks=2, inputs=[f"{server.url}/x"])
        await one.until(lambda: asked(server, "GET"))
        assert one.agent.on_cancel([gone]) == ([], [gone])
        one.look()
        server.let_go.set()
        assert await one.brought(stays) == [{"x": DATA}]
        assert one.pins == 1


async def test_fetch_ends_with_the_last_who_waits_and_who_comes_then_gets_the_file(
    tmp_path: Path, server: WebServer
) -> None:
    """It must not join what is ending, and wait for ever."""
    server.faults["/x"] = ["hold 3"]
    async with yard(tmp_path) as one:
        (gone,) = one.offer(inputs=[f"{server.url}/x"])
        await one.until(lambda: asked(server, "GET"))
        one.agent.on_cancel([gone])
        one.look()
        await asyncio.sleep(0)
        (comes,) = one.offer(inputs=[f"{server.url}/x"])
        assert await one.brought(comes) == [{"x": DATA}]
        one.end(comes)
        assert one.pins == 0


async def test_worker_that_leaves_while_it_fetches_leaves_nothing_running(
    tmp_path: Path, server: WebServer
) -> None:
    server.faults["/x"] = ["hold 3"]
    async with yard(tmp_path) as one:
        one.offer(tasks=3, inputs=[f"{server.url}/x"])
        await one.until(lambda: asked(server, "GET"))
    assert one.pins == 0
    assert one.owed == []


# -- room -------------------------------------------------------------------------------------------------


async def test_file_waits_for_room_until_what_is_pinned_may_go(tmp_path: Path, server: WebServer) -> None:
    (server.directory / "big").write_bytes(bytes(700_000))
    (server.directory / "other").write_bytes(b"1" * 700_000)
    async with yard(tmp_path) as one:
        (first,) = one.offer(1, inputs=[f"{server.url}/big"])
        await one.brought(first)
        gone, second = one.offer(2, tasks=2, inputs=[f"{server.url}/other"])
        await one.until(lambda: (tmp_path / "one/cache/claims").exists() and _claimed(tmp_path) >= 700_000)
        one.agent.on_cancel([gone])
        one.look()
        one.end(first)
        await one.brought(second)
        assert one.pins == 1, "nothing is pinned for who has gone"


def _claimed(tmp_path: Path) -> int:
    return sum(
        path.stat().st_size for path in (tmp_path / "one/cache/claims").iterdir() if "." not in path.name
    )


async def test_attempts_that_keep_each_other_from_having_room_do_not_wait_for_ever(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching_files, "FULL_MOST_S", 0.05)
    for name in "abcd":
        (server.directory / name).write_bytes(name.encode() * 400_000)
    async with yard(tmp_path) as one:
        one.offer(1, inputs=[f"{server.url}/a", f"{server.url}/b"])
        one.offer(2, inputs=[f"{server.url}/c", f"{server.url}/d"])
        report = await one.report()
        assert (report.end, report.errno, report.hitch) == (End.INTERRUPTED, "ENOSPC", None)
        await one.until(lambda: len(one.launched) + len(one.owed) >= 2)


async def test_files_that_together_are_larger_than_the_cache_are_refused_before_any_is_fetched(
    tmp_path: Path, server: WebServer
) -> None:
    async with yard(tmp_path, cache_bytes=10_000) as one:
        one.known = {
            name: Location(name, digest(name.encode()), 6000, (f"{server.url}/x",))
            for name in ("lfn:x", "lfn:y")
        }
        one.offer(inputs=["lfn:x", "lfn:y"])
        hitch = (await one.report()).hitch
        assert hitch is not None
        assert (hitch.trouble, server.asked) == (Trouble.REFUSED, [])
        assert "what it reads has 12 KB" in hitch.note and "--cache-size" in hitch.note


@pytest.mark.parametrize("known", [True, False])
async def test_file_larger_than_the_cache_is_refused_before_it_fills_the_disk(
    tmp_path: Path, server: WebServer, known: bool
) -> None:
    data = bytes(3_000_000)
    (server.directory / "huge").write_bytes(data)
    async with yard(tmp_path) as one:
        one.known = {"lfn:huge": Location("lfn:huge", digest(data), len(data), (f"{server.url}/huge",))}
        one.offer(inputs=["lfn:huge" if known else f"{server.url}/huge"])
        report = await one.report()
        assert report.end is End.UNSTAGED
        assert report.hitch is not None and report.hitch.trouble is Trouble.REFUSED
        assert ("--cache-size" if known else "the most that is fetched") in report.note
        left = [path.stat().st_size for path in (tmp_path / "one/cache/claims").iterdir()]
        assert sum(left) <= 2**20


async def test_endless_answer_is_cut_off(tmp_path: Path, server: WebServer) -> None:
    server.faults["/x"] = ["endless"] * 3
    async with yard(tmp_path) as one:
        one.offer(inputs=[f"{server.url}/x"])
        report = await one.report()
        assert report.hitch is not None and report.hitch.trouble is Trouble.REFUSED


# -- right ------------------------------------------------------------------------------------------------


async def test_corrupt_replica_is_marked_and_the_next_is_read(tmp_path: Path, server: WebServer) -> None:
    urls = (f"{server.url}/y", f"{server.url}/gone", f"{server.url}/x")
    async with yard(tmp_path) as one:
        one.known = {"lfn:x": Location("lfn:x", digest(DATA), len(DATA), urls)}
        assert await one.brought(*one.offer(inputs=["lfn:x"])) == [{"x": DATA}]
        assert [(marked.name, marked.url) for marked in one.all(Marked)] == [
            ("lfn:x", url) for url in urls[:2]
        ]


async def test_corrupt_replica_is_marked_also_if_the_others_are_down(
    tmp_path: Path, server: WebServer
) -> None:
    server.faults["/x"] = ["503"] * 9
    async with yard(tmp_path) as one:
        urls = (f"{server.url}/y", f"{server.url}/x")
        one.known = {"lfn:x": Location("lfn:x", digest(DATA), len(DATA), urls)}
        one.offer(inputs=["lfn:x"])
        report = await one.report()
        assert report.hitch is not None
        assert (report.hitch.stage, report.hitch.trouble) == (Stage.STAGE_IN, Trouble.BUSY)
        assert {marked.url for marked in one.all(Marked)} == {f"{server.url}/y"}


@pytest.mark.parametrize(("place", "trouble"), [("y", Trouble.CORRUPT), ("gone", Trouble.MISSING)])
async def test_name_that_no_place_has_any_more_is_what_the_task_waits_for(
    tmp_path: Path, server: WebServer, place: str, trouble: Trouble
) -> None:
    async with yard(tmp_path) as one:
        one.known = {"lfn:x": Location("lfn:x", digest(DATA), len(DATA), (f"{server.url}/{place}",))}
        one.offer(inputs=["lfn:x"])
        report = await one.report()
        assert report.hitch is not None
        assert (report.hitch.trouble, report.hitch.url) == (trouble, "lfn:x")
        assert [marked.url for marked in one.all(Marked)] == [f"{server.url}/{place}"]


async def test_digest_of_another_kind_is_checked_and_remembered(tmp_path: Path, server: WebServer) -> None:
    right = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
    async with yard(tmp_path) as one:
        source = Input(source=f"{server.url}/x", digest=right)
        await one.brought(*one.offer(1, inputs=[source]))
        await one.brought(*one.offer(2, inputs=[source]))
        assert (asked(server, "GET"), asked(server, "HEAD")) == (["/x"], [])
        one.known = {"lfn:x": Location("lfn:x", digest(DATA), len(DATA), (f"{server.url}/x",))}
        await one.brought(*one.offer(4, inputs=[Input(source="lfn:x", digest=right)]))
        assert asked(server, "GET") == ["/x"], "of a name it is compared likewise"
        one.offer(3, inputs=[Input(source=f"{server.url}/y", digest=f"sha256:{0:064x}")])
        report = await one.report()
        assert report.hitch is not None and report.hitch.trouble is Trouble.CORRUPT
        assert one.all(Marked) == [], "what is no name has no replicas"


@pytest.mark.parametrize(
    ("location", "asked_for", "trouble", "told"),
    [
        (Location("lfn:x"), "", Trouble.MISSING, "not in the catalogue"),
        (Location("lfn:x", digest(b"o"), 1, ()), "", Trouble.MISSING, "no replica"),
        (Location("lfn:x", digest(b"o"), 1, ("http://h/x",)), digest(b"n"), Trouble.REFUSED, "asked for"),
    ],
)
async def test_what_the_catalogue_cannot_give_is_told(
    tmp_path: Path, location: Location, asked_for: str, trouble: Trouble, told: str
) -> None:
    async with yard(tmp_path) as one:
        one.known = {"lfn:x": location}
        one.offer(inputs=[Input(source="lfn:x", digest=asked_for)])
        report = await one.report()
        assert report.hitch is not None
        assert (report.hitch.stage, report.hitch.trouble, report.hitch.url) == (
            Stage.STAGE_IN,
            trouble,
            "lfn:x",
        )
        assert told in report.note


async def test_values_that_make_no_path_are_refused_and_nothing_is_moved(
    tmp_path: Path, server: WebServer
) -> None:
    async with yard(tmp_path) as one:
        inputs = [Input(source=f"{server.url}/x", name="{where}")]
        one.offer(inputs=inputs, line='{"where":"../../x"}')
        report = await one.report()
        assert report.hitch is not None and report.hitch.trouble is Trouble.REFUSED
        assert server.asked == []


# -- the manager ------------------------------------------------------------------------------------------


async def test_question_that_was_not_answered_is_asked_again_on_the_next_link(
    tmp_path: Path, server: WebServer
) -> None:
    async with yard(tmp_path) as one:
        one.known = None
        (attempt,) = one.offer(inputs=["lfn:x"])
        await one.until(lambda: one.all(Locate))
        one.known = {"lfn:x": Location("lfn:x", digest(DATA), len(DATA), (f"{server.url}/x",))}
        one.files.linked(False)
        assert await one.brought(attempt) == [{"x": DATA}]
        first, again = one.all(Locate)
        assert first == again
        one.files.take(Located(first.number, []))
        one.files.take(Booked(999, 0.0))


async def test_answer_of_another_kind_is_no_answer(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        one.known = None
        (attempt,) = one.offer(inputs=["lfn:x"])
        (question,) = await one.until(lambda: one.all(Locate))
        one.files.take(Booked(question.number, 0.0))
        found = Location("lfn:x", digest(DATA), len(DATA), (f"{server.url}/x",))
        one.files.take(Located(question.number, [found]))
        assert await one.brought(attempt) == [{"x": DATA}]


async def test_many_names_are_asked_for_a_thousand_at_a_time(tmp_path: Path) -> None:
    async with yard(tmp_path) as one:
        one.offer(inputs=[Input(source=f"lfn:{n}", name=f"{n}") for n in range(2500)])
        await one.report()
        assert [len(question.names) for question in one.all(Locate)] == [1000, 1000, 500]


async def test_throttled_fetch_waits_for_its_turn(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        one.files.linked(True)
        (attempt,) = one.offer(inputs=[f"{server.url}/x"])
        (book,) = await one.until(lambda: one.all(Book))
        assert book.endpoints == [server.url]
        assert server.asked == []
        one.files.take(Booked(book.number, 0.0))
        assert await one.brought(attempt) == [{"x": DATA}]


async def test_what_earlier_attempts_delivered_is_removed_before_the_task_is_begun(
    tmp_path: Path, server: WebServer
) -> None:
    async with yard(tmp_path) as one:
        one.files.take(Undo(1, 0, [f"{server.url}/x", f"{server.url}/gone"], []))
        (attempt,) = one.offer(outputs=(Output(name="x", to=(f"{server.url}/x",)),))
        await one.until(lambda: attempt in one.launched)
        assert not (server.directory / "x").exists()
        assert one.all(Removed) == [Removed(1, 0)]


# -- this node's own faults -------------------------------------------------------------------------------


FULL = OSError(errno.ENOSPC, "full")
STEPS = ("open", "get_all", "get", "claim", "reserve", "add", "remember")


@pytest.mark.parametrize(
    ("step", "error", "name"),
    [
        *((step, FULL, "ENOSPC") for step in STEPS),
        ("add", OSError("odd"), "EIO"),
        ("add", CacheBusy("locked"), "EBUSY"),
        ("open", CacheBusy("locked"), "EBUSY"),
    ],
)
async def test_fault_of_its_own_disk_is_the_nodes_at_every_step(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception, name: str
) -> None:
    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(fetching_files, "FULL_MOST_S", 0.0)
    async with yard(tmp_path) as one:
        one.known = {"lfn:x": Location("lfn:x", digest(DATA), len(DATA), (f"{server.url}/x",))}
        if step != "open":
            await one.brought(*one.offer(9, inputs=[f"{server.url}/y"]))
        with monkeypatch.context() as patch:
            patch.setattr(Cache, step, fails)
            one.offer(inputs=[f"{server.url}/x" if step == "remember" else "lfn:x"])
            report = await one.report()
        assert (report.end, report.errno, report.hitch) == (End.INTERRUPTED, name, None)
        assert "node" in report.note
        (again,) = one.offer(inputs=["lfn:x"])
        assert await one.brought(again) == [{"x": DATA}], "it goes on when that is mended"


async def test_mover_that_is_killed_costs_a_try_and_nothing_else(tmp_path: Path, server: WebServer) -> None:
    server.faults["/x"] = ["hold 3"]
    async with yard(tmp_path) as one:
        (attempt,) = one.offer(inputs=[f"{server.url}/x"])
        await one.until(lambda: asked(server, "GET"))
        process = one.files._mover._process
        assert process is not None
        process._process.kill()
        assert await one.brought(attempt) == [{"x": DATA}]


# -- the cache --------------------------------------------------------------------------------------------


async def test_cache_that_takes_long_to_open_holds_nobody_but_those_who_need_it(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open, opened = Event(), Cache.open

    def slowly(cache: Cache) -> None:
        assert may_open.wait(PATIENCE_S)
        opened(cache)

    monkeypatch.setattr(Cache, "open", slowly)
    async with yard(tmp_path) as one:
        attempts = one.offer(tasks=3, inputs=[f"{server.url}/x"])
        (other,) = one.offer(2, outputs=(Output(name="r", to=("https://s/r",)),))
        assert await one.brought(other) == [{}]
        may_open.set()
        assert await one.brought(*attempts) == [{"x": DATA}] * 3


async def test_worker_that_leaves_while_its_cache_is_opened_leaves_no_pins(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open, begun, opened = Event(), Event(), Cache.open

    def slowly(cache: Cache) -> None:
        begun.set()
        assert may_open.wait(PATIENCE_S)
        opened(cache)

    monkeypatch.setattr(Cache, "open", slowly)
    async with yard(tmp_path) as one:
        one.offer(inputs=[f"{server.url}/x"])
        await one.until(begun.is_set)
        asyncio.get_running_loop().call_later(0.05, may_open.set)
    assert list((tmp_path / "one/cache/pins").iterdir()) == []


async def test_cache_that_somebody_removed_is_made_anew(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        (before,) = one.offer(inputs=[f"{server.url}/x"])
        await one.brought(before)
        shutil.rmtree(tmp_path / "one/cache")
        (after,) = one.offer(inputs=[f"{server.url}/x"])
        assert await one.brought(after) == [{"x": DATA}]
        one.end(before)
        shutil.rmtree(tmp_path / "one/cache")
        one.end(after)
