"""Files and contents over HTTP: what is registered, kept, read back in parts, refused; and who may do what."""

import asyncio
import errno
import io
import os
from pathlib import Path
from urllib.parse import urlencode

import pytest
from blake3 import blake3
from multidict import CIMultiDict

from tercel.core.changes import Change, FileRegistered, FileRemoved, MadeUndone, ReplicaRemoved, ReplicaSet
from tercel.core.errors import PassingFault, StoreFull, UsageError
from tercel.core.files import FileRow, Location, ReplicaRow
from tercel.core.model import Needs, Role
from tercel.core.presence import WorkerInfo
from tercel.links.local import local_pair
from tercel.manager import vault
from tercel.manager.catalogue import Catalogue
from tercel.manager.conversation import converse
from tercel.stores.contract import Catalogued
from tercel.stores.memory import MemoryStore
from tercel.wire.api_files import FileList, FileStanding
from tercel.wire.messages import PROTOCOL, Hello, Locate, Welcome
from tests.api.house import Answer, House, open_house

DATA = os.urandom(3 * 2**20 + 17)
ONE, OTHER = f"blake3:{'1' * 64}", f"blake3:{'2' * 64}"


def digest_of(data: bytes) -> str:
    return f"blake3:{blake3(data).hexdigest()}"


async def put(house: House, data: bytes, digest: str = "", token: str = "") -> Answer:
    where = f"/v1/contents/{digest or digest_of(data)}"
    return await house.ask("PUT", where, body=io.BytesIO(data), token=token)


async def add(house: House, name: str, token: str = "", **fields: object) -> Answer:
    body = {"name": name, "digest": ONE, "size_bytes": 5, **fields}
    return await house.ask("POST", "/v1/files", json=body, token=token)


async def ask_one(house: House, name: str) -> Answer:
    return await house.ask("GET", f"/v1/files/one?{urlencode({'name': name})}")


def contents(house: House) -> list[str]:
    return sorted(path.name for path in (house.data / "contents").rglob("*") if path.is_file())


# -- contents ---------------------------------------------------------------------------------------------


async def test_a_content_is_kept_once_and_read_back_whole(house: House) -> None:
    digest = digest_of(DATA)
    assert (await put(house, DATA)).status == 201
    assert (await put(house, DATA)).status == 200
    answer = await house.ask("GET", f"/v1/contents/{digest}")
    assert answer.body == DATA
    assert CIMultiDict(answer.headers)["ETag"] == f'"{digest}"'
    head = await house.ask("HEAD", f"/v1/contents/{digest}")
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(DATA)))
    assert contents(house) == [digest.removeprefix("blake3:")]


async def test_an_empty_content_is_one_too(house: House) -> None:
    assert (await put(house, b"")).status == 201
    answer = await house.ask("GET", f"/v1/contents/{digest_of(b'')}")
    assert (answer.status, answer.body) == (200, b"")


async def test_a_part_of_a_content_is_read(house: House) -> None:
    await put(house, DATA)
    size = len(DATA)
    for asked, first, behind in (
        ("bytes=0-9", 0, 10),
        ("bytes=5-", 5, size),
        ("bytes=-7", size - 7, size),
        ("bytes=10-99999999999", 10, size),
        (f"bytes=-{10**12}", 0, size),
    ):
        answer = await house.ask("GET", f"/v1/contents/{digest_of(DATA)}", headers={"Range": asked})
        assert answer.body == DATA[first:behind]
        assert answer.status == (206 if behind - first < size else 200)
        if answer.status == 206:
            assert answer.headers["Content-Range"] == f"bytes {first}-{behind - 1}/{size}"


async def test_a_part_that_is_not_there_is_told_and_what_is_no_single_part_is_answered_whole(
    house: House,
) -> None:
    await put(house, b"hello")
    where = f"/v1/contents/{digest_of(b'hello')}"
    answer = await house.ask("GET", where, headers={"Range": "bytes=5-"})
    assert (answer.problem.status, answer.headers["Content-Range"]) == (416, "bytes */5")
    for asked in ("bytes=0-1,3-4", "lines=0-1", "bytes=-", "bytes=3-1"):
        assert (await house.ask("GET", where, headers={"Range": asked})).body == b"hello"
    changed = {"Range": "bytes=0-1", "If-Range": '"another"'}
    assert (await house.ask("GET", where, headers=changed)).body == b"hello"
    same = {"Range": "bytes=0-1", "If-Range": f'"{digest_of(b"hello")}"'}
    assert (await house.ask("GET", where, headers=same)).body == b"he"


async def test_what_is_not_what_its_digest_says_is_refused_and_leaves_nothing(house: House) -> None:
    answer = await put(house, DATA[:-1], digest_of(DATA))
    assert answer.problem.status == 400
    assert digest_of(DATA[:-1]) in answer.problem.detail
    assert contents(house) == []
    assert (await house.ask("GET", f"/v1/contents/{digest_of(DATA)}")).status == 404
    assert (await house.ask("HEAD", f"/v1/contents/{digest_of(DATA)}")).status == 404


async def test_a_full_disk_is_told_and_leaves_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, more_bytes: int, what: str) -> None:
        if more_bytes < len(DATA):  # not before anything came
            raise StoreFull("no room")

    monkeypatch.setattr(vault, "check_room", full)
    monkeypatch.setattr(vault, "PIECE_BYTES", 2**20)
    assert (await put(house, DATA)).problem.status == 507
    assert contents(house) == []


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(house: House) -> None:
    digest = digest_of(DATA)
    _, writer = await asyncio.open_connection("127.0.0.1", int(house.url.rpartition(":")[2]))
    head = f"PUT /v1/contents/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {house.admin}\r\n"
    writer.write(f"{head}Content-Length: {len(DATA)}\r\n\r\n".encode() + DATA[: 2**20])
    await writer.drain()
    await house.until(lambda: contents(house), "something is on its way")
    writer.close()
    await house.until(lambda: not contents(house), "what was left is gone")


async def test_workers_read_and_write_contents_and_strangers_nothing(house: House) -> None:
    worker = (await house.token(Role.WORKER, "w")).secret
    assert (await put(house, b"x", token=worker)).status == 201
    where = f"/v1/contents/{digest_of(b'x')}"
    assert (await house.ask("GET", where, token=worker)).body == b"x"
    assert (await house.ask("GET", "/v1/files", token=worker)).status == 403
    for method in ("PUT", "GET", "HEAD"):
        assert (await house.ask(method, where, token="nobody")).status == 401


async def test_a_content_that_no_file_has_goes_after_its_grace(house: House) -> None:
    for data in (b"named", b"young", b"unnamed", b"asked for"):
        await put(house, data)
    named = digest_of(b"named")
    assert (await add(house, "lfn:a", digest=named, urls=[f"tercel:{named}"])).status == 201
    (house.data / "contents" / "passing-of-a-killed-one").write_bytes(b"half")
    kept = house.manager.vault
    for data in (b"named", b"unnamed", b"asked for"):
        os.utime(kept.path(digest_of(data)), (0, 0))
    await house.ask("HEAD", f"/v1/contents/{digest_of(b'asked for')}")
    assert kept.sweep(house.manager.store.names_at) == 1
    assert contents(house) == sorted(
        digest_of(data).removeprefix("blake3:") for data in (b"named", b"young", b"asked for")
    )


async def test_the_managers_sweeping_sweeps_contents(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(house, b"unnamed")
    os.utime(house.manager.vault.path(digest_of(b"unnamed")), (0, 0))
    house.manager.leftovers.set()
    await house.until(lambda: not contents(house), "what was left is gone")


async def test_nothing_but_a_digest_leads_to_a_content(house: House) -> None:
    (house.data / "contents").mkdir(exist_ok=True)
    (house.data / "contents" / "x").write_bytes(b"x")
    for digest in ("blake3:../x", "blake3:x", f"sha256:{'1' * 64}", f"blake3:{'1' * 63}/", ""):
        assert not house.manager.vault.holds(digest)
        with pytest.raises(UsageError):
            house.manager.vault.opened(digest)


# -- files ------------------------------------------------------------------------------------------------


async def test_a_file_is_registered_and_told_with_its_places(house: House) -> None:
    await put(house, b"hello")
    digest = digest_of(b"hello")
    places = [f"tercel:{digest}", "sftp://store/a b/µ"]
    answer = await add(house, "lfn:calib/2026 µ", digest=digest, urls=places)
    assert answer.status == 201
    found = (await ask_one(house, "lfn:calib/2026 µ")).of(FileStanding)
    assert (found.size_bytes, found.digest, found.job) == (5, digest, 0)
    assert [replica.url for replica in found.replicas] == sorted(places)
    assert (await add(house, "lfn:calib/2026 µ", digest=digest, urls=["s3://b/x"])).status == 200
    await house.submit(inputs=[{"source": "lfn:calib/{task} µ"}])
    again = (await ask_one(house, "lfn:calib/2026 µ")).of(FileStanding)
    assert len(again.replicas) == 3
    assert again.readers == [1]


async def test_other_bytes_under_a_name_that_is_taken_are_refused(house: House) -> None:
    assert (await add(house, "lfn:a")).status == 201
    first, second = await asyncio.gather(add(house, "lfn:b"), add(house, "lfn:b", digest=OTHER))
    assert sorted((first.status, second.status)) == [201, 409]
    problem = (await add(house, "lfn:a", digest=OTHER)).problem
    assert (problem.status, problem.field) == (409, "name")
    assert ONE in problem.detail
    assert (await add(house, "lfn:a", size_bytes=6)).problem.status == 409


async def test_a_name_that_cannot_be_is_refused_clearly(house: House) -> None:
    for name in (
        *("calib", "lfn:", "lfn:/a", "lfn:a//b", "lfn:a/", "lfn:../a", "lfn:a/..", "lfn:./a"),
        *("lfn:a\nb", "lfn:a\0", "up:a", "lfn:" + "x" * 997),
    ):
        problem = (await add(house, name)).problem
        assert (problem.status, problem.field) == (400, "name")
        assert "name" in problem.detail


async def test_what_cannot_be_registered_is_refused(house: House) -> None:
    refused: list[dict[str, object]] = [
        {"digest": "blake3:12"},
        {"size_bytes": -1},
        {"urls": ["lfn:b"]},
        {"urls": ["a b"]},
        {"urls": ["file:///a\nb"]},
        {"urls": [f"tercel:{ONE}"]},
        {"urls": [f"tercel:{OTHER}"]},
        {"urls": ["tercel:blake3:../../keys.json"]},
        {"urls": ["sftp://ada:secret@store/x"]},
    ]
    for fields in refused:
        assert [(await add(house, "lfn:a", **fields)).problem.field] == list(fields)
    assert (await ask_one(house, "lfn:a")).status == 404


async def test_files_are_listed_page_by_page(house: House) -> None:
    for number in range(5):
        await add(house, f"lfn:run/{number}")
    await add(house, "lfn:other")
    page = (await house.ask("GET", "/v1/files?prefix=lfn:run/&limit=3")).of(FileList)
    assert ([file.name for file in page.files], page.more) == (["lfn:run/0", "lfn:run/1", "lfn:run/2"], True)
    rest = (await house.ask("GET", "/v1/files?pattern=lfn:run/*&after=lfn:run/2")).of(FileList)
    assert ([file.name for file in rest.files], rest.more) == (["lfn:run/3", "lfn:run/4"], False)


async def test_only_its_owner_or_an_admin_removes_a_file_and_everybody_reads_it(house: House) -> None:
    ada, bob = [(await house.token(Role.USER, user)).secret for user in ("ada", "bob")]
    assert (await add(house, "lfn:a", token=ada, urls=["s3://b/x", "s3://b/y"])).status == 201
    assert (await house.ask("GET", "/v1/files/one?name=lfn:a", token=bob)).of(FileStanding).owner == "ada"
    checked = {"name": "lfn:a", "url": "s3://b/x", "bad": "its size is another"}
    for method, where, body in (
        ("DELETE", "/v1/files?name=lfn:a", None),
        ("POST", "/v1/files/checked", checked),
    ):
        assert (await house.ask(method, where, token=bob, json=body)).problem.status == 403
    found = (await house.ask("POST", "/v1/files/checked", token=ada, json=checked)).of(FileStanding)
    assert [replica.bad for replica in found.replicas] == ["its size is another", ""]
    assert (await house.ask("DELETE", "/v1/files?name=lfn:a&url=s3://b/z", token=ada)).status == 404
    assert (await house.ask("DELETE", "/v1/files?name=lfn:a&url=s3://b/x", token=ada)).status == 200
    left = (await house.ask("GET", "/v1/files/one?name=lfn:a")).of(FileStanding)
    assert [replica.url for replica in left.replicas] == ["s3://b/y"]
    assert (await house.ask("DELETE", "/v1/files?name=lfn:a")).status == 200
    assert (await house.ask("DELETE", "/v1/files?name=lfn:a")).problem.status == 404


async def test_what_tasks_made_is_told_by_job_and_task(house: House) -> None:
    await house.submit(array="0-9")
    rows = [
        FileRow(name=f"lfn:{task}/{name}", size_bytes=1, digest=ONE, job=1, task=task)
        for task in (2, 5)
        for name in "ab"
    ]
    await house.manager.save([FileRegistered(row, ()) for row in rows])
    all_of_it = (await house.ask("GET", "/v1/jobs/1/files")).of(FileList)
    assert [file.name for file in all_of_it.files] == ["lfn:2/a", "lfn:2/b", "lfn:5/a", "lfn:5/b"]
    page = (await house.ask("GET", "/v1/jobs/1/files?tasks=0-5,2&after_task=2&after=lfn:2/a&limit=2")).of(
        FileList
    )
    assert ([file.name for file in page.files], page.more) == (["lfn:2/b", "lfn:5/a"], True)


async def test_a_restored_job_has_its_files_and_those_that_are_taken_are_told(
    house: House, home: Path
) -> None:
    await put(house, b"hello")
    await house.submit(array="0-3")
    digest = digest_of(b"hello")
    names = ("lfn:same", "lfn:mine", "lfn:free")
    rows = [FileRow(name=name, size_bytes=5, digest=digest, job=1, task=2) for name in names]
    await house.manager.save([FileRegistered(row, (f"tercel:{digest}",)) for row in rows])
    snapshot = (await house.ask("GET", "/v1/snapshot")).body
    async with open_house(home / "other") as other:
        await add(other, "lfn:same", digest=digest, urls=["s3://b/same"])
        await add(other, "lfn:mine")
        restored = (await other.ask("POST", "/v1/restore", body=io.BytesIO(snapshot))).json
        assert [note[:40] for note in restored["notes"]] == [
            "1 files are here with other bytes, which",
            "3 files were kept by the manager where t",
        ]
        found = {name: (await ask_one(other, name)).of(FileStanding) for name in names}
    assert found["lfn:mine"].digest == ONE
    assert [replica.url for replica in found["lfn:same"].replicas] == ["s3://b/same"]
    assert (found["lfn:free"].job, found["lfn:free"].task, found["lfn:free"].replicas) == (1, 2, [])


async def test_a_disk_that_cannot_be_read_ends_no_more_than_the_link_on_which_somebody_asked(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[Catalogued]:
        raise PassingFault("the disk is gone")

    worker_end, manager_end = local_pair()
    conversation = asyncio.create_task(converse(house.manager, manager_end))
    await worker_end.send([Hello(PROTOCOL, "w", "1", WorkerInfo(node="n", capacity=Needs(1000, 0)), [])])
    assert isinstance((await worker_end.receive())[0], Welcome)
    with monkeypatch.context() as patched:
        patched.setattr(house.manager.store, "files", broken)
        await worker_end.send([Locate(1, ["lfn:a"])])
        await asyncio.wait_for(conversation, 20)  # and raises nothing
    assert not house.manager.machine.workers["w"].online
    await house.still_works()


async def test_contents_that_cannot_be_looked_at_are_a_fault_that_passes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[Path]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "glob", broken)
    with pytest.raises(PassingFault, match="Input/output error"):
        house.manager.vault.sweep(lambda _: [])


# -- what is on its way to the store ----------------------------------------------------------------------


def row(name: str = "lfn:a", digest: str = ONE, task: int = 4) -> FileRow:
    return FileRow(name=name, size_bytes=5, digest=digest, job=1, task=task, made_at=2.0)


MARKED = ReplicaRow(name="lfn:a", url="s3://x", bad="gone")
SAID: list[tuple[list[Change], list[Location]]] = [
    ([], [Location("lfn:a")]),
    ([FileRegistered(row(), ("s3://x",))], [Location("lfn:a", ONE, 5, ("s3://x",))]),
    (
        [FileRegistered(row(), ("s3://x",)), FileRegistered(row(digest=OTHER), ("s3://y",))],
        [Location("lfn:a", ONE, 5, ("s3://x",))],
    ),
    (
        [FileRegistered(row(), ("s3://x", "s3://y")), ReplicaSet(MARKED)],
        [Location("lfn:a", ONE, 5, ("s3://y",))],
    ),
    (
        [FileRegistered(row(), ("s3://x", "s3://y")), ReplicaRemoved("lfn:a", "s3://y")],
        [Location("lfn:a", ONE, 5, ("s3://x",))],
    ),
    (
        [FileRegistered(row(), ("s3://x",)), MadeUndone(1, ((0, 3),))],
        [Location("lfn:a", ONE, 5, ("s3://x",))],
    ),
    ([FileRegistered(row(), ("s3://x",)), MadeUndone(1, ((0, 4),))], [Location("lfn:a")]),
    (
        [FileRegistered(row(), ()), MadeUndone(1, ((4, 4),)), FileRegistered(row(digest=OTHER), ("s3://y",))],
        [Location("lfn:a", OTHER, 5, ("s3://y",))],
    ),
    ([FileRegistered(row(), ()), FileRemoved("lfn:a"), ReplicaSet(MARKED)], [Location("lfn:a")]),
]


@pytest.mark.parametrize(("said", "expected"), SAID)
def test_what_is_said_is_known_at_once_and_the_same_wherever_the_commit_falls(
    said: list[Change], expected: list[Location]
) -> None:
    for committed in range(len(said) + 1):
        store = MemoryStore()
        catalogue = Catalogue(store)
        for change in said[:committed]:
            catalogue.note(change)
        catalogue.begin()
        for change in said[committed:]:
            catalogue.note(change)
        assert catalogue.located(["lfn:a"]) == expected
        store.write(said[:committed])
        store.commit()
        catalogue.durable()
        assert catalogue.located(["lfn:a"]) == expected
        catalogue.begin()
        store.write(said[committed:])
        store.commit()
        catalogue.durable()
        assert catalogue.located(["lfn:a", "lfn:none"]) == [*expected, Location("lfn:none")]


def test_of_two_tasks_that_register_a_name_in_one_batch_the_second_finds_it_taken() -> None:
    catalogue = Catalogue(MemoryStore())
    assert catalogue.taken([("lfn:a", ONE)]) == {}
    catalogue.note(FileRegistered(row(), ()))
    assert catalogue.taken([("lfn:a", ONE), ("lfn:b", OTHER)]) == {}
    assert catalogue.taken([("lfn:a", OTHER)]) == {"lfn:a": row()}
