"""What is known of the node from an earlier start, in the worker's directory.

<dir>/node.json   the speed of a core, by model; container engines that answered, by their program's file
"""

import logging
from pathlib import Path

import msgspec

log = logging.getLogger("tercel.worker")


class Engine(msgspec.Struct, frozen=True):
    """A program that answered. Another size or time means that it is another one by now."""

    path: str
    size_bytes: int
    changed_ns: int


class Remembered(msgspec.Struct):
    cpu: str = ""
    speed: float = 0.0
    engines: dict[str, Engine] = {}


def remembered(dir: Path) -> Remembered:
    """Nothing, if nothing is there or it cannot be read."""
    try:
        return msgspec.json.decode((dir / "node.json").read_bytes(), type=Remembered)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Remembered()


def remember(dir: Path, known: Remembered) -> None:
    """Through a second file, so that nobody reads half of it. What cannot be kept is found out again."""
    fresh = dir / "node.json.new"
    try:
        dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.write_bytes(msgspec.json.encode(known))
        fresh.replace(dir / "node.json")
    except OSError as error:
        log.debug("Cannot write %s: %s.", fresh, error)
