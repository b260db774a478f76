"""Files of snapshots at the manager: strange ones beside them, too many or too large ones, and what failed leaves nothing."""

import asyncio
import contextlib
import errno
import sqlite3
import threading
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tercel.core.errors import StoreFull
from tercel.core.model import Role
from tercel.manager.snapshots import RETRY_S, SAVES_AT_ONCE, SPARE_BYTES
from tercel.stores.snapshot.records import LinesPart
from tercel.stores.snapshot.saving import save as save_file
from tercel.wire.api import Counted
from tercel.wire.api_snapshots import SnapshotList
from tests.api.house import House, open_house
from tests.api.test_snapshots import left_over, restore, restored, save

pytestmark = pytest.mark.C(8)


class Usage(NamedTuple):
    """As `shutil.disk_usage` tells it."""

    total: int
    used: int
    free: int


def staged_rows(house: House) -> int:
    """Of jobs that have no row."""
    with contextlib.closing(sqlite3.connect(house.data / "tercel.db")) as file:
        query = "SELECT count(*) FROM line_chunk WHERE job NOT IN (SELECT id FROM job)"
        return int(file.execute(query).fetchone()[0])


async def test_what_was_staged_of_a_restoring_that_failed_goes_by_itself(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.submit(lines=["echo x"] * 5)
    data = await save(house)
    found: list[int] = []

    def full(*_: Any) -> None:
        found.append(staged_rows(house))
        raise StoreFull("no room")

    monkeypatch.setattr(house.manager.store, "adopt", full)
    assert (await restore(house, data)).status == 507
    assert found == [1]
    await house.until(lambda: staged_rows(house) == 0, "nothing is left")


async def test_what_a_killed_manager_had_staged_goes_after_the_next_start(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(home / "data") as house:
        store = house.manager.store
        await house.manager.on_disk(lambda: store.stage([7], [(LinesPart(7, 0, ["echo x"]), 0)]))
        assert staged_rows(house) == 1
    monkeypatch.setattr("tercel.manager.cleaning.QUIET_S", 0.0)
    async with open_house(home / "data") as house:
        await house.until(lambda: staged_rows(house) == 0, "nothing is left")


@pytest.mark.parametrize(
    ("error", "status"), [(errno.EPERM, 200), (errno.EMLINK, 200), (errno.ENOENT, 404), (errno.ENOSPC, 507)]
)
async def test_an_own_snapshot_is_restored_where_there_are_no_links_and_its_loss_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch, error: int, status: int
) -> None:
    await house.submit(array="0-1999")
    await house.ask("POST", "/v1/cancel", json={"select": ["1"]})

    def unlinked(*_: Any) -> None:
        raise OSError(error, "as it happens")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(Path, "hardlink_to", unlinked)
    if error == errno.ENOSPC:
        monkeypatch.setattr("shutil.copyfile", full)
    answer = await house.ask("POST", "/v1/snapshots/1/restore")
    assert answer.status == status, answer
    await house.sound()


async def test_the_loss_of_an_own_snapshot_that_is_asked_for_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.submit(array="0-1999")
    await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
    found = house.manager.snapshots.path

    def path(*asked: Any) -> Path:
        """Retention removes it, once it is found."""
        there = found(*asked)
        there.unlink()
        return there

    monkeypatch.setattr(house.manager.snapshots, "path", path)
    answer = await house.ask("GET", "/v1/snapshots/1")
    assert answer.status == 404
    assert "removed a moment ago" in answer.json["detail"]


async def test_the_store_is_not_asked_on_the_loop_which_keys_are_taken(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.submit(key="mine")
    data = await save(house)
    asked_by: set[int] = set()
    by_key = house.manager.store.job_by_key

    def watched(owner: str, key: str) -> Any:
        asked_by.add(threading.get_ident())
        return by_key(owner, key)

    monkeypatch.setattr(house.manager.store, "job_by_key", watched)
    assert (await restored(house, data)).notes
    assert asked_by
    assert threading.get_ident() not in asked_by


async def test_what_is_strange_beside_the_snapshots_stays_and_keeps_none_from_being_taken(
    house: House,
) -> None:
    directory: Path = house.data / "snapshots"
    directory.mkdir(exist_ok=True)
    (directory / "passing-x").mkdir()
    (directory / "000001.tercel").mkdir()
    house.manager.options = msgspec.structs.replace(house.manager.options, snapshots_kept=1)
    await house.manager.snapshots.keep_taking()
    await house.submit(array="0-1999")

    done = (await house.ask("POST", "/v1/cancel", json={"select": ["1"]})).of(Counted)

    assert "@2" in done.note
    assert (directory / "passing-x").is_dir()
    assert [view.number for view in (await house.get("/v1/snapshots", SnapshotList)).snapshots] == [2]


async def test_a_directory_that_cannot_be_read_ends_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.submit(hold=True)
    snapshots, now = house.manager.snapshots, house.manager.clock()
    house.manager.clock = lambda: now + 3601

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", broken)
        await snapshots.keep_taking()
        assert await snapshots.take_if_due(3600.0) == RETRY_S
    await snapshots.take_if_due(3600.0)
    assert len((await house.get("/v1/snapshots", SnapshotList)).snapshots) == 1


@pytest.mark.parametrize(("users", "most"), [(1, 1), (SAVES_AT_ONCE + 2, SAVES_AT_ONCE)])
async def test_few_snapshots_are_made_at_a_time_and_one_of_each_user(
    house: House, monkeypatch: pytest.MonkeyPatch, users: int, most: int
) -> None:
    tokens = [(await house.token(Role.USER, f"user{n}")).secret for n in range(users)]
    too_many = threading.Barrier(most + 1)
    met: list[bool] = []

    def watched(*args: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            too_many.wait(0.1)
            met.append(True)
        return save_file(*args)

    monkeypatch.setattr("tercel.manager.snapshots.save", watched)
    await asyncio.gather(*(save(house, token=token) for token in tokens * 3))
    assert not met


async def test_what_a_client_sends_leaves_room_for_the_store(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.submit(array="0-9")
    data = await save(house)
    total = 100 * SPARE_BYTES
    for free in (SPARE_BYTES - 1, SPARE_BYTES + len(data) - 1):
        with monkeypatch.context() as patch:
            patch.setattr("shutil.disk_usage", lambda _, free=free: Usage(total, total - free, free))
            refused = await restore(house, data)
        assert refused.status == 507, refused
        assert "no room on the manager's disk for the snapshot" in refused.problem.detail
    assert left_over(house) == []
    assert (await restored(house, data)).jobs == [(1, 2)]
