"""Attempts inside of something: bubblewrap, a container. Real ones, where this machine has them."""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tercel.core.model import Limits
from tercel.core.reports import End
from tercel.runners import engines, trees
from tercel.runners.commands import Command
from tercel.runners.engines import Containers
from tercel.runners.pool import SpawnerPool
from tests.conformance.containers import ARGS, IMAGE, has_image, needs_bwrap, podman
from tests.conformance.runners import WAIT_S, Lifeline, Recorder, call, run, shell, spawners, text
from tests.processes import becomes

MB = 2**20


# -- bubblewrap -------------------------------------------------------------------------------------------


@needs_bwrap
async def test_the_system_is_read_only_and_the_sandbox_is_not(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    line = f"touch /etc/x; touch {work}/y; touch {tmp_path}/z; touch $TERCEL_SANDBOX/a /tmp/b && ls; pwd"
    report = await run(runner, recorder, shell(line, isolate="bwrap"))
    assert (report.end, report.code) == (End.EXITED, 0), report
    listed, where = text(report.out).split()
    assert listed == "a"
    assert where.startswith(str(tmp_path / "worker/sandboxes"))
    refusals = text(report.err).splitlines()
    assert [line.split("'")[1] for line in refusals] == ["/etc/x", f"{work}/y"]
    assert not (tmp_path / "z").exists(), "that was in a /tmp of its own"
    inside = await run(runner, recorder, shell("touch y; pwd", attempt=2, isolate="bwrap", cwd=str(work)))
    assert (text(inside.out), (work / "y").exists()) == (f"{work}\n", True)


@needs_bwrap
async def test_others_are_out_of_its_sight(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    neighbour = f"touch secret; exec 9>{lifeline.path}; echo x >&9; sleep 600"
    runner.launch([shell(neighbour, attempt=1, lane=1)])
    await lifeline.held()
    line = f"ls /proc | grep -c '^[0-9]'; find {tmp_path} -name secret; ls /tmp"
    report = await run(runner, recorder, shell(line, attempt=2, isolate="bwrap"))
    processes, *files = text(report.out).split()
    assert int(processes) < 8
    assert files in ([], [tmp_path.parts[2]]), "but the way to its own sandbox"
    runner.kill([1])
    await lifeline.dropped()


@needs_bwrap
async def test_a_directory_above_the_workers_does_not_show_it(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    """A job submitted from a home directory, with the worker's own below it."""
    (tmp_path / "mine").touch()
    line = "find . -name outputs; ls mine; ls $TERCEL_SANDBOX; touch $TERCEL_SANDBOX/x"
    report = await run(runner, recorder, shell(line, isolate="bwrap", cwd=str(tmp_path)))
    assert (report.end, report.code, text(report.out)) == (End.EXITED, 0, "mine\n"), report


@needs_bwrap
@pytest.mark.parametrize(
    "cwd", ["/", "//", "/tmp", "/tmp/../", "/proc", "/proc/1", "/dev", "/sys/kernel", "LINK"]
)
async def test_a_directory_that_would_undo_the_isolation_is_refused(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, cwd: str
) -> None:
    """Bound read-write, / makes /etc writable; that and the others show the node's own /tmp and processes."""
    (tmp_path / "link").symlink_to("/")
    cwd = cwd.replace("LINK", str(tmp_path / "link"))
    report = await run(runner, recorder, shell("touch /etc/tercel-was-here", isolate="bwrap", cwd=cwd))
    assert (report.end, report.code) == (End.REFUSED, 0), report
    assert f"cannot have {cwd} as its directory (--cwd) on node-7" in report.note


@needs_bwrap
async def test_a_directory_by_another_name_is_the_jobs_and_nothing_else_is(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    """A link to the worker's own directory does not show what is hidden."""
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    report = await run(runner, recorder, shell("touch y", isolate="bwrap", cwd=str(tmp_path / "link")))
    assert (report.end, report.code, (tmp_path / "work/y").exists()) == (End.EXITED, 0, True), report
    (tmp_path / "shown").symlink_to(tmp_path / "worker")
    line = "ls; ls /tmp/shown 2>/dev/null; touch /etc/tercel-was-here 2>/dev/null || echo held"
    hidden = await run(runner, recorder, shell(line, attempt=2, isolate="bwrap", cwd=str(tmp_path / "shown")))
    assert "outputs" not in text(hidden.out).split()
    assert text(hidden.out).endswith("held\n"), hidden


@needs_bwrap
async def test_an_isolated_task_is_cancelled_with_its_grace(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    os.link(lifeline.path, work / "line")
    line = "trap 'echo saved; exit 5' TERM; exec 9>line; echo x >&9; while :; do sleep 0.01; done"
    runner.launch([shell(line, isolate="bwrap", cwd=str(work))])
    await lifeline.held()
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.code, text(report.out)) == (End.CANCELLED, 5, "saved\n"), report
    await lifeline.dropped()


@needs_bwrap
async def test_an_isolated_task_is_held_to_its_limits(runner: SpawnerPool, recorder: Recorder) -> None:
    python = os.path.realpath(sys.executable)  # that of a venv below /tmp is out of its sight
    hog = f"{python} -c \"x = bytearray(b'x' * 2**30); import time; time.sleep(600)\""
    report = await run(runner, recorder, shell(hog, isolate="bwrap", limits=Limits(mem_bytes=200 * MB)))
    assert (report.end, report.exceeded) == (End.EXCEEDED, "memory"), report
    stubborn = "trap '' TERM; while :; do sleep 0.01; done"
    await run(
        runner, recorder, shell(stubborn, attempt=3, isolate="bwrap", time_limit_s=0.2, kill_grace_s=0.1)
    )
    two = await run(
        runner, recorder, shell("sleep 0.3; true", attempt=4, isolate="bwrap", limits=Limits(pids=2))
    )
    assert (two.end, two.code, two.note) == (End.EXITED, 0, ""), "bwrap's own processes do not count"
    missing = await run(runner, recorder, shell("nosuch-command", attempt=2, isolate="bwrap"))
    assert (missing.end, missing.code, missing.note) == (End.EXITED, 127, "nosuch-command: not found")


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ({}, "bwrap is not installed on node-7"),
        ({"bwrap": "echo no namespaces >&2; exit 1"}, "no namespaces"),
    ],
)
async def test_a_node_where_bwrap_does_not_work_refuses(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tools: dict[str, str], why: str
) -> None:
    """Another may run it; it is not the task's fault."""
    a_path(tmp_path / "bin", tools, monkeypatch)
    async for runner in a_runner(tmp_path, recorder):
        report = await run(runner, recorder, shell("true", isolate="bwrap"))
        assert (report.end, report.code) == (End.REFUSED, 0)
        assert why in report.note


def a_path(directory: Path, tools: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is to be found by name but these (and the shell)."""
    directory.mkdir()
    for name, script in tools.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))


async def a_runner(tmp_path: Path, recorder: Recorder, args: str = "") -> AsyncIterator[SpawnerPool]:
    runner = SpawnerPool(tmp_path / "worker", "node-7", container_args=args)
    await runner.start(recorder)
    try:
        yield runner
    finally:
        await runner.stop()
        assert spawners() == []


# -- a container's command line ---------------------------------------------------------------------------


def oci_words(engine: str, tmp_path: Path, args: str = "", **own: str) -> list[str]:
    (tmp_path / engine).write_text("#!/bin/sh\necho memory cpu pids\n")
    (tmp_path / engine).chmod(0o755)
    environment = {b"PATH": os.fsencode(tmp_path)}
    containers = Containers("node-7", b"/w/sandboxes/12.0", "\n".join(args.split()), environment)
    variables = {name.encode(): text.encode() for name, text in own.items()}
    limits = engines.Limits(2**30, 1500, 64, 0)
    isolation = containers.of("image:1", variables, limits)
    assert isolation.refusal() == ""
    command = isolation.command(Command([b"go", b"--fast"]), b"/w/sandboxes/12.0/0", b"/data", 9)
    assert os.fsdecode(command.path) == str(tmp_path / engine)
    return [word.decode() for word in command.words]


def pairs(words: list[str], flag: str) -> list[str]:
    return [value for name, value in itertools.pairwise(words) if name == flag]


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_the_engine_is_told_what_the_task_may_take_and_see(tmp_path: Path, engine: str) -> None:
    words = oci_words(
        engine, tmp_path, "--debug run --shm-size 1g", FOO="1", PATH="/opt", CUDA_VISIBLE_DEVICES="0"
    )
    assert words[1:5] == ["--debug", "run", "--name", "tercel-12.0-9"]
    assert words[-5:] == ["--shm-size", "1g", "image:1", "go", "--fast"]
    assert pairs(words, "--memory") == pairs(words, "--memory-swap") == [f"{2**30}b"]
    assert pairs(words, "--cpus") == ["1.500"]
    assert pairs(words, "--pids-limit") == ["64"]
    assert pairs(words, "--workdir") == ["/data"]
    assert [mount.split("target=")[1] for mount in pairs(words, "--mount")] == [
        "/w/sandboxes/12.0/0",
        "/data",
    ]
    handed_on = pairs(words, "--env")
    assert {"FOO", "CUDA_VISIBLE_DEVICES", "TERCEL_TASK_ID", "PATH=/opt"} <= set(handed_on)
    assert ("nvidia.com/gpu=all" in words) == (engine == "podman")


def test_apptainer_is_told_the_same_in_its_own_words(tmp_path: Path) -> None:
    words = oci_words("apptainer", tmp_path, "--fakeroot", CUDA_VISIBLE_DEVICES="0")
    assert words[1:] == (
        "exec --pwd /data --bind /w/sandboxes/12.0/0 --bind /data --nv --fakeroot image:1 go --fast".split()
    )


def test_the_engines_have_an_order(tmp_path: Path) -> None:
    for name in ("singularity", "docker", "podman"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
        assert engines.found(os.fsencode(tmp_path))[0] == (name, os.fsencode(tmp_path / name))
    assert engines.found(b"/nowhere") == []


async def test_an_engine_that_does_not_work_is_passed_over(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = {"podman": "exit 1", "docker": "exit 1", "apptainer": "echo $*"}
    a_path(tmp_path / "bin", tools, monkeypatch)
    async for runner in a_runner(tmp_path, recorder):
        report = await run(runner, recorder, shell("go", container="image:1"))
        assert text(report.out).endswith("image:1 go\n")


@pytest.mark.parametrize(
    ("tools", "end", "why"),
    [
        ({}, End.REFUSED, "no container engine"),
        ({"docker": "echo 'Cannot connect to the daemon' >&2; exit 1"}, End.REFUSED, "Cannot connect"),
        (
            {"docker": '[ "$1" = run ] || { echo; exit 0; }; echo "Error: no such image" >&2; exit 125'},
            End.REFUSED,
            "docker on node-7: Error: no such image",
        ),
        (
            {
                "docker": '[ "$1" = run ] || { echo; exit 0; }; echo "Error: toomanyrequests: wait" >&2; exit 125'
            },
            End.INTERRUPTED,
            "toomanyrequests",
        ),
        ({"singularity": "echo 'FATAL: no such image' >&2; exit 255"}, End.REFUSED, "no such image"),
    ],
)
async def test_an_engines_fault_is_not_the_tasks(
    tmp_path: Path,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tools: dict[str, str],
    end: End,
    why: str,
) -> None:
    a_path(tmp_path / "bin", tools, monkeypatch)
    async for runner in a_runner(tmp_path, recorder):
        report = await run(runner, recorder, shell("true", container="image:1"))
        assert (report.end, report.code) == (end, 0), report
        assert why in report.note


async def test_functions_are_not_run_in_containers(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(runner, recorder, call(lambda: 1, container="image:1"))
    assert report.end is End.REFUSED
    assert "submit a command" in report.note


# -- real containers --------------------------------------------------------------------------------------


@pytest.fixture
def image() -> None:
    if not has_image():
        pytest.skip("podman, runc or busybox is not installed, or podman does not work here")


needs_podman = pytest.mark.usefixtures("image")


@pytest.fixture
async def with_podman(tmp_path: Path, recorder: Recorder, image: None) -> AsyncIterator[SpawnerPool]:
    async for runner in a_runner(tmp_path, recorder, ARGS):
        yield runner
    assert containers_of(tmp_path) == []


def containers_of(tmp_path: Path) -> list[str]:
    found = podman("ps", "--all", "--filter", f"label=tercel={tmp_path}/worker", "--format", "{{.Names}}")
    return found.stdout.split()


@needs_podman
async def test_a_command_runs_in_its_image(with_podman: SpawnerPool, recorder: Recorder) -> None:
    line = "echo $0 $TERCEL_TASK_ID $FOO; pwd; touch kept; ls /etc/passwd; exit 3"
    report = await run(with_podman, recorder, shell(line, container=IMAGE, env={"FOO": "bar"}))
    assert (report.end, report.code) == (End.EXITED, 3), report
    first, where = text(report.out).splitlines()
    assert first == "/bin/sh 14 bar"
    assert where.startswith(str(with_podman._dir / "sandboxes"))
    assert "/etc/passwd" in text(report.err), "this node's files are not there"
    assert report.note == ""


@needs_podman
async def test_a_command_that_the_image_has_not_is_the_tasks_fault(
    with_podman: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(with_podman, recorder, shell("nosuch-command", container=IMAGE))
    assert (report.end, report.code) == (End.EXITED, 127), report
    assert "nosuch-command" in report.note


@needs_podman
async def test_an_image_that_is_not_there_is_refused(with_podman: SpawnerPool, recorder: Recorder) -> None:
    report = await run(with_podman, recorder, shell("true", container="localhost/tercel-test/nosuch:1"))
    assert (report.end, report.code) == (End.REFUSED, 0)
    assert "nosuch" in report.note


@needs_podman
async def test_a_hog_in_a_container_is_ended(with_podman: SpawnerPool, recorder: Recorder) -> None:
    line = "exec awk 'BEGIN { x = \"x\"; while (1) x = x x }'"
    report = await run(
        with_podman, recorder, shell(line, container=IMAGE, limits=Limits(mem_bytes=50 * MB, millicpus=1000))
    )
    assert (report.end, report.exceeded) == (End.EXCEEDED, "memory"), report
    assert "of 50 MB of memory" in report.note


@needs_podman
async def test_cancel_ends_the_container(
    with_podman: SpawnerPool, recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    os.link(lifeline.path, work / "line")
    gentle = "trap 'echo saved; exit 5' TERM; exec 9>line; echo x >&9; while :; do sleep 0.01; done"
    with_podman.launch([shell(gentle, container=IMAGE, cwd=str(work))])
    await lifeline.held()
    with_podman.kill([1])
    report = await recorder.report(1)
    assert (report.end, text(report.out)) == (End.CANCELLED, "saved\n"), report
    await lifeline.dropped()


@needs_podman
async def test_a_container_that_ignores_term_is_killed(
    with_podman: SpawnerPool, recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    os.link(lifeline.path, work / "line")
    stubborn = "trap '' TERM; exec 9>line; echo x >&9; while :; do sleep 0.01; done"
    with_podman.launch([shell(stubborn, container=IMAGE, cwd=str(work), kill_grace_s=0.3)])
    await lifeline.held()
    with_podman.kill([1])
    report = await recorder.report(1)
    assert report.end is End.CANCELLED
    await lifeline.dropped()
    await becomes(lambda: containers_of(tmp_path) == [], "nothing of it is left", WAIT_S)


@needs_podman
async def test_a_container_ends_with_its_spawner(
    with_podman: SpawnerPool, recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    os.link(lifeline.path, work / "line")
    with_podman.launch([shell("exec 9>line; echo x >&9; sleep 600", container=IMAGE, cwd=str(work))])
    await lifeline.held()
    [spawner] = spawners()
    os.kill(spawner, signal.SIGKILL)
    assert (await recorder.report(1)).end is End.INTERRUPTED
    await lifeline.dropped()


@needs_podman
async def test_containers_of_a_killed_worker_go_with_the_next_start(
    recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    source = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.conformance.runners import Recorder, shell\n"
        "from tercel.runners.pool import SpawnerPool\n"
        "async def main(dir, line, cwd, image, args):\n"
        "    runner = SpawnerPool(Path(dir), 'node-7', container_args=args)\n"
        "    await runner.start(Recorder())\n"
        "    runner.launch([shell(line, container=image, cwd=cwd)])\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main(*sys.argv[1:]))"
    )
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": f"{root}:{root / 'src'}"}
    work = tmp_path / "work"
    work.mkdir()
    os.link(lifeline.path, work / "line")
    line = "exec 9>line; echo x >&9; sleep 600"
    words = [str(tmp_path / "worker"), line, str(work), IMAGE, ARGS]
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", source, *words, env=env)
    await lifeline.held()
    for pid in trees.descendants(worker.pid):  # the spawner too: it would tidy up
        if trees.name_of(pid).startswith(b"python"):
            os.kill(pid, signal.SIGKILL)
    worker.kill()
    await worker.wait()
    assert containers_of(tmp_path)
    async for _ in a_runner(tmp_path, recorder, ARGS):
        assert containers_of(tmp_path) == []
    await lifeline.dropped()
