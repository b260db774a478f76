"""What tasks leave: delivered to a real server, checked, whatever happens meanwhile; and what is left of it on disk."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.files import KEPT, Output, Trouble, When
from tercel.core.reports import End
from tercel.core.states import Stage
from tercel.data.contract import Delivered, TransferFailed
from tercel.data.moving import Mover
from tercel.wire.messages import Book, Booked, Park, Resume
from tercel.worker.addressing import Address
from tercel.worker.outgoing import Outgoing, Parcel
from tests.data.servers import WebServer, web
from tests.worker.stage import report
from tests.worker.yard import Yard, asked, digest, hasten, yard

ONE_LOOP = True
DOWN = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    directory = tmp_path / "served"
    directory.mkdir()
    with web(directory) as server:
        yield server


def leaves(name: str, *to: str, **fields: Any) -> Output:
    return Output(name=name, to=to, **fields)


async def runs(one: Yard, *outputs: Output, line: str | None = None) -> int:
    """The attempt that runs."""
    (attempt,) = one.offer(outputs=outputs, line=line)
    await one.until(lambda: attempt in one.launched)
    return attempt


async def acknowledge(one: Yard, *attempts: int) -> None:
    one.agent.on_ack(list(attempts))
    one.files.settled(attempts)


# -- where to ---------------------------------------------------------------------------------------------


async def test_file_is_delivered_before_its_end_is_told_and_then_nothing_of_it_is_left_here(
    tmp_path: Path, server: WebServer
) -> None:
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{server.url}/out/{{task}}"))
        one.end(attempt, {"r": b"result"})
        told = await one.report()
        (made,) = told.files
        assert (made.path, made.url, made.size_bytes, made.name) == ("r", f"{server.url}/out/0", 6, "")
        assert made.digest == digest(b"result")
        assert (server.directory / "out%2F0").read_bytes() == b"result"
        assert told.gathered == ()
        assert one.outgoing == {"0", "0.parcel"}, "until the manager has it"
        await acknowledge(one, attempt)
        await one.until(lambda: not one.outgoing)


async def test_first_place_that_takes_it_has_it(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{DOWN}/r", f"{server.url}/r"))
        one.end(attempt, {"r": b"x"})
        assert [made.url for made in (await one.report()).files] == [f"{server.url}/r"]


async def test_name_of_a_file_is_quoted_where_its_place_is_unquoted(
    tmp_path: Path, server: WebServer
) -> None:
    names = {"a b?c#d%41.txt": b"1", "ü\n.txt": b"2", "sub/e&f.txt": b"3"}
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("**/*.txt", f"{server.url}/"))
        one.end(attempt, names)
        made = (await one.report()).files
        assert {one.path for one in made} == set(names)
        assert all(one.url.isprintable() for one in made)
        served = {path.name.replace("%2F", "/"): path.read_bytes() for path in server.directory.iterdir()}
        assert served == names


@pytest.mark.parametrize(
    ("outputs", "files", "told"),
    [
        (("a/*.txt", "b/*.txt"), ("a/x.txt", "b/x.txt"), "so would 'a/x.txt'"),
        (("*.txt -> lfn:d/",), ("new\nline.txt",), "is no name"),
        (("*.txt -> s3://bucket/",), ("new\nline.txt",), "is no place"),
        (("*.txt -> s3://bucket/",), ("x" * 4000 + ".txt",), "is no place"),
    ],
)
async def test_files_that_cannot_be_where_they_should_are_refused_and_nothing_is_moved(
    tmp_path: Path, server: WebServer, outputs: tuple[str, ...], files: tuple[str, ...], told: str
) -> None:
    async with yard(tmp_path) as one:
        parts = [output.partition(" -> ") for output in outputs]
        attempt = await runs(one, *(leaves(name, to or f"{server.url}/") for name, _, to in parts))
        one.end(attempt, gathered=tuple((file, 1) for file in files))
        hitch = (await one.report()).hitch
        assert hitch is not None
        assert (hitch.stage, hitch.trouble, hitch.kept) == (Stage.STAGE_OUT, Trouble.REFUSED, False)
        assert told in hitch.note
        assert hitch.url.isprintable() and hitch.note.isprintable()
        assert server.asked == []


async def test_one_file_goes_to_one_place_twice_if_it_is_declared_twice(tmp_path: Path) -> None:
    place = (tmp_path / "there").as_uri()
    async with yard(tmp_path) as one:
        attempt = await runs(
            one, leaves("*", f"{place}/"), leaves("r*", f"{place}/", "lfn:d/"), leaves("?", f"{place}/")
        )
        one.end(attempt, {"r": b"x" * 100_000})
        told = await one.report()
        assert [(made.path, made.name) for made in told.files] == [("r", ""), ("r", "lfn:d/r")]
        assert [path.name for path in (tmp_path / "there").iterdir()] == ["r"]


async def test_required_file_that_is_missing_is_told_and_what_else_was_left_is_removed(
    tmp_path: Path, server: WebServer
) -> None:
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{server.url}/r"), leaves("s", f"{server.url}/s"))
        one.end(attempt, {"s": b"x"})
        hitch = (await one.report()).hitch
        assert hitch is not None
        assert (hitch.trouble, hitch.url, hitch.kept) == (Trouble.MISSING, "r", False)
        await one.until(lambda: not one.outgoing)
        assert server.asked == []


@pytest.mark.parametrize(
    ("code", "delivered"), [(0, ["always", "finished"]), (1, ["always", "failed"])], ids=["well", "ill"]
)
async def test_what_is_delivered_goes_by_how_the_task_ended(
    tmp_path: Path, server: WebServer, code: int, delivered: list[str]
) -> None:
    async with yard(tmp_path) as one:
        outputs = [leaves("*", f"{server.url}/{when}/", when=when, optional=True) for when in When]
        attempt = await runs(one, *outputs)
        one.end(attempt, {"r": b"x"}, code=code)
        told = await one.report()
        assert (told.end, told.code) == (End.EXITED, code)
        assert sorted(made.url.split("/")[-2] for made in told.files) == delivered


@pytest.mark.parametrize("end", [End.CANCELLED, End.INTERRUPTED])
async def test_what_nobody_delivers_does_not_stay(tmp_path: Path, server: WebServer, end: End) -> None:
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{server.url}/r", when=When.ALWAYS))
        one.end(attempt, {"r": b"x"}, end=end)
        assert ((await one.report()).end, one.agent.idle) == (end, True)
        await one.until(lambda: not one.outgoing)


async def test_throttled_delivery_waits_for_its_turn(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        one.files.linked(True)
        attempt = await runs(one, leaves("r", f"{server.url}/r"))
        one.end(attempt, {"r": b"x"})
        (book,) = await one.until(lambda: one.all(Book))
        assert (book.endpoints, server.asked, one.owed) == ([server.url], [], [])
        one.files.take(Booked(book.number, 0.0))
        assert len((await one.report()).files) == 1


async def test_delivery_that_is_dropped_as_it_is_tried_again_ends_quietly(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{server.url}/r"))

        async def deliver(*_: Any) -> Delivered:
            if attempt in one.agent.parcels:
                asyncio.get_running_loop().call_soon(lambda: one.files.drop([attempt], tell=False))
                raise TransferFailed(Trouble.DOWN, "", "it is down")
            return Delivered(url=f"{server.url}/r", size_bytes=1, digest=digest(b"x"))

        monkeypatch.setattr(Mover, "deliver", deliver)
        one.end(attempt, {"r": b"x"})
        await one.until(lambda: attempt not in one.agent.parcels)
        await one.until(lambda: not one.outgoing)
        assert one.owed == []


# -- parked -----------------------------------------------------------------------------------------------


async def test_place_that_is_down_parks_and_what_was_left_is_delivered_when_it_goes_on(
    tmp_path: Path, server: WebServer
) -> None:
    server.faults["/r"] = ["503 Retry-After=900"]
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{server.url}/r"))
        one.end(attempt, {"r": b"x"})
        hitch = (await one.report()).hitch
        assert hitch is not None
        assert (hitch.trouble, hitch.kept, hitch.not_before_s) == (Trouble.BUSY, True, 900.0)
        assert len(asked(server, "PUT")) == 1, "it asked to be left alone"
        await acknowledge(one, attempt)
        one.files.take(Resume([attempt, 77]))
        told = await one.report(1)
        assert (told.end, told.code, len(told.files)) == (End.EXITED, 0, 1)
        await acknowledge(one, attempt)
        await one.until(lambda: not one.outgoing)


async def test_parked_attempt_that_is_dropped_leaves_nothing(tmp_path: Path) -> None:
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{DOWN}/r"))
        one.end(attempt, {"r": b"x"})
        await one.report()
        await acknowledge(one, attempt)
        assert one.files.drop([attempt], tell=True) == [attempt]
        one.files.take(Resume([attempt]))
        await one.until(lambda: not one.outgoing)
        assert len(one.owed) == 1


async def test_delivery_that_is_cancelled_ends_and_is_told(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        one.files.linked(True)
        attempt = await runs(one, leaves("r", f"{server.url}/r"))
        one.end(attempt, {"r": b"x"})
        await one.until(lambda: one.all(Book))
        assert one.files.drop([attempt], tell=True) == []
        told = await one.report()
        assert (told.end, told.gathered, one.agent.idle) == (End.CANCELLED, (), True)
        await one.until(lambda: not one.outgoing)
    assert server.asked == []


async def test_name_that_is_taken_parks_what_was_delivered_and_it_is_told_again(
    tmp_path: Path, server: WebServer
) -> None:
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", "lfn:r", f"{server.url}/r"))
        one.end(attempt, {"r": b"x"})
        first = await one.report()
        one.files.take(Park([attempt]))
        assert one.outgoing == {"0", "0.parcel"}
        one.files.take(Resume([attempt]))
        assert await one.report(1) == first


async def test_what_was_delivered_and_could_not_be_saved_is_told_as_it_was(
    tmp_path: Path, server: WebServer
) -> None:
    """An earlier process delivered it, and its disk had no room for the parcel: what it spooled is all there is."""
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{server.url}/r"))
        one.end(attempt, {"r": b"x"})
        first = await one.report()
    (tmp_path / "one/outgoing/0.parcel").unlink()
    async with yard(tmp_path) as one:
        assert (one.restored, one.outgoing) == ([], set())
        one.agent.restore([first])
        one.files.take(Park([attempt]))
        one.files.take(Resume([attempt]))
        assert await one.report() == first


# -- after a kill -----------------------------------------------------------------------------------------


async def test_next_process_goes_on_with_what_was_not_delivered(tmp_path: Path, server: WebServer) -> None:
    async with yard(tmp_path) as one:
        one.files.linked(True)
        attempt = await runs(one, leaves("r", f"{server.url}/r"))
        one.end(attempt, {"r": b"x"})
        await one.until(lambda: one.all(Book))
        assert one.outgoing == {"0", "0.parcel"}
    async with yard(tmp_path) as two:
        (parked,) = two.restored
        assert (parked.attempt, parked.end) == (attempt, End.EXITED)
        two.files.take(Resume([attempt]))
        assert len((await two.report()).files) == 1
    assert (server.directory / "r").read_bytes() == b"x"


@pytest.mark.parametrize("how", ["files gone", "one gone"])
async def test_files_that_are_gone_from_this_node_are_its_own_fault_and_the_task_is_run_again(
    tmp_path: Path, server: WebServer, how: str
) -> None:
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("*", f"{DOWN}/", f"{server.url}/"))
        server.faults["/r"] = server.faults["/s"] = ["503"] * 9
        one.end(attempt, {"r": b"x", "s": b"y"})
        await one.report()
        files = tmp_path / "one/outgoing/0"
        for path in list(files.iterdir())[: 1 if how == "one gone" else 2]:
            path.unlink()
        server.faults.clear()
        one.files.take(Resume([attempt]))
        told = await one.report(1)
        assert (told.end, told.errno) == (End.INTERRUPTED, "ENOENT")
        assert (told.hitch, told.files, told.gathered) == (None, (), ())
        assert "on this node's disk" in told.note
        assert attempt not in one.agent.parcels


async def test_disk_that_is_full_keeps_no_parcel_and_it_is_delivered_all_the_same(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(Outgoing, "save", full)
    async with yard(tmp_path) as one:
        attempt = await runs(one, leaves("r", f"{server.url}/r"))
        one.end(attempt, {"r": b"x"})
        assert len((await one.report()).files) == 1


def test_what_is_no_parcel_is_swept_and_what_is_one_stays(tmp_path: Path) -> None:
    whole = Parcel(report(7), [Address("r", (KEPT,), "lfn:r")])
    place = Outgoing(tmp_path / "o")
    assert place.load() == []
    place.save(whole)
    data = (place.dir / "7.parcel").read_bytes()
    for attempt in ("7", "8", "foreign"):
        (place.dir / attempt).mkdir()
        (place.dir / attempt / "r").write_bytes(b"x")
    (place.dir / "8.parcel").write_bytes(data)  # another's
    for at in range(0, len(data), 7):
        (place.dir / f"{100 + at}.parcel").write_bytes(data[:at])  # torn
    (place.dir / "9.new").write_bytes(data[:5])
    (place.dir / "10.parcel").mkdir()
    (place.dir / "11.parcel").write_bytes(msgspec.msgpack.encode([1, 2]))
    assert place.load() == [whole]
    assert sorted(path.name for path in place.dir.iterdir()) == ["7", "7.parcel"]
    assert place.dir.stat().st_mode & 0o777 == 0o700
    place.remove(7)
    assert list(place.dir.iterdir()) == []
    place.remove(7)


def test_parcel_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Outgoing(tmp_path)
    place.load()
    place.save(Parcel(report(7), []))

    def cut(_: int) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", cut)
    with pytest.raises(OSError, match="full"):
        place.save(Parcel(report(7, code=3), []))
    with pytest.raises(OSError, match="full"):
        place.save(Parcel(report(8), []))
    assert [parcel.report for parcel in place.load()] == [report(7)]


async def test_values_that_make_no_place_are_refused(tmp_path: Path) -> None:
    async with yard(tmp_path) as one:
        one.offer(outputs=(leaves("r", "http://s/{where}"),), line='{"where":"../../etc"}')
        hitch = (await one.report()).hitch
        assert hitch is not None and hitch.trouble is Trouble.REFUSED
        assert one.launched == {}
