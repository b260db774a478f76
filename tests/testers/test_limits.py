"""Those that hang are bounded in number and keep no others waiting; commands leave nothing behind."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tercel.core.conditions import Verdict
from tercel.testers import running
from tercel.testers.commands import CommandTester
from tercel.testers.contract import Surroundings
from tercel.testers.files import FileTester
from tercel.testers.gates import Gate
from tercel.testers.lanes import Lanes
from tercel.testers.registry import Testers
from tercel.testers.threads import Threads, TooManyHang
from tests.processes import becomes, is_running
from tests.testers import servers

pytestmark = [pytest.mark.T(8), pytest.mark.must("d")]


# -- very many at once --------------------------------------------------------------------------------------


@pytest.mark.serial
async def test_ten_thousand_are_asked_in_time_beside_five_hundred_that_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The quick ones are answered while the others are still waited for, although those are more than all places there are."""
    monkeypatch.setattr("tercel.testers.registry.resource.getrlimit", lambda _: (1024, 1024))
    testers = Testers()
    with servers.listening() as silent:
        hanging = [f"http://127.0.0.1:{silent}/{number}" for number in range(500)]
        with servers.closed_port() as closed:
            quick = [f"tcp:127.{number % 250}.{number // 250}.1:{closed}" for number in range(9_500)]
            limited = Surroundings(limit_s=60.0)
            slow = [asyncio.ensure_future(testers.ask(text, limited)) for text in hanging]
            answers = await asyncio.gather(*(testers.ask(text, limited) for text in quick))
            assert not any(answer.cleared for answer in answers)
            assert {answer.note.rpartition(": ")[2] for answer in answers} == {"connection refused"}
            assert not all(task.done() for task in slow), "they hang"
            for task in slow:
                task.cancel()
            await asyncio.wait(slow)


@pytest.mark.C(10)
async def test_not_more_are_asked_at_a_time_than_there_are_places() -> None:
    lanes = Lanes(quick=3, slow=2, quick_s=0.01)
    asked: list[int] = [0]
    """How many were being asked, whenever one more was."""
    now = 0
    never = asyncio.Event()

    async def ask(hangs: bool) -> Verdict:
        nonlocal now
        now += 1
        asked.append(now)
        try:
            await (never.wait() if hangs else asyncio.sleep(0))
        finally:
            now -= 1
        return Verdict(True)

    quick = await asyncio.gather(*(lanes.run(f"q{number}", lambda: ask(False)) for number in range(50)))
    assert all(verdict.cleared for verdict in quick)
    assert max(asked) == 3
    hanging = [asyncio.ensure_future(lanes.run(f"h{number}", lambda: ask(True))) for number in range(20)]
    await becomes(lambda: sum(task.done() for task in hanging) == 18, "two have a place where they may hang")
    assert now == 2
    assert max(asked) == 3 + 2
    never.set()
    await asyncio.wait(hanging)


@pytest.mark.C(10)
async def test_one_that_was_slow_waits_with_its_like() -> None:
    lanes = Lanes(quick=1, slow=1, quick_s=0.01)
    never = asyncio.Event()

    async def hang() -> Verdict:
        await never.wait()
        return Verdict(True)

    async def quick() -> Verdict:
        return Verdict(True, note="quick")

    first = asyncio.ensure_future(lanes.run("slow", hang))
    assert (await lanes.run("a", quick)).note == "quick", "it left the quick lane"
    second = await lanes.run("slow too", hang)
    assert second.note.startswith("no answer within 0.01 s, and many others are as slow")
    waiting = asyncio.ensure_future(lanes.run("slow too", hang))
    assert (await lanes.run("b", quick)).note == "quick"
    never.set()
    assert (await first).cleared and (await waiting).cleared


async def test_whoever_waited_longest_since_its_last_turn_goes_first() -> None:
    gate = Gate(1)
    await gate.enter()
    turns: list[str] = []

    async def take(name: str, last_turn: float) -> None:
        await gate.enter(last_turn)
        turns.append(name)
        gate.leave()

    tasks = [
        asyncio.create_task(take(name, at)) for name, at in (("late", 9.0), ("early", 1.0), ("mid", 5.0))
    ]
    given_up = asyncio.create_task(take("given up", 0.0))
    await asyncio.sleep(0)
    given_up.cancel()
    gate.leave()
    await asyncio.gather(*tasks)
    assert turns == ["early", "mid", "late"]
    assert gate.free == 1


# -- file systems that hang ---------------------------------------------------------------------------------


@pytest.mark.C(10)
async def test_threads_that_hang_are_left_behind_and_counted() -> None:
    threads = Threads(hanging_most=3, each_most=2)
    released = threading.Event()
    for of, count in (("/a", 2), ("/b", 1)):
        for _ in range(count):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(threads.call(of, released.wait), 0.01)
    assert threads.hanging == 3
    with pytest.raises(TooManyHang, match="/a hangs: 2 earlier tests have not come back"):
        await threads.call("/a", released.is_set)
    with pytest.raises(TooManyHang, match="too many hang: 3 earlier tests"):
        await threads.call("/c", released.is_set)
    released.set()
    await becomes(lambda: threads.hanging == 0, "they come back")
    assert await threads.call("/a", released.is_set)


async def test_a_call_that_is_slow_keeps_no_other_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tercel.testers.threads.QUICK_S", 0.01)
    threads = Threads(running_most=1)
    released = threading.Event()
    slow = asyncio.ensure_future(threads.call("/a", released.wait))
    await asyncio.sleep(0)
    assert not await threads.call("/b", released.is_set)
    assert threads.hanging == 1
    released.set()
    assert await slow
    assert threads.hanging == 0


async def test_a_file_system_that_hangs_is_not_cleared_and_others_are_asked(tmp_path: Path) -> None:
    """A named pipe that nobody writes stands for a server of files that is gone: opening it never comes back."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threads = Threads(each_most=50)

    def look(path: str) -> Verdict:
        if path == str(pipe):
            os.close(os.open(path, os.O_RDONLY))
        return Verdict(True)

    tester = FileTester("file", "is there", look, threads)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(tester.test(str(pipe), Surroundings()), 0.05)
    assert threads.hanging == 1
    assert (await tester.test(str(tmp_path), Surroundings())).cleared
    os.close(os.open(pipe, os.O_WRONLY))
    await becomes(lambda: threads.hanging == 0, "it comes back")


# -- commands -----------------------------------------------------------------------------------------------


async def command(testers: Testers, line: str, limit_s: float = 60.0, **around: object) -> Verdict:
    surroundings = Surroundings(limit_s=limit_s, **around)  # type: ignore[arg-type]
    return await testers.ask(f"command:{line}", surroundings)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("true", Verdict(True)),
        ("echo fine", Verdict(True, note="fine")),
        ("echo room=12", Verdict(True, room=12, note="room for 12")),
        ("echo room=12; echo later", Verdict(True, note="later")),
        ("echo room=0", Verdict(False, note="the command says that there is room for none")),
        ("echo first; echo 98 % used; exit 1", Verdict(False, note="98 % used")),
        ("echo room=5; exit 1", Verdict(False, note="room=5")),
        ("echo no >&2; exit 3", Verdict(False, note="no")),
        ("exit 3", Verdict(False, note="the command failed: exit code 3")),
        ("kill -9 $$", Verdict(False, note="the command failed: ended by signal 9")),
        ("yes", Verdict(False, note="ended, for it wrote more than 16 MB")),
        ("cat", Verdict(True)),
        ("truncate -s 2G big", Verdict(False, note="File size limit exceeded")),
    ],
)
async def test_a_commands_exit_and_last_line_are_its_answer(
    testers: Testers, line: str, verdict: Verdict
) -> None:
    assert await command(testers, line) == verdict


async def test_a_command_finds_the_jobs_directory_and_variables_but_no_secret_of_ours(
    testers: Testers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERCEL_TOKEN", "secret")
    (tmp_path / "ok.sh").write_text('echo "$WHO in $PWD, $TERCEL_TOKEN"')
    verdict = await command(testers, "sh ./ok.sh", cwd=str(tmp_path), env={"WHO": "ada"})
    assert verdict.note == f"ada in {tmp_path},"
    gone = await command(testers, "true", cwd=f"{tmp_path}/gone")
    assert not gone.cleared and f"in {tmp_path}/gone" in gone.note


async def test_a_command_without_a_directory_has_one_of_its_own_that_is_removed(testers: Testers) -> None:
    verdict = await command(testers, "touch x; pwd")
    assert verdict.cleared and not Path(verdict.note).exists()


async def test_a_command_that_is_given_up_while_its_directory_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, made = threading.Event(), threading.Event(), threading.Event()
    own = tmp_path / "own"

    def slowly(prefix: str) -> str:
        begun.set()
        go_on.wait()
        own.mkdir()
        made.set()
        return str(own)

    monkeypatch.setattr("tempfile.mkdtemp", slowly)
    asking = asyncio.create_task(CommandTester().test("true", Surroundings()))
    await asyncio.to_thread(begun.wait)
    asking.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert await asyncio.to_thread(made.wait, 10.0)
    await becomes(lambda: not own.exists(), "it is removed", patience_s=10.0)


async def test_a_number_that_may_be_anothers_by_now_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ended by itself was reaped: its number is free."""
    signalled: list[int] = []
    monkeypatch.setattr("os.killpg", lambda _, number: signalled.append(number))
    looked: list[int] = []
    monkeypatch.setattr(running, "descendants", lambda pids: looked.extend(pids) or [])
    monkeypatch.setattr(running, "_members", lambda _: [os.getpid()])
    assert (await running.run(["/bin/true"])).code == 0
    assert set(signalled) <= {0}
    assert not looked


async def test_what_a_program_that_has_ended_left_in_its_group_is_ended() -> None:
    """Where nothing else finds it: this process is no subreaper."""
    ended = await running.run(["/bin/sh", "-c", "sleep 3600 & echo $!"])
    await becomes(lambda: not is_running(int(ended.last_line)), "it is ended")


@pytest.mark.parametrize("end", ["sleep 3600", "exit 0"])
async def test_all_that_a_command_started_is_ended_with_it(
    testers: Testers, tmp_path: Path, end: str
) -> None:
    """In its session, in another one, and orphaned without any variable that tells where it is from."""
    escape = "env -i sh -c 'sleep 3600 & echo $!' > {0}/orphan"
    line = f"sleep 3600 & echo $! > {{0}}/child; setsid sleep 3600 & echo $! > {{0}}/session; setsid {escape}; {end}"
    await command(testers, line.format(tmp_path), limit_s=3.0)
    for name in ("child", "session", "orphan"):
        pid = int((tmp_path / name).read_text())
        await becomes(lambda pid=pid: not is_running(pid), f"{name} is ended")  # type: ignore[misc]


async def test_a_command_that_forks_without_end_is_ended(testers: Testers) -> None:
    verdict = await command(testers, "f() { sleep 600 & f; }; while :; do sleep 600 & done")
    assert verdict.note == "ended, for it had more than 200 processes"


async def test_a_command_that_takes_too_much_memory_fails(testers: Testers) -> None:
    verdict = await command(testers, "python3 -c 'bytearray(6 * 2**30)' 2>&1")
    assert verdict == Verdict(False, note="MemoryError")


async def test_commands_at_once_do_not_disturb_one_another(testers: Testers) -> None:
    lines = [f"sleep 0.0{number % 7}; (exit 0) & echo room={number + 1}" for number in range(200)]
    verdicts = await asyncio.gather(*(command(testers, line) for line in lines))
    assert [verdict.room for verdict in verdicts] == list(range(1, 201))
