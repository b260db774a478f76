"""Watching the node while the worker runs: what is given to tasks, what is told of it, whether it is fit for any.

    every LOOK_EVERY_S    measure -> pressure (what is given), facts (what is told), health (fit or not)
    every CHECK_EVERY_S   the owner's health check, and whether the worker's directory can be written; sooner while not

Before the worker joins it has done both once.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tercel.core.model import Needs
from tercel.core.presence import Facts
from tercel.worker import health
from tercel.worker.conversation import first_to_end
from tercel.worker.facts import Telling
from tercel.worker.pressure import Pressure, Reading

log = logging.getLogger("tercel.worker")

LOOK_EVERY_S = 2.0
CHECK_EVERY_S = 60.0
RECHECK_S = 10.0
"""While the last one failed: nobody works here meanwhile."""


class Senses(Protocol):
    """How a worker learns of its node."""

    async def measure(self) -> Reading: ...

    async def check(self) -> str:
        """Why the node is not fit for tasks, if something other than a measurement says so."""


class NodeSenses:
    """Of the node that this process runs on."""

    def __init__(self, dir: Path, measure: Callable[[], Reading], command: str) -> None:
        self._dir = dir
        self._measure = measure
        self._command = command
        self._blind = False

    async def measure(self) -> Reading:
        try:
            return await asyncio.to_thread(self._measure)
        except OSError as error:
            # A container may hide what others do: then it is as if nobody else were there.
            if not self._blind:
                log.warning("Cannot measure what this node does: %s. Its load will not count.", error)
            self._blind = True
            return Reading(cores=math.inf, busy=None)

    async def check(self) -> str:
        why = await asyncio.to_thread(health.writable, self._dir)
        return why or (await health.ask(self._command) if self._command else "")


class Watch:
    """`on_change` is called after `capacity` or `facts` have changed. `spared` as in Pressure.on_reading."""

    def __init__(
        self,
        senses: Senses,
        pressure: Pressure,
        *,
        on_change: Callable[[], None],
        spared: Callable[[], float],
    ) -> None:
        self._senses = senses
        self._pressure = pressure
        self._on_change = on_change
        self._spared = spared
        self._telling = Telling()
        self._measured_ill = ""
        self._checked_ill = ""
        self._told_ill = ""
        self.capacity: Needs | None = None
        """What is given to tasks; None: not measured yet."""

    @property
    def facts(self) -> Facts:
        return self._telling.facts

    def note(self, note: str) -> None:
        """For people, with the facts."""
        self._telling.note(note)

    async def begin(self) -> None:
        self._checked_ill = await self._senses.check()
        await self._look()

    async def run(self) -> None:
        await first_to_end(self._look_on(), self._check_on())

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look()

    async def _check_on(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S if self._checked_ill else CHECK_EVERY_S)
            self._checked_ill = await self._senses.check()
            self._judge()

    async def _look(self) -> None:
        reading = await self._senses.measure()
        now = asyncio.get_running_loop().time()
        before = (self.facts, self.capacity)
        self.capacity = self._pressure.on_reading(reading, self._spared(), now)
        self._telling.on_reading(reading, now)
        self._remember(health.judge(reading, bool(self._measured_ill)))
        if not self._judge() and (self.facts, self.capacity) != before:
            self._on_change()

    def _remember(self, why: str) -> None:
        """With the numbers that were measured first: they flutter, and what is told should not."""
        if why.partition(":")[0] != self._measured_ill.partition(":")[0]:
            self._measured_ill = why

    def _judge(self) -> bool:
        """Returns whether it changed, and was told."""
        why = self._checked_ill or self._measured_ill
        if why == self._told_ill:
            return False
        self._told_ill = why
        self._telling.unhealthy(why)
        if why:
            log.warning("Taking no tasks: %s.", why)
        else:
            log.info("Taking tasks again: this node is fit for them.")
        self._on_change()
        return True
