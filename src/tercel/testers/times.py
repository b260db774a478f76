"""`time:…`: a time of day, on some days of the week, or a moment once and for all. In the local time of whoever asks."""

import re
import time
from collections.abc import Callable
from datetime import datetime

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers.contract import Surroundings
from tercel.testers.verdicts import NOT_BEFORE_MOST_S

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WINDOW = re.compile(r"(?:(?P<days>[A-Za-z,\s-]+?)\s+)?(?P<from>\d{1,2}:\d{2})\s*-\s*(?P<to>\d{1,2}:\d{2})")
_MINUTES = 24 * 60
_SHIFT_S = 3600.0
"""By so much clocks are put forward in spring: a night's window is not to be missed for that."""


class TimeTester:
    kind = "time"
    place = Place.MANAGER
    summary = "it is time: time:22:00-06:00, time:Mon-Fri 09:00-17:00 or time:2026-12-24T18:00"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def normalise(self, text: str) -> str:
        text = " ".join(text.split())
        if (match := _WINDOW.fullmatch(text)) is not None:
            days = _days(match["days"]) if match["days"] else []
            begin, end = _minutes(match["from"]) % _MINUTES, _minutes(match["to"])
            if begin == end:
                raise UsageError(f"time:{text[:60]} begins when it ends; for all day, leave the rule out")
            written = "" if len(days) in (0, 7) else ",".join(_DAYS[day] for day in days) + " "
            return f"{written}{_clock_text(begin)}-{_clock_text(end)}"
        try:
            moment = datetime.fromisoformat(text)
            moment.timestamp()
        except (ValueError, OverflowError, OSError):
            raise UsageError(
                f"{text[:60]!r} is not a time; write time:22:00-06:00, time:Mon-Fri 09:00-17:00 or time:2026-12-24T18:00"
            ) from None
        return moment.isoformat()

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        now = datetime.fromtimestamp(self._clock())
        if (match := _WINDOW.fullmatch(text)) is None:
            moment = datetime.fromisoformat(text)
            left_s = moment.timestamp() - self._clock()
            if left_s <= 0:
                return Verdict(True, note=f"it is after {text}")
            return Verdict(False, note=f"it is not yet {text}", not_before_s=min(left_s, NOT_BEFORE_MOST_S))
        days = _days(match["days"]) if match["days"] else list(range(7))
        begin, end = _minutes(match["from"]) % _MINUTES, _minutes(match["to"])
        if _within(now, days, begin, end):
            return Verdict(True, note=f"it is {now:%a %H:%M}, within {text}")
        minute = now.hour * 60 + now.minute
        wait_s = (begin - minute) % _MINUTES * 60.0 - now.second
        if wait_s > _SHIFT_S:
            wait_s -= _SHIFT_S
        return Verdict(False, note=f"it is {now:%a %H:%M}, not within {text}", not_before_s=max(1.0, wait_s))


def _within(now: datetime, days: list[int], begin: int, end: int) -> bool:
    """A window over midnight belongs to the day on which it begins."""
    minute = now.hour * 60 + now.minute
    if begin < end:
        return now.weekday() in days and begin <= minute < end
    yesterday = (now.weekday() - 1) % 7
    return (now.weekday() in days and minute >= begin) or (yesterday in days and minute < end)


def _days(text: str) -> list[int]:
    found: set[int] = set()
    for piece in text.split(","):
        first, dash, last = (part.strip() for part in piece.partition("-"))
        low, high = _day(first), _day(last) if dash else _day(first)
        found.update((low + step) % 7 for step in range((high - low) % 7 + 1))
    return sorted(found)


def _day(text: str) -> int:
    for number, name in enumerate(_DAYS):
        if text[:3].capitalize() == name:
            return number
    raise UsageError(f"{text[:20]!r} is not a day of the week: {', '.join(_DAYS)}")


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    total = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or total > _MINUTES:
        raise UsageError(f"{text} is not a time of day")
    return total


def _clock_text(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
