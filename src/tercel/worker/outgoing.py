"""What attempts left and is not delivered yet, on disk, so that a worker that was killed goes on with it.

    <dir>/outgoing/<attempt>/…         the files, as the runner gathered them
    <dir>/outgoing/<attempt>.parcel    how the attempt ended, and where they go; without it the files are of no use

A parcel is written whole or not at all, and removed when the manager has what it is about.
"""

import logging
import os
import shutil
from pathlib import Path

import msgspec

from tercel.core.reports import Report
from tercel.worker.addressing import Address

log = logging.getLogger("tercel.worker")

SUFFIX = ".parcel"


class Parcel(msgspec.Struct, frozen=True):
    report: Report
    addresses: list[Address]
    lost: list[int] = []
    """Earlier attempts, which may have left something half delivered."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Parcel).decode


class Outgoing:
    def __init__(self, dir: Path) -> None:
        self.dir = dir

    def load(self) -> list[Parcel]:
        """Those of an earlier process; what belongs to none is removed. Raises OSError."""
        self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.dir.chmod(0o700)
        parcels: list[Parcel] = []
        for path in sorted(self.dir.glob(f"*{SUFFIX}")):
            try:
                parcel = _decode(path.read_bytes())
            except (msgspec.MsgspecError, IsADirectoryError) as error:
                log.warning("%s is no parcel, and is removed: %s.", path, error)
                continue
            if path.name == f"{parcel.report.attempt}{SUFFIX}":
                parcels.append(parcel)
        known = {str(parcel.report.attempt) for parcel in parcels}
        for path in self.dir.iterdir():
            if path.name.removesuffix(SUFFIX) not in known:
                _remove(path)
        return parcels

    def save(self, parcel: Parcel) -> None:
        """Durably. Raises OSError."""
        path = self.dir / f"{parcel.report.attempt}{SUFFIX}"
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(_encode(parcel))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
        directory = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def files_of(self, attempt: int) -> Path:
        return self.dir / str(attempt)

    def remove(self, attempt: int) -> None:
        """The parcel first: without it the rest is swept by the next process."""
        _remove(self.dir / f"{attempt}{SUFFIX}")
        _remove(self.files_of(attempt))


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("Cannot remove %s: %s.", path, error)
