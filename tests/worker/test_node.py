"""What a node gives, in whatever cage the process runs."""

import os
from pathlib import Path

import pytest

from tercel.core.model import Needs
from tercel.worker import node
from tercel.worker.options import WorkerOptions

CORES = 16


@pytest.fixture(autouse=True)
def _sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(CORES)), raising=False)


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def _all_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("cores", "given"), [(1, 1), (2, 2), (3, 2), (4, 3), (64, 63)])
@pytest.mark.B(7)
def test_all_cores_but_one_are_given_when_there_are_more_than_two(cores: int, given: int) -> None:
    assert node.default_cpus(cores) == given


def test_without_cgroups_the_affinity_and_all_memory_count(tmp_path: Path) -> None:
    assert node.usable_cores(tmp_path) == CORES
    assert node.usable_mem_bytes(tmp_path) == _all_memory()


def test_the_smallest_limit_on_the_way_up_counts_in_v2(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slurm/job_7/step_0",
            "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "max 100000",
            "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max",
            "sys/fs/cgroup/slurm/job_7/cpu.max": "450000 100000",
            "sys/fs/cgroup/slurm/job_7/memory.max": str(2**28),
            "sys/fs/cgroup/slurm/cpu.max": "1200000 100000",
            "sys/fs/cgroup/slurm/memory.max": str(2**29),
        },
    )
    assert node.usable_cores(root) == 4
    assert node.usable_mem_bytes(root) == 2**28
    assert node.capacity(WorkerOptions(dir=tmp_path), root) == Needs(3000, 2**28)


def test_a_containers_limit_is_found_at_the_mounts_root(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/not/visible/here",
            "sys/fs/cgroup/cpu.max": "50000 100000",
            "sys/fs/cgroup/memory.max": "1000000",
        },
    )
    assert node.usable_cores(root) == 1, "half a core still runs a task"
    assert node.usable_mem_bytes(root) == 1_000_000


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_limits_are_found_in_v1(tmp_path: Path, mount: str) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/a/b\n4:cpu,cpuacct:/a\n0::/",
            f"sys/fs/cgroup/{mount}/a/cpu.cfs_quota_us": "250000",
            f"sys/fs/cgroup/{mount}/a/cpu.cfs_period_us": "100000",
            f"sys/fs/cgroup/{mount}/cpu.cfs_quota_us": "-1",
            f"sys/fs/cgroup/{mount}/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": str(2**63 - 4096),
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(2**27),
        },
    )
    assert node.usable_cores(root) == 2
    assert node.usable_mem_bytes(root) == 2**27


@pytest.mark.parametrize("text", ["", "garbage", "0:0:", ":::", "0::/../../../etc", "max", "-1 -1", "1 0"])
def test_nonsense_in_cgroup_files_is_no_limit(tmp_path: Path, text: str) -> None:
    files = {
        "proc/self/cgroup": text or "0::/",
        "sys/fs/cgroup/cpu.max": text,
        "sys/fs/cgroup/memory.max": text,
    }
    root = _tree(tmp_path, files)
    assert node.usable_cores(root) == CORES
    assert node.usable_mem_bytes(root) == _all_memory()


def test_options_override_what_is_found(tmp_path: Path) -> None:
    options = WorkerOptions(dir=tmp_path, cpus=2.5, mem_bytes=77)
    assert node.capacity(options) == Needs(2500, 77)


def test_a_worker_describes_its_node(tmp_path: Path) -> None:
    info = node.describe(WorkerOptions(dir=tmp_path, site="lab"))
    assert info.node
    assert info.site == "lab"
    assert info.os in ("linux", "darwin")
    assert info.arch
    assert info.python.startswith("3.")
    assert info.version
    assert info.pid == os.getpid()
