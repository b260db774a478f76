"""Control groups: found wherever they are mounted, divided where that is allowed, and never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tercel.core.model import Limits
from tercel.core.reports import End
from tercel.runners import cgroups
from tercel.runners.cgroups import CPU, MEMORY, PIDS, Group
from tercel.runners.hierarchies import Hierarchies, _mounts, own_groups
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import Lifeline, Recorder, groups_left, may_use_cgroups, python, run, shell
from tests.processes import becomes, is_running

needs_groups = pytest.mark.skipif(
    not may_use_cgroups(), reason="no control group here that this user may divide"
)


def a_system(root: Path, memberships: str, mounts: str) -> Path:
    """A root with the files that say where the groups are."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(memberships)
    (root / "proc/self/mountinfo").write_text(mounts)
    return root


V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def a_v2_group(root: Path, path: str, controllers: str = "cpu memory pids") -> Path:
    group = root / "sys/fs/cgroup" / path
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text(controllers)
    (group / "cgroup.subtree_control").write_text("")
    (group / "cgroup.procs").write_text("")
    return group


def test_groups_of_version_2_are_found(tmp_path: Path) -> None:
    root = a_system(tmp_path, "0::/user.slice/job\n", V2)
    group = a_v2_group(root, "user.slice/job")
    assert own_groups(root) == dict.fromkeys((MEMORY, CPU, PIDS), (2, group))


def test_groups_of_version_1_are_found_under_joined_names(tmp_path: Path) -> None:
    mounts = (
        "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 30 0:28 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    root = a_system(tmp_path, "5:cpu,cpuacct:/a\n4:memory:/docker/1/b\n0::/c\n", mounts)
    a_v2_group(root, "unified/c", "pids")
    top = root / "sys/fs/cgroup"
    assert own_groups(root) == {
        CPU: (1, top / "cpu,cpuacct/a"),
        MEMORY: (1, top / "memory/b"),
        PIDS: (2, top / "unified/c"),
    }


def test_a_controller_that_is_not_passed_on_is_done_without(tmp_path: Path) -> None:
    root = a_system(tmp_path / "root", "0::/job\n", V2)
    a_v2_group(root, "job", "cpu pids")
    assert sorted(own_groups(root)) == [CPU, PIDS]


def test_a_system_without_groups_has_none(tmp_path: Path) -> None:
    assert own_groups(a_system(tmp_path, "", "")) == {}
    assert own_groups(tmp_path / "nowhere") == {}


def test_what_cannot_be_divided_is_done_without(tmp_path: Path) -> None:
    """Others are in the same group of version 2, say: nothing is limited, and nothing is broken."""
    root = a_system(tmp_path / "root", "0::/job\n", V2)
    group = a_v2_group(root, "job")
    (group / "cgroup.procs").write_text("1\n2\n")
    (group / "cgroup.subtree_control").unlink()
    (group / "cgroup.subtree_control").mkdir()
    hierarchies = Hierarchies(tmp_path, root=root)
    hierarchies.open()
    assert hierarchies.places("lane") == {}


UNIFIED = next(
    (Path(point) for _, point, kind, _ in _mounts(Path("/")) if kind == "cgroup2"), Path("/nowhere")
)
SPARE = "hugetlb"
"""A controller that a machine with both versions leaves to version 2: what passing it on means is the kernel's word."""

DIVIDE = """
import os, sys
from pathlib import Path
from tercel.runners import cgroups, hierarchies
group, dir = map(Path, sys.argv[1:])
(group / "cgroup.procs").write_text(str(os.getpid()))
hierarchies.CONTROLLERS = ("hugetlb",)
found = hierarchies.Hierarchies(dir)
found.open()
lane = cgroups.Group(found.places("lane"))
lane.enter()
print("hugetlb" in lane and lane.holds(os.getpid(), "hugetlb"))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not UNIFIED.exists() or SPARE not in (UNIFIED / "cgroup.controllers").read_text(),
    reason=f"needs root, and version 2 with {SPARE}",
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_worker_that_is_alone_in_its_group_divides_version_2(tmp_path: Path, alone: bool) -> None:
    """Beside others it may not, and does without."""
    group = UNIFIED / f"tercel-test-{os.getpid()}"
    group.mkdir()
    passed_on = UNIFIED / "cgroup.subtree_control"
    before = passed_on.read_text().split()
    other = subprocess.Popen(["sleep", "600"])
    try:
        passed_on.write_text(f"+{SPARE}")
        if not alone:
            (group / "cgroup.procs").write_text(str(other.pid))
        command = [sys.executable, "-c", DIVIDE, str(group), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == f"{alone}\n"
    finally:
        other.kill()
        other.wait()
        assert cgroups.remove(str(group))
        if SPARE not in before:
            passed_on.write_text(f"-{SPARE}")


def test_only_groups_of_its_own_are_removed(tmp_path: Path) -> None:
    """Whatever the file with their names says."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (tmp_path / "cgroups").write_text(f"{foreign}\n/nowhere\n")
    Hierarchies(tmp_path, use=False).open()
    assert foreign.exists()


def test_limits_are_written_as_version_2_reads_them(tmp_path: Path) -> None:
    names = (
        "memory.max",
        "memory.swap.max",
        "cpu.max",
        "pids.max",
        "memory.events",
        "pids.events",
        "memory.stat",
    )
    for name in names:
        (tmp_path / name).write_text("")
    group = Group({name: (2, str(tmp_path)) for name in (MEMORY, CPU, PIDS)})

    def read(name: str) -> str:
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text("")
        return text

    group.limit_memory(1000)
    group.limit_cpu(1500)
    group.limit_pids(7)
    assert [read(name) for name in names[:4]] == ["1000", "0", "150000 100000", "7"]
    group.limit_memory(0)
    group.limit_cpu(0)
    group.limit_pids(0)
    assert [read(name) for name in names[:4]] == ["max", "max", "max 100000", "max"]
    (tmp_path / "memory.events").write_text("low 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n")
    (tmp_path / "pids.events").write_text("max 5\n")
    (tmp_path / "memory.stat").write_text("anon 100\nfile 9000\nshmem 11\n")
    assert (group.oom_kills(), group.denied_forks(), group.memory_bytes()) == (2, 5, 111)
    group.close()


def test_places_survive_a_command_line() -> None:
    places = {MEMORY: (1, "/sys/a b"), PIDS: (2, "/sys/c")}
    assert cgroups.from_text(cgroups.as_text(places)) == places
    assert cgroups.from_text(cgroups.as_text({})) == {}


@needs_groups
async def test_groups_go_with_their_lane(tmp_path: Path, recorder: Recorder) -> None:
    runner = SpawnerPool(tmp_path, "node-7")
    await runner.start(recorder)
    await run(runner, recorder, shell("true", limits=Limits(mem_bytes=2**30, pids=50)))
    [*bases] = groups_left(tmp_path)
    assert len(bases) == 3
    assert all(any(path.is_dir() for path in base.iterdir()) for base in bases)
    await runner.stop()
    assert not [base for base in bases if base.exists()]
    assert not (tmp_path / "cgroups").exists()


@needs_groups
async def test_spawners_of_a_killed_worker_remove_their_groups(tmp_path: Path) -> None:
    """Nobody may ever start a worker there again."""
    worker, _, spawner = await a_worker_that_runs_something(tmp_path)
    left = groups_left(tmp_path)
    assert left
    worker.kill()
    await worker.wait()
    await becomes(lambda: not is_running(spawner), "the spawner has ended")
    assert not [path for path in left if path.exists()]


@needs_groups
async def test_a_stray_out_of_sight_is_found_by_its_group(
    tmp_path: Path, recorder: Recorder, lifeline: Lifeline
) -> None:
    """Spawner killed, and a process that has left its session and its environment: what is in the group is ended."""
    runner = SpawnerPool(tmp_path, "node-7")
    await runner.start(recorder)
    hidden = tmp_path / "hidden"
    hide = f"env -i setsid sh -c 'echo x >&9; touch {hidden}; sleep 600' &"
    until_then = f"while [ ! -e {hidden} ]; do sleep 0.01; done"
    line = f"exec 9>{lifeline.path}; {hide} {until_then}; kill -9 $PPID; sleep 600"
    runner.launch([shell(line, limits=Limits(pids=50))])
    await lifeline.held()
    await recorder.report(1)
    await lifeline.dropped()
    await runner.stop()


async def a_worker_that_runs_something(directory: Path) -> tuple[asyncio.subprocess.Process, int, int]:
    """The process, and the pids of a task and its spawner."""
    source = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.conformance.runners import Recorder, shell\n"
        "from tercel.core.model import Limits\n"
        "from tercel.runners.pool import SpawnerPool\n"
        "async def main():\n"
        "    runner = SpawnerPool(Path(sys.argv[1]), 'node-7')\n"
        "    await runner.start(Recorder())\n"
        "    line = 'echo $$ $PPID > ../../../pids; mv ../../../pids ../../../here; sleep 600'\n"
        "    runner.launch([shell(line, limits=Limits(mem_bytes=2**30, pids=50))])\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())"
    )
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": f"{root}:{root / 'src'}"}
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", source, str(directory), env=env)
    await becomes((directory / "here").exists, "the task runs")
    task, spawner = map(int, (directory / "here").read_text().split())
    return worker, task, spawner


@needs_groups
async def test_groups_of_a_killed_worker_go_with_the_next_start(tmp_path: Path, recorder: Recorder) -> None:
    worker, task, spawner = await a_worker_that_runs_something(tmp_path)
    os.kill(spawner, signal.SIGSTOP)  # or it would tidy up
    worker.kill()
    await worker.wait()
    left = groups_left(tmp_path)
    assert left

    runner = SpawnerPool(tmp_path, "node-7")
    await runner.start(recorder)
    assert not is_running(task)
    assert not is_running(spawner)
    assert not [path for path in left if path.exists()]
    await runner.stop()


ESCAPE = "open({path!r}, 'w').write('0')\n"
TAKE_MEMORY = "x = bytearray(b'x' * 2**28); import time; time.sleep(600)"
FORK = "import os, time\nfor _ in range(60): os.fork() or time.sleep(600)\ntime.sleep(600)"


@needs_groups
@pytest.mark.parametrize(
    ("controller", "source", "limits", "what"),
    [(MEMORY, TAKE_MEMORY, Limits(mem_bytes=100 * 2**20), "memory"), (PIDS, FORK, Limits(pids=30), "pids")],
)
async def test_who_leaves_its_group_is_held_to_its_limits_by_watching(
    runner: SpawnerPool, recorder: Recorder, controller: str, source: str, limits: Limits, what: str
) -> None:
    """As root one line does it."""
    _, own = own_groups(Path("/"))[controller]
    escape = ESCAPE.format(path=str(own / "cgroup.procs"))
    report = await run(runner, recorder, python(escape + source, limits=limits))
    assert (report.end, report.exceeded) == (End.EXCEEDED, what), report
    after = await run(runner, recorder, shell("echo after", attempt=2, limits=limits))
    assert (after.end, after.code) == (End.EXITED, 0)


@needs_groups
def test_only_who_lives_elsewhere_is_outside_of_a_group() -> None:
    _, own = own_groups(Path("/"))[PIDS]
    path = own / f"tercel-test-{os.getpid()}"
    group = Group({PIDS: (1, str(path))})
    (path / "below").mkdir(parents=True)
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    inside, below, elsewhere = (sleeper.pid for sleeper in sleepers)
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        (path / "cgroup.procs").write_text(str(inside))
        (path / "below/cgroup.procs").write_text(str(below))
        assert group.outside(PIDS, [inside, below]) == []
        assert group.outside(PIDS, [inside, below, elsewhere, ended.pid]) == [elsewhere]
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
        ended.wait()
        cgroups.remove(str(path))


def counts_by_version_1() -> bool:
    return may_use_cgroups() and own_groups(Path("/"))[PIDS][0] == 1


@pytest.mark.skipif(
    not counts_by_version_1(), reason="no control group of version 1 that this user may divide"
)
async def test_what_hides_and_kills_its_spawner_is_found_by_its_group(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    """Neither its environment nor its session tells whose it is, and nothing of it is limited."""
    hidden = "env -i setsid /bin/sh -c 'echo x >go; exec sleep 600'"
    line = f"exec 9>{lifeline.path}; mkfifo go; {hidden} & read x <go; echo x >&9; kill -9 $PPID"
    runner.launch([shell(line)])
    await lifeline.held()
    assert (await recorder.report(1)).end is End.INTERRUPTED
    await lifeline.dropped()
