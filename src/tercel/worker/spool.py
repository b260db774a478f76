"""A worker's directory: its name, the lock that keeps a second worker out, and the spool.

    dir/worker-id   the worker's lasting name, `<node>-<6 hex digits>`
    dir/lock        locked (flock) while a worker uses the directory
    dir/spool       reports that no manager has acknowledged yet

The spool is a sequence of records, each `length, CRC-32` and then msgpack of (reports, acknowledged attempts). A
record is written with one call before its reports are sent; it must outlive a kill of the worker, not a power
failure, so nothing is synchronised. Reading stops at the first record that is not whole. Acknowledgements are
written along with the next reports, unless everything is acknowledged and the file is emptied.
"""

import fcntl
import logging
import os
import random
import re
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tercel.core.errors import UsageError
from tercel.core.reports import Report

log = logging.getLogger("tercel.worker")

COMPACT_BYTES = 4 * 2**20
"""Below this size the spool is not worth rewriting."""

_header = struct.Struct("<II")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[list[Report], list[int]])
_NAME = re.compile(r"[\w.-]{1,255}")


class Spool:
    """Reports on disk until they are acknowledged. While the disk is full they are kept in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = 0
        self._compact_at = COMPACT_BYTES
        self._unwritten: list[Report] = []
        self._acknowledged: list[int] = []
        self._full = False

    def close(self) -> None:
        os.close(self._fd)

    def load(self) -> list[Report]:
        """What an earlier process left, in order. What it was writing when it was killed is cut off."""
        owed: dict[int, Report] = {}
        data = self._path.read_bytes()
        at = 0
        while (record := _record(data, at)) is not None:
            (reports, acknowledged), at = record
            # Those are of earlier records: an attempt that was parked, and went on, is reported once more.
            for attempt in acknowledged:
                owed.pop(attempt, None)
            owed.update((report.attempt, report) for report in reports)
        self._size = at
        if at < len(data):
            log.warning("Cut %d bytes off the end of %s: no whole record.", len(data) - at, self._path)
            os.ftruncate(self._fd, at)
        return list(owed.values())

    def append(self, reports: list[Report]) -> None:
        """Keep these until they are acknowledged."""
        if self._unwritten:
            reports = self._unwritten + reports
        if self._write(_encoder.encode((reports, self._acknowledged))):
            self._unwritten = []
            self._acknowledged = []
        else:
            self._unwritten = reports

    def acknowledge(self, attempts: list[int], owed: Collection[Report]) -> None:
        """Forget these; `owed` are those that remain, and are read only if the file is written anew."""
        if not owed and self._empty():
            return
        if self._unwritten:
            gone = set(attempts).intersection(report.attempt for report in self._unwritten)
            self._unwritten = [report for report in self._unwritten if report.attempt not in gone]
            attempts = [attempt for attempt in attempts if attempt not in gone]
        self._acknowledged += attempts
        if self._size > self._compact_at:
            self._compact(list(owed))

    def _empty(self) -> bool:
        if self._size:
            try:
                os.ftruncate(self._fd, 0)
            except OSError as error:
                log.warning("Cannot empty %s: %s.", self._path, error)
                return False
        self._size = 0
        self._compact_at = COMPACT_BYTES
        self._unwritten = []
        self._acknowledged = []
        return True

    def _compact(self, owed: list[Report]) -> None:
        """Write what is owed into a new file beside the old one, which stays until the new one is whole."""
        payload = _encoder.encode((owed, []))
        fresh = self._path.with_suffix(".new")
        try:
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                size = _write_at(fd, payload, 0)
                fresh.replace(self._path)
            except OSError:
                os.close(fd)
                raise
        except OSError as error:
            self._compact_at = 2 * self._size  # the old file serves; not at every acknowledgement again
            log.warning("Could not compact %s: %s. The old one stays in use.", self._path, error)
            return
        os.close(self._fd)
        self._fd, self._size = fd, size
        self._compact_at = max(COMPACT_BYTES, 4 * size)
        self._unwritten = []
        self._acknowledged = []

    def _write(self, payload: bytes) -> bool:
        try:
            # Half a record that could not be written whole is no harm to a reader, and overwritten by the next.
            self._size = _write_at(self._fd, payload, self._size)
        except OSError as error:
            if not self._full:
                log.warning(
                    "Cannot write %s: %s. Results are kept in memory until it works again; "
                    "they would be lost only if this worker were killed.",
                    self._path,
                    error,
                )
            self._full = True
            return False
        if self._full:
            log.info("%s can be written again.", self._path)
        self._full = False
        return True


def _write_at(fd: int, payload: bytes, at: int) -> int:
    """Write one record; returns where it ends."""
    record = _header.pack(len(payload), zlib.crc32(payload)) + payload
    done = os.pwrite(fd, record, at)
    while done < len(record):  # the next call says why, if it cannot go on
        done += os.pwrite(fd, record[done:], at + done)
    return at + done


def _record(data: bytes, at: int) -> tuple[tuple[list[Report], list[int]], int] | None:
    """The record that starts at `at`, and where it ends; None if there is no whole one."""
    start = at + _header.size
    if start > len(data):
        return None
    length, checksum = _header.unpack_from(data, at)
    payload = data[start : start + length]
    if len(payload) < length or zlib.crc32(payload) != checksum:
        return None
    try:
        return _decoder.decode(payload), start + length
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def unusable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"the worker's directory {path} cannot be used: {error}", "dir")


class Home:
    """A worker's directory, held for as long as the `with` lasts."""

    def __init__(self, path: Path, node: str, rng: random.Random) -> None:
        self._path = path
        self._node = node
        self._rng = rng
        self._lock = -1
        self.worker = ""
        """The worker's lasting name."""
        self.spool: Spool

    def __enter__(self) -> Self:
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._path, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.worker = self._name()
            self.spool = Spool(self._path / "spool")
        except BlockingIOError as error:
            os.close(self._lock)
            raise UsageError(
                f"another worker uses {self._path}; stop it, or give this one a directory of its own", "dir"
            ) from error
        except OSError as error:
            os.close(self._lock)
            raise unusable(self._path, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spool.close()
        os.close(self._lock)  # which also unlocks it

    def _name(self) -> str:
        file = self._path / "worker-id"
        if file.exists() and _NAME.fullmatch(known := file.read_text(errors="replace").strip()):
            return known
        node = re.sub(r"[^\w.-]", "-", self._node)[:200]
        name = f"{node}-{self._rng.getrandbits(24):06x}"
        # Through a second file, so that a crash never leaves half a name.
        fresh = self._path / "worker-id.new"
        fresh.write_text(name + "\n")
        fresh.replace(file)
        return name
