"""Questions to people before something is done, and moments as they write them."""

import sys
import time
from datetime import datetime, timedelta

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
    """`14:05` (the last time it was so late), `2026-11-16T14:05`, or how long ago: `2h`, `1h30m`."""
    now = datetime.now().astimezone()
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            clock = datetime.strptime(text, form).time()
        except ValueError:
            continue
        today = datetime.combine(now.date(), clock).astimezone()
        return (today if today <= now else today - timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        pass  # then it says how long ago
    wrong = UsageError(
        f"--{field} {text[:40]!r} is no time; write 14:05, 2026-11-16T14:05 or 2h (so long ago)", field
    )
    if not text[-1:].isalpha():
        raise wrong
    try:
        return time.time() - parse_time(text, field)
    except UsageError:
        raise wrong from None


def clock(at: float) -> str:
    """As people read it, here."""
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "?"  # a worker may say anything
