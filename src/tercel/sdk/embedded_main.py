"""The program of an executor's own pool (see embedded, which starts it).

    executors/x.lock   held as long as the process lives: what is found unlocked is a dead one's, and removed
    executors/x/       its data

It says where it is on stdout, once, and ends when stdin does, or when its parent is another process than it was: a fork of
the parent may hold the pipe open.
"""

import asyncio
import fcntl
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tercel.core.errors import TercelError
from tercel.links.places import data_dir, private_dir
from tercel.manager.options import ManagerOptions
from tercel.sdk.embedded import Ready
from tercel.wiring import run, serving
from tercel.worker.options import WorkerOptions

LOOK_EVERY_S = 1.0


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="tercel pool: %(message)s", stream=sys.stderr)
    cpus, parent = float(sys.argv[1]), int(sys.argv[2])
    try:
        run(_serve(cpus, parent))
    except TercelError as fault:
        _say(Ready(fault=str(fault)))
        sys.exit(1)


async def _serve(cpus: float, parent: int) -> None:
    with _own_directory(private_dir(data_dir() / "executors")) as data:
        options = ManagerOptions(data=data, port=0, embedded=True, private=True)
        async with serving(options, WorkerOptions(dir=data / "worker", cpus=cpus)) as served:
            _say(Ready(url=served.url, token=served.token))
            await _orphaned(parent)


def _say(ready: Ready) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(ready) + b"\n")
    sys.stdout.buffer.flush()


async def _orphaned(parent: int) -> None:
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()

    def look() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            closed.set()

    loop.add_reader(0, look)
    while os.getppid() == parent and not closed.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await closed.wait()


@contextmanager
def _own_directory(place: Path) -> Iterator[Path]:
    for lock in place.glob("*.lock"):
        _remove_if_dead(lock)
    directory, lock, held = _claimed(place)
    try:
        directory.mkdir(mode=0o700)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(held)


def _claimed(place: Path) -> tuple[Path, Path, int]:
    """The lock comes first. Between its making and its locking somebody may take it for a dead one's: then another."""
    while True:
        directory = place / secrets.token_hex(4)
        lock = directory.with_suffix(".lock")
        held = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        if os.fstat(held).st_nlink:
            return directory, lock, held
        os.close(held)


def _remove_if_dead(lock: Path) -> None:
    try:
        held = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
        lock.unlink(missing_ok=True)
    except OSError:
        pass  # its process lives
    finally:
        os.close(held)
