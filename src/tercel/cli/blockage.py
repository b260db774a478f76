"""Telling, while somebody waits for jobs, what keeps tasks of theirs: what they are blocked on, and that they are held."""

import asyncio
import time

from tercel.cli.progress import Progress
from tercel.cli.screen import Screen
from tercel.cli.words import count, duration, plain, ranges, short, under_way
from tercel.core.errors import TercelError
from tercel.core.intervals import IntervalSet
from tercel.sdk.client import AsyncClient
from tercel.wire.api import ConditionView, Counts

LOOK_EVERY_S = 2.0
GATHER_S = 0.3
"""Tasks that are blocked one after the other are told of together."""
WIDTH = 60
TESTERS_SHOWN = 3


class Blockage:
    """Told of a job's counts, it asks what is wrong: on a bar it is always shown, else said when it is another."""

    def __init__(self, client: AsyncClient, screen: Screen) -> None:
        self._client = client
        self._screen = screen
        self.progress: Progress | None = None
        """What is shown on a terminal, while it is."""
        self._blocked: set[int] = set()
        """Jobs with tasks that are."""
        self._held: dict[int, int] = {}
        """Jobs of which nothing goes on but by `tercel release`: how many tasks are held."""
        self._some = asyncio.Event()
        self._said: frozenset[int] = frozenset()
        self._said_held: set[int] = set()

    def heard(self, job: int, counts: Counts) -> None:
        if counts.blocked:
            self._blocked.add(job)
            self._some.set()
        else:
            self._blocked.discard(job)
        if is_held_up(counts):
            self._held[job] = counts.paused
            self._some.set()
        else:
            self._held.pop(job, None)
            self._said_held.discard(job)

    async def mind(self) -> None:
        """For ever; to be cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(GATHER_S)
            self._tell_held()
            self._tell(await self._mine())
            if not self._blocked:
                self._some.clear()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _mine(self) -> list[ConditionView]:
        if not self._blocked:
            return []
        try:
            found = (await self._client.conditions()).conditions
        except TercelError:
            return []  # watching says what is wrong with the manager
        return [one for one in found if any(job.job in self._blocked for job in one.jobs)]

    def _tell_held(self) -> None:
        fresh = {job: tasks for job, tasks in self._held.items() if job not in self._said_held}
        if not fresh:
            return
        self._said_held.update(fresh)
        select = short(ranges(IntervalSet((job, job) for job in fresh)), WIDTH)
        self._screen.note(
            f"{count(sum(fresh.values()), 'task')} held: `tercel release {select}` lets them go"
        )

    def _tell(self, conditions: list[ConditionView]) -> None:
        text = "; ".join(sentence(one, time.time()) for one in conditions[:TESTERS_SHOWN])
        if len(conditions) > TESTERS_SHOWN:
            text += f"; and on {count(len(conditions) - TESTERS_SHOWN, 'other condition')}"
        if self.progress is not None:
            self.progress.blocked_on = text
        ids = frozenset(one.id for one in conditions)
        if not ids <= self._said and not self._screen.lively:
            self._screen.note(f"{text} (`tercel blocked` shows more)")
        self._said |= ids


def is_held_up(counts: Counts) -> bool:
    """What is left is held, or waits for something."""
    return bool(counts.paused) and not (counts.ready + under_way(counts) + counts.blocked)


def sentence(condition: ConditionView, now: float) -> str:
    """`3 blocked on tcp:licence.lab:27000 (C1), next test in 12 s`."""
    name = short(condition.tester, WIDTH)
    return f"{condition.tasks:,} blocked on {name} (C{condition.id}), {next_test(condition, now)}"


def next_test(condition: ConditionView, now: float) -> str:
    if condition.paused:
        return plain(condition.paused)
    if condition.testing:
        return "being tested"
    if condition.next_test_at is None:
        return "closed"
    left_s = condition.next_test_at - now
    return f"next test in {duration(left_s)}" if left_s > 0 else plain(condition.next)
