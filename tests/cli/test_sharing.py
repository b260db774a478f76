"""Several `tercel run` on one directory: one has the manager, the others use it, and nobody is left alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import ClassVar

import msgspec
import pytest

from tercel.cli import sharing
from tercel.cli.screen import Screen
from tercel.cli.services import Signals
from tercel.core.errors import UsageError
from tercel.links.access import current_access, write_access
from tercel.sdk import AsyncClient
from tercel.wire import api
from tests.cli.fake_manager import STATUS, FakeManager, job


def _refused_at_first(monkeypatch: pytest.MonkeyPatch, times: int) -> list[object]:
    """The directory is another manager's so many times. Returns what was made, one entry per try."""
    tries: list[object] = []

    @asynccontextmanager
    async def make() -> AsyncIterator[SimpleNamespace]:
        made = SimpleNamespace(url="http://127.0.0.1:1", token="a.b", resumed_tasks=0)
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
    async with sharing.some_manager(Screen()) as served:
        assert served.embedded is tries[2]
        assert served.client.url == "http://127.0.0.1:1"


async def test_a_directory_that_stays_another_managers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "CHANGING_S", 0.0)
    _refused_at_first(monkeypatch, 1000)
    with pytest.raises(UsageError, match="another manager uses /data"):
        async with sharing.some_manager(Screen()):
            pass


@pytest.mark.parametrize(("of_a_run", "taken"), [(True, 1), (False, 0)], ids=["another run", "up"])
async def test_only_a_manager_inside_another_run_is_replaced(
    monkeypatch: pytest.MonkeyPatch, manager: FakeManager, of_a_run: bool, taken: int
) -> None:
    tries = _refused_at_first(monkeypatch, 0)
    access = current_access()
    assert access is not None
    write_access(msgspec.structs.replace(access, embedded=of_a_run))
    async with sharing.some_manager(Screen()) as served:
        assert served.embedded is None
        minding = asyncio.create_task(served.mind())
        served.is_away()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(tries) == taken
        assert served.embedded is (tries[0] if taken else None)
        minding.cancel()
        await asyncio.wait([minding])


async def test_a_fault_of_the_manager_in_this_process_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def make() -> AsyncIterator[SimpleNamespace]:
        async with asyncio.timeout(0.01):
            yield SimpleNamespace(url="http://127.0.0.1:1", token="a.b", resumed_tasks=0)

    monkeypatch.setattr("tercel.cli.hosting.embedded_manager", make)
    with pytest.raises(TimeoutError):
        async with sharing.some_manager(Screen()) as served:
            await served.mind()


async def test_a_job_that_comes_while_the_first_run_is_leaving_is_stayed_for(
    manager: FakeManager, capsys: pytest.CaptureFixture[str]
) -> None:
    newest, under_way = 37, 0
    steps: list[str] = []

    class Embedded:
        url, token = manager.url, "a.b"
        resumed_jobs: ClassVar[list[int]] = []
        resumed_tasks = 0

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
        served = sharing.Served(Screen())
        served.client, served.embedded = client, Embedded()
        await served.stay_for_others(Signals())
    assert steps == ["until unused", "until idle, 1 under way", "until unused"]
    assert "1 other job still under way" in capsys.readouterr().err
