"""The program of a host: a process in which one tester is asked, so that whatever it does harms nobody else.

It asks many questions at a time, in one event loop. Before each step of one its number is on the board (host_words.py). What it
prints goes nowhere. It ends when whoever started it does; if its loop stands still for a minute it ends as well, for then nobody
is there to end it.
"""

import asyncio
import contextlib
import faulthandler
import inspect
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Generator
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers import running
from tercel.testers.contract import Tester
from tercel.testers.host_words import (
    BEAT_S,
    QUESTION_MOST_BYTES,
    Answer,
    Ask,
    Beat,
    Begin,
    Board,
    Cancel,
    Judge,
    Judged,
    Ready,
    Said,
    Spent,
    Unfit,
    decode_question,
    frame,
    read_frame,
)
from tercel.testers.verdicts import not_cleared, printable, sound, why

STANDSTILL_S = 60.0
TEXT_MOST = 8000


class Step:
    """An awaitable whose every step is on the board while it is made."""

    def __init__(self, awaited: Awaitable[Any], board: Board, number: int) -> None:
        self._awaited = awaited
        self._board = board
        self._number = number

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaited.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            self._board.write(self._number)
            try:
                waits_for = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            finally:
                self._board.write(0)
            value, error = None, None
            try:
                value = yield waits_for
            except BaseException as raised:
                error = raised


class Host:
    def __init__(self, tester: Tester, board: Board, writer: asyncio.StreamWriter) -> None:
        self._tester = tester
        self._board = board
        self._writer = writer
        self._asked: dict[int, asyncio.Task[None]] = {}

    def say(self, message: Said) -> None:
        self._writer.write(frame(message))

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Ends with IncompleteReadError when nobody asks any more."""
        beating = asyncio.create_task(self._beat())
        try:
            while True:
                match decode_question(await read_frame(reader, QUESTION_MOST_BYTES)):
                    case Ask() as ask:
                        task = asyncio.create_task(self._ask(ask))
                        self._asked[ask.number] = task
                        task.add_done_callback(partial(self._forget, ask.number))
                    case Judge() as judge:
                        self.say(self._judge(judge))
                        await self._writer.drain()
                    case Cancel(number) if number in self._asked:
                        self._asked[number].cancel()
        finally:
            beating.cancel()
            for task in self._asked.values():
                task.cancel()
            if self._asked:
                await asyncio.wait(self._asked.values(), timeout=2.0)

    def _forget(self, number: int, _task: object) -> None:
        self._asked.pop(number, None)

    async def _beat(self) -> None:
        while True:
            faulthandler.dump_traceback_later(STANDSTILL_S, exit=True, file=2)
            self.say(Beat())
            await asyncio.sleep(BEAT_S)

    async def _ask(self, ask: Ask) -> None:
        limit_s = ask.surroundings.limit_s
        try:
            async with asyncio.timeout(limit_s) as limit:
                verdict = await self._answer(ask)
        except TimeoutError:
            late = f"no answer within {limit_s:g} s"
            verdict = not_cleared(late if limit.expired() else "its tester failed: TimeoutError")
        except asyncio.CancelledError:
            verdict = not_cleared(
                "nobody waits for it any more"
            )  # told all the same: it holds nothing here now
        except MemoryError:
            self.say(Spent(ask.number))
            return
        except BaseException as error:  # also SystemExit: a tester ends no host
            verdict = not_cleared(f"its tester failed: {type(error).__name__}: {why(error)}")
        self.say(Answer(ask.number, verdict))

    async def _answer(self, ask: Ask) -> Verdict:
        self._board.write(ask.number)
        try:
            awaited: object = self._tester.test(ask.text, ask.surroundings)
        finally:
            self._board.write(0)
        if not inspect.isawaitable(awaited):
            return not_cleared("its tester is not async: `async def test(self, text, surroundings)`")
        return sound(await Step(awaited, self._board, ask.number))

    def _judge(self, judge: Judge) -> Judged:
        try:
            text = self._tester.normalise(judge.text)
        except UsageError as error:
            return Judged(judge.number, "", wrong=printable(str(error)) or "its tester refuses it")
        except BaseException as error:
            return Judged(judge.number, "", wrong=f"its tester failed: {type(error).__name__}: {why(error)}")
        if type(text) is not str or not 0 < len(text) <= TEXT_MOST:
            return Judged(judge.number, "", wrong="its tester made no text of it")
        return Judged(judge.number, text)


def load(kind: str, target: str) -> tuple[Tester, Ready]:
    """The tester that an entry point names: an object, or what makes one."""
    found: Any = EntryPoint(kind, target, "tercel.testers").load()
    tester: Any = found() if inspect.isclass(found) or inspect.isfunction(found) else found
    if getattr(tester, "kind", None) != kind:
        raise TypeError(f"its kind is {getattr(tester, 'kind', None)!r}, but it is registered as {kind!r}")
    for name in ("normalise", "test"):
        if not callable(getattr(tester, name, None)):
            raise TypeError(f"it has no {name}()")
    place = Place(tester.place)
    if place is Place.HERE:
        raise TypeError("its place is HERE, which is the manager's own")
    return tester, Ready(place, printable(str(tester.summary)))


def _bound(begin: Begin) -> None:
    bounds = (
        (resource.RLIMIT_DATA, begin.mem_bytes),
        (resource.RLIMIT_FSIZE, begin.file_bytes),
        (resource.RLIMIT_CORE, 0),
    )
    for which, most in bounds:
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # a system that does not know this limit
            resource.setrlimit(which, (most, most))


async def _main(fd: int, board_fd: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))
    begin = decode_question(await read_frame(reader, QUESTION_MOST_BYTES))
    assert isinstance(begin, Begin)
    _bound(begin)
    if begin.subreaper:
        running.become_subreaper()
    try:
        tester, ready = load(begin.kind, begin.target)
    except BaseException as error:  # whatever an import may do
        writer.write(frame(Unfit(f"{type(error).__name__}: {why(error)}")))
        await writer.drain()
        return
    host = Host(tester, Board(board_fd), writer)
    host.say(ready)
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        await host.serve(reader)
    os._exit(0)  # neither a thread of the tester's nor a task that will not be cancelled keeps it alive


def main() -> None:
    fd, board_fd = map(int, sys.argv[1:3])
    for own in (fd, board_fd):
        os.set_inheritable(own, False)  # not for what the tester starts
    asyncio.run(_main(fd, board_fd))
