"""Testers that are asked in processes of their own: one warm process for each kind, and others for those that did harm.

ask -> crowd: many at a time -> answered
         | the process hangs, ends or runs out of memory
         +- in this one's code: not cleared, and it is asked alone from now on, until it behaves
         +- in another's:       asked again in a fresh process
         +- who knows whose:    each of them is asked alone
"""

import asyncio
import itertools
import signal
import socket
import sys
import tempfile
import time
from collections import OrderedDict
from contextlib import suppress
from enum import Enum
from pathlib import Path

import msgspec

import tercel
from tercel.core.conditions import Verdict
from tercel.core.errors import PassingFault, PeerError
from tercel.testers.contract import Surroundings
from tercel.testers.gates import Gate
from tercel.testers.host_words import (
    ANSWER_MOST_BYTES,
    BEAT_S,
    BOARD_BYTES,
    Answer,
    Ask,
    Beat,
    Begin,
    Board,
    Cancel,
    Ready,
    Said,
    Spent,
    Unfit,
    decode_said,
    frame,
    read_frame,
)
from tercel.testers.running import descendants, own_environment, signal_all
from tercel.testers.verdicts import not_cleared, printable, sound

START_LIMIT_S = 10.0
"""For importing a tester."""
START_PAUSE_S = 10.0
"""Before one that could not be started is tried again."""
SILENT_BEATS = 4
"""A host that was not heard for so many beats, while it was asked something, hangs."""
KILL_MOST_S = 2.0
IDLE_BEATS = 1200
"""One that was asked nothing for so many ends, to give its memory back."""
LOST_MOST = 32
"""So many questions may go unanswered beyond their limit before the process is replaced: each still holds something in it."""
HARMFUL_MOST = 1000
ALONE_MOST = 8
"""Processes of one kind in which one is asked at a time."""
_BOOT = "import sys; sys.path[:] = sys.argv.pop(1).split(':'); from tercel.testers.host import main; main()"

_STOPPED = "was stopped"

_numbers = itertools.count(1)


class HostFault(PassingFault):
    """A tester's process cannot be started."""


class _Again(Enum):
    INNOCENT = "innocent"
    SUSPECT = "suspect"


def boot_words(fd: int, board_fd: int) -> list[str]:
    """The host's command line. It finds the same packages as this process does."""
    source = str(Path(tercel.__file__).parent.parent)
    path = [entry for entry in dict.fromkeys([*sys.path, source]) if entry and ":" not in entry]
    return [sys.executable, "-I", "-c", _BOOT, ":".join(path), str(fd), str(board_fd)]


class _Process:
    """One process of a host's, from its start to its end."""

    def __init__(self, owner: "Hosted") -> None:
        self._owner = owner
        self._pending: dict[int, tuple[str, asyncio.Future[Verdict | _Again]]] = {}
        self._beats_silent = 0
        self._beats_idle = 0
        self._lost = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self.ended = False
        self.why = ""
        """It ended."""

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as file:
            file.truncate(BOARD_BYTES)
            self._board = Board(file.fileno())
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *boot_words(theirs.fileno(), file.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), file.fileno()),
                    env=own_environment(self._owner.begin.sees),
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                self._writer.write(frame(self._owner.begin))
                said = await self._hear()
        except BaseException as error:
            await self.end("did not start")
            if isinstance(error, TimeoutError):
                raise HostFault(f"did not start within {START_LIMIT_S:g} s") from None
            if isinstance(error, asyncio.IncompleteReadError | PeerError | OSError | msgspec.MsgspecError):
                raise HostFault(f"its process ended at its start ({self._how()})") from None
            raise
        if not isinstance(said, Ready):
            await self.end("did not start")
            raise HostFault(
                f"cannot be imported: {printable(said.why) if isinstance(said, Unfit) else 'no word'}"
            )
        self._tasks += [asyncio.create_task(self._listen()), asyncio.create_task(self._watch())]

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, text: str, surroundings: Surroundings) -> Verdict | _Again:
        number = next(_numbers)
        answer: asyncio.Future[Verdict | _Again] = asyncio.get_running_loop().create_future()
        if not self._pending:
            self._beats_silent = 0
        self._pending[number] = (text, answer)
        try:
            self._writer.write(frame(Ask(number, text, surroundings)))
            return await answer
        except asyncio.CancelledError:
            if not self.ended:
                self._writer.write(frame(Cancel(number)))
                self._lost += 1
            raise
        finally:
            self._pending.pop(number, None)

    async def _hear(self) -> Said:
        return decode_said(await read_frame(self._reader, ANSWER_MOST_BYTES))

    async def _listen(self) -> None:
        why = ""
        try:
            while True:
                said = await self._hear()
                self._beats_silent = 0
                if isinstance(said, Beat):
                    continue
                if isinstance(said, Spent):
                    self.why = "ran out of memory"
                    self._settle(said.number, _Again.SUSPECT)
                    await self.end(self.why, is_planned=True)
                    return
                if not isinstance(said, Answer):
                    raise PeerError("an answer to what was not asked")
                self._settle(said.number, sound(said.verdict))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it ended: how, is seen below
        except (PeerError, msgspec.MsgspecError):
            why = "answered with what is no answer"
        await self.end(why)

    def _settle(self, number: int, answer: Verdict | _Again) -> None:
        future = self._pending.get(number, ("", None))[1]
        if future is None:
            self._lost = max(0, self._lost - 1)  # an answer to what nobody waits for any more
        elif not future.done():
            future.set_result(answer)

    async def _watch(self) -> None:
        """Beats are counted, not time: if this process itself stood still, the host is not to blame."""
        while True:
            await asyncio.sleep(BEAT_S)
            self._beats_silent = self._beats_silent + 1 if self._pending else 0
            self._beats_idle = 0 if self._pending else self._beats_idle + 1
            if self._beats_silent > SILENT_BEATS:
                return await self.end(f"hung for {BEAT_S * SILENT_BEATS:g} s without giving others a turn")
            if self._beats_idle > IDLE_BEATS or self._lost > LOST_MOST:
                return await self.end("was replaced", is_planned=True)

    async def end(self, why: str, is_planned: bool = False) -> None:
        """Kill it and all that it started; those who wait are told, each as the board says."""
        if self._ending is None:
            self.ended = True
            self._ending = asyncio.create_task(self._end(why, is_planned))
        await asyncio.shield(self._ending)

    async def _end(self, why: str, is_planned: bool) -> None:
        culprit = self._board.read()
        if self._process.returncode is None:  # or its number may be another's by now
            signal_all([self._process.pid], signal.SIGSTOP)
            signal_all([*descendants([self._process.pid]), self._process.pid], signal.SIGKILL)
        with suppress(TimeoutError):  # one that hangs in the kernel is left behind
            async with asyncio.timeout(KILL_MOST_S):
                await self._process.wait()
        self._writer.transport.abort()
        self._board.close()
        self.why = why = why or f"ended its process ({self._how()})"
        known = is_planned or culprit in self._pending
        for number, (text, future) in list(self._pending.items()):
            if future.done():
                continue
            if number == culprit and not is_planned:
                self._owner.note_harm(text)
                future.set_result(not_cleared(f"its tester {why}"))
            else:
                future.set_result(_Again.INNOCENT if known else _Again.SUSPECT)
        for task in self._tasks:
            task.cancel()
        self._owner.forget(self)

    def _how(self) -> str:
        code = self._process.returncode or 0
        return f"exit code {code}" if code >= 0 else f"signal {-code}"


class Hosted:
    """A tester of one kind, asked in processes of its own."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        self._crowd: _Process | None = None
        self._starting = asyncio.Lock()
        self._idle: list[_Process] = []
        """For those that are asked alone: one at most that is kept for the next."""
        self._there: set[_Process] = set()
        """All that have not ended yet."""
        self._alone_gate = Gate(ALONE_MOST)
        self._harmful: OrderedDict[str, None] = OrderedDict()
        """What did harm, or may have."""
        self._unfit = ""
        """Why it could not be started the last time."""
        self._start_again_at = 0.0
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of the processes that run now."""
        return [process.pid for process in self._there if not process.ended]

    def forget(self, process: _Process) -> None:
        self._there.discard(process)

    async def ask(self, text: str, surroundings: Surroundings) -> Verdict:
        """HostFault if its process cannot be started. Who asks bounds the time."""
        while text not in self._harmful:
            answer = await (await self._in_crowd()).ask(text, surroundings)
            if isinstance(answer, Verdict):
                return answer
            if answer is _Again.SUSPECT and text not in self._harmful:
                self.note_harm(text)
        await self._alone_gate.enter()
        try:
            return await self._ask_alone(text, surroundings)
        finally:
            self._alone_gate.leave()

    async def _ask_alone(self, text: str, surroundings: Surroundings) -> Verdict:
        process = self._idle.pop() if self._idle else None
        if process is None or process.ended:
            process = await self._start()
        try:
            answer = await process.ask(text, surroundings)
            if not process.ended:
                self._harmful.pop(text, None)
        finally:
            self._idle = [process for process in (process, *self._idle) if not process.ended]
            for spare in self._idle[1:]:
                await spare.end("is not needed", is_planned=True)
        if not isinstance(answer, Verdict):
            return not_cleared(f"its tester {process.why}")
        return answer

    def note_harm(self, text: str) -> None:
        self._harmful[text] = None
        self._harmful.move_to_end(text)
        if len(self._harmful) > HARMFUL_MOST:
            self._harmful.popitem(last=False)

    async def _in_crowd(self) -> _Process:
        async with self._starting:
            if self._crowd is None or self._crowd.ended:
                self._crowd = await self._start()
            return self._crowd

    async def _start(self) -> _Process:
        if self.is_closed():
            raise HostFault(_STOPPED)
        if self._unfit and time.monotonic() < self._start_again_at:
            raise HostFault(self._unfit)
        process = _Process(self)
        try:
            await process.start()
        except HostFault as fault:
            self._unfit, self._start_again_at = str(fault), time.monotonic() + START_PAUSE_S
            raise
        self._there.add(process)
        if self.is_closed():  # meanwhile
            await process.end(_STOPPED, is_planned=True)
            raise HostFault(_STOPPED)
        self._unfit = ""
        return process

    def is_closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        self._closed = True
        for process in list(self._there):
            await process.end(_STOPPED, is_planned=True)
