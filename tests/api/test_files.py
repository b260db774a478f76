"""A manager may open as many files as the system lets it; its tasks as many as before."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tercel.manager.options import ManagerOptions
from tercel.runners import starting
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Submission
from tercel.wiring import serving
from tercel.worker.options import WorkerOptions


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(512, before[1] - 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    monkeypatch.setattr(starting, "_FILES", (few, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_manager_raises_its_own_limit_of_files_and_not_that_of_its_tasks(
    home: Path, few_files: int
) -> None:
    options, worker = ManagerOptions(data=home / "data", port=0), WorkerOptions(dir=home / "worker", cpus=1)
    async with serving(options, worker) as served:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard > few_files
        async with AsyncClient(served.url, served.token) as client:
            job = await client.submit(Submission(line="ulimit -n"))
            output = b"".join([piece async for piece in client.logs(job.id, 0, follow=True)])
    assert int(output) == few_files
