"""What a node gives, in whatever cage the process runs."""

import os
from pathlib import Path

import pytest

from tercel.core.errors import UsageError
from tercel.core.model import Needs
from tercel.worker import cgroups, engines, node, speed
from tercel.worker.options import WorkerOptions
from tercel.worker.remembered import remembered

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
    assert node.capacity(WorkerOptions(dir=tmp_path), root=root) == Needs(3000, 2**28)


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


def test_what_is_left_of_a_limit_counts_what_goes_when_it_is_needed(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a\n5:memory:/b",
            "sys/fs/cgroup/a/memory.max": "1000",
            "sys/fs/cgroup/a/memory.current": "900",
            "sys/fs/cgroup/a/memory.stat": "anon 500\ninactive_file 300",
            "sys/fs/cgroup/memory.max": "max",
            "sys/fs/cgroup/memory/b/memory.limit_in_bytes": "700",
            "sys/fs/cgroup/memory/b/memory.usage_in_bytes": "800",
        },
    )
    assert list(cgroups.mem_left(root)) == [400, 0]
    assert list(cgroups.mem_left(tmp_path / "none")) == []


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
    assert list(cgroups.mem_left(root)) == []


def test_options_override_what_is_found(tmp_path: Path) -> None:
    options = WorkerOptions(dir=tmp_path, cpus=2.5, mem_bytes=77)
    assert node.capacity(options) == Needs(2500, 77)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({}, 15),
        ({"keep_free": 0}, 16),
        ({"keep_free": 4.5}, 11.5),
        ({"cpus": 12, "keep_free": 8}, 8),
        ({"cpus": 40}, 40),
    ],
)
@pytest.mark.B(7)
def test_so_many_cores_are_kept_free(tmp_path: Path, options: dict[str, float], given: float) -> None:
    cpus = node.given_cpus(WorkerOptions(dir=tmp_path, **options), CORES)  # type: ignore[arg-type]
    assert cpus == given


def test_keeping_all_cores_free_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--keep-free 16 leaves nothing to tasks: there are 16 cores here"):
        node.given_cpus(WorkerOptions(dir=tmp_path, keep_free=16), CORES)


@pytest.mark.K(3)
@pytest.mark.O(1)
def test_a_worker_describes_its_node(tmp_path: Path) -> None:
    info = node.describe(
        WorkerOptions(
            dir=tmp_path / "new" / "w",
            site="lab",
            cpus=2,
            tags=("STAR",),
            resources={"licence.matlab": 2000},
            pieces={"port": ("a", "b")},
            gpus=("0", "1"),
        )
    )
    assert info.node
    assert info.site == "lab"
    assert info.os in ("linux", "darwin")
    assert info.arch
    assert info.python.startswith("3.")
    assert info.version
    assert info.pid == os.getpid()
    assert info.kernel
    assert info.speed > 0
    assert info.disk_bytes > 0
    assert info.tags == ("STAR",), "and nothing that nobody said"
    assert info.indices == {"port": ("a", "b"), "gpus": ("0", "1")}
    assert info.capacity.resources == (("gpus", 2000), ("licence.matlab", 2000), ("port", 2000))
    assert [gpu.id for gpu in info.gpus] == ["0", "1"]
    assert set(info.containers) <= set(engines.ENGINES)


# -- what is remembered -----------------------------------------------------------------------------------


def test_speed_is_measured_once_and_again_on_another_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([1.3, 2.6])
    monkeypatch.setattr(speed, "measured", lambda: next(told))
    options = WorkerOptions(dir=tmp_path)
    assert [node.describe(options).speed for _ in range(3)] == [1.3, 1.3, 1.3]
    monkeypatch.setattr(speed, "cpu_model", lambda: "another")
    assert node.describe(options).speed == 2.6


def test_speed_is_a_number_beside_the_reference() -> None:
    told = speed.measured()
    assert 0.1 <= told <= 100
    assert told == round(told, 1), "in steps: workers of one kind look alike"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"speed": "fast"}', "\xff"])
def test_what_cannot_be_read_is_found_out_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.json").write_bytes(text.encode("latin-1"))
    assert node.describe(WorkerOptions(dir=tmp_path)).speed > 0
    assert remembered(tmp_path).speed > 0


def test_a_directory_that_cannot_be_written_does_not_keep_it_from_describing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert node.describe(WorkerOptions(dir=tmp_path / "file" / "w")).speed > 0


# -- container engines ------------------------------------------------------------------------------------


def _program(dir: Path, name: str, script: str) -> None:
    path = dir / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_engines_are_those_in_path_that_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(engines, "PATIENCE_S", 1.0)
    _program(tmp_path, "podman", '[ "$1" = --version ] && echo podman 5')
    _program(tmp_path, "docker", "exit 1")
    _program(tmp_path, "apptainer", "exec sleep 600")
    (tmp_path / "singularity").write_text("not a program")
    (tmp_path / "singularity").chmod(0o755)
    assert list(engines.found({})) == ["podman"]


def test_an_engine_that_answered_is_not_asked_again_unless_it_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    _program(tmp_path, "podman", f"echo asked >> {tmp_path}/log")
    known = engines.found({}, ("podman",))
    assert engines.found(known, ("podman",)) == known
    assert (tmp_path / "log").read_text() == "asked\n"
    _program(tmp_path, "podman", "exit 3 # broken by an upgrade")
    assert engines.found(known, ("podman",)) == {}
