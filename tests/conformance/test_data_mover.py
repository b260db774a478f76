"""The mover: a process that may be killed, hang or be left at any moment, and no half file ever has its final name."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from blake3 import blake3

from tercel.core.files import Trouble
from tercel.data import moving
from tercel.data.contract import Deliver, Delivered, Fetch, TransferFailed
from tercel.data.moving import Mover
from tests.data import servers
from tests.data.places import KINDS, Place, Sftp, places
from tests.processes import becomes, children, is_running

pytestmark = [pytest.mark.C(11, 12), pytest.mark.must("a", "b")]

DATA = bytes(range(256)) * 36 * 1024
"""9 MiB: two parts of an upload to S3."""
DIGEST = f"blake3:{blake3(DATA).hexdigest()}"
SMALL = b"small"


class Progress:
    """Of one transfer: `seen` is set as soon as a part of it has moved."""

    def __init__(self) -> None:
        self.seen = asyncio.Event()
        self.told: list[tuple[int, int, int]] = []

    def __call__(self, number: int, moved: int, total: int) -> None:
        self.told.append((number, moved, total))
        if moved:
            self.seen.set()


async def in_the_middle(progress: Progress, transfer: "asyncio.Task[Delivered]") -> None:
    """As soon as a part has moved; a machine may be so quick that it is the end."""
    seen = asyncio.create_task(progress.seen.wait())
    await asyncio.wait([seen, transfer], return_when=asyncio.FIRST_COMPLETED)
    seen.cancel()


async def was_done(transfer: "asyncio.Task[Delivered]") -> bool:
    """All of it, or nothing for want of who does it."""
    ended = (await asyncio.gather(transfer, return_exceptions=True))[0]
    assert isinstance(ended, Delivered) or (isinstance(ended, TransferFailed) and ended.trouble == "down")
    return isinstance(ended, Delivered)


@pytest.fixture(scope="module")
def all_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    with (
        pytest.MonkeyPatch.context() as environment,
        places(tmp_path_factory.mktemp("at"), environment) as made,
    ):
        yield made


@pytest.fixture
async def progress() -> Progress:
    return Progress()


@pytest.fixture
async def mover(progress: Progress) -> AsyncIterator[Mover]:
    made = Mover(on_progress=progress)
    yield made
    await made.close()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[servers.WebServer]:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "x").write_bytes(DATA)
    with servers.web(tmp_path / "web") as server:
        server.faults["/x"] = ["hold 1000000"]
        yield server


# -- killed in the middle -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_mover_that_is_killed_leaves_all_or_nothing_under_the_final_name(
    kind: str, all_places: dict[str, Place], tmp_path: Path, mover: Mover, progress: Progress
) -> None:
    place = all_places[kind]
    (tmp_path / "out").write_bytes(DATA)
    (tmp_path / "small").write_bytes(SMALL)
    await mover.deliver(Deliver(path=str(tmp_path / "small"), url=place.url("small"), tag="1"))
    what = Deliver(path=str(tmp_path / "out"), url=place.url("big"), tag="2")
    delivering = asyncio.create_task(mover.deliver(what, 7))
    pid = mover.pid
    await in_the_middle(progress, delivering)
    os.kill(pid, signal.SIGKILL)
    is_done = await was_done(delivering)
    await becomes(lambda: mover.pid != pid, "it is known to be gone")
    assert place.all().get("big", b"" if is_done else DATA) == DATA
    assert (await mover.deliver(what)).digest == DIGEST
    there = place.all()
    assert there["big"] == DATA and mover.pid != pid
    assert not [name for name in there if name.endswith(".part") and ".2." not in name]


async def test_a_fetch_whose_mover_was_killed_goes_on_where_it_was(
    tmp_path: Path, web: servers.WebServer, mover: Mover, progress: Progress
) -> None:
    web.faults["/x"] = [f"hold {len(DATA) - 1}", f"hold {len(DATA) - 1}"]
    what = Fetch(urls=(f"{web.url}/x",), path=str(tmp_path / "got"), digest=DIGEST)
    fetching = asyncio.create_task(mover.fetch(what, 3))
    await becomes(lambda: (tmp_path / "got.part.from").exists(), "so much has come that it was noted")
    os.kill(mover.pid, signal.SIGKILL)
    with pytest.raises(TransferFailed) as caught:
        await fetching
    assert caught.value.trouble is Trouble.DOWN and not (tmp_path / "got").exists()
    assert caught.value.url == f"{web.url}/x", "somebody will ask whether that is there again"
    web.faults.clear()
    assert (await mover.fetch(what)).digest == DIGEST
    assert web.asked[-1][2]["Range"].startswith("bytes=")


async def test_a_server_that_is_killed_leaves_a_part_that_is_gone_on_from(
    tmp_path: Path, mover: Mover, progress: Progress
) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "x").write_bytes(DATA)
    with servers.web_process(tmp_path / "web", "/x=hold 1000000") as (process, url):
        what = Fetch(urls=(f"{url}/x",), path=str(tmp_path / "got"), digest=DIGEST)
        fetching = asyncio.create_task(mover.fetch(what, 3))
        await progress.seen.wait()
        process.kill()
        with pytest.raises(TransferFailed) as caught:
            await fetching
    assert caught.value.trouble is Trouble.DOWN
    assert not (tmp_path / "got").exists() and (tmp_path / "got.part").stat().st_size == 1_000_000
    assert progress.told[0][0] == 3 and progress.told[-1][1:] == (1_000_000, len(DATA))


async def test_a_delivery_whose_server_is_killed_leaves_nothing_under_the_final_name(
    tmp_path: Path, all_places: dict[str, Place], mover: Mover, progress: Progress
) -> None:
    place = all_places["sftp"]
    assert isinstance(place, Sftp)
    (tmp_path / "out").write_bytes(DATA * 4)
    what = Deliver(path=str(tmp_path / "out"), url=place.url("cut"), tag="k")
    delivering = asyncio.create_task(mover.deliver(what))
    await in_the_middle(progress, delivering)
    place.kill()
    is_done = await was_done(delivering)
    assert place.all().get("cut", b"" if is_done else DATA * 4) == DATA * 4
    assert (await mover.deliver(what)).size_bytes == 4 * len(DATA)
    assert {name for name in place.all() if "cut" in name} == {"cut"}


async def test_a_mover_that_hangs_is_killed_and_the_next_transfer_has_another(
    tmp_path: Path, web: servers.WebServer, mover: Mover, progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "SILENT_MOST_S", 1.0)
    monkeypatch.setattr(moving, "_LOOK_S", 0.1)
    fetching = asyncio.create_task(mover.fetch(Fetch(urls=(f"{web.url}/x",), path=str(tmp_path / "got"))))
    await progress.seen.wait()
    pid = mover.pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(TransferFailed) as caught:
        await fetching
    assert caught.value.trouble is Trouble.DOWN and "not heard" in caught.value.note
    assert (await mover.stat(f"{web.url}/x"))[0] == len(DATA) and mover.pid != pid


# -- ended --------------------------------------------------------------------------------------------------


async def test_a_cancelled_transfer_ends_and_makes_room(tmp_path: Path, web: servers.WebServer) -> None:
    progress = Progress()
    mover = Mover(at_once=1, on_progress=progress)
    try:
        what = Fetch(urls=(f"{web.url}/x",), path=str(tmp_path / "got"))
        fetching = asyncio.create_task(mover.fetch(what))
        waiting = asyncio.create_task(mover.fetch(Fetch(urls=what.urls, path=str(tmp_path / "never"))))
        await progress.seen.wait()
        assert (await mover.stat(f"{web.url}/x"))[0] == len(DATA)  # nobody waits for hours to look
        for task in (waiting, fetching):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await mover.fetch(what)).digest == DIGEST
        assert not (tmp_path / "never").exists()
    finally:
        await mover.close()


async def test_who_has_cancelled_a_transfer_finds_nobody_writing_any_more(
    tmp_path: Path, web: servers.WebServer, mover: Mover, progress: Progress
) -> None:
    def is_open() -> bool:
        return any(str(tmp_path / "got") in path for path in open_files(mover.pid))

    fetching = asyncio.create_task(mover.fetch(Fetch(urls=(f"{web.url}/x",), path=str(tmp_path / "got"))))
    await progress.seen.wait()
    assert is_open()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert not is_open()


async def test_a_mover_that_cannot_be_ended_does_not_keep_its_worker(
    web: servers.WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover = Mover()
    await mover.stat(f"{web.url}/x")
    assert mover._process is not None
    process = mover._process._process
    with monkeypatch.context() as patch:
        patch.setattr(moving, "GONE_MOST_S", 0.0)
        patch.setattr(process, "wait", asyncio.Event().wait)  # a disk that does not answer, say
        await mover.close()
    await process.wait()


async def test_a_delivery_that_is_cancelled_leaves_no_temporary_name(
    tmp_path: Path, all_places: dict[str, Place], mover: Mover, progress: Progress
) -> None:
    place = all_places["sftp"]
    (tmp_path / "out").write_bytes(DATA * 4)
    what = Deliver(path=str(tmp_path / "out"), url=place.url("cancelled"), tag="c")
    delivering = asyncio.create_task(mover.deliver(what))
    await in_the_middle(progress, delivering)
    delivering.cancel()
    await asyncio.gather(delivering, return_exceptions=True)
    await becomes(lambda: not [n for n in place.all() if n.startswith(".cancelled")], "it is removed")


async def test_a_transfer_that_does_not_get_on_is_down(tmp_path: Path, web: servers.WebServer) -> None:
    mover = Mover(stall_s=0.5)
    web.faults["/x"] = ["loris"] * 2
    try:
        with pytest.raises(TransferFailed) as caught:
            await mover.fetch(Fetch(urls=(f"{web.url}/x",), path=str(tmp_path / "got")))
        assert caught.value.trouble is Trouble.DOWN and "no progress for 0.5 s" in caught.value.note
    finally:
        await mover.close()


async def test_nothing_is_left_of_a_mover_that_was_closed(all_places: dict[str, Place]) -> None:
    mover = Mover()
    with pytest.raises(TransferFailed):
        await mover.stat(all_places["sftp"].url("none"))
    await mover.remove([all_places["sftp"].url("none"), all_places["path"].url("none")])
    pid = mover.pid
    programs = children(pid)
    assert programs  # the `ssh` that is kept for the next one
    await mover.close()
    for each in (pid, *programs):
        await becomes(lambda each=each: not is_running(each), "it is gone")  # type: ignore[misc]
    assert mover.pid == 0


def open_files(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(each.readlink()))
    return found


WORKER = """
import asyncio, sys
from tercel.data.moving import Mover
from tercel.data.contract import Fetch
async def main():
    mover = Mover(on_progress=lambda *_: print(mover.pid, flush=True))
    await mover.fetch(Fetch(urls=(sys.argv[1],), path=sys.argv[2]))
asyncio.run(main())
"""


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_mover_does_not_outlive_its_worker(
    tmp_path: Path, web: servers.WebServer, stopped: bool
) -> None:
    command = [sys.executable, "-c", WORKER, f"{web.url}/x", str(tmp_path / "got")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pid = int(await asyncio.to_thread(worker.stdout.readline))
        if stopped:  # so that it hears nothing
            os.kill(pid, signal.SIGSTOP)
        worker.kill()
    await becomes(lambda: not is_running(pid), "the mover has ended")


async def test_a_token_is_in_no_command_line_and_no_environment(
    tmp_path: Path, web: servers.WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERCEL_TOKEN", servers.TOKEN)
    (tmp_path / "out").write_bytes(SMALL)
    mover = Mover(manager=lambda: (web.url, servers.TOKEN))
    try:
        made = await mover.deliver(Deliver(path=str(tmp_path / "out"), url="tercel:", tag="t"))
        assert (await mover.fetch(Fetch(urls=(made.url,), path=str(tmp_path / "got")))).digest == made.digest
        for what in ("cmdline", "environ"):
            assert servers.TOKEN.encode() not in Path(f"/proc/{mover.pid}/{what}").read_bytes()
    finally:
        await mover.close()
