"""The worker's side of its mover: transfers are asked for here, made in a process of their own (mover.py), and awaited.

fetch, deliver, remove, stat -> the process, started when first needed -> answered
    cancelled       the transfer is cancelled, and has come to rest
    it ended, or is not heard any more
                    killed; what was under way fails as DOWN; the next one starts a new process
"""

import asyncio
import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

import tercel
from tercel.core.errors import PeerError
from tercel.core.files import KEPT, Trouble
from tercel.data.contract import Deliver, Delivered, Fetch, Fetched, TransferFailed
from tercel.data.http_client import BEARER
from tercel.data.mover_words import (
    HEAD_BYTES,
    Asked,
    Begin,
    Cancel,
    Delivering,
    Done,
    Failed,
    Fetching,
    Looking,
    Moved,
    Removing,
    Said,
    WasDelivered,
    WasFetched,
    WasRemoved,
    WasSeen,
    decode_said,
    failure_in,
    frame,
    length_of,
    url_of,
)
from tercel.data.sftp import CONFIG
from tercel.data.urls import shown
from tercel.data.watches import STALL_S

START_MOST_S = 120.0
"""Until it is first heard: its packages may come from a slow file system."""
SILENT_MOST_S = 15.0
"""A mover that was not heard for so long hangs."""
STILL_MOST_S = 2.0
"""For a transfer that was cancelled to come to rest."""
GONE_MOST_S = 10.0
"""For a mover that was killed to be gone: one that waits for a disk that does not answer is not."""
_LOOK_S = 1.0
_BOOT = "import sys; sys.path[:] = sys.argv.pop(1).split(':'); from tercel.data.mover import main; main()"

OnProgress = Callable[[int, int, int], None]
T = TypeVar("T")


class _Waiting:
    """For one answer."""

    def __init__(self, asked: Asked, shown_as: int) -> None:
        self.url = shown(url_of(asked))
        self.shown_as = shown_as
        self.answer: asyncio.Future[Done] = asyncio.get_running_loop().create_future()


class _Process:
    """One, from its start to its end."""

    def __init__(self, begin: Begin, on_progress: OnProgress | None) -> None:
        self._begin = begin
        self._on_progress = on_progress
        self._waiting: dict[int, _Waiting] = {}
        self._heard_at = time.monotonic()
        self._was_heard = False
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = False

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *_boot_words(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(),
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(frame(self._begin))
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._watch())]

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, asked: Asked, shown_as: int) -> Done:
        waiting = self._waiting[asked.number] = _Waiting(asked, shown_as)
        try:
            self._writer.write(frame(asked))
            return await asyncio.shield(waiting.answer)
        except asyncio.CancelledError:
            if not self.ended:
                self._writer.write(frame(Cancel(asked.number)))
                # Or who is next to fetch it would find somebody still writing there.
                await asyncio.wait([waiting.answer], timeout=STILL_MOST_S)
            raise
        finally:
            self._waiting.pop(asked.number, None)

    async def _listen(self) -> None:
        why = "ended"
        try:
            while True:
                head = await self._reader.readexactly(HEAD_BYTES)
                self._take(decode_said(await self._reader.readexactly(length_of(head))))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (PeerError, msgspec.MsgspecError):
            why = "said what nobody understands"
        await self.end(why)

    def _take(self, said: Said) -> None:
        self._heard_at, self._was_heard = time.monotonic(), True
        match said:
            case Moved(number, moved, total):
                if self._on_progress is not None and number in self._waiting:
                    self._on_progress(self._waiting[number].shown_as, moved, total)
            case Failed(number):
                if (waiting := self._open(number)) is not None:
                    waiting.answer.set_exception(failure_in(said))
            case WasFetched(number) | WasDelivered(number) | WasRemoved(number) | WasSeen(number):
                if (waiting := self._open(number)) is not None:
                    waiting.answer.set_result(said)

    def _open(self, number: int) -> _Waiting | None:
        """Who still waits for this answer."""
        waiting = self._waiting.get(number)
        return waiting if waiting is not None and not waiting.answer.done() else None

    async def _watch(self) -> None:
        while time.monotonic() - self._heard_at < (SILENT_MOST_S if self._was_heard else START_MOST_S):
            asleep_at = time.monotonic()
            await asyncio.sleep(_LOOK_S)
            if time.monotonic() - asleep_at > 2 * _LOOK_S:
                self._heard_at = time.monotonic()  # it was this process that stood still
        await self.end("was not heard any more")

    async def end(self, why: str) -> None:
        """It and all that it started are gone when this returns, if they can be ended at all."""
        if not self.ended:
            self.ended = True
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            self._writer.close()
            if (
                self._process.returncode is None
            ):  # or its number may be another's by now; its programs end with its pipes
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            for waiting in self._waiting.values():
                if not waiting.answer.done():
                    note = f"the mover's process {why}; it is started again for the next transfer"
                    waiting.answer.set_exception(TransferFailed(Trouble.DOWN, waiting.url, note))
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_MOST_S):
                await self._process.wait()


class Mover:
    """Of one worker. `close` it when nobody asks any more."""

    def __init__(
        self,
        *,
        manager: Callable[[], tuple[str, str]] | None = None,
        at_once: int = 8,
        on_progress: OnProgress | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        """`manager`: where it is, and the token for it, for `tercel:` URLs. `on_progress`: number, bytes so far, total or -1."""
        self._manager = manager
        self._begin = Begin(at_once, stall_s)
        self._on_progress = on_progress
        self._numbers = itertools.count(1)
        self._process: _Process | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False

    async def fetch(self, what: Fetch, number: int = 0) -> Fetched:
        """TransferFailed if it cannot be had."""
        asked = Fetching(next(self._numbers), what, self._manager_for(*what.urls))
        return (await self._ask(asked, WasFetched, number)).fetched

    async def deliver(self, what: Deliver, number: int = 0) -> Delivered:
        """TransferFailed if it is not there, whole and checked."""
        asked = Delivering(next(self._numbers), what, self._manager_for(what.url))
        return (await self._ask(asked, WasDelivered, number)).delivered

    async def remove(self, urls: Sequence[str]) -> None:
        """All that can be; gone already is fine. TransferFailed for the first that cannot."""
        asked = [Removing(next(self._numbers), url, self._manager_for(url)) for url in urls]
        answers = await asyncio.gather(
            *(self._ask(each, WasRemoved, 0) for each in asked), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def stat(self, url: str) -> tuple[int, str]:
        """Its size, -1 if that is not said; and what is another if the bytes are, or empty."""
        asked = Looking(next(self._numbers), url, self._manager_for(url))
        seen = await self._ask(asked, WasSeen, 0)
        return seen.size_bytes, seen.validator

    @property
    def pid(self) -> int:
        """Of its process; 0: there is none now."""
        return self._process.pid if self._process is not None and not self._process.ended else 0

    async def close(self) -> None:
        self._is_closed = True
        if self._process is not None:
            await self._process.end("was stopped")

    def _manager_for(self, *urls: str) -> tuple[str, str]:
        """Only who needs the token gets it."""
        is_needed = self._manager is not None and any(url.startswith(KEPT) for url in urls)
        return self._manager() if is_needed and self._manager is not None else ("", "")

    async def _ask(self, asked: Asked, kind: type[T], shown_as: int) -> T:
        url = shown(url_of(asked))
        async with self._starting:
            if self._is_closed:
                raise TransferFailed(Trouble.DOWN, url, "the worker ends: nothing is moved any more")
            if self._process is None or self._process.ended:
                process = _Process(self._begin, self._on_progress)
                try:
                    await process.start()
                except OSError as error:
                    note = f"the mover's process cannot be started: {error.strerror or error}"
                    raise TransferFailed(Trouble.DOWN, url, note) from error
                self._process = process
        answer = await self._process.ask(asked, shown_as)
        if not isinstance(answer, kind):
            raise PeerError(f"the mover answered {type(answer).__name__} where {kind.__name__} was due")
        return answer


def _boot_words(fd: int) -> list[str]:
    """It finds the same packages as this process does."""
    source = str(Path(tercel.__file__).parent.parent)
    path = [entry for entry in dict.fromkeys([*sys.path, source]) if entry and ":" not in entry]
    return [sys.executable, "-I", "-c", _BOOT, ":".join(path), str(fd)]


def _environment() -> dict[str, str]:
    """This process's; of its own variables only those that transfers are meant to see."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TERCEL_") or name.startswith((BEARER, CONFIG))
    }
