"""What people do with files of the catalogue: look, register, check, remove."""

import asyncio

from tercel.core.changes import Change, FileRegistered, FileRemoved, ReplicaRemoved, ReplicaSet
from tercel.core.errors import Conflict, Forbidden, NotFound, UsageError
from tercel.core.filenames import URL_MOST, check_name, has_password, is_place
from tercel.core.files import ALGORITHMS, KEPT, FileRow, ReplicaRow, is_digest, is_name
from tercel.core.intervals import Range
from tercel.core.model import Role
from tercel.manager.access import Identity
from tercel.manager.requests import saved
from tercel.manager.service import Manager
from tercel.stores.contract import Catalogued
from tercel.wire.api_files import (
    Checked,
    FileEntry,
    FileList,
    FilesRemoved,
    FileStanding,
    NewFile,
    ReplicaView,
)

MOST_BYTES = 2**53
MOST_URLS = 100
MOST_BAD = 500
"""Characters of what is wrong with a replica."""
READERS_MOST = 1000


# -- looking ----------------------------------------------------------------------------------------------


async def listed(manager: Manager, *, prefix: str, pattern: str, after: str, limit: int) -> FileList:
    await manager.settled()
    rows = await asyncio.to_thread(
        manager.store.files_from, prefix=prefix, pattern=pattern, after=after, limit=limit + 1
    )
    return FileList(files=[_view(row) for row in rows[:limit]], more=len(rows) > limit)


async def made_by(
    manager: Manager, job: int, ranges: list[Range], after: tuple[int, str], limit: int
) -> FileList:
    rows = await asyncio.to_thread(manager.store.made_by, job, ranges, after=after, limit=limit + 1)
    return FileList(files=[_view(row) for row in rows[:limit]], more=len(rows) > limit)


async def standing(manager: Manager, name: str) -> FileStanding:
    await manager.settled()
    found = _found(manager, name)
    readers = await asyncio.to_thread(manager.store.readers, name, limit=READERS_MOST)
    replicas = [ReplicaView(url=row.url, verified_at=row.verified_at, bad=row.bad) for row in found.replicas]
    file = found.file
    return FileStanding(
        name=file.name,
        size_bytes=file.size_bytes,
        digest=file.digest,
        owner=file.owner,
        made_at=file.made_at,
        job=file.job,
        task=file.task,
        attempt=file.attempt,
        replicas=replicas,
        readers=readers,
    )


def _view(file: FileRow) -> FileEntry:
    return FileEntry(
        name=file.name,
        size_bytes=file.size_bytes,
        digest=file.digest,
        owner=file.owner,
        made_at=file.made_at,
        job=file.job,
        task=file.task,
        attempt=file.attempt,
    )


def _found(manager: Manager, name: str) -> Catalogued:
    found = manager.catalogue.files([name]) if name.isprintable() else []
    if not found:
        raise NotFound(f"there is no file {name[:200]!r}: see `tercel file list`", "name")
    return found[0]


# -- changing ---------------------------------------------------------------------------------------------


async def register(manager: Manager, who: Identity, asked: NewFile) -> tuple[FileStanding, bool]:
    """And whether it was there before, with the same bytes."""
    _check(asked)
    for url in asked.urls:
        if url.startswith(KEPT):
            await _check_kept(manager, url, asked)
    manager.check_saving()
    taken = manager.catalogue.taken([(asked.name, asked.digest)])
    if other := taken.get(asked.name):
        raise Conflict(
            f"{asked.name} is taken: {other.owner or 'somebody'} has registered other bytes under it ({other.digest}, "
            f"{other.size_bytes:,} bytes). Files do not change: choose another name, or remove that one first",
            "name",
        )
    before = manager.catalogue.files([asked.name])
    if before and before[0].file.size_bytes != asked.size_bytes:
        raise Conflict(
            f"{asked.name} has {before[0].file.size_bytes:,} bytes, not {asked.size_bytes:,}", "size_bytes"
        )
    row = FileRow(
        name=asked.name,
        size_bytes=asked.size_bytes,
        digest=asked.digest,
        owner=who.user,
        made_at=manager.clock(),
    )
    await _put(manager, FileRegistered(row, tuple(asked.urls)))
    return await standing(manager, asked.name), bool(before)


def _check(asked: NewFile) -> None:
    check_name(asked.name)
    if not is_digest(asked.digest):
        raise UsageError(
            f"{asked.digest[:100]!r} is no digest: write {', '.join(ALGORITHMS)}, a colon and hex digits",
            "digest",
        )
    if not 0 <= asked.size_bytes <= MOST_BYTES:
        raise UsageError(f"a file has 0 to {MOST_BYTES:,} bytes", "size_bytes")
    if len(asked.urls) > MOST_URLS:
        raise UsageError(f"at most {MOST_URLS} places at a time", "urls")
    for url in asked.urls:
        if not is_place(url) or is_name(url):
            raise UsageError(
                f"{url[:100]!r} is no place: write a URL, of at most {URL_MOST:,} printable characters",
                "urls",
            )
        if has_password(url):
            raise UsageError(
                "a URL with a password would be read by everybody: leave it out, and let workers have it by their own means",
                "urls",
            )


async def _check_kept(manager: Manager, url: str, asked: NewFile) -> None:
    """From then on its content stays long enough for this to be committed."""
    if url != f"{KEPT}{asked.digest}":
        raise UsageError(
            f"what is kept at the manager under another digest is another file: {url[:100]}", "urls"
        )
    if not await asyncio.to_thread(manager.vault.holds, asked.digest):
        raise UsageError(
            f"{asked.digest} is not at the manager: upload it first (PUT /v1/contents/…)", "urls"
        )
    size_bytes = await asyncio.to_thread(manager.vault.size, asked.digest)
    if size_bytes != asked.size_bytes:
        raise UsageError(f"{asked.digest} has {size_bytes:,} bytes, not {asked.size_bytes:,}", "size_bytes")


async def remove(manager: Manager, who: Identity, name: str, url: str | None) -> FilesRemoved:
    """A file, or (with a URL) that its bytes are there."""
    found = _found(manager, name)
    _must_own(who, found, "removes it")
    manager.check_saving()
    places = [row.url for row in found.replicas]
    if url is None:
        await _put(manager, FileRemoved(name))
        return FilesRemoved(name=name, urls=places)
    if url not in places:
        raise NotFound(f"{name} has no replica at {url[:200]}: see `tercel file where {name}`", "url")
    await _put(manager, ReplicaRemoved(name, url))
    return FilesRemoved(name=name, urls=[url])


async def checked(manager: Manager, who: Identity, asked: Checked) -> FileStanding:
    """Put down what somebody found who read a replica."""
    found = _found(manager, asked.name)
    _must_own(who, found, "says what its replicas are worth")
    if asked.url not in {row.url for row in found.replicas}:
        raise NotFound(f"{asked.name} has no replica at {asked.url[:200]}", "url")
    if len(asked.bad) > MOST_BAD or not asked.bad.isprintable():
        raise UsageError(f"what is wrong with it has at most {MOST_BAD} printable characters", "bad")
    manager.check_saving()
    row = ReplicaRow(name=asked.name, url=asked.url, verified_at=manager.clock(), bad=asked.bad)
    await _put(manager, ReplicaSet(row))
    return await standing(manager, asked.name)


def _must_own(who: Identity, found: Catalogued, what: str) -> None:
    if who.role is not Role.ADMIN and who.user != found.file.owner:
        owner = found.file.owner or "nobody"
        raise Forbidden(f"{found.file.name} is {owner}'s: only its owner or an admin {what}", "name")


async def _put(manager: Manager, change: Change) -> None:
    manager.catalogue.note(change)
    manager.machine.changes.append(change)
    await saved(manager)
