"""Outages: a quota, names, SSH, a worker's disk, a job's directory. Everything waits, goes on, and is nobody's failure.

Every job may be retried twice, and some tasks meet their fault four times: had that spent retries, they would have failed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tercel.core.reports import Blame
from tercel.core.states import TaskState
from tests.acceptance.outages import Noted, Resolver, Tmpfs, blamed, blocked, condition, ends, probed, server
from tests.lab import HASTY, RECORD, Lab, free_port, names
from tests.processes import eventually
from tests.testers.servers import Sshd

pytestmark = [pytest.mark.must("b"), pytest.mark.T(8)]

OFTEN = "every 1s for 1h"


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """One that does not run yet."""
    sshd = Sshd(tmp_path / "sshd", free_port())
    sshd.stop()
    try:
        yield sshd
    finally:
        sshd.close()


@pytest.fixture
def resolver(tmp_path: Path, lab: Lab) -> Iterator[Resolver]:
    """A broken one, that the lab's workers and their tasks ask."""
    resolver = Resolver(tmp_path / "resolver")
    lab.worker_prefix = resolver.prefix
    try:
        yield resolver
    finally:
        lab.close()
        resolver.close()


@pytest.fixture
def disk(lab: Lab) -> Iterator[Tmpfs]:
    """Where the worker `small` is."""
    disk = Tmpfs(lab.worker_dir("small"))
    try:
        yield disk
    finally:
        lab.close()
        disk.unmount()


def submit(lab: Lab, tasks: int, rule: str, line: str) -> None:
    lab.ok(
        *("submit", "--array", f"0-{tasks - 1}", "--retries", "2", "--block-on", rule, "--"),
        *("bash", "-c", line),
    )


async def first_meets_it_again(lab: Lab, job: int, tasks: int, id: int = 1) -> None:
    """Somebody is impatient: three times the first is let go although nothing is mended."""
    for _ in range(3):
        assert lab.ok("blocked", "release", f"C{id}", "--count", "1") == "1 task released\n"
        await blocked(lab, job, tasks)


async def seen(lab: Lab, text: str) -> None:
    """Until a test has seen it."""

    async def ask() -> bool:
        row = await condition(lab)
        return row is not None and row.note.startswith(text)

    await eventually(ask, f"a test sees that {text}")


async def all_went_well(lab: Lab, job: int, tasks: int) -> dict[TaskState, int]:
    """None failed, none spent a retry, each did its work once. Returns how its attempts ended."""
    (view,) = await lab.done([job])
    assert (view.counts.finished, view.counts.failed) == (tasks, 0)
    found = ends(lab, job)
    assert found[TaskState.FINISHED] == tasks
    before = blamed(lab, job)
    assert not any(spent for _, _, spent in before), "no retry was spent"
    assert {blame for state, blame, _ in before if state is TaskState.BLOCKED} <= {Blame.OUTSIDE}
    assert TaskState.FAILED not in found
    assert {name: count for name, count in lab.runs().items() if name.startswith(f"{job}.")} == dict.fromkeys(
        names(job, tasks), 1
    )
    return found


# -- a quota ----------------------------------------------------------------------------------------------

STORE = f"""(
    flock 9
    [ $(wc -l < used) -lt $(cat quota) ] || {{ echo 'write: Disk quota exceeded' >&2; exit 1; }}
    echo stored >> used
) 9> lock && {RECORD}"""
"""Takes one place of the quota for good, or says what a file system would."""

QUOTA_OK = """#!/bin/sh
mkdir probing || echo "two at once" >> overlaps
echo probed >> probes
free=$(($(cat quota) - $(wc -l < used)))
rmdir probing
[ $free -gt 0 ] && echo room=$free
"""
QUOTA_RULE = f"stderr:/Disk quota exceeded/ -> command:./quota-ok.sh; {OFTEN}"


def quota(lab: Lab, places: int) -> None:
    """Whole at any moment."""
    (lab.work / "quota.new").write_text(f"{places}\n")
    (lab.work / "quota.new").rename(lab.work / "quota")


def with_quota(lab: Lab) -> None:
    quota(lab, 0)
    (lab.work / "used").touch()
    script = lab.work / "quota-ok.sh"
    script.write_text(QUOTA_OK)
    script.chmod(0o755)


@pytest.mark.T(9)
async def test_a_quota_lets_so_many_go_on_as_it_has_room_for(lab: Lab) -> None:
    tasks = 500
    await lab.up()
    with_quota(lab)
    submit(lab, tasks, QUOTA_RULE, STORE)
    await blocked(lab, 1, tasks)
    await first_meets_it_again(lab, 1, tasks)
    quota(lab, tasks // 2)

    async def half() -> bool:
        view = await lab.ask(lambda client: client.job(1))
        return view is not None and (view.counts.finished, view.counts.blocked) == (tasks // 2, tasks // 2)

    await eventually(half, "half of them have found room, and the others wait")
    (row,) = lab.json("blocked")["conditions"]
    assert row["tasks"] == tasks // 2
    quota(lab, tasks)
    found = await all_went_well(lab, 1, tasks)
    assert found.keys() == {TaskState.FINISHED, TaskState.BLOCKED}
    # What is told as room is still there for a moment when somebody has begun to take it.
    assert tasks + 3 <= found[TaskState.BLOCKED] < 1.2 * tasks, "few of those that had room met the fault"
    assert not (lab.work / "overlaps").exists()
    assert len((lab.work / "probes").read_text().split()) < tasks / 5


# -- names ------------------------------------------------------------------------------------------------


async def test_tasks_wait_while_names_are_not_found(lab: Lab, resolver: Resolver) -> None:
    tasks = 500
    await lab.manager_up("--heartbeat", "1s")
    lab.worker("w", 4, "", *HASTY)
    await lab.workers_online(1)
    submit(lab, tasks, f"exit:2 -> dns:store.lab; {OFTEN}", f"getent ahostsv4 store.lab && {RECORD}")
    await blocked(lab, 1, tasks)
    await first_meets_it_again(lab, 1, tasks)
    await seen(lab, "store.lab cannot be found: ")
    resolver.broken = False
    found = await all_went_well(lab, 1, tasks)
    assert found == {TaskState.FINISHED: tasks, TaskState.BLOCKED: tasks + 3}
    (row,) = lab.json("blocked", "--all")["conditions"]
    assert (row["closed"], row["note"]) == ("cleared", "store.lab is 127.0.0.1")


# -- SSH --------------------------------------------------------------------------------------------------


async def test_tasks_wait_while_a_server_of_ssh_refuses_connections(lab: Lab, sshd: Sshd) -> None:
    """Few only: each logs in, which takes a while."""
    tasks = 40
    await lab.up()
    options = " ".join(sshd.options())
    line = f"ssh {options} -p {sshd.port} -l root 127.0.0.1 true && {RECORD}"
    submit(lab, tasks, f"exit:255 -> ssh:127.0.0.1:{sshd.port}; {OFTEN}", line)
    await blocked(lab, 1, tasks)
    await first_meets_it_again(lab, 1, tasks)
    await seen(lab, f"127.0.0.1:{sshd.port}: connection refused")
    sshd.start()
    found = await all_went_well(lab, 1, tasks)
    assert found == {TaskState.FINISHED: tasks, TaskState.BLOCKED: tasks + 3}
    (row,) = lab.json("blocked", "--all")["conditions"]
    assert row["closed"] == "cleared"
    assert " greets with SSH-2.0-" in row["note"]


# -- a worker's disk, and a job's directory ---------------------------------------------------------------

SLOW_ENOUGH = f"{RECORD}; while [ ! -e go ]; do sleep 0.02; done"
"""Runs until the test makes the file `go`."""


async def test_tasks_wait_for_the_only_worker_while_its_disk_is_full(lab: Lab, disk: Tmpfs) -> None:
    """What runs goes on; for others not even a directory can be made."""
    tasks = 500
    await lab.manager_up("--heartbeat", "1s")
    lab.worker("small", 4, "", *HASTY)
    await lab.workers_online(1)
    before = await lab.submit(lab.shell(SLOW_ENOUGH, array="0-1", retries=2))
    await lab.running(before, 2)
    disk.fill()
    id = await lab.submit(lab.shell(RECORD, array=f"0-{tasks - 1}", retries=2))
    await eventually(lambda: is_blocked(lab, id, 1), "tasks are blocked")
    row = await condition(lab)
    assert row is not None
    where = lab.worker_dir("small")
    assert (row.tester, row.place, row.where) == (f"writable:{where}", "worker", lab.worker_id("small"))
    lab.ok("blocked", "test", "C1")
    await probed(lab, 1)
    assert "no space left on device" in lab.ok("explain", f"{id}").lower()
    disk.free()
    lab.ok("blocked", "test", "C1")
    (lab.work / "go").touch()
    await all_went_well(lab, before, 2)
    await all_went_well(lab, id, tasks)


async def test_what_one_worker_has_no_room_for_runs_on_another(lab: Lab, disk: Tmpfs) -> None:
    tasks = 500
    await lab.manager_up("--heartbeat", "1s")
    lab.worker("small", 2, "", *HASTY)
    lab.worker("large", 2, "", *HASTY)
    await lab.workers_online(2)
    id = await lab.submit(lab.shell(SLOW_ENOUGH, array=f"0-{tasks - 1}", retries=2))
    await lab.running(id, 4)
    disk.fill()
    (lab.work / "go").touch()
    await all_went_well(lab, id, tasks)
    assert lab.json("blocked", "--all")["conditions"] == [], "nobody waited for it"


async def test_tasks_wait_while_the_directory_of_their_job_is_nowhere(lab: Lab) -> None:
    tasks = 500
    await lab.manager_up("--heartbeat", "1s")
    for name in ("a", "b"):
        lab.worker(name, 2, "", *HASTY)
    await lab.workers_online(2)
    data = lab.work / "data"
    line = 'echo "$TERCEL_JOB_ID.$TERCEL_TASK_ID" >> ../ran'
    lab.ok(
        *("submit", "--array", f"0-{tasks - 1}", "--retries", "2", "--cwd", str(data), "--"),
        *("sh", "-c", line),
    )
    await eventually(lambda: is_blocked(lab, 1, 1), "tasks are blocked")
    (row,) = lab.json("blocked")["conditions"]
    assert (row["tester"], row["place"]) == (f"dir:{data}", "site")
    lab.ok("blocked", "test", "C1")
    await probed(lab, 1)
    told = lab.ok("explain", "1")
    assert f"{data} does not exist" in told
    assert "2 of 2 workers could run it but refused" in told, "the rest is not tried before that is there"
    data.mkdir()
    lab.ok("blocked", "test", "C1")
    found = await all_went_well(lab, 1, tasks)
    assert found == {TaskState.FINISHED: tasks}, "what was refused was never an attempt"


# -- all of it --------------------------------------------------------------------------------------------


async def test_5000_tasks_outlive_five_outages_at_once_in_which_the_manager_is_killed(
    lab: Lab, disk: Tmpfs, resolver: Resolver, sshd: Sshd
) -> None:
    """A licence server, a quota, names and SSH are gone, and one of two workers has no room: a thousand tasks meet each."""
    each, port, seen = 1000, free_port(), {}
    noted = Noted(lab.root / "tests")
    lab.worker_prefix += noted.prefix
    manager = await lab.manager_up("--heartbeat", "1s")
    for name in ("small", "large"):
        lab.worker(name, 2, "", *HASTY)
    await lab.workers_online(2)
    disk.fill()
    with_quota(lab)
    dial = "exec 3<> /dev/tcp/127.0.0.1"
    jobs = {
        f"tcp:127.0.0.1:{port}": ("exit:1", f"({dial}/{port}) && {RECORD}"),
        "command:./quota-ok.sh": ("stderr:/Disk quota exceeded/", STORE),
        "dns:store.lab": ("exit:2", f"getent ahostsv4 store.lab && {RECORD}"),
        f"ssh:127.0.0.1:{sshd.port}": ("exit:1", f"({dial}/{sshd.port}; head -c 4 <&3) && {RECORD}"),
    }
    for tester, (on, line) in jobs.items():
        submit(lab, each, f"{on} -> {tester}; {OFTEN}", line)
    plain = await lab.submit(lab.shell(RECORD, array=f"0-{each - 1}", retries=2))

    await eventually(lambda: is_blocked(lab, 1, each // 2), "half of the first are blocked")
    manager.kill()
    await lab.manager_up("--heartbeat", "1s")
    for job in range(1, 5):
        await blocked(lab, job, each)
    for row in lab.json("blocked")["conditions"]:
        seen[row["tester"]] = (row["tasks"], row["job_count"])
    assert seen == dict.fromkeys(jobs, (each, 1)), "one condition for each outage, and so one probe"

    disk.free()
    quota(lab, each)
    resolver.broken = False
    sshd.start()
    with server(port):
        for job in range(1, 6):
            await all_went_well(lab, job, each)
    assert plain == 5
    assert lab.json("blocked")["conditions"] == []
    at_once = noted.at_once()
    assert {tester: at_once[tester] for tester in jobs} == dict.fromkeys(jobs, 1), (
        "one probe at a time for each"
    )
    assert set(at_once.values()) == {1}
    assert not (lab.work / "overlaps").exists()


async def is_blocked(lab: Lab, job: int, least: int) -> bool:
    view = await lab.ask(lambda client: client.job(job))
    return view is not None and view.counts.blocked >= least
