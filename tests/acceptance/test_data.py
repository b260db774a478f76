"""Files of tasks with real servers: brought, delivered, registered; blocked where something outside is broken, and then gone on with."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tercel.core.reports import Blame
from tercel.core.states import TaskState
from tests.acceptance.outages import blamed, blocked, condition, ends
from tests.acceptance.storing import Store
from tests.lab import HASTY, Lab
from tests.processes import becomes

pytestmark = [pytest.mark.must("a"), pytest.mark.T(2)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store")
    try:
        yield store
    finally:
        store.kill()


def submit(lab: Lab, *words: str, tasks: int = 1, line: str) -> None:
    lab.ok("submit", "--array", f"0-{tasks - 1}", "--retries", "2", *words, "--", "bash", "-c", line)


async def pool(lab: Lab, *words: str) -> None:
    await lab.manager_up("--heartbeat", "1s", *words)
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)


def mended(lab: Lab) -> None:
    """Look at once, unless that has just been done."""
    lab.run("blocked", "test", "C1")


def finished(lab: Lab, job: int, tasks: int) -> None:
    """Each once; what was blocked is nobody's fault, and spent nothing."""
    assert ends(lab, job)[TaskState.FINISHED] == tasks
    assert blamed(lab, job) <= {(TaskState.BLOCKED, Blame.OUTSIDE, False)}


@pytest.mark.C(11)
async def test_what_tasks_read_is_at_a_server_that_is_down_and_is_brought_once_when_it_is_up(
    lab: Lab, store: Store
) -> None:
    (store.directory / "x.txt").write_text("read me\n")
    await pool(lab)
    submit(lab, "--in", f"{store.url}/x.txt", tasks=20, line='test "$(cat x.txt)" = "read me"')
    await blocked(lab, 1, 20)
    seen = await condition(lab)
    assert seen is not None and (seen.tester, seen.tasks) == (f"tcp:127.0.0.1:{store.port}", 20)
    store.start()
    mended(lab)
    await lab.done([1])
    finished(lab, 1, 20)
    assert store.asked("GET") == ["/x.txt"]


@pytest.mark.C(12)
async def test_what_a_task_left_waits_at_its_worker_for_a_server_that_is_down_whoever_is_killed(
    lab: Lab, store: Store
) -> None:
    """It runs once: neither the worker's end nor the manager's costs what it computed."""
    manager = await lab.manager_up("--heartbeat", "1s")
    worker = lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    ran = lab.work / "ran"
    line = f'echo $TERCEL_TASK_ID >> {ran}; echo "by $TERCEL_TASK_ID" > r.txt'
    submit(lab, "--out", f"r.txt -> {store.url}/out/{{task}}.txt", tasks=4, line=line)
    await blocked(lab, 1, 4)
    worker.kill()
    manager.kill()
    await lab.manager_up("--heartbeat", "1s")
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    await blocked(lab, 1, 4)
    store.start()
    mended(lab)
    await lab.done([1])
    finished(lab, 1, 4)
    assert sorted(ran.read_text().split()) == ["0", "1", "2", "3"]
    assert store.files() == {f"out/{task}.txt": f"by {task}\n".encode() for task in range(4)}
    outgoing = lab.worker_dir("w") / "outgoing"
    await becomes(lambda: not any(outgoing.iterdir()), "nothing is left of it at the worker")


@pytest.mark.C(13)
async def test_a_name_that_is_taken_blocks_and_is_registered_without_another_run_when_it_is_free(
    lab: Lab,
) -> None:
    await pool(lab)
    ran = lab.work / "ran"
    (lab.work / "other").write_text("another")
    lab.ok("file", "add", "lfn:fit", str(lab.work / "other"))
    submit(lab, "--out", "r.txt=lfn:fit", line=f"echo x >> {ran}; echo new > r.txt")
    await blocked(lab, 1, 1)
    seen = await condition(lab)
    assert seen is not None and seen.tester == "unused:lfn:fit"
    lab.ok("file", "rm", "lfn:fit")
    await lab.done([1])
    finished(lab, 1, 1)
    assert ran.read_text() == "x\n"
    lab.ok("file", "get", "lfn:fit", str(lab.work / "got"))
    assert (lab.work / "got").read_text() == "new\n"


@pytest.mark.C(9)
async def test_a_rollback_takes_files_out_of_the_catalogue_and_removes_them_before_the_next_run(
    lab: Lab, store: Store
) -> None:
    store.start()
    await pool(lab)
    seen = lab.work / "seen"
    line = f"curl -s -o /dev/null -w '%{{http_code}}\\n' {store.url}/r.txt >> {seen}; echo r > r.txt; test -e {lab.work}/fine"
    submit(lab, "--out", f"r.txt -> {store.url}/r.txt; always", line=line)
    await lab.done([1])
    assert ends(lab, 1)[TaskState.FAILED] == 3
    assert (store.directory / "r.txt").exists()
    dry = lab.json("rollback", "1", "--failed", "--to", "staged", "--dry-run")
    assert dry["parts"][0]["names"] == [f"{store.url}/r.txt"]
    assert (store.directory / "r.txt").exists()
    (lab.work / "fine").touch()
    lab.ok("rollback", "1", "--failed", "--to", "staged", "--yes")
    await lab.done([1])
    assert ends(lab, 1)[TaskState.FINISHED] == 1
    assert seen.read_text().split()[-1] == "404", "it was gone before the task ran again"
    assert (store.directory / "r.txt").read_text() == "r\n"
    assert store.asked("DELETE") == ["/r.txt"]


@pytest.mark.C(12)
async def test_a_worker_that_is_killed_while_it_delivers_goes_on_with_it_and_leaves_no_half_file(
    lab: Lab, store: Store
) -> None:
    store.start(held="/big")
    await lab.manager_up("--heartbeat", "1s")
    worker = lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    ran = lab.work / "ran"
    submit(lab, "--out", f"big -> {store.url}/big", line=f"echo x >> {ran}; head -c 1000000 /dev/zero > big")
    await becomes(lambda: store.asked("PUT") == ["/big"], "the upload has begun")
    os.kill(worker.pid, signal.SIGKILL)
    assert not (store.directory / "big").exists()
    lab.worker("w", 2, "", *HASTY)
    await lab.done([1])
    finished(lab, 1, 1)
    assert (store.directory / "big").read_bytes() == bytes(1_000_000)
    assert ran.read_text() == "x\n"
