"""Tests of conditions, performed: sent to the worker that is to ask, or asked here beside everything else.

    Probe --> a worker's link                                --> Probed --> on_tested
          \\-> a task here, for as long as the test may take  ------------> on_tested

There is at most one test under way per condition, and testers take turns among themselves: so what waits here is bounded by the
conditions there are, and what works by the testers.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from tercel.core.conditions import Place, Verdict
from tercel.core.effects import Probe
from tercel.testers.contract import Surroundings
from tercel.wire import messages

MOMENT_S = 5.0
"""Beyond the limit, for a tester to end what it has begun. It is not waited for any longer."""


class Examiners(Protocol):
    """Who knows all testers."""

    def is_own(self, kind: str, /) -> bool:
        """Whether such testers are Tercel's own, hence judged at once."""

    async def judge(self, text: str, /) -> tuple[str, Place]:
        """As its kind writes it, and where it is asked. Raises UsageError if it means nothing."""

    async def ask(self, text: str, surroundings: Surroundings, /) -> Verdict:
        """Whether it is there again. Never raises."""


class Probing:
    def __init__(
        self,
        examiners: Examiners,
        send: Callable[[str, messages.Probe], None],
        tested: Callable[[int, Verdict], None],
    ) -> None:
        """`send`: to a worker, if that is connected; if not, the machine asks another. `tested`: what the manager found."""
        self._examiners = examiners
        self._send = send
        self._tested = tested
        self._under_way: set[asyncio.Task[None]] = set()

    def perform(self, probe: Probe) -> None:
        row = probe.condition
        if probe.worker:
            asked = messages.Probe(probe.number, row.tester, probe.limit_s, row.cwd, row.env)
            self._send(probe.worker, asked)
            return
        task = asyncio.get_running_loop().create_task(self._ask(probe))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, probe: Probe) -> None:
        row, limit_s = probe.condition, probe.limit_s
        surroundings = Surroundings(cwd=row.cwd, env=row.env, limit_s=limit_s)
        try:
            async with asyncio.timeout(limit_s + MOMENT_S):
                verdict = await self._examiners.ask(row.tester, surroundings)
        except TimeoutError:
            verdict = Verdict(False, 0, f"no answer within {limit_s:g} s")
        self._tested(probe.number, verdict)

    def close(self) -> None:
        """What is under way is not heard any more: it is asked anew after a restart."""
        for task in list(self._under_way):
            task.cancel()
