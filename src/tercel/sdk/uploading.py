"""Files of the submitter, brought to the manager before the job that reads them: each content once, none through memory.

HEAD /contents/DIGEST   is it there?            -+
PUT  /contents/DIGEST   else: its bytes          +-> POST /files: its name, up:ID/PATH, and that it is kept there
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from importlib import import_module
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from tercel.core.errors import NotFound, Unreachable, UsageError
from tercel.core.files import KEPT
from tercel.core.locating import Form, form_of
from tercel.sdk.answers import target
from tercel.sdk.connection import Connection
from tercel.wire.api import Submission
from tercel.wire.api_files import NewFile

if TYPE_CHECKING:
    from tercel.sdk.gathering import Found, LocalFile

T = TypeVar("T")

AT_ONCE = 8
"""As many connections as are kept: small files come over those, and what is registered at once shares a commit."""
PIECE_BYTES = 2**18
TRIES = 4
"""Of sending a file over connections that break: all of them with a pause before, but the first."""
PAUSE_S = 0.5


class Sent(NamedTuple):
    """How far it is."""

    files: int
    of_files: int
    read_bytes: int
    sent_bytes: int
    """What is at the manager already counts as sent."""
    of_bytes: int


Heard = Callable[[Sent], None]


def has_local(submission: Submission) -> bool:
    """Whether it may read files that are only here."""
    return any(form_of(one.source) is Form.LOCAL for one in submission.inputs)


class Uploads(Connection):
    async def upload_inputs(
        self, submissions: Iterable[Submission], *, heard: Heard | None = None
    ) -> list[Submission]:
        """Upload what these jobs read of this machine's files. Returns the jobs that read it from the manager.

        Raises UsageError for a file that is not there, before anything is sent.
        """
        jobs = list(submissions)
        if not any(map(has_local, jobs)):
            return jobs
        gathering = import_module("tercel.sdk.gathering")  # late: most jobs have no use for it
        stop = Event()
        try:
            found: list[Found] = [await asyncio.to_thread(gathering.find, job, stop) for job in jobs]
            progress = _Progress(found, heard)
            for one in found:
                await asyncio.to_thread(gathering.read, one, stop, progress.read)
        finally:
            stop.set()  # a thread goes on when nobody waits for it
        names = {name: file for one in found for name, file in one.names().items()}
        one_of = {file.digest: name for name, file in names.items()}
        await _each(one_of.values(), lambda name: self._bring(name, names[name], progress))
        others = names.keys() - set(one_of.values())
        await _each(others, lambda name: self._register(name, names[name]))
        return [one.uploaded() for one in found]

    async def _bring(self, name: str, file: "LocalFile", progress: "_Progress") -> None:
        """Named at once: what has no name goes after an hour, and all of them may take longer."""
        path = target(f"/contents/{file.digest}", {})
        try:
            await self._fetch("HEAD", path)
        except NotFound:
            await self._put(path, file, progress)
        else:
            progress.sent(file.size_bytes)
        await self._register(name, file)
        progress.file()

    async def _put(self, path: str, file: "LocalFile", progress: "_Progress") -> None:
        try:
            if file.size_bytes <= PIECE_BYTES:
                whole = b"".join(_pieces(file, progress.sent))
                await self._fetch("PUT", path, whole, media="application/octet-stream")
            else:
                await self._put_large(path, file, progress)
        except OSError as error:
            raise UsageError(f"input {file.path!r} cannot be read: {error.strerror}", "inputs") from None

    async def _put_large(self, path: str, file: "LocalFile", progress: "_Progress") -> None:
        """Again if the connection breaks: what is kept by its digest is the same however often it comes."""
        for left in reversed(range(TRIES)):
            sent: list[int] = []

            def note(size_bytes: int, sent: list[int] = sent) -> None:
                sent.append(size_bytes)
                progress.sent(size_bytes)

            try:
                await self._upload(path, file.size_bytes, _pieces(file, note), method="PUT")
                return
            except Unreachable:
                if not left:
                    raise
            progress.sent(-sum(sent))
            await asyncio.sleep(PAUSE_S)

    async def _register(self, name: str, file: "LocalFile") -> None:
        new = NewFile(name=name, digest=file.digest, size_bytes=file.size_bytes, urls=[KEPT + file.digest])
        await self._fetch("POST", target("/files", {}), msgspec.json.encode(new))


class _Progress:
    def __init__(self, found: Sequence["Found"], heard: Heard | None) -> None:
        self._heard = heard
        self._of_files = sum(len(one.files) for one in found)
        self._of_bytes = sum(one.size_bytes for one in found)
        self._files = self._read_bytes = 0
        self.sent_bytes = 0

    def read(self, size_bytes: int) -> None:
        """In another thread than the rest, which comes later."""
        self._read_bytes += size_bytes
        self._tell()

    def sent(self, size_bytes: int) -> None:
        self.sent_bytes += size_bytes
        self._tell()

    def file(self) -> None:
        self._files += 1
        self._tell()

    def _tell(self) -> None:
        if self._heard is not None:
            self._heard(Sent(self._files, self._of_files, self._read_bytes, self.sent_bytes, self._of_bytes))


def _pieces(file: "LocalFile", sent: Callable[[int], None]) -> Iterator[bytes]:
    """As much as was announced. Raises UsageError if there is not."""
    left = file.size_bytes
    with import_module("tercel.sdk.gathering").open_file(file) as opened:
        while left:
            piece = opened.read(min(PIECE_BYTES, left))
            if not piece:
                raise UsageError(f"input {file.path!r} became shorter while it was uploaded", "inputs")
            yield piece
            left -= len(piece)
            sent(len(piece))


async def _each(things: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    """For each of them, a few at a time. The first fault ends it."""
    rest = iter(things)

    async def some() -> None:
        for thing in rest:
            await do(thing)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(some())
    except BaseExceptionGroup as faults:
        raise faults.exceptions[0] from None
