"""Functions on a lasting manager with workers of their own: what is killed and who shares it."""

import os
from pathlib import Path
from typing import Any

import pytest

from tercel import DependencyFailed, Executor
from tercel.sdk.futures import TaskFuture
from tests.lab import HASTY, Lab
from tests.processes import PATIENCE_S
from tests.sdk import work
from tests.sdk.graphs import random_graph

pytestmark = pytest.mark.must("d")

ROOT = Path(__file__).parents[2]


async def _lab_up(lab: Lab) -> None:
    lab.env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    await lab.manager_up("--heartbeat", "1s", "--grace", "1s")


def _joined(lab: Lab, **options: Any) -> Executor:
    access = lab.access()
    return Executor(access.url, token=access.token, **options)


async def test_a_graph_survives_the_death_of_its_worker(lab: Lab) -> None:
    await _lab_up(lab)
    worker = lab.worker("first", 2, "", *HASTY)
    await lab.workers_online(1)
    with _joined(lab) as pool:
        futures, results = random_graph(pool, 1000, seed=5)
        futures[300].result(PATIENCE_S)
        worker.kill()
        lab.worker("second", 2, "", *HASTY)
        assert [future.result(PATIENCE_S) for future in futures] == results


async def test_calls_may_need_those_of_another_executor_of_the_same_manager(lab: Lab) -> None:
    await _lab_up(lab)
    lab.worker("w", 2)
    await lab.workers_online(1)
    with _joined(lab) as one, _joined(lab) as other:
        last: TaskFuture[Any] = one.submit(work.add, 0, 1)
        for turn in range(20):
            last = (other if turn % 2 else one).submit(work.add, last, 1)
        bad = other.submit(work.add, last, one.submit(work.fail, "no"))
        assert last.result(PATIENCE_S) == 21
        error = bad.exception(PATIENCE_S)
        assert isinstance(error, DependencyFailed)
        assert isinstance(error.__cause__, ValueError)


@pytest.mark.O(3, 10)
async def test_calls_go_where_their_data_is_if_their_rank_says_so(lab: Lab) -> None:
    await _lab_up(lab)
    data = {name: os.urandom(300_000) for name in ("a", "b")}
    for name in data:
        lab.worker(name, 2)
    await lab.workers_online(2)
    with _joined(lab) as pool:
        for name, big in data.items():
            there = {"where": f'worker.name == "{lab.worker_id(name)}"'}
            assert f"/worker-{name}/" in pool.submit(work.directory, big, resources=there).result(PATIENCE_S)
        for _ in range(4):
            for name, big in data.items():
                by_data = {"rank": "worker.cached_bytes"}
                assert f"/worker-{name}/" in pool.submit(work.directory, big, resources=by_data).result(PATIENCE_S)
