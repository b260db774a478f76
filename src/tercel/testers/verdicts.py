"""What a tester answered, made fit to be kept and shown: it may have lied about any of it."""

import errno
import math
import os

import msgspec

from tercel.core.conditions import Verdict

NOTE_MOST = 300
ROOM_MOST = 10_000_000
NOT_BEFORE_MOST_S = 86_400.0
"""A server that asks for a year of patience gets a day of it."""
_LOOKED_AT = 4 * NOTE_MOST
"""Characters of a note that are looked at, however long it is."""


def not_cleared(note: str) -> Verdict:
    return Verdict(False, note=printable(note))


def printable(note: str) -> str:
    """One short line that does nothing to anybody's terminal."""
    words = "".join(c if c.isprintable() else " " for c in note[:_LOOKED_AT])
    line = " ".join(words.split())
    return line if len(line) <= NOTE_MOST else line[: NOTE_MOST - 1] + "…"


def why(error: BaseException) -> str:
    """In the system's words if it has some, for what others add to those is not for people; else in its own."""
    try:
        number = error.errno if isinstance(error, OSError) else None
        said = os.strerror(number) if number is not None and number in errno.errorcode else str(error)
    except Exception:
        said = ""  # an exception whose text cannot be had is told by its name
    return printable(said) or type(error).__name__


def sound(answer: object) -> Verdict:
    """The answer, or that it is none."""
    if type(answer) is not Verdict:
        return not_cleared(f"its tester answered with {type(answer).__name__}, not with a Verdict")
    if type(answer.cleared) is not bool or type(answer.note) is not str:
        return not_cleared("its tester's answer is malformed: cleared is a bool, note a str")
    if type(answer.room) is not int or answer.room < 0:
        return not_cleared(
            f"its tester says that there is room for {printable(repr(answer.room)[:40])} tasks"
        )
    if type(answer.not_before_s) not in (int, float) or not 0 <= answer.not_before_s < math.inf:
        return not_cleared("its tester asks for a pause that is none")
    return msgspec.structs.replace(
        answer,
        room=min(answer.room, ROOM_MOST),
        note=printable(answer.note),
        not_before_s=min(float(answer.not_before_s), NOT_BEFORE_MOST_S),
    )
