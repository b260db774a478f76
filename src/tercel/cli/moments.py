"""Moments in the past, as people write them."""

import re
from datetime import datetime

from tercel.core.commands import parse_time
from tercel.core.errors import UsageError

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_AGO = re.compile(r"(\d+(\.\d+)?[smhd])+", re.ASCII | re.IGNORECASE)


def parse_moment(text: str, now: float, field: str) -> float:
    """`14:05` (today), `2026-11-16T14:05`, `2h` (ago) -> seconds since 1970, by the clock of this machine."""
    text = text.strip()
    try:
        if (clock := _CLOCK.fullmatch(text)) is not None:
            hour, minute, second = (int(part or 0) for part in clock.groups())
            at = (
                datetime.fromtimestamp(now)
                .replace(hour=hour, minute=minute, second=second, microsecond=0)
                .timestamp()
            )
        elif _AGO.fullmatch(text):
            at = now - parse_time(text, field)
        else:
            at = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"--{field} {text[:80]!r} is no moment; write 14:05 (today), 2026-11-16T14:05, or 2h (ago)", field
        ) from None
    if at > now:
        raise UsageError(f"--{field} {text[:80]} is yet to come: name a moment in the past", field)
    return max(at, 0.0)
