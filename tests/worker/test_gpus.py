"""GPUs: what NVML tells (here a library of our own with a few of its functions), and which are given to tasks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tercel.core.errors import UsageError
from tercel.core.presence import Gpu
from tercel.worker import gpus
from tercel.worker.gpus import Found
from tests.worker.driver import make_driver, with_compiler

HERE = [
    Found("0", "A100", 40 * 2**30, "GPU-aaaa-1"),
    Found("1", "A100", 40 * 2**30, "GPU-bbbb-2"),
    Found("2", "T4", 16 * 2**30, "GPU-cccc-3"),
]

ASK = """
import logging, os, tercel.worker.gpus as gpus
logging.basicConfig(format="%(message)s")
print([tuple(gpu.__struct_fields__ and (gpu.id, gpu.model, gpu.mem_bytes))
       for gpu in gpus.offered(None, gpus.found(), os.environ.get("CUDA_VISIBLE_DEVICES"))])
"""


def _ask(dir: Path, init: int = 0, **env: str) -> "subprocess.CompletedProcess[str]":
    make_driver(dir, init)
    clean = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return subprocess.run(
        [sys.executable, "-c", ASK],
        env={**clean, "LD_LIBRARY_PATH": str(dir), **env},
        capture_output=True,
        text=True,
        check=True,
    )


@with_compiler
def test_the_driver_tells_count_model_and_memory(tmp_path: Path) -> None:
    told = _ask(tmp_path).stdout
    assert told == f"[('0', 'Fake 100', {8 * 2**30}), ('1', 'Fake 200', {16 * 2**30})]\n"


@with_compiler
def test_only_those_that_the_worker_itself_may_see_are_its_own(tmp_path: Path) -> None:
    told = _ask(tmp_path, CUDA_VISIBLE_DEVICES="GPU-bbbb").stdout
    assert told == f"[('GPU-bbbb', 'Fake 200', {16 * 2**30})]\n"
    assert _ask(tmp_path, CUDA_VISIBLE_DEVICES="").stdout == "[]\n"


@with_compiler
def test_a_driver_that_is_not_loaded_means_no_gpus_and_is_told(tmp_path: Path) -> None:
    told = _ask(tmp_path, init=9)
    assert told.stdout == "[]\n"
    assert "does not tell of its GPUs" in told.stderr


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_LIBRARY", "libno-such-thing.so.1")
    assert gpus.found() == []


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        (None, ["0", "1", "2"]),
        ("2,0", ["2", "0"]),
        ("GPU-bb", ["GPU-bb"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,7,0", ["1"]),
        ("GPU-", []),
        ("MIG-1234, 1", ["MIG-1234", "1"]),
    ],
)
def test_the_workers_own_variable_is_read_as_cuda_reads_it(visible: str | None, ids: list[str]) -> None:
    assert [gpu.id for gpu in gpus.offered(None, HERE, visible)] == ids


def test_so_many_or_these_may_be_given() -> None:
    assert gpus.offered(1, HERE, "2,0") == (Gpu("2", "T4", 16 * 2**30),)
    assert gpus.offered(0, HERE, None) == ()
    assert gpus.offered(("GPU-cccc", "0"), HERE, None) == (
        Gpu("GPU-cccc", "T4", 16 * 2**30),
        Gpu("0", "A100", 40 * 2**30),
    )


def test_where_no_driver_is_found_the_options_are_believed() -> None:
    assert gpus.offered(2, [], None) == (Gpu("0"), Gpu("1"))
    assert gpus.offered(("renderD128",), [], None) == (Gpu("renderD128"),)


@pytest.mark.must("d")
def test_more_gpus_than_there_are_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="gpus=4: there are 3 here"):
        gpus.offered(4, HERE, None)
    with pytest.raises(UsageError, match="there is no GPU '7' here"):
        gpus.offered(("7",), HERE, None)
