"""Staging in: between the agent, which knows what is needed, and the values that are fetched for it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tercel.core.reports import Report
from tercel.wire.messages import Fetch, Piece
from tercel.worker.agent import Agent
from tercel.worker.staging import Place
from tercel.worker.values import Values

GONE_S = 1.0
"""An attempt whose values cannot be had is told so late: whoever offers it again at once must not spin."""


class StageIn:
    """`on_failed` takes the reports of attempts that cannot run for want of a value."""

    def __init__(self, dir: Path, node: str, agent: Agent, on_failed: Callable[[list[Report]], None]) -> None:
        self._node = node
        self._agent = agent
        self._on_failed = on_failed
        self._values = Values(
            dir / "values", awaits=agent.awaits, on_here=self._on_here, on_gone=self._on_gone
        )

    def prepare(self) -> None:
        """Raises OSError."""
        self._values.clear()

    def asks(self) -> list[Fetch]:
        """What to say for what is newly needed. Also lets go of what no longer is."""
        if dropped := self._agent.dropped_values():
            self._values.remove(dropped)
        keys = self._agent.fetches()
        return self._values.fetch(keys) if keys else []

    def asks_again(self) -> list[Fetch]:
        """On a new link."""
        return self._values.fetch_again()

    def on_piece(self, piece: Piece) -> list[Fetch]:
        """Returns what to ask next. Raises PeerError."""
        return self._values.on_piece(piece)

    def _on_here(self, key: str, place: Place, size_bytes: int) -> None:
        self._agent.on_value(key, place, size_bytes)

    def _on_gone(self, key: str, why: str, errno: str) -> None:
        attempts = self._agent.on_value_gone(key)
        note = f"{self._node} could not fetch what it refers to: {why}"
        asyncio.get_running_loop().call_later(GONE_S, self._fail, attempts, note, errno)

    def _fail(self, attempts: list[int], note: str, errno: str) -> None:
        if reports := self._agent.fail_staging(attempts, note, time.time(), errno):
            self._on_failed(reports)
