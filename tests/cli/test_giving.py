"""What `tercel worker` says of itself, as its options are read."""

import time
from pathlib import Path
from typing import Any

import pytest

from tercel.cli.giving import read_capacity, read_description
from tercel.core.errors import UsageError


def describe(**options: Any) -> Any:
    usual = {
        "site": "",
        "tags": (),
        "resources": (),
        "time_limit": None,
        "health_check": "",
        "cache_dir": None,
        "cache_size": "1G",
    }
    return read_description(**(usual | options))


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)


def test_all_that_a_worker_says_of_itself_is_read() -> None:
    told = describe(
        site="lab1",
        tags=("STAR", "Python3.11", "STAR"),
        resources=("licence.matlab=2", "gpus=auto", "port=[a,b]"),
        time_limit="8h",
        health_check="./ok.sh",
        cache_dir=Path("files"),
        cache_size="2G",
    )
    assert told == {
        "site": "lab1",
        "tags": ("STAR", "Python3.11"),
        "resources": {"licence.matlab": 2000},
        "pieces": {"port": ("a", "b")},
        "gpus": None,
        "time_limit_s": 8 * 3600,
        "health_check": "./ok.sh",
        "cache_bytes": 2 * 2**30,
        "cache_dir": Path("files").absolute(),
    }


@pytest.mark.K(19)
def test_a_slurm_jobs_end_is_the_workers_unless_it_has_a_limit_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert describe()["time_limit_s"] is None
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 1000))
    assert 0 < describe()["time_limit_s"] <= 1000
    assert describe(time_limit="1m")["time_limit_s"] == 60


@pytest.mark.parametrize("keep_free", [-1.0, float("nan"), float("inf")])
def test_cores_to_keep_free_are_a_number(keep_free: float) -> None:
    with pytest.raises(UsageError, match="--keep-free"):
        read_capacity(None, None, keep_free)
