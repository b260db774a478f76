"""A tester that hangs, crashes, lies or floods harms its own condition only."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tercel.core.conditions import Verdict
from tercel.testers.contract import Surroundings
from tercel.testers.registry import Testers
from tercel.testers.verdicts import NOTE_MOST
from tests.processes import becomes, is_running
from tests.testers.conftest import Install

pytestmark = [pytest.mark.T(8), pytest.mark.must("d")]

THIRD = (Path(__file__).parent / "third.py").read_text()
PATIENT = Surroundings(limit_s=60.0)


@pytest.fixture(autouse=True)
def bad(install: Install) -> None:
    install("third", {"bad": "third:BadTester", "sync": "third:SyncTester"}, THIRD)


async def asks(testers: Testers, what: str, limit_s: float = 60.0) -> Verdict:
    verdict = await testers.ask(f"bad:{what}", Surroundings(limit_s=limit_s))
    assert len(verdict.note) <= NOTE_MOST and verdict.note.isprintable()
    return verdict


async def test_one_of_a_third_party_is_asked_in_a_process_of_its_own(testers: Testers) -> None:
    first, second = await asks(testers, "ok a"), await asks(testers, "ok b")
    assert first == Verdict(True, room=3, note=f"a of {testers.pids[0]}")
    assert second.note == f"b of {testers.pids[0]}", "one warm process"


@pytest.mark.parametrize(
    ("how", "note"),
    [
        ("fail", "its tester failed: ValueError: [31mred [0m xxx"),
        ("system_exit", "its tester failed: SystemExit: 5"),
        ("nothing", "its tester answered with NoneType, not with a Verdict"),
        ("true", "its tester answered with bool, not with a Verdict"),
        ("negative", "its tester says that there is room for -1 tasks"),
        ("nan", "its tester asks for a pause that is none"),
        ("odd", "its tester's answer is malformed: cleared is a bool, note a str"),
        ("escape", "]0;title second line"),
        ("unheard_of", "its tester failed: AttributeError: "),
        ("leave", "its tester ended its process (exit code 3)"),
        ("crash", "its tester ended its process (signal 11)"),
        ("hoard", "its tester ran out of memory"),
        ("block", "its tester hung for 2 s without giving others a turn"),
        ("block_in_c", "its tester hung for 2 s without giving others a turn"),
        ("babble", "its tester answered with what is no answer"),
        ("leave_later", "its tester ended its process"),
    ],
)
async def test_whatever_it_does_it_has_not_cleared_and_the_next_is_asked(
    testers: Testers, how: str, note: str
) -> None:
    verdict = await asks(testers, how)
    assert not verdict.cleared and verdict.note.startswith(note), verdict
    assert (await asks(testers, "ok then")).cleared


async def test_an_answer_beyond_all_measure_is_cut_to_one(testers: Testers) -> None:
    verdict = await asks(testers, "much")
    assert verdict.cleared and verdict.room == 10_000_000 and verdict.not_before_s == 86_400.0


async def test_what_it_prints_goes_nowhere(testers: Testers, capfd: pytest.CaptureFixture[str]) -> None:
    assert (await asks(testers, "flood")).cleared
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("how", ["sleep", "swallow"])
async def test_one_that_never_answers_is_answered_for_at_the_limit(testers: Testers, how: str) -> None:
    assert (await asks(testers, "ok warm")).cleared
    assert (await asks(testers, how, limit_s=0.3)).note == "no answer within 0.3 s"
    assert (await asks(testers, "ok still")).cleared


async def test_many_that_will_not_be_cancelled_cost_one_new_process(testers: Testers) -> None:
    assert (await asks(testers, "ok warm")).cleared
    before = testers.pids
    verdicts = await asyncio.gather(*(asks(testers, f"swallow {number}", 0.2) for number in range(40)))
    assert {verdict.note for verdict in verdicts} == {"no answer within 0.2 s"}
    await becomes(lambda: testers.pids != before, "the process that they fill is replaced")
    assert (await asks(testers, "ok again")).cleared


@pytest.mark.parametrize("how", ["block", "leave", "crash", "hoard", "leave_later", "babble"])
async def test_others_of_its_kind_are_asked_again_in_a_fresh_process(
    testers: Testers, how: str, tmp_path: Path
) -> None:
    others = [asyncio.ensure_future(asks(testers, f"wait_for {tmp_path}/{name}")) for name in "abc"]
    await becomes(lambda: testers.pids, "a process is there")
    before = testers.pids[0]
    assert not (await asks(testers, how)).cleared
    for name in "abc":
        (tmp_path / name).touch()
    answers = await asyncio.gather(*others)
    assert all(answer.cleared and answer.note != str(before) for answer in answers), answers


async def test_one_that_did_harm_harms_others_only_once(testers: Testers, tmp_path: Path) -> None:
    assert not (await asks(testers, f"block {tmp_path}/1")).cleared
    waiting = asyncio.ensure_future(asks(testers, f"wait_for {tmp_path}/go"))
    await becomes(lambda: testers.pids, "a process is there")
    crowd = testers.pids[0]
    (tmp_path / "1").unlink()
    assert not (await asks(testers, f"block {tmp_path}/1")).cleared
    assert (tmp_path / "1").exists(), "it was asked again, on its own"
    (tmp_path / "go").touch()
    assert (await waiting).note == str(crowd)


async def test_what_it_started_is_ended_with_it(testers: Testers, tmp_path: Path) -> None:
    assert not (await asks(testers, f"spawn {tmp_path}/pid")).cleared
    assert not is_running(int((tmp_path / "pid").read_text()))


async def test_one_that_is_not_async_is_told_so(testers: Testers) -> None:
    assert "is not async" in (await testers.ask("sync:x", PATIENT)).note


async def test_asking_can_be_cancelled_and_started_again(testers: Testers) -> None:
    asking = asyncio.ensure_future(asks(testers, "sleep"))
    await becomes(lambda: testers.pids, "it is asked")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await asks(testers, "ok next")).cleared


async def test_closing_ends_its_processes_and_answers_who_waits() -> None:
    testers = Testers()
    asking = asyncio.ensure_future(asks(testers, "sleep"))
    await becomes(lambda: testers.pids, "it is asked")
    pids = testers.pids
    await testers.close()
    assert (await asking).note == "its tester was stopped"
    assert not any(map(is_running, pids))


async def test_one_that_behaves_again_is_asked_with_the_others_again(
    testers: Testers, tmp_path: Path
) -> None:
    line = f"block_unless {tmp_path}/mended"
    assert not (await asks(testers, line)).cleared
    (tmp_path / "mended").touch()
    alone = await asks(testers, line)
    crowd = await asks(testers, "ok x")
    assert alone.cleared and crowd.note != f"x of {alone.note}", "it was asked alone"
    assert f"x of {(await asks(testers, line)).note}" == crowd.note


async def test_when_whoever_asks_is_killed_nothing_of_it_is_left(tmp_path: Path) -> None:
    script = tmp_path / "asking.py"
    script.write_text(
        "import asyncio\n"
        "from tercel.testers.registry import Testers\n"
        "from tercel.testers.contract import Surroundings\n"
        f"line = 'echo $PPID $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; sleep 3600'\n"
        "asyncio.run(Testers().ask(f'command:{line}', Surroundings(limit_s=600.0)))\n"
    )
    asking = subprocess.Popen([sys.executable, str(script)])
    try:
        await becomes((tmp_path / "pids").exists, "the command runs")
    finally:
        asking.kill()
        asking.wait()
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        await becomes(lambda pid=pid: not is_running(pid), "it is ended")  # type: ignore[misc]
