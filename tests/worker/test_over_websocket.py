"""The worker on a real network that is reset or falls silent. Beats are short where silence is to be noticed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tercel.core.reports import Output
from tercel.links.contract import LinkClosed
from tercel.links.websocket import WebSocketDialer
from tercel.wire.messages import Ack, Bye, Ping, Presence
from tests.worker.network import Proxy, Server
from tests.worker.stage import FakeLink, Stage

SHORT_BEAT_S = 0.6
"""Three of them are longer than a busy machine keeps a process waiting."""
LONG_BEAT_S = 60.0


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as server:
        yield server


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server.url).running() as proxy:
        yield proxy


def _stage(path: Path, url: str) -> Stage:
    return Stage(path, dialer=WebSocketDialer(url, "token"), reconnect_most_s=0.2)


async def _joined(server: Server, heartbeat_s: float = LONG_BEAT_S) -> FakeLink:
    """The next link over which the worker can be welcomed: one that it dialled into the silence cannot."""
    while True:
        link = FakeLink(await server.arrived.get())
        try:
            await link.welcome(heartbeat_s=heartbeat_s)
            await link.expect(Presence)
            return link
        except LinkClosed:
            await link.end.close()


async def _leaves(stage: Stage, link: FakeLink) -> None:
    stage.worker.drain()
    await link.expect(Bye)
    await asyncio.gather(stage.left(), link.end.close())


async def _unlinked(stage: Stage) -> None:
    while stage.worker._talk is not None:
        await asyncio.sleep(0.01)


async def test_a_task_goes_through_the_real_link(server: Server, tmp_path: Path) -> None:
    stage = _stage(tmp_path, server.url)
    link = await _joined(server)
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    stage.runner.end(100)
    await link.expect_reports(1)
    await link.send(Ack([100]))
    await _leaves(stage, link)


@pytest.mark.must("d")
@pytest.mark.parametrize("silent", [False, True])
async def test_it_recovers_by_itself_and_delivers_what_ended_meanwhile(
    server: Server, proxy: Proxy, tmp_path: Path, silent: bool
) -> None:
    stage = _stage(tmp_path, proxy.url)
    link = await _joined(server, SHORT_BEAT_S if silent else LONG_BEAT_S)
    await link.offer(0, 1)
    await stage.runner.until_running(100, 101)
    if silent:
        proxy.fall_silent()
    else:
        proxy.reset()
    stage.runner.end(100)
    await _unlinked(stage)
    proxy.recover()
    again = await _joined(server)
    assert [r.attempt for r in await again.expect_reports(1)] == [100]
    stage.runner.end(101)
    await again.expect_reports(1)
    await again.send(Ack([100, 101]))
    await _leaves(stage, again)
    assert stage.runner.launched == [100, 101]


@pytest.mark.must("d")
async def test_it_notices_silence_while_it_is_blocked_in_sending(
    server: Server, proxy: Proxy, tmp_path: Path
) -> None:
    stage = _stage(tmp_path, proxy.url)
    stage.runner.pieces[100, "out"] = [bytes(256 * 1024)] * 400
    link = await _joined(server, SHORT_BEAT_S)
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    proxy.fall_silent()
    stage.runner.end(100, out=Output(1, 1, b"", 400))
    await _unlinked(stage)
    assert 0 < stage.runner.pieces_read < 200, "the rest waited for the manager"
    proxy.recover()
    again = await _joined(server)
    await again.expect_segments(400)
    await again.expect_reports(1)
    await again.send(Ack([100]))
    await _leaves(stage, again)


async def test_beats_go_both_ways_and_keep_the_link(server: Server, tmp_path: Path) -> None:
    stage = _stage(tmp_path, server.url)
    link = await _joined(server, SHORT_BEAT_S)
    for _ in range(3):
        await link.send(Ping())
        await link.expect(Presence)
    await _leaves(stage, link)
