"""Hello, Welcome, and what happens when nobody answers or the manager will not have the worker."""

import asyncio
import itertools
import logging
from pathlib import Path

import pytest

from tercel.core.errors import Forbidden, Unreachable, UsageError
from tercel.core.model import Needs
from tercel.core.presence import WorkerState
from tercel.wire.messages import PROTOCOL, Cancel, Drain, Hello, Ping, Presence, Refused, Welcome
from tests.worker.stage import Stage, now, virtual


@virtual
async def test_a_worker_introduces_itself_and_shows_its_presence(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "w", cpus=3)
    link = await stage.manager.link()
    hello = await link.welcome()
    assert hello.protocol == PROTOCOL
    assert hello.worker == stage.worker.name == (tmp_path / "w" / "worker-id").read_text().strip()
    assert hello.info.capacity == Needs(3000, 2**30)
    assert hello.held == []
    assert await link.expect(Presence) == Presence(WorkerState.AVAILABLE, Needs(3000, 2**30))
    await stage.killed()


@virtual
async def test_the_name_lasts_and_the_instance_does_not(tmp_path: Path) -> None:
    hellos = []
    for seed in (1, 2):
        stage = Stage(tmp_path, seed=seed)
        hellos.append(await (await stage.manager.link()).welcome())
        await stage.killed()
    assert hellos[0].worker == hellos[1].worker
    assert hellos[0].instance != hellos[1].instance


@virtual
async def test_a_second_worker_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    first, second = Stage(tmp_path), Stage(tmp_path)
    with pytest.raises(UsageError, match="another worker uses"):
        await second.left()
    await first.killed()


@virtual
async def test_a_refusal_ends_the_worker_with_its_reason(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.manager.link()
    await link.expect(Hello)
    await link.send(Refused("install version 2"))
    with pytest.raises(UsageError, match="install version 2"):
        await stage.left()
    assert stage.runner.stopped
    await link.expect_closed()


@virtual
async def test_a_token_that_is_not_accepted_ends_a_worker_that_was_never_welcomed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.manager.trouble = Forbidden("no")
    with pytest.raises(Forbidden):
        await stage.left()
    assert len(stage.manager.dialled_at) == 1


@virtual
async def test_a_token_that_was_accepted_before_is_tried_again_slowly(tmp_path: Path) -> None:
    stage = Stage(tmp_path, reconnect_most_s=30.0)
    link = await stage.joined()
    stage.manager.trouble = Forbidden("revoked")
    await link.end.close()
    start = now()
    await stage.manager.dialled(12)
    assert now() - start > 10 * 15
    stage.manager.trouble = None
    await stage.joined()
    await stage.killed()


@virtual
async def test_pauses_between_dials_start_short_grow_and_are_bounded(tmp_path: Path) -> None:
    stage = Stage(tmp_path, reconnect_most_s=8.0)
    stage.manager.trouble = Unreachable("nobody")
    await stage.manager.dialled(60)
    at = stage.manager.dialled_at
    pauses = [after - before for before, after in itertools.pairwise(at)]
    assert pauses[0] <= 0.1
    for number, pause in enumerate(pauses):
        assert pause <= min(8.0, 0.1 * 2**number) + 1e-6
    assert max(pauses) > 4.0
    assert len({round(pause, 3) for pause in pauses}) > 50, "jittered"
    await stage.killed()


@virtual
async def test_a_manager_that_does_not_answer_hello_is_given_ten_seconds(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.manager.link()
    await link.expect(Hello)
    start = now()
    await link.expect_closed()
    assert now() - start == pytest.approx(10.0, abs=0.1)
    await stage.joined()
    await stage.killed()


@virtual
@pytest.mark.parametrize(
    "answer", [Ping(), Cancel([1]), Welcome(1, 0.0, []), Welcome(1, float("nan"), []), Welcome(1, -1.0, [])]
)
async def test_a_wrong_answer_to_hello_closes_the_link_and_it_dials_again(
    tmp_path: Path, answer: Ping
) -> None:
    stage = Stage(tmp_path)
    link = await stage.manager.link()
    await link.expect(Hello)
    await link.send(answer)
    await link.expect_closed()
    await stage.joined()
    await stage.killed()


@virtual
async def test_a_second_welcome_closes_the_link_and_it_dials_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await link.send(Welcome(1, 10.0, []))
    await link.expect_closed()
    await stage.joined()
    await stage.killed()


@virtual
async def test_a_manager_that_always_breaks_the_protocol_is_not_dialled_ever_faster(tmp_path: Path) -> None:
    stage = Stage(tmp_path, reconnect_most_s=30.0)
    for _ in range(30):
        link = await stage.joined()
        await link.send(Refused("out of place"))
    assert now() > 60
    await stage.killed()


@virtual
async def test_it_leaves_when_the_manager_was_unreachable_for_too_long(tmp_path: Path) -> None:
    stage = Stage(tmp_path, leave_when_unreachable_s=100.0)
    link = await stage.at_work(5)
    stage.manager.trouble = Unreachable("nobody")
    await link.end.close()
    start = now()
    with pytest.raises(Unreachable, match="100 s"):
        await stage.left()
    assert 50 < now() - start <= 100
    assert stage.runner.stopped
    assert stage.spool_size > 0, "the interrupted tasks' reports wait for the next start"
    assert stage.runner.launched == [100, 101], "nothing is started into a runner that stops"


@virtual
@pytest.mark.must("d")
async def test_a_silent_manager_is_noticed_after_three_beats(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined(heartbeat_s=4.0)
    await link.send(Ping())
    start = now()
    await link.expect_closed()
    assert now() - start == pytest.approx(12.0, abs=0.1)
    await stage.joined()
    await stage.killed()


@virtual
async def test_pings_keep_the_link_and_presences_come_with_every_beat(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined(heartbeat_s=4.0)
    await link.expect(Presence)
    for beat in range(1, 20):
        await link.send(Ping())
        await link.expect(Presence)
        assert now() == pytest.approx(4.0 * beat, abs=0.1)
    await stage.killed()


@virtual
@pytest.mark.must("d")
async def test_a_manager_that_takes_nothing_and_says_nothing_is_noticed(tmp_path: Path) -> None:
    """The sender is blocked in send when the link goes silent."""
    stage = Stage(tmp_path, cpus=100)
    link = await stage.joined(heartbeat_s=4.0)
    await link.offer(0, 99, millicpus=1)
    await stage.runner.until_running(199)
    for attempt in range(100, 200):  # each in a frame of its own, more than a link holds
        stage.runner.end(attempt)
        await asyncio.sleep(0.01)  # by the clock that jumps
    start = now()
    second = await stage.manager.link()
    assert now() - start < 13
    hello = await second.welcome()
    assert [held.attempt for held in hello.held] == list(range(100, 200))
    await second.expect_reports(100)
    await stage.killed()


@virtual
async def test_what_happens_to_the_link_is_told_in_sentences(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tercel.worker")
    stage = Stage(tmp_path)
    link = await stage.joined()
    await link.end.close()
    await (await stage.joined()).send(Drain())
    await stage.left()
    text = caplog.text
    assert f"Joined the manager as {stage.worker.name} with 2 cpus and 1.0 GiB of memory." in text
    assert "Lost the link to the manager: the manager closed the link. Trying again in 0." in text
    assert "Draining" in text
