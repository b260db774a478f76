"""The whole worker with a real server of files: what it says to its manager, and what is left when it goes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tercel.core.files import Input, Output, Trouble
from tercel.core.model import Needs, Program
from tercel.core.presence import Held
from tercel.core.reports import End
from tercel.wire.messages import (
    Ack,
    Brief,
    Bye,
    Cancel,
    Drain,
    Offer,
    Park,
    Reports,
    Resume,
    Returned,
    Stages,
    Undo,
)
from tercel.worker import bringing, delivering
from tests.data.servers import WebServer, web
from tests.worker.stage import FakeLink, Stage
from tests.worker.yard import asked, hasten

ONE_LOOP = True
DOWN = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)
    for module in (bringing, delivering):
        monkeypatch.setattr(module, "MOMENT_S", 600.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    directory = tmp_path / "served"
    directory.mkdir()
    (directory / "x").write_bytes(b"read me")
    with web(directory) as server:
        yield server


async def _offer(link: FakeLink, tasks: int = 1, **program: Any) -> None:
    brief = Brief(1, Program(argv=("true",), **program), Needs(1000, 0))
    await link.send(brief, Offer(1, 0, tasks - 1, 100))


async def _left(stage: Stage, link: FakeLink) -> None:
    await link.expect(Bye)
    await link.end.close()
    await stage.left()


def _end(stage: Stage, attempt: int = 100) -> None:
    """It ends, and leaves a file."""
    path = stage.dir / "outgoing" / str(attempt) / "r"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"result")
    stage.runner.end(attempt, gathered=(("r", 6),))


async def test_task_reads_and_leaves_a_file_and_nothing_of_either_stays(
    tmp_path: Path, server: WebServer
) -> None:
    stage = Stage(tmp_path / "w")
    link = await stage.joined()
    out = Output(name="r", to=(f"{server.url}/r",))
    await _offer(link, inputs=(Input(source=f"{server.url}/x"),), outputs=(out,))
    await stage.runner.until_running(100)
    ((path, name),) = stage.runner.running[100].links
    assert (name, Path(path).read_bytes()) == ("x", b"read me")
    _end(stage)
    (report,) = await link.expect_reports(1)
    assert ([made.url for made in report.files], report.gathered) == ([f"{server.url}/r"], ())
    assert stage.runner.forgotten == [], "its outputs may be asked for until the manager has all"
    assert not Path(path).exists(), "nothing is pinned for it any more"
    await link.send(Ack([100]), Drain())
    await _left(stage, link)
    assert stage.runner.forgotten == [100]
    assert list((tmp_path / "w/outgoing").iterdir()) == []


async def test_manager_is_told_of_what_takes_a_moment_to_be_moved(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (bringing, delivering):
        monkeypatch.setattr(module, "MOMENT_S", 0.0)
    server.faults["/x"] = server.faults["/r"] = ["hold 3"]
    stage = Stage(tmp_path / "w")
    link = await stage.joined()
    out = Output(name="r", to=(f"{server.url}/r",))
    await _offer(link, inputs=(Input(source=f"{server.url}/x"),), outputs=(out,))
    assert await link.expect(Stages) == Stages([100], [])
    server.let_go.set()
    await stage.runner.until_running(100)
    _end(stage)
    assert await link.expect(Stages) == Stages([], [100])
    await link.expect_reports(1)
    await link.send(Ack([100]), Drain())
    await _left(stage, link)


async def test_killed_worker_names_what_it_has_not_delivered_and_goes_on_with_it(
    tmp_path: Path, server: WebServer
) -> None:
    stage = Stage(tmp_path / "w")
    link = await stage.joined()
    await _offer(link, outputs=(Output(name="r", to=(f"{server.url}/r",)),))
    await stage.runner.until_running(100)
    server.faults["/r"] = ["503"] * 3
    _end(stage)
    (report,) = await link.expect_reports(1)
    assert report.hitch is not None and report.hitch.kept
    await link.send(Ack([100]), Cancel([555]))
    assert (await link.expect(Returned)).attempts == [555]
    await stage.killed()
    again = Stage(tmp_path / "w")
    link = await again.manager.link()
    hello = await link.welcome()
    assert hello.held == [Held(1, 0, 100, True, False, True)]
    await link.send(Resume([100]))
    (report,) = await link.expect_reports(1)
    assert (report.end, len(report.files)) == (End.EXITED, 1)
    await link.send(Ack([100]), Drain())
    await _left(again, link)
    assert list((tmp_path / "w/outgoing").iterdir()) == []


@pytest.mark.parametrize("how", ["dropped", "cancelled"])
async def test_parked_attempt_that_nobody_wants_leaves_neither_files_nor_outputs(
    tmp_path: Path, how: str
) -> None:
    stage = Stage(tmp_path / "w")
    link = await stage.joined()
    await _offer(link, outputs=(Output(name="r", to=(f"{DOWN}/r",)),))
    await stage.runner.until_running(100)
    _end(stage)
    await link.expect_reports(1)
    await link.send(Ack([100]))
    if how == "cancelled":
        await link.send(Cancel([100]))
        assert (await link.expect(Returned)).attempts == [100]
    else:
        await link.end.close()
        link = await stage.joined(100)
    await stage.runner.until(lambda: stage.runner.forgotten == [100])
    await link.send(Drain())
    await _left(stage, link)
    assert list((tmp_path / "w/outgoing").iterdir()) == []


async def test_draining_worker_gives_back_what_waits_for_files_and_stops_bringing_them(
    tmp_path: Path, server: WebServer
) -> None:
    server.faults["/x"] = ["hold 3"]
    stage = Stage(tmp_path / "w")
    link = await stage.joined()
    await _offer(link, tasks=2, inputs=(Input(source=f"{server.url}/x"),))
    while not asked(server, "GET"):
        await asyncio.sleep(0.002)
    stage.worker.drain()
    assert sorted((await link.expect(Returned)).attempts) == [100, 101]
    assert stage.worker._files._bringing._errands._under_way == {}
    await _left(stage, link)
    assert stage.runner.launched == []


async def test_draining_worker_delivers_before_it_leaves(tmp_path: Path, server: WebServer) -> None:
    stage = Stage(tmp_path / "w")
    link = await stage.joined()
    await _offer(link, outputs=(Output(name="r", to=(f"{server.url}/r",)),))
    await stage.runner.until_running(100)
    stage.worker.drain()
    _end(stage)
    (report,) = await link.expect_reports(1)
    assert len(report.files) == 1
    await link.send(Ack([100]))
    await _left(stage, link)


async def test_report_that_is_parked_survives_the_worker_and_is_told_again(
    tmp_path: Path, server: WebServer
) -> None:
    stage = Stage(tmp_path / "w")
    link = await stage.joined()
    await _offer(link, outputs=(Output(name="r", to=("lfn:r", f"{server.url}/r")),))
    await stage.runner.until_running(100)
    _end(stage)
    (first,) = await link.expect_reports(1)
    await link.send(Park([100]), Cancel([555]))
    await link.expect(Returned)
    await stage.killed()
    again = Stage(tmp_path / "w")
    link = await again.manager.link()
    hello = await link.welcome()
    if hello.held[0].ended:  # by its spool
        assert await link.expect_reports(1) == [first]
    else:
        assert hello.held == [Held(1, 0, 100, True, False, True)]
        await link.send(Resume([100]))
        assert await link.expect_reports(1) == [first]
    await link.send(Ack([100]), Drain())
    await _left(again, link)


async def test_what_cannot_be_undone_is_told_and_the_task_is_not_begun(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "w")
    link = await stage.joined()
    out = Output(name="r", to=(f"{DOWN}/r",))
    brief = Brief(1, Program(argv=("true",), outputs=(out,)), Needs(1000, 0))
    await link.send(brief, Undo(1, 0, [f"{DOWN}/r"]), Offer(1, 0, 0, 100))
    (report,) = (await link.expect(Reports)).reports
    assert report.hitch is not None
    assert (report.end, report.hitch.trouble) == (End.UNSTAGED, Trouble.DOWN)
    assert stage.runner.launched == []
    await link.send(Ack([100]), Drain())
    await _left(stage, link)
