"""Several `tercel run` on one directory: one has the manager, the others use it, and nobody is left alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest

from tercel.cli import running
from tercel.cli.screen import Screen
from tercel.cli.services import Signals
from tercel.core.errors import UsageError
from tercel.sdk import AsyncClient
from tercel.wire import api
from tests.cli.fake_manager import STATUS, FakeManager, job


def _refused_at_first(monkeypatch: pytest.MonkeyPatch, times: int) -> list[object]:
    """The directory is another manager's so many times. Returns what was made, one entry per try."""
    tries: list[object] = []

    @asynccontextmanager
    async def make(_: Screen) -> AsyncIterator[SimpleNamespace]:
        made = SimpleNamespace(url="http://127.0.0.1:1", token="a.b")
        tries.append(made)
        if len(tries) <= times:
            raise UsageError("another manager uses /data")
        yield made

    monkeypatch.setattr("tercel.cli.hosting.embedded_manager", make)
    return tries


async def test_a_directory_that_another_run_is_just_leaving_is_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = _refused_at_first(monkeypatch, 2)
    async with running.some_manager(Screen()) as (client, embedded):
        assert embedded is tries[2]
        assert client.url == "http://127.0.0.1:1"


async def test_a_directory_that_stays_another_managers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CHANGING_S", 0.0)
    _refused_at_first(monkeypatch, 1000)
    with pytest.raises(UsageError, match="another manager uses /data"):
        async with running.some_manager(Screen()):
            pass


async def test_a_job_that_comes_while_the_first_run_is_leaving_is_stayed_for(
    manager: FakeManager, capsys: pytest.CaptureFixture[str]
) -> None:
    newest, under_way = 37, 0
    steps: list[str] = []

    class Embedded:
        url, token = manager.url, "a.b"

        async def wait_idle(self) -> None:
            nonlocal under_way
            steps.append(f"until idle, {under_way} under way")
            under_way = 0

        async def wait_stuck(self, patience_s: float) -> None:
            await asyncio.Event().wait()

        async def wait_unused(self, patience_s: float) -> None:
            nonlocal newest, under_way
            steps.append("until unused")
            if len(steps) == 1:  # the one that was connected hands in a job
                newest, under_way = 38, 1

    def status(_: object) -> api.Status:
        return msgspec.structs.replace(STATUS, jobs=under_way)

    def jobs(_: object) -> api.JobList:
        return api.JobList(jobs=[job(newest)], more=False)

    manager.says("GET", "/v1/status", status)
    manager.says("GET", "/v1/jobs", jobs)
    async with AsyncClient() as client:
        await running._stay_for_others(client, Screen(), Embedded(), Signals())
    assert steps == ["until unused", "until idle, 1 under way", "until unused"]
    assert "1 other job still under way" in capsys.readouterr().err
