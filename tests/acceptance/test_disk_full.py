"""The manager's disk is full: nothing new is accepted, nothing accepted is lost, and all goes on when there is room."""

import os
import resource
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tercel.core.errors import StoreFull
from tests.lab import HASTY, RECORD, Lab, assert_all_finished, names
from tests.processes import Process, becomes, eventually

TASKS = 40
PIECE_BYTES = 4096


class Tmpfs:
    """A small file system for the manager's directory. Root only."""

    def __init__(self, lab: Lab) -> None:
        self._path = lab.data
        self._ballast = lab.data / "ballast"

    def mount(self) -> None:
        self._path.mkdir(mode=0o700)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tercel-test", self._path], check=True
        )

    def fill(self, _manager: Process) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(PIECE_BYTES))
            except OSError:
                pass

    def free(self, _manager: Process) -> None:
        self._ballast.unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self._path], check=False)


class SizeLimit:
    """A limit on the size of the manager's files, set while it runs: for those who may not mount."""

    def mount(self) -> None:
        pass

    def fill(self, manager: Process) -> None:
        _, hard = resource.prlimit(manager.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(manager.pid, resource.RLIMIT_FSIZE, (1, hard))

    def free(self, manager: Process) -> None:
        _, hard = resource.prlimit(manager.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(manager.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def unmount(self) -> None:
        pass


Disk = Tmpfs | SizeLimit


@pytest.fixture(params=["tmpfs", "size limit"])
def disk(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Disk]:
    if request.param == "tmpfs" and os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = Tmpfs(lab) if request.param == "tmpfs" else SizeLimit()
    disk.mount()
    try:
        yield disk
    finally:
        lab.close()
        disk.unmount()


@pytest.mark.must("h")
async def test_a_full_disk_refuses_what_is_new_and_loses_nothing(lab: Lab, disk: Disk) -> None:
    manager = await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    lab.watch_records()
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    line = f"{RECORD}; while [ ! -e go ]; do sleep 0.02; done"
    id = await lab.submit(lab.shell(line, array=f"0-{TASKS - 1}"))
    await lab.running(id, 2)

    disk.fill(manager)
    # What runs ends, and cannot be recorded.
    (lab.work / "go").touch()
    await becomes(lambda: lab.reports_owed() >= 2, "results wait in the worker's spool")
    await trouble(lab, lambda text: "no room" in text)

    async with lab.client() as client:
        with pytest.raises(StoreFull, match="no room"):
            await client.submit(lab.shell(RECORD))
        assert not (await client.health()).ok
    assert http_status_of_a_submission(lab) == 507
    refused = lab.run("submit", "true")
    assert refused.returncode == 3
    assert "no room on the disk" in refused.stderr
    assert refused.stdout == ""
    assert lab.json("submit", "true", code=3)["kind"] == "store_full"
    assert "no room on the disk" in lab.ok("status")
    assert "no room on the disk" in lab.json("status")["trouble"]
    assert lab.store("SELECT count(*) FROM outcome") == [(0,)]
    assert lab.reports_owed() >= 2, "nothing was acknowledged that is not kept"

    disk.free(manager)
    await lab.done([id])

    await trouble(lab, lambda text: not text)
    async with lab.client() as client:
        await assert_all_finished(client, id, TASKS)
        assert [job.id for job in (await client.jobs(all=True)).jobs] == [id], (
            "what was refused left no trace"
        )
    assert lab.runs() == dict.fromkeys(names(id, TASKS), 1)
    assert lab.store("SELECT count(*) FROM outcome") == [(TASKS,)]
    assert not lab.replaced_records()
    await becomes(lambda: lab.reports_owed() == 0, "the spool is empty")
    after = await lab.submit(lab.shell(RECORD))
    await lab.done([after])


async def trouble(lab: Lab, wanted: Callable[[str], bool]) -> None:
    async def ask() -> bool:
        async with lab.client() as client:
            return wanted((await client.status()).trouble)

    await eventually(ask, "the status tells")


def http_status_of_a_submission(lab: Lab) -> int:
    access = lab.access()
    request = urllib.request.Request(
        f"{access.url}/v1/jobs",
        data=msgspec.json.encode(lab.shell(RECORD)),
        headers={"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.must("h")
async def test_an_idle_manager_with_a_full_disk_refuses_submissions_and_recovers(
    lab: Lab, disk: Disk
) -> None:
    """Nothing but the submissions themselves tells it that there is no room."""
    manager = await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    disk.fill(manager)
    async with lab.client() as client:
        for _ in range(3):
            with pytest.raises(StoreFull, match="no room"):
                await client.submit(lab.shell(RECORD))
        disk.free(manager)
        id = (await client.submit(lab.shell(RECORD))).id
        assert [job.id for job in (await client.jobs(all=True)).jobs] == [id]


@pytest.mark.must("h")
async def test_a_manager_killed_while_its_disk_is_full_goes_on_where_it_was(lab: Lab, disk: Disk) -> None:
    manager = await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    lab.watch_records()
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(f"while [ ! -e go ]; do sleep 0.02; done; {RECORD}", array="0-5"))
    await lab.running(id, 2)
    disk.fill(manager)
    (lab.work / "go").touch()
    await becomes(lambda: lab.reports_owed() >= 2, "results wait in the worker's spool")
    manager.kill()
    disk.free(manager) if isinstance(disk, Tmpfs) else None

    await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    await lab.done([id])

    async with lab.client() as client:
        await assert_all_finished(client, id, 6)
    assert lab.runs() == dict.fromkeys(names(id, 6), 1)
    assert not lab.replaced_records()


@pytest.mark.must("h")
def test_a_manager_that_cannot_start_for_want_of_room_says_so(lab: Lab) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = Tmpfs(lab)
    disk.mount()
    try:
        disk.fill(None)  # type: ignore[arg-type]
        manager = lab.manager()
        assert manager.wait() in (2, 3)
        assert "no room" in manager.said or "No space left" in manager.said
        assert "Traceback" not in manager.said
    finally:
        lab.close()
        disk.unmount()
