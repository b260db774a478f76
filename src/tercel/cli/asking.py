"""Questions to people before something is done, and moments as they write them."""

import sys
from datetime import datetime, timedelta
from datetime import time as Time

import click

from tercel.core.commands import parse_time
from tercel.core.errors import UsageError


def is_sure(question: str, yes: bool) -> bool:
    """Whether to go on. Scripts say --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("this must be agreed to, and there is no terminal to ask at: add --yes", "yes")
    return click.confirm(question, err=True)


def moment(text: str, field: str) -> float:
    """`14:05` (today), `2026-11-16T14:05`, or how long ago: `2h`, `1h30m ago`. What is yet to come is refused.

    A time of day that is still to come is not taken for yesterday's: whoever mistyped it would undo a day.
    """
    now = datetime.now().astimezone()
    if (time_of_day := _time_of_day(text)) is not None:
        at = datetime.combine(now.date(), time_of_day).astimezone()
        if at > now:
            yesterday = at - timedelta(days=1)
            raise UsageError(
                f"--{field} {text}: it is not so late yet; of another day write the date, as in "
                f"{yesterday:%Y-%m-%dT%H:%M}",
                field,
            )
        return at.timestamp()
    try:
        taken = datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return now.timestamp() - _ago_s(text, field)
    if taken > now.timestamp():
        raise UsageError(f"--{field} {text[:40]} is yet to come: it is {now:%Y-%m-%dT%H:%M} now", field)
    return taken


def _time_of_day(text: str) -> Time | None:
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            return datetime.strptime(text, form).time()
        except ValueError:
            continue
    return None


def _ago_s(text: str, field: str) -> float:
    wrong = UsageError(
        f"--{field} {text[:40]!r} is no time; write 14:05, 2026-11-16T14:05 or 2h (so long ago)", field
    )
    length = text.removesuffix("ago").rstrip()
    if not length[-1:].isalpha():
        raise wrong
    try:
        return parse_time(length, field)
    except UsageError:
        raise wrong from None


def clock(at: float) -> str:
    """As people read it, here."""
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "?"  # a worker may say anything
