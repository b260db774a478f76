"""Calls that wait for what nobody has are told of, once; those that get on are not."""

from typing import Any, cast

import pytest

from tercel.core.errors import Unreachable
from tercel.sdk import stalling
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Counts, Explanation, JobView
from tests.cli.fake_manager import job


class Told:
    """A client of a manager that has these jobs; the first question finds nobody."""

    def __init__(self, counts: dict[int, Counts]) -> None:
        self.left = counts
        self._away = True

    async def job(self, id: int) -> JobView:
        if self._away:
            self._away = False
            raise Unreachable("nobody answers")
        counts = self.left[id]
        if counts.running:
            del self.left[id]  # it has ended at the next look
        return job(id, counts=counts)

    async def explain(self, select: str) -> Explanation:
        return Explanation(id=select, summary="waits for 1 GPU: 0 of 1 worker have it", reasons=[])

    def jobs(self) -> list[int]:
        return list(self.left)


@pytest.mark.must("d")
@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({1: Counts(ready=2)}, "tercel: job 1: waits for 1 GPU: 0 of 1 worker have it\n"),
        ({1: Counts(blocked=2)}, "tercel: job 1: waits for 1 GPU: 0 of 1 worker have it\n"),
        ({1: Counts(running=1, ready=5)}, ""),
        ({}, ""),
    ],
)
async def test_what_nobody_has_is_said_once(
    counts: dict[int, Counts], told: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(stalling, "STALLED_S", 0.0)
    client = Told(counts)
    said = await stalling.say_why_nothing_runs(cast(AsyncClient, client), client.jobs)
    assert (said, capsys.readouterr().err) == (bool(told), told)
