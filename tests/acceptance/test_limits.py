"""Tasks that take more than they asked for, beside ordinary ones: as whoever runs the tests, and as an ordinary user."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tercel.core.states import TaskState
from tercel.wire.api import Submission
from tests.conformance.containers import ARGS, IMAGE, has_image, needs_bwrap
from tests.conformance.runners import may_use_cgroups
from tests.lab import HASTY, RECORD, Lab, assert_all_finished, names
from tests.processes import becomes, eventually, marked

MB = 2**20
ORDINARY = 100

HOG = "x = []\nwhile True: x.append(bytearray(b'x' * 2**20))"
BOMB = "import os, time\nfor _ in range(200):\n    if os.fork() == 0: time.sleep(600)\ntime.sleep(600)"
FILLER = "import time\nfor n in range(10_000): open(str(n), 'wb').write(bytes(2**20))\ntime.sleep(600)"
SPINNERS = "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait"

ORDINARY_USER = (
    "setpriv --reuid 65534 --regid 65534 --clear-groups "
    "--inh-caps +dac_read_search --ambient-caps +dac_read_search"
)
"""May read all (Python may be in root's home), write only what is its own, and limit nobody by control groups."""


@pytest.fixture(params=["as we are", "an ordinary user"])
def user(request: pytest.FixtureRequest, lab: Lab) -> Iterator[None]:
    if request.param == "an ordinary user":
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            pytest.skip("becoming another user needs root and setpriv")
        lab.worker_prefix = tuple(ORDINARY_USER.split())
        for path in (lab.root, *lab.root.rglob("*")):
            os.chown(path, 65534, 65534)
    yield


def python(source: str, **more: object) -> Submission:
    """In its sandbox."""
    return Submission(argv=(sys.executable, "-c", source), key=os.urandom(8).hex(), **more)  # type: ignore[arg-type]


@pytest.mark.must("c")
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("user")
async def test_tasks_that_take_too_much_are_ended_and_others_are_not(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "60s")
    worker = lab.worker("w", 3, "", *HASTY)
    await lab.workers_online(1)

    hog = await lab.submit(python(HOG, mem_bytes=200 * MB, priority=1))
    bomb = await lab.submit(python(BOMB, pids=50, priority=1))
    filler = await lab.submit(python(FILLER, disk_bytes=30 * MB, priority=1))
    spinners = await lab.submit(lab.shell(SPINNERS, time_limit_s=3.0, kill_grace_s=0.5, priority=1))
    ordinary = await lab.submit(lab.shell(f"{RECORD}; echo $TERCEL_TASK_ID", array=f"0-{ORDINARY - 1}"))
    await lab.done([hog, bomb, filler, spinners, ordinary])

    async with lab.client() as client:
        await assert_all_finished(client, ordinary, ORDINARY)
        said = {}
        for what, id in (("memory", hog), ("pids", bomb), ("disk", filler)):
            task = await client.task(id, 0)
            assert task.state is TaskState.FAILED, what
            said[what] = task.attempts[-1].note
        spun = (await client.task(spinners, 0)).attempts[-1]
    assert lab.runs() == dict.fromkeys(names(ordinary, ORDINARY), 1)
    assert said["memory"].startswith("used ")
    assert " of 200 MB of memory" in said["memory"]
    assert "50 processes" in said["pids"] or "50 allowed" in said["pids"]
    assert said["disk"].startswith("wrote ")
    assert said["disk"].endswith(", 30 MB allowed")
    # Eight of them, but the one core that the task asked for, but for the moment before that is enforced.
    assert spun.cpu_s < 1.3 * spun.wall_s + 0.5
    assert worker.alive
    await becomes(lambda: not marked(f"TERCEL_SANDBOX={lab.root}/"), "no process of any task is left")


@pytest.mark.must("c")
@pytest.mark.skipif(not may_use_cgroups(), reason="no control group here that this user may divide")
async def test_a_killed_worker_leaves_no_control_group_to_the_next(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "1s")
    worker = lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    line = f"{RECORD}; while [ ! -e go ]; do sleep 0.02; done"
    id = await lab.submit(lab.shell(line, mem_bytes=200 * MB, pids=50))
    await lab.running(id, 1)
    made = (lab.worker_dir("w") / "cgroups").read_text().split()
    worker.kill()
    again = lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    (lab.work / "go").touch()
    await lab.done([id])
    again.signal(2)
    await again.ended()
    assert not [path for path in made if Path(path).exists()]
    assert not (lab.worker_dir("w") / "cgroups").exists()


@needs_bwrap
async def test_a_job_runs_isolated(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    done = lab.run(
        "run", "--isolate", "bwrap", "--", "sh", "-c", "touch here /etc/there; ls /proc | grep -c '^[0-9]'"
    )
    assert int(done.stdout) < 8
    assert "/etc/there" in done.stderr
    assert (lab.work / "here").exists(), "its own directory is not read-only"
    assert not Path("/etc/there").exists()


async def test_a_job_runs_in_a_container(lab: Lab) -> None:
    if os.geteuid() != 0 or not has_image():
        pytest.skip("podman, runc or busybox is not installed, or its images are in somebody's home")
    await lab.manager_up("--heartbeat", "1s")
    lab.env["TERCEL_CONTAINER_ARGS"] = ARGS
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    line = "cat /bin/busybox | head -c 4 > /dev/null && echo $TERCEL_TASK_ID > from-inside; ls /usr"
    id = await lab.submit(lab.shell(line, container=IMAGE, mem_bytes=200 * MB, pids=50))
    gone = await lab.submit(lab.shell("true", container="localhost/tercel-test/nosuch:1"))
    await lab.done([id])
    async with lab.client() as client:
        task = await client.task(id, 0)
        assert task.attempts[-1].code != 0, "the image has no /usr"
        assert (lab.work / "from-inside").read_text() == "0\n"

    async def refused() -> bool:
        async with lab.client() as client:
            return "nosuch" in (await client.explain(str(gone))).summary

    await eventually(refused, "the engine's words are shown")
