"""`sftp://[user@]host[:port]/path`: any server of OpenSSH, by the system's own `ssh`.

Its configuration, keys, agent and known hosts are those of whoever runs the worker (`TERCEL_SSH_CONFIG` names another file than
`~/.ssh/config`); it asks nobody. A connection that is left in order is used again for a while.
"""

import os
import re
import stat
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tercel.core.files import Trouble
from tercel.data.contract import Reading, Seen, TransferFailed
from tercel.data.sftp_words import (
    CLOSE,
    EOF,
    FAILURE,
    MKDIR,
    NO_SUCH_FILE,
    OPEN_CREATE,
    OPEN_READ,
    OPEN_TRUNCATE,
    OPEN_WRITE,
    PERMISSION_DENIED,
    READ,
    REMOVE,
    STAT,
    UNSUPPORTED,
    WRITE,
    Attributes,
    Broken,
    Session,
    Status,
    text,
)
from tercel.data.urls import Url, note_of, parse, shown
from tercel.data.watches import Watch

CHUNK_BYTES = 32 * 1024
"""What every server takes at once."""
UNDER_WAY = 64
IDLE_S = 30.0
IDLE_MOST = 16
CONFIG = "TERCEL_SSH_CONFIG"
_RENAME = b"posix-rename@openssh.com"
_SYNC = b"fsync@openssh.com"
_STATVFS = b"statvfs@openssh.com"
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_STATUSES = {NO_SUCH_FILE: Trouble.MISSING, PERMISSION_DENIED: Trouble.DENIED, UNSUPPORTED: Trouble.REFUSED}
_SAID = (
    (re.compile(r"could not resolve|name or service not known", re.IGNORECASE), Trouble.UNKNOWN_HOST),
    (re.compile(r"permission denied|host key|too many authentication", re.IGNORECASE), Trouble.DENIED),
    (re.compile(r"bad configuration|subsystem request failed|no such file", re.IGNORECASE), Trouble.REFUSED),
)
"""What `ssh` says, and what it means; all else: down."""
_UNATTENDED = (
    "BatchMode=yes",
    "NumberOfPasswordPrompts=0",
    "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "PermitLocalCommand=no",
    "LogLevel=ERROR",
    "ConnectTimeout=20",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
)


class SftpScheme:
    puts_whole = False
    unquotes = True

    def __init__(self) -> None:
        self._idle: deque[tuple[float, tuple[str, ...], Session]] = deque()
        self._lock = threading.Lock()

    def stat(self, url: str, watch: Watch) -> Seen:
        with self._session(url, watch) as (session, path):
            return _seen(session, path, url)

    @contextmanager
    def read(
        self, url: str, watch: Watch, begin: int = 0, end: int = -1, same_as: str = ""
    ) -> Iterator[Reading]:
        with self._session(url, watch) as (session, path):
            seen = _seen(session, path, url)
            if same_as and seen.validator != same_as:
                begin, end = 0, -1
            handle = session.open(path, OPEN_READ)
            chunks = _Chunks(session, handle, begin, seen.size_bytes if end < 0 else end, watch)
            yield Reading(seen, begin, chunks.all())
            chunks.drain()
            session.do(CLOSE, handle)
            if _seen(session, path, url) != seen:
                note = f"{shown(url)} changed while it was read"
                raise TransferFailed(Trouble.CORRUPT, shown(url), note_of(note))

    def write(self, path: str, url: str, watch: Watch) -> None:
        with self._session(url, watch) as (session, to):
            try:
                handle = session.open(to, OPEN_WRITE | OPEN_CREATE | OPEN_TRUNCATE)
            except Status as status:
                if status.code != NO_SUCH_FILE:
                    raise
                _make_directories(session, to)
                handle = session.open(to, OPEN_WRITE | OPEN_CREATE | OPEN_TRUNCATE)
            try:
                _pour(path, session, handle, watch)
                if _SYNC in session.extensions:
                    session.extended(_SYNC.decode(), handle)
                session.do(CLOSE, handle)
            except Status as status:
                if status.code == FAILURE and _is_full(session, to):
                    note = note_of(f"{shown(url)}: there is no room")
                    raise TransferFailed(Trouble.FULL, shown(url), note) from status
                raise

    def rename(self, url: str, to: str, watch: Watch) -> None:
        target = parse(to)
        with self._session(url, watch) as (session, path):
            if _RENAME not in session.extensions:
                note = f"{shown(url)}: its server cannot replace a file at one stroke ({_RENAME.decode()})"
                raise TransferFailed(Trouble.REFUSED, shown(url), note_of(note))
            session.extended(_RENAME.decode(), text(path) + text(_path(target)))

    def remove(self, url: str, watch: Watch) -> None:
        with self._session(url, watch) as (session, path):
            try:
                session.do(REMOVE, text(path))
            except Status as status:
                if status.code != NO_SUCH_FILE:
                    raise

    def close(self) -> None:
        with self._lock:
            idle = [session for _, _, session in self._idle]
            self._idle.clear()
        for session in idle:
            session.close()

    @contextmanager
    def _session(self, url: str, watch: Watch) -> Iterator[tuple[Session, str]]:
        parsed = parse(url)
        argv = _argv(parsed, url)
        session = None
        try:
            session = self._taken(argv) or Session(argv)
            with watch.ending(session.kill):
                if not session.extensions:
                    session.greet()
                watch.alive()
                yield session, _path(parsed)
            self._give_back(argv, session)
        except BaseException as error:
            if session is not None:
                session.close()  # with requests under way, or files open, it is of no use to others
            if isinstance(error, Status):
                trouble = _STATUSES.get(error.code, Trouble.REFUSED)
            elif isinstance(error, Broken):
                trouble = next((of for words, of in _SAID if words.search(str(error))), Trouble.DOWN)
            else:
                raise
            note = note_of(f"{shown(url)}: {error}")
            raise TransferFailed(trouble, shown(url), note) from error

    def _taken(self, argv: tuple[str, ...]) -> Session | None:
        with self._lock:
            for entry in list(self._idle):
                if entry[1] == argv:
                    self._idle.remove(entry)
                    if entry[2].is_alive and time.monotonic() - entry[0] < IDLE_S:
                        return entry[2]
                    entry[2].close()
        return None

    def _give_back(self, argv: tuple[str, ...], session: Session) -> None:
        old = []
        with self._lock:
            if session.is_alive and session.is_quiet:
                self._idle.append((time.monotonic(), argv, session))
            else:
                old.append(session)
            while self._idle and (
                len(self._idle) > IDLE_MOST or time.monotonic() - self._idle[0][0] > IDLE_S
            ):
                old.append(self._idle.popleft()[2])
        for each in old:
            each.close()


class _Chunks:
    """A file, read in order, with many requests under way."""

    def __init__(self, session: Session, handle: bytes, begin: int, end: int, watch: Watch) -> None:
        self._session, self._handle, self._watch = session, handle, watch
        self._next, self._end = begin, end
        self._asked: deque[tuple[int, int, int]] = deque()

    def all(self) -> Iterator[bytes]:
        while True:
            while len(self._asked) < UNDER_WAY and self._next < self._end:
                count = min(CHUNK_BYTES, self._end - self._next)
                self._asked.append((self._ask(self._next, count), self._next, count))
                self._next += count
            if not self._asked:
                return
            number, at, count = self._asked.popleft()
            while count:  # a server may give less than was asked for
                self._watch.check()
                data = self._data(number)
                if not data:
                    return
                yield data
                at, count = at + len(data), count - len(data)
                if count:
                    number = self._ask(at, count)

    def drain(self) -> None:
        """Whoever took fewer than all leaves answers behind."""
        while self._asked:
            self._data(self._asked.popleft()[0])

    def _ask(self, at: int, count: int) -> int:
        return self._session.ask(READ, self._handle + struct.pack("!QI", at, count))

    def _data(self, number: int) -> bytes:
        try:
            return self._session.answer(number)[1][4:]
        except Status as status:
            if status.code != EOF:
                raise
            return b""


def _pour(path: str, session: Session, handle: bytes, watch: Watch) -> None:
    """Not so many under way that their answers would fill the pipe that nobody reads meanwhile."""
    asked: deque[tuple[int, int]] = deque()
    at = 0

    def settle() -> None:
        number, count = asked.popleft()
        session.answer(number)
        watch.step(count)

    with Path(path).open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            body = b"".join((handle, struct.pack("!Q", at), text(chunk)))
            asked.append((session.ask(WRITE, body), len(chunk)))
            at += len(chunk)
            if len(asked) >= UNDER_WAY:
                settle()
    while asked:
        settle()


def _make_directories(session: Session, path: str) -> None:
    """Those above a file. From the top: who may not see what is there may still go through it."""
    parents = list(reversed(Path(path).parents))
    for parent in parents:
        if str(parent) in ("/", "."):
            continue
        try:
            session.do(MKDIR, text(str(parent)) + struct.pack("!I", 0))
        except Status as status:
            is_there = status.code in (FAILURE, PERMISSION_DENIED)  # version 3 has no better word for it
            if not is_there or (parent == parents[-1] and not _is_directory(session, parent)):
                raise


def _is_directory(session: Session, path: Path) -> bool:
    return stat.S_ISDIR(Attributes(session.do(STAT, text(str(path)))).mode)


def _is_full(session: Session, path: str) -> bool:
    """Its protocol has no word for it; the file system's own figures do."""
    if _STATVFS not in session.extensions:
        return False
    try:
        figures = struct.unpack_from(
            "!11Q", session.extended(_STATVFS.decode(), text(str(Path(path).parent)))
        )
    except Status:
        return False
    return bool(figures[4] == 0)  # blocks for whoever is not root


def _seen(session: Session, path: str, url: str) -> Seen:
    found = Attributes(session.do(STAT, text(path)))
    if found.mode and not stat.S_ISREG(found.mode):
        what = "a directory" if stat.S_ISDIR(found.mode) else "no file"
        raise TransferFailed(Trouble.REFUSED, shown(url), note_of(f"{shown(url)} is {what}"))
    return Seen(found.size_bytes, f"{found.modified_s}-{found.size_bytes}", ranges=True)


def _path(url: Url) -> str:
    """`/~/x` is below the user's home, where a session begins."""
    return url.path.removeprefix("/~/") or "." if url.path.startswith("/~/") else url.path or "/"


def _argv(url: Url, shown_as: str) -> tuple[str, ...]:
    if not _HOST.fullmatch(url.host) or (url.user and not _USER.fullmatch(url.user)):
        note = f"{shown(shown_as)} names no host, or a user who is none; write sftp://ada@store.lab/x"
        raise TransferFailed(Trouble.REFUSED, shown(shown_as), note_of(note))
    argv = ["ssh", "-T"]
    if config := os.environ.get(CONFIG):
        argv += ["-F", config]
    for option in _UNATTENDED:
        argv += ["-o", option]
    if url.port:
        argv += ["-p", str(url.port)]
    if url.user:
        argv += ["-l", url.user]
    return (*argv, "-s", "--", url.host, "sftp")
