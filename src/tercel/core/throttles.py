"""Throttles: so many of something in any stretch of time, by key. Who must wait is told until when; nobody sleeps at random.

A window slides: at any moment, what was granted within the last `window_s` counts. So a burst of `most` goes at once, and the
next one when the first of those is old enough.

    starts      tasks given to workers, in all
    launches    tasks given to the workers of one node
    releases    tasks that one condition lets go
    transfers   files that begin to be brought from, or delivered to, one endpoint
"""

import re
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from tercel.core.commands import parse_time
from tercel.core.errors import UsageError

MOST = 1_000_000
LONGEST_WINDOW_S = 86_400.0
UNLIMITED = 2**60
SWEPT_AT = 64
PROFILES = {"tapis": ("starts=10/2s", "launches=8/2s", "releases=10/1s")}
"""Of published systems, so that they can be compared."""

_RATE = re.compile(r"(?P<what>[a-z]+)=(?P<most>[0-9]{1,7})/(?P<window>[0-9.]*[a-z]+)")

KeyT = TypeVar("KeyT")


class Rate(msgspec.Struct, frozen=True, array_like=True):
    """At most so many within a sliding window; 0: no limit."""

    most: int = 0
    window_s: float = 1.0

    def __str__(self) -> str:
        return f"{self.most:,} per {self.window_s:g} s" if self.most else "no limit"


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    starts: Rate = Rate()
    launches: Rate = Rate()
    releases: Rate = Rate()
    transfers: Rate = Rate()


def parse_rates(texts: Iterable[str]) -> Rates:
    """`starts=10/2s`, or the name of a profile; later ones count."""
    found: dict[str, Rate] = {}
    for text in texts:
        if text in PROFILES:
            found |= msgspec.structs.asdict(parse_rates(PROFILES[text]))
            continue
        match = _RATE.fullmatch(text.strip())
        if match is None or match["what"] not in Rates.__struct_fields__:
            known = ", ".join(Rates.__struct_fields__)
            raise UsageError(
                f"{text[:60]!r} is not a throttle; write starts=10/2s ({known}), or a profile: {', '.join(PROFILES)}",
                "throttle",
            )
        window = match["window"]
        window_s = parse_time(window if window[0].isdigit() else f"1{window}", "throttle")
        if int(match["most"]) > MOST or not 0.001 <= window_s <= LONGEST_WINDOW_S:
            raise UsageError(f"{text}: at most {MOST:,}, within a millisecond to a day", "throttle")
        found[match["what"]] = Rate(int(match["most"]), window_s)
    return Rates(**found)


class Throttle(Generic[KeyT]):
    """One rate for each of many keys. A key that nothing was granted to lately takes no room."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._granted: dict[KeyT, deque[tuple[float, int]]] = {}
        """When, and how many at once; the oldest first."""
        self._swept_at = SWEPT_AT
        """With so many keys, those are dropped that nothing was granted to lately."""

    def room(self, key: KeyT, now: float) -> int:
        """How many may go at this moment."""
        if not self.rate.most:
            return UNLIMITED
        return max(0, self.rate.most - sum(count for _, count in self._recent(key, now)))

    def take(self, key: KeyT, count: int, now: float) -> None:
        """So many go."""
        if self.rate.most and count:
            self._sweep(now)
            self._granted.setdefault(key, deque()).append((now, count))

    def give_back(self, key: KeyT, count: int) -> None:
        """So many of those that went last did not go after all."""
        granted = self._granted.get(key)
        while granted and count:
            at, last = granted.pop()
            if last > count:
                granted.append((at, last - count))
            count -= min(count, last)

    def move(self, by_s: float) -> None:
        """The clock was set."""
        for key, granted in self._granted.items():
            self._granted[key] = deque((at + by_s, count) for at, count in granted)

    def next_slot(self, key: KeyT, now: float) -> float:
        """When there is room for one more: now, or when the oldest leaves the window."""
        if self.room(key, now) > 0:
            return now
        return self._granted[key][0][0] + self.rate.window_s

    def book(self, key: KeyT, now: float) -> float:
        """Take the next free slot for one more, and say when that is. Whoever asks next has a later one."""
        if not self.rate.most:
            return now
        at, room = now, self.rate.most
        for granted_at, count in reversed(self._recent(key, now)):
            at, room = max(at, granted_at), room - count
            if room <= 0:
                at = max(at, granted_at + self.rate.window_s)
                break
        self._sweep(now)
        self._granted.setdefault(key, deque()).append((at, 1))
        return at

    def _sweep(self, now: float) -> None:
        if len(self._granted) >= self._swept_at:
            for old in list(self._granted):
                self._recent(old, now)
            self._swept_at = max(SWEPT_AT, 2 * len(self._granted))

    def _recent(self, key: KeyT, now: float) -> deque[tuple[float, int]]:
        granted = self._granted.get(key)
        if granted is None:
            return deque()
        while granted and granted[0][0] + self.rate.window_s <= now:
            granted.popleft()
        if not granted:
            del self._granted[key]
        return granted


class StartThrottle:
    """What bounds how many tasks are given out: in all, and to each node."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.active = bool(rates.starts.most or rates.launches.most)
        self._starts: Throttle[None] = Throttle(rates.starts)
        self._launches: Throttle[str] = Throttle(rates.launches)
        self.next_at: float | None = None
        """When somebody who was told to wait may go."""

    def room(self, node: str, now: float) -> int:
        if not self.active:
            return UNLIMITED
        room = min(self._starts.room(None, now), self._launches.room(node, now))
        if room <= 0:
            next_at = self.next_slot(node, now)
            self.next_at = next_at if self.next_at is None else min(self.next_at, next_at)
        return room

    def next_slot(self, node: str, now: float) -> float:
        """When there is room for one more there."""
        return max(self._starts.next_slot(None, now), self._launches.next_slot(node, now))

    def take(self, node: str, count: int, now: float) -> None:
        if self.active:
            self._starts.take(None, count, now)
            self._launches.take(node, count, now)

    def move(self, by_s: float) -> None:
        self._starts.move(by_s)
        self._launches.move(by_s)
        if self.next_at is not None:
            self.next_at += by_s

    def give_back(self, node: str, count: int) -> None:
        if self.active:
            self._starts.give_back(None, count)
            self._launches.give_back(node, count)
