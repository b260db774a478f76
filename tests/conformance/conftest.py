"""A runner with what listens to it, and a lifeline; a manager's port; stores."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tercel.runners import pool
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import Lifeline, Recorder, interpreters, spawners
from tests.conformance.stores import Kept, KeptInMemory, KeptInSqlite
from tests.worker.network import Server


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def runner(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SpawnerPool]:
    monkeypatch.setattr(
        pool, "_INTERRUPTED_S", 0.0
    )  # who shows that some are told late has a runner of its own
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    yield runner
    await runner.stop()
    assert spawners() == [], "a spawner is left"
    assert interpreters() == [], "an interpreter is left"


@pytest.fixture
def lifeline(tmp_path: Path) -> Lifeline:
    return Lifeline(tmp_path / "lifeline")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    kept: Kept = KeptInMemory() if request.param == "memory" else KeptInSqlite(tmp_path / "store.db")
    yield kept
    kept.store.close()
