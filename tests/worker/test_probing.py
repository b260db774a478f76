"""Testers that the manager asks on a worker's node."""

import asyncio
import math
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tercel.core.conditions import Verdict
from tercel.links.websocket import WebSocketDialer
from tercel.testers.contract import Surroundings
from tercel.testers.verdicts import NOT_BEFORE_MOST_S, NOTE_MOST, ROOM_MOST
from tercel.wire.messages import Ack, Bye, Drain, Probe, Probed, Returned
from tercel.worker import probing
from tests.worker.network import Server
from tests.worker.stage import FakeLink, Stage, now, virtual

pytestmark = pytest.mark.T(5, 8)

Answer = Callable[[], Awaitable[Any]]


async def _cleared() -> Verdict:
    return Verdict(True, 7, "it is there again", 2.5)


class Oracle:
    """Answers as the script says: at once that all has cleared, unless a tester was given something else to do."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Surroundings]] = []
        self.answers: dict[str, Answer] = {}
        self.cancelled: list[str] = []
        self._changed = asyncio.Event()

    async def ask(self, tester: str, surroundings: Surroundings) -> Verdict:
        self.asked.append((tester, surroundings))
        self._changed.set()
        try:
            verdict: Verdict = await self.answers.get(tester, _cleared)()
            return verdict
        except asyncio.CancelledError:
            self.cancelled.append(tester)
            self._changed.set()
            raise

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._changed.clear()
            await self._changed.wait()

    def hangs(self, tester: str) -> asyncio.Event:
        """Until the event is set."""
        go_on = asyncio.Event()

        async def wait() -> Verdict:
            await go_on.wait()
            return Verdict(True)

        self.answers[tester] = wait
        return go_on


@virtual
async def test_a_tester_is_asked_with_its_jobs_surroundings_and_its_verdict_told(tmp_path: Path) -> None:
    oracle = Oracle()
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined()
    await link.send(Probe(5, "tcp:licence.lab:27000", 4.0, "/data", {"A": "1"}))
    assert await link.expect(Probed) == Probed(5, Verdict(True, 7, "it is there again", 2.5))
    assert oracle.asked == [("tcp:licence.lab:27000", Surroundings(cwd="/data", env={"A": "1"}, limit_s=4.0))]
    await stage.killed()


@pytest.mark.C(10)
@pytest.mark.must("d")
@virtual
async def test_one_that_hangs_keeps_neither_others_nor_tasks_waiting(tmp_path: Path) -> None:
    oracle = Oracle()
    go_on = oracle.hangs("slow")
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined()
    await link.send(Probe(1, "slow", 60.0), Probe(2, "quick", 60.0))
    assert (await link.expect(Probed)).number == 2
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    stage.runner.end(100)
    await link.expect_reports(1)
    go_on.set()
    assert await link.expect(Probed) == Probed(1, Verdict(True))
    await stage.killed()


@pytest.mark.C(10)
@pytest.mark.must("d")
@virtual
async def test_very_many_that_hang_keep_no_other_one_waiting(tmp_path: Path) -> None:
    """How many work at a time is for the testers: those know who is slow."""
    oracle = Oracle()
    go_on = oracle.hangs("slow")
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined(heartbeat_s=600.0)
    began = now()
    await link.send(*(Probe(number, "slow", 60.0) for number in range(5000)), Probe(5000, "quick", 60.0))
    assert (await link.expect(Probed)).number == 5000
    assert now() - began < 1.0
    go_on.set()
    assert {(await link.expect(Probed)).number for _ in range(5000)} == set(range(5000))
    await stage.killed()


@virtual
@pytest.mark.parametrize(
    ("asked_s", "given_s"),
    [(0.0, 0.1), (-5.0, 0.1), (math.nan, 0.1), (0.05, 0.1), (600.0, 600.0), (1e9, 600.0), (math.inf, 600.0)],
)
async def test_what_the_manager_asks_for_is_bounded(tmp_path: Path, asked_s: float, given_s: float) -> None:
    oracle = Oracle()
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined()
    await link.send(Probe(1, "quick", asked_s))
    await link.expect(Probed)
    ((_, surroundings),) = oracle.asked
    assert surroundings.limit_s == given_s
    await stage.killed()


@pytest.mark.C(10)
@pytest.mark.must("d")
@virtual
async def test_so_many_are_asked_at_a_time_and_the_others_wait_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "MOST", 200)
    oracle = Oracle()
    go_on = oracle.hangs("slow")
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined(heartbeat_s=600.0)
    await link.send(*(Probe(number, "slow", 600.0) for number in range(probing.MOST)))
    await oracle.until(lambda: len(oracle.asked) == probing.MOST)
    began = now()
    await link.send(Probe(1000, "patient", 600.0), Probe(1001, "impatient", 30.0))
    assert await link.expect(Probed) == Probed(1001, Verdict(False, note="too many tests at once on node"))
    assert now() - began == pytest.approx(30.0, abs=1.0)
    assert len(oracle.asked) == probing.MOST
    go_on.set()
    told = {(await link.expect(Probed)).number for _ in range(probing.MOST + 1)}
    assert told == {*range(probing.MOST), 1000}
    assert [tester for tester, _ in oracle.asked[probing.MOST :]] == ["patient"]
    left_s = oracle.asked[-1][1].limit_s
    assert left_s == pytest.approx(570.0, abs=1.0), "it has what is left of its limit"
    await stage.killed()


@virtual
async def test_who_is_asked_twice_answers_twice(tmp_path: Path) -> None:
    oracle = Oracle()
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined()
    await link.send(Probe(5, "quick", 4.0), Probe(5, "quick", 4.0))
    assert [(await link.expect(Probed)).number for _ in range(2)] == [5, 5]
    await link.send(Probe(5, "quick", 4.0))
    assert (await link.expect(Probed)).number == 5
    assert len(oracle.asked) == 3
    await stage.killed()


async def _raises() -> Verdict:
    raise LookupError("there is\nno such tester " + "x" * 9999)


async def _cancels_itself() -> Verdict:
    raise asyncio.CancelledError


async def _says(said: object) -> object:
    return said


@pytest.mark.must("d")
@virtual
@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (_raises, "the tester failed on node: LookupError: there is no such tester xxx"),
        (_cancels_itself, "the tester failed on node: it cancelled itself"),
        (lambda: _says(None), "its tester answered with NoneType"),
        (lambda: _says(object()), "its tester answered with object"),
        (lambda: _says(Verdict("yes")), "its tester's answer is malformed"),  # type: ignore[arg-type]
        (lambda: _says(Verdict(True, 1, 5)), "its tester's answer is malformed"),  # type: ignore[arg-type]
        (lambda: _says(Verdict(True, -5)), "its tester says that there is room for -5 tasks"),
        (lambda: _says(Verdict(False, 0, "", math.nan)), "its tester asks for a pause that is none"),
        (lambda: _says(Verdict(False, 0, "", math.inf)), "its tester asks for a pause that is none"),
        (lambda: _says(Verdict(False, 0, "", -1.0)), "its tester asks for a pause that is none"),
    ],
)
async def test_a_tester_that_fails_has_not_cleared_and_harms_nobody(
    tmp_path: Path, answer: Answer, note: str
) -> None:
    oracle = Oracle()
    oracle.answers["wild"] = answer
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined()
    await link.send(Probe(1, "wild", 4.0))
    probed = await link.expect(Probed)
    assert (probed.number, probed.verdict.cleared) == (1, False)
    assert probed.verdict.note.startswith(note)
    assert len(probed.verdict.note) <= NOTE_MOST
    await link.send(Probe(2, "quick", 4.0))
    assert (await link.expect(Probed)).verdict.cleared
    await stage.killed()


@pytest.mark.must("d")
@virtual
@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Verdict(True, 10**30), Verdict(True, ROOM_MOST)),
        (
            Verdict(False, 0, "a\n\x1b\ud800b" + "x" * 9999),
            Verdict(False, 0, "a b" + "x" * (NOTE_MOST - 4) + "…"),
        ),
        (Verdict(False, 0, "", 1e9), Verdict(False, 0, "", NOT_BEFORE_MOST_S)),
    ],
)
async def test_a_tester_that_exaggerates_is_cut_short(tmp_path: Path, said: Verdict, told: Verdict) -> None:
    oracle = Oracle()
    oracle.answers["wild"] = lambda: _says(said)
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined()
    await link.send(Probe(1, "wild", 4.0))
    assert await link.expect(Probed) == Probed(1, told)
    await stage.killed()


@pytest.mark.must("d")
@virtual
async def test_who_takes_longer_than_the_limit_is_ended(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.hangs("slow")
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined()
    began = now()
    await link.send(Probe(1, "slow", 20.0))
    assert await link.expect(Probed) == Probed(
        1, Verdict(False, note="the test took longer than 20 s on node")
    )
    assert now() - began == pytest.approx(20.0 + probing.GRACE_S, abs=1.0)
    assert oracle.cancelled == ["slow"]
    await stage.killed()


@virtual
async def test_one_that_drains_still_answers(tmp_path: Path) -> None:
    stage = Stage(tmp_path, testers=Oracle())
    link = await stage.at_work(0)
    await link.send(Drain(), Probe(1, "quick", 4.0))
    assert (await link.expect(Probed)).number == 1
    stage.runner.end(100)
    await link.expect_reports(1)
    await link.send(Probe(2, "quick", 4.0))
    assert (await link.expect(Probed)).number == 2
    await link.send(Ack([100]))
    await link.expect(Bye)
    await link.end.close()
    await stage.left()


@virtual
async def test_one_that_takes_no_tasks_still_answers(tmp_path: Path) -> None:
    stage = Stage(tmp_path, testers=Oracle(), ill="no scratch disk")
    link = await stage.joined()
    await link.offer(0, 0)
    await link.expect(Returned)
    await link.send(Probe(1, "quick", 4.0))
    assert (await link.expect(Probed)).number == 1
    await stage.killed()


@pytest.mark.parametrize("stubborn", [False, True])
@virtual
async def test_what_is_under_way_when_the_link_ends_is_ended_and_never_answered(
    tmp_path: Path, stubborn: bool
) -> None:
    oracle = Oracle()
    stage = Stage(tmp_path, testers=oracle)
    go_on = oracle.hangs("slow")
    hang = oracle.answers["slow"]

    async def takes_no_notice() -> Verdict:
        try:
            return Verdict(bool(await go_on.wait()))
        except asyncio.CancelledError:
            return Verdict(bool(await go_on.wait()))

    oracle.answers["slow"] = takes_no_notice if stubborn else hang
    link = await stage.joined()
    await link.send(Probe(1, "slow", 600.0))
    await oracle.until(lambda: bool(oracle.asked))
    await link.end.close()
    again = await stage.joined()
    go_on.set()
    await again.send(Probe(2, "quick", 4.0))
    assert (await again.expect(Probed)).number == 2
    assert stubborn or oracle.cancelled == ["slow"]
    stage.worker.drain()
    await again.expect(Bye)
    await again.end.close()
    await stage.left()


@virtual
async def test_one_that_waited_for_its_turn_when_the_link_ended_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "MOST", 1)
    oracle = Oracle()
    oracle.hangs("slow")
    stage = Stage(tmp_path, testers=oracle)
    link = await stage.joined()
    await link.send(Probe(1, "slow", 600.0), Probe(2, "behind", 600.0))
    await oracle.until(lambda: bool(oracle.asked))
    await link.end.close()
    again = await stage.joined()
    await again.send(Probe(3, "quick", 4.0))
    assert (await again.expect(Probed)).number == 3
    assert [tester for tester, _ in oracle.asked] == ["slow", "quick"]
    await stage.killed()


@virtual
async def test_one_without_testers_says_so(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await link.send(Probe(1, "tcp:licence.lab:27000", 4.0))
    assert await link.expect(Probed) == Probed(1, Verdict(False, note="node knows no testers"))
    await stage.killed()


# -- on a real network, by a real clock -------------------------------------------------------------------


async def _over_websocket(server: Server, dir: Path, oracle: Oracle) -> tuple[Stage, FakeLink]:
    stage = Stage(dir, dialer=WebSocketDialer(server.url, "token"), testers=oracle)
    link = FakeLink(await server.arrived.get())
    await link.welcome(heartbeat_s=60.0)
    return stage, link


async def _leaves(stage: Stage, link: FakeLink) -> None:
    stage.worker.drain()
    await link.expect(Bye)
    await asyncio.gather(stage.left(), link.end.close())


async def test_a_thousand_go_through_the_real_link(tmp_path: Path) -> None:
    async with Server().running() as server:
        oracle = Oracle()
        stage, link = await _over_websocket(server, tmp_path, oracle)
        await link.send(*(Probe(number, "quick", 60.0) for number in range(1000)))
        assert {(await link.expect(Probed)).number for _ in range(1000)} == set(range(1000))
        await _leaves(stage, link)


async def test_a_directory_that_this_node_lacks_is_told_before_a_command_is_tried(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "file").touch()
    async with Server().running() as server:
        oracle = Oracle()
        stage, link = await _over_websocket(server, tmp_path / "worker", oracle)
        for name in ("gone", "file", "file/below", "x\0y"):
            await link.send(Probe(1, "command:./ok.sh", 60.0, f"{tmp_path}/{name}"))
            verdict = (await link.expect(Probed)).verdict
            said = name.replace("\0", " ")
            assert verdict == Verdict(False, note=f"node has no directory {tmp_path}/{said}")
        assert oracle.asked == []
        for tester, cwd in (("command:./ok.sh", tmp_path / "here"), ("file:there", tmp_path / "gone")):
            await link.send(Probe(2, tester, 60.0, str(cwd)))
            assert (await link.expect(Probed)).verdict.cleared
        await link.send(Probe(3, "command:true", 60.0))
        assert (await link.expect(Probed)).verdict.cleared
        await _leaves(stage, link)


async def test_a_directory_on_a_file_system_that_hangs_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tester is asked all the same: it has its own limit."""
    monkeypatch.setattr(probing, "LOOK_S", 0.01)
    mended = threading.Event()
    real = Path.stat

    def stat(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if self == Path("/hangs"):
            mended.wait()
        return real(self, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", stat)
    async with Server().running() as server:
        oracle = Oracle()
        stage, link = await _over_websocket(server, tmp_path, oracle)
        await link.send(Probe(1, "command:true", 60.0, "/hangs"), Probe(2, "command:true", 60.0, "/no/such"))
        assert all([(await link.expect(Probed)).verdict.cleared for _ in range(2)]), (
            "nothing is known of either"
        )
        mended.set()
        monkeypatch.setattr(probing, "LOOK_S", 30.0)
        while True:  # until the thread that hung has told
            await link.send(Probe(3, "command:true", 60.0, "/no/such"))
            if not (verdict := (await link.expect(Probed)).verdict).cleared:
                break
        assert verdict.note == "node has no directory /no/such"
        await _leaves(stage, link)
