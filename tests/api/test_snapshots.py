"""Snapshots through the API: saved while the manager runs, restored into one that has other jobs."""

import getpass
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.commands import MAX_ENV_BYTES
from tercel.core.conditions import Fault, Place, Postponed
from tercel.core.errors import StoreFull
from tercel.core.model import Role
from tercel.core.reports import End
from tercel.core.states import Stage
from tercel.stores.snapshot.files import Writer, parts
from tercel.stores.snapshot.records import JobPart, Part
from tercel.wire.api import History
from tercel.wire.api_snapshots import Restoration
from tests.api.house import Answer, House

pytestmark = pytest.mark.C(8)

ME = getpass.getuser()
GATED = {"on": "exit:75", "tester": "enabled:queue=gate", "at": "here", "policy": "every 1m for 1d"}


async def save(house: House, query: str = "", token: str = "") -> bytes:
    answer = await house.ask("GET", f"/v1/snapshot{query}", token=token)
    assert answer.status == 200, answer
    return answer.body


async def restore(house: House, data: bytes, query: str = "", token: str = "") -> Answer:
    return await house.ask("POST", f"/v1/restore{query}", token=token, body=io.BytesIO(data))


async def restored(house: House, data: bytes, query: str = "", token: str = "") -> Restoration:
    return (await restore(house, data, query, token)).of(Restoration)


def left_over(house: House) -> list[str]:
    return [path.name for path in (house.data / "snapshots").glob("*") if not path.stem.isdecimal()]


async def test_what_is_restored_goes_on_beside_other_jobs(house: House) -> None:
    first = await house.submit(array="0-3", retries=1)
    second = await house.submit(array="0-1", after=[{"job": first.id}])
    await house.submit(hold=True, name="held")
    worker = await house.worker()
    await worker.report(await worker.offered(first.id))
    failed = await worker.offered(first.id)
    await worker.report(failed, code=3)
    under_way = await worker.offered(first.id)
    await house.until(lambda: house.manager.machine.jobs[first.id].failures, "the failure is known")

    answer = await restored(house, await save(house))

    assert answer.jobs == [(1, 4), (2, 5), (3, 6)]
    assert (answer.tasks, answer.unfinished) == (7, 6)
    assert (await house.job(4)).counts.finished == 1
    assert (await house.job(6)).counts.paused == 1
    assert len((await house.task(4, failed.task)).attempts) == 1
    assert (await house.job(5)).counts.waiting == 2
    await house.sound()
    await worker.report(under_way)
    for _ in range(2 + 2 + 3 + 2):
        await worker.report(await worker.offered())
    await house.ended(second.id)
    await house.ended(5)
    assert [(await house.job(job)).counts.finished for job in (4, 5)] == [4, 2]
    await house.sound()


async def test_the_same_snapshot_is_restored_once_unless_that_is_wanted(house: House) -> None:
    await house.submit(array="0-9", name="campaign")
    data = await save(house)
    assert (await restored(house, data)).jobs == [(1, 2)]

    refused = await restore(house, data)

    assert refused.status == 400
    assert "as job 2" in refused.problem.detail
    assert "--again" in refused.problem.detail
    answer = await restored(house, data, "?again=true")
    assert answer.jobs == [(1, 3)]
    assert len((await house.ask("GET", "/v1/jobs")).json["jobs"]) == 3


async def test_it_is_told_which_job_has_a_key_here_that_somebody_chose(house: House) -> None:
    await house.submit(key="mine")
    await house.submit(key="0123456789abcdef" * 2)
    flow = {"jobs": [{"line": "x"}, {"line": "y"}], "key": "fedcba9876543210" * 2}
    assert (await house.ask("POST", "/v1/flows", json=flow)).status == 201
    answer = await restored(house, await save(house))
    assert answer.notes == ["job 5 is without its key 'mine': job 1 has that here"]
    assert (await house.submit(key="mine")).id == 1


@pytest.mark.must("e")
async def test_a_damaged_snapshot_changes_nothing(house: House) -> None:
    await house.submit(array="0-9")
    data = await save(house)
    before = (await house.ask("GET", "/v1/jobs?all=true")).json
    for wrong in (data[:-1], data[:40], b"", b"rubbish", data[:60] + b"\0" + data[61:], data + b"x"):
        refused = await restore(house, wrong)
        assert refused.status == 400, refused
        assert refused.problem.field == "snapshot"
        assert "nothing was changed" in refused.problem.detail
    assert (await house.ask("GET", "/v1/jobs?all=true")).json == before
    assert left_over(house) == []
    assert (await restored(house, data)).jobs == [(1, 2)]
    await house.still_works()


async def test_users_save_and_restore_their_own_jobs_only(house: House) -> None:
    ada, bob = [(await house.token(Role.USER, name)).secret for name in ("ada", "bob")]
    await house.submit(token=ada, name="of ada")
    await house.submit(token=bob, name="of bob")
    everything = await save(house)
    own = await save(house, token=ada)

    assert (await house.ask("GET", "/v1/snapshot?select=2", token=ada)).status == 404
    assert (await restore(house, everything, token=ada)).status == 403
    assert (await restore(house, own, token=bob)).status == 403
    assert (await restored(house, own, token=ada)).jobs == [(1, 3)]
    assert (await restored(house, everything)).jobs == [(1, 4), (2, 5)]
    owners = [(await house.job(job)).owner for job in (3, 4, 5)]
    assert owners == ["ada", "ada", "bob"]


async def test_tasks_that_are_blocked_stay_so_and_join_who_waits_for_the_same(house: House) -> None:
    await house.ask("PUT", "/v1/queues/gate", json={"paused": True, "reason": "closed"})
    job = await house.submit(array="0-1", block_on=[GATED])
    worker = await house.worker()
    for _ in range(2):
        await worker.report(await worker.offered(job.id), code=75)
    machine = house.manager.machine
    await house.until(lambda: len(machine.jobs[job.id].blocked) == 2, "both are blocked")

    data = await save(house)
    answer = await restored(house, data)
    assert answer.jobs == [(1, 2)]
    assert answer.conditions == [(1, 1)], "it is the one that was here"

    assert len(machine.jobs[2].blocked) == 2
    (condition,) = machine.conditions.values()
    assert condition.count == 4
    assert house.manager.store.live(2).blocked == [(condition.id, Stage.RUN, [(0, 1)])]  # type: ignore[union-attr]
    await house.sound()
    machine.on_release_condition(condition, 0, "ada", house.manager.clock())
    house.manager.wake()
    for _ in range(4):
        await worker.report(await worker.offered())
    assert (await house.ended(2)).counts.finished == 2


@pytest.mark.T(3)
@pytest.mark.parametrize("joins", [True, False], ids=["who waits here", "nobody"])
async def test_they_go_on_by_the_stage_in_which_they_met_it(house: House, joins: bool) -> None:
    worker = await house.worker(cpus=2)
    await house.submit(array="0-1", cwd="/data")
    tried = [await worker.offered() for _ in range(2)]
    for report, end in zip(tried, (End.REFUSED, End.INTERRUPTED), strict=True):
        await worker.report(report, end=end, errno="ENOENT")
    machine = house.manager.machine
    met = {stage: tasks.ranges() for stage, tasks in machine.jobs[1].stages.items()}
    assert met == {Stage.LAUNCH: [(0, 0)], Stage.RUN: [(1, 1)]}
    data = await save(house)
    if not joins:
        await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
    await restored(house, data)
    assert {stage: tasks.ranges() for stage, tasks in machine.jobs[2].stages.items()} == met
    assert [stage for _, stage, _ in house.manager.store.live(2).blocked] == list(met)  # type: ignore[union-attr]
    await house.sound()


@pytest.mark.must("e")
async def test_what_would_run_at_the_manager_is_restored_for_admins_only(house: House) -> None:
    ada = (await house.token(Role.USER, "ada")).secret
    await house.submit(token=ada, hold=True)
    harmless = {"on": "exit:75", "tester": "tcp:licence.lab:27000", "at": "manager"}
    await house.submit(token=ada, hold=True, block_on=[harmless])
    data = await save(house, token=ada)

    def forged(part: Part) -> Part:
        if not isinstance(part, JobPart) or not part.row.spec.block_on:
            return part
        rule = msgspec.structs.replace(part.row.spec.block_on[0], tester="command:touch stolen")
        spec = msgspec.structs.replace(part.row.spec, block_on=(rule,))
        return msgspec.structs.replace(part, row=msgspec.structs.replace(part.row, spec=spec))

    wrong = rewritten(data, forged, house.data)
    for token in (ada, ""):
        refused = await restore(house, wrong, token=token)
        assert refused.status == 403, refused
        assert "only an admin" in refused.problem.detail
    assert (await restored(house, data, token=ada)).jobs == [(1, 3), (2, 4)]


@pytest.mark.must("e")
async def test_what_held_tasks_are_to_wait_for_is_no_way_around_that(house: House) -> None:
    ada = (await house.token(Role.USER, "ada")).secret
    await house.submit(token=ada, hold=True)
    data = await save(house, token=ada)
    met = Fault(tester="command:touch stolen", place=Place.MANAGER, policy="every 1m for 1h")

    def forged(part: Part) -> Part:
        if not isinstance(part, JobPart):
            return part
        postponed = (Postponed(met, part.row.ranges),)
        return msgspec.structs.replace(part, row=msgspec.structs.replace(part.row, postponed=postponed))

    refused = await restore(house, rewritten(data, forged, house.data), token=ada)
    assert refused.status == 403, refused
    assert "only an admin" in refused.problem.detail


async def test_the_largest_environment_that_a_job_may_have_is_saved_and_restored(house: House) -> None:
    worker = await house.worker()
    rule = {"on": "exit:75", "tester": "command:./ok.sh", "at": "site", "policy": "every 1h for 2h"}
    await house.submit(array="0-1", env={"BIG": "x" * (MAX_ENV_BYTES - 1000)}, block_on=[rule])
    for _ in range(2):
        await worker.report(await worker.offered(), code=75)
    await house.ask("POST", "/v1/hold", json={"select": ["1.0"]})
    assert (await restored(house, await save(house))).jobs == [(1, 2)]
    assert (await house.task(2, 0)).resumes_in == "blocked"
    assert (await house.task(2, 1)).state == "blocked"


DISK = {"on": "exit:75", "tester": "disk:/scratch>=20G", "at": "site", "policy": "every 1h for 2h"}


async def test_what_an_older_tercel_wrote_otherwise_is_restored_as_it_is_written_now(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="0-1", block_on=[DISK])
    for _ in range(2):
        await worker.report(await worker.offered(), code=75)
    await house.ask("POST", "/v1/hold", json={"select": ["1.0"]})
    data = rewritten(await save(house), older, house.data)

    assert (await restored(house, data)).conditions == [(1, 1)], "it is the one that is open here"

    await house.ask("POST", "/v1/release", json={"select": ["2.0"]})
    jobs, conditions = house.manager.machine.jobs, house.manager.machine.conditions
    assert jobs[2].row.spec.block_on == jobs[1].row.spec.block_on
    assert {row.row.tester: row.count for row in conditions.values()} == {"disk:/scratch>=20G": 3}
    await house.sound()


def older(part: Part) -> Part:
    """As sizes were written before they had units."""
    return msgspec.convert(_respelled(msgspec.to_builtins(part, builtin_types=(bytes,))), type=type(part))


def _respelled(value: Any) -> Any:
    match value:
        case dict():
            return {key: _respelled(one) for key, one in value.items()}
        case list() | tuple():
            return [_respelled(one) for one in value]
        case "disk:/scratch>=20G":
            return "disk:/scratch>=21474836480B"
    return value


def rewritten(data: bytes, change: Callable[[Part], Part], directory: Path) -> bytes:
    """With right checksums."""
    path = directory / "rewritten"
    path.write_bytes(data)
    told = [change(part) for part in parts(path)]
    with path.open("wb") as file:
        writer = Writer(file)
        for part in told:
            writer.add(part)
        writer.finish()
        writer.close()
    return path.read_bytes()


async def test_the_number_that_a_condition_has_here_is_told(house: House) -> None:
    for gate in ("other", "gate"):
        await house.ask("PUT", f"/v1/queues/{gate}", json={"paused": True, "reason": "closed"})
    worker = await house.worker()
    for gate in ("other", "gate"):
        job = await house.submit(block_on=[{**GATED, "tester": f"enabled:queue={gate}"}])
        await worker.report(await worker.offered(job.id), code=75)
        await house.until(lambda job=job: house.manager.machine.jobs[job.id].blocked, "it is blocked")  # type: ignore[misc]
    data = await save(house, "?select=2")
    await house.ask("POST", "/v1/cancel", json={"select": ["2"]})
    await house.until(lambda: 2 not in house.manager.machine.conditions, "nobody waits for it")
    assert (await restored(house, data)).conditions == [(2, 3)]
    assert list(house.manager.machine.conditions) == [1, 3]


async def test_a_restored_job_says_so_in_its_history(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="0-1")
    for _ in range(2):
        await worker.report(await worker.offered(1))
    await house.ended(1)
    await house.submit(hold=True)
    await restored(house, await save(house))
    for job, ends in ((3, ["ended"]), (4, [])):
        told = (await house.get(f"/v1/jobs/{job}/history", History)).events
        assert [event.what for event in told] == ["accepted", *ends, "restored"]
        assert re.fullmatch(
            rf"by {ME}: job {job - 2} of a snapshot of [0-9-]+ [0-9:]+ \(saved by {ME}\)", told[-1].text
        )
    task = (await house.get("/v1/jobs/3/tasks/1/history", History)).events
    assert [event.what for event in task if event.what != "started"] == ["accepted", "finished", "restored"]


async def test_a_job_whose_queue_is_not_here_is_in_its_owners_own(house: House) -> None:
    await house.ask("PUT", "/v1/queues/chem", json={})
    await house.submit(queue="chem", hold=True)
    data = await save(house)
    await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
    assert (await house.ask("DELETE", "/v1/queues/chem")).status == 200
    answer = await restored(house, data)
    assert any("no queue chem" in note for note in answer.notes)
    assert house.manager.machine.jobs[2].row.spec.queue == ""


async def test_a_disk_that_is_full_in_the_middle_leaves_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.submit(lines=["echo x"] * 5)
    data = await save(house)
    store = house.manager.store

    def full(*_: Any) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(store, "adopt", full)
        assert (await restore(house, data)).status == 507
    assert store.job(2) is None
    answer = await restored(house, data)
    assert answer.jobs == [(1, 3)], "numbers that were staged are not used again"
    assert store.lines(3, [(0, 9)]) == ["echo x"] * 5
    await house.sound()


async def test_what_a_killed_manager_left_on_its_way_is_swept_away(house: House) -> None:
    directory: Path = house.data / "snapshots"
    directory.mkdir(exist_ok=True)
    for name in ("passing-abc.tercel", ".000009.tercel.123.abcd.part"):
        (directory / name).write_bytes(b"half")
    await house.manager.snapshots.keep_taking()
    assert left_over(house) == []


async def test_parts_of_jobs_cannot_be_saved(house: House) -> None:
    await house.submit(array="0-9")
    refused = await house.ask("GET", "/v1/snapshot?select=1.4")
    assert refused.status == 400
    assert "whole jobs" in refused.problem.detail
