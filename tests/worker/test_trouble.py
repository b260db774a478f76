"""When nobody acknowledges, nothing can be written, or we made a mistake."""

import errno
import os
from pathlib import Path

import pytest

from tercel.core.errors import UsageError
from tercel.core.reports import Output
from tercel.wire.messages import (
    Ack,
    Cancel,
)
from tercel.worker import agent, debts
from tests.worker.stage import Stage, virtual


@virtual
async def test_nothing_is_launched_while_too_much_is_unacknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(debts, "OWED_MOST_BYTES", 10_000)
    stage = Stage(tmp_path)
    link = await stage.at_work(5)
    stage.runner.end(100, out=Output(16_000, 16_000, bytes(16_000)))
    await link.expect_reports(1)
    assert stage.runner.launched == [100, 101]
    assert "Starting nothing until the manager acknowledges results." in caplog.text
    await link.send(Ack([100]))
    await stage.runner.until_running(101, 102)
    await stage.killed()


@virtual
async def test_a_full_disk_at_the_worker_costs_nothing_but_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    stage = Stage(tmp_path)
    link = await stage.at_work(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        stage.runner.end(100)
        await link.expect_reports(1)
        assert "No space left on device" in caplog.text
    stage.runner.end(101)
    await link.expect_reports(1)
    await link.send(Ack([100]))
    await stage.runner.until(lambda: stage.runner.forgotten == [100])
    await stage.killed()
    second = Stage(tmp_path)
    assert [r.attempt for r in await (await second.joined()).expect_reports(2)] == [100, 101], (
        "100 again: harmless"
    )
    await second.killed()


@virtual
async def test_an_unforeseen_error_in_a_message_ends_the_worker_after_its_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(0)

    def broken(attempts: list[int]) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(stage.runner, "kill", broken)
    await link.send(Cancel([100]))
    with pytest.raises(ZeroDivisionError):
        await stage.left()
    assert stage.runner.stopped


@virtual
async def test_an_unforeseen_error_in_a_report_ends_the_worker_after_its_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    await stage.at_work(0)
    with monkeypatch.context() as patch:
        patch.setattr(agent.Agent, "on_ended", lambda self, reports: 1 / 0)
        stage.runner.end(100)
        with pytest.raises(ZeroDivisionError):
            await stage.left()
    assert stage.runner.stopped


@virtual
async def test_a_disk_that_is_full_at_the_start_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(listener: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stage = Stage(tmp_path)
    monkeypatch.setattr(stage.runner, "start", full)
    with pytest.raises(UsageError, match=r"the worker's directory .* cannot be used: .*No space left"):
        await stage.left()
    second = Stage(tmp_path)
    await second.joined()
    await second.killed()
