"""Putting a file somewhere: whole and checked under its final name, or not at all.

    hash it here -> write it under .name.tag.part -> read that back -> the same? -> rename
                                                                    -> not:     remove, once more; then CORRUPT

A storage that takes a file whole (an object store, a manager) gets it under its name at once, and is read back likewise. What the
manager keeps is named by its digest, which it checks itself.
"""

import os
from stat import S_ISREG

from tercel.core.files import KEPT, Trouble
from tercel.data.contract import Deliver, Delivered, Scheme, TransferFailed
from tercel.data.digests import Digests
from tercel.data.faults import own_disk, told
from tercel.data.local import chunks_of
from tercel.data.schemes import Schemes
from tercel.data.urls import below, note_of, shown, temporary
from tercel.data.watches import Watch

TRIES = 2


def deliver(what: Deliver, schemes: Schemes, watch: Watch, manager: tuple[str, str] = ("", "")) -> Delivered:
    scheme = schemes.of(what.url, manager)
    if what.url.startswith(KEPT):
        return _keep(what, scheme, watch)
    name = what.path.rpartition("/")[2]
    url = below(what.url, name, scheme.unquotes) if what.url.endswith("/") else what.url
    watch.begin()
    size_bytes, digest = _hashed(what.path, url, watch)
    at = url if scheme.puts_whole else temporary(url, what.tag, scheme.unquotes)
    for tag in () if scheme.puts_whole else what.stale:
        with told(url, watch):
            scheme.remove(temporary(url, tag, scheme.unquotes), watch)
    for tries_left in reversed(range(TRIES)):
        try:
            _put(what, scheme, at, size_bytes, digest, watch)
            break
        except TransferFailed as failed:
            failed.url, failed.note = shown(url), failed.note.replace(shown(at), shown(url))
            _remove(scheme, at, failed.trouble, what, watch)
            if failed.trouble is not Trouble.CORRUPT or not tries_left:
                raise
        except BaseException:  # nobody waits any more
            _remove(scheme, at, Trouble.DOWN, what, watch)
            raise
    if at != url:
        _name(scheme, at, url, watch, what)
    return Delivered(url=url, size_bytes=size_bytes, digest=digest)


def remove(url: str, schemes: Schemes, watch: Watch, manager: tuple[str, str] = ("", "")) -> None:
    """Gone already is fine."""
    watch.begin()
    with told(url, watch):
        schemes.of(url, manager).remove(url, watch)


def stat(url: str, schemes: Schemes, watch: Watch, manager: tuple[str, str] = ("", "")) -> tuple[int, str]:
    watch.begin()
    with told(url, watch):
        seen = schemes.of(url, manager).stat(url, watch)
    return seen.size_bytes, seen.validator


def _keep(what: Deliver, scheme: Scheme, watch: Watch) -> Delivered:
    watch.begin()
    size_bytes, digest = _hashed(what.path, what.url, watch)
    url = f"{KEPT}{digest}"
    if what.url not in (KEPT, url):
        note = f"{what.path} is {url}, not {shown(what.url)}"
        raise TransferFailed(Trouble.REFUSED, shown(what.url), note_of(note))
    watch.begin(0, size_bytes)
    with told(url, watch):
        try:
            is_there = scheme.stat(url, watch).size_bytes == size_bytes
        except TransferFailed as failed:
            if failed.trouble is not Trouble.MISSING:
                raise
            is_there = False
        if not is_there:
            scheme.write(what.path, url, watch)
    return Delivered(url=url, size_bytes=size_bytes, digest=digest)


def _put(what: Deliver, scheme: Scheme, at: str, size_bytes: int, digest: str, watch: Watch) -> None:
    watch.begin(0, size_bytes)
    with told(at, watch):
        scheme.write(what.path, at, watch)
        watch.alive()
        if what.read_back or not scheme.puts_whole:
            found, is_there = _read_back(scheme, at, watch)
        else:
            found, is_there = scheme.stat(at, watch).size_bytes, digest
    if (found, is_there) != (size_bytes, digest):
        note = f"{shown(at)} was given {size_bytes:,} bytes ({digest}), and has {found:,} ({is_there})"
        raise TransferFailed(Trouble.CORRUPT, shown(at), note_of(note))


def _read_back(scheme: Scheme, at: str, watch: Watch) -> tuple[int, str]:
    digests, count = Digests(), 0
    with scheme.read(at, watch) as reading:
        for chunk in reading.chunks:
            digests.update(chunk)
            count += len(chunk)
            watch.alive(len(chunk))
    return count, digests.own


def _name(scheme: Scheme, at: str, url: str, watch: Watch, what: Deliver) -> None:
    try:
        with told(url, watch):
            scheme.rename(at, url, watch)
    except BaseException:
        _remove(scheme, at, Trouble.DOWN, what, watch)
        raise


def _remove(scheme: Scheme, at: str, trouble: Trouble, what: Deliver, watch: Watch) -> None:
    """What was written in vain. If it cannot be removed now it stays, under a name that nobody takes for a result."""
    if scheme.puts_whole and trouble is not Trouble.CORRUPT:
        return  # there is nothing; or what an earlier delivery put there
    try:
        with watch.cleaning(), told(at, watch):
            scheme.remove(at, watch)
    except TransferFailed as failed:
        if scheme.puts_whole:
            note = f"{shown(at)} is not what {what.path} is, and cannot be removed: {failed.note}"
            raise TransferFailed(failed.trouble, shown(at), note_of(note), failed.not_before_s) from failed


def _hashed(path: str, url: str, watch: Watch) -> tuple[int, str]:
    digests, count = Digests(), 0
    with own_disk(path, url):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would be waited for
        try:
            if not S_ISREG(os.fstat(fd).st_mode):
                note = note_of(f"{path} is no file, so it cannot be delivered")
                raise TransferFailed(Trouble.REFUSED, shown(url), note)
            for chunk in chunks_of(fd, 0, -1, watch):
                digests.update(chunk)
                count += len(chunk)
                watch.alive(len(chunk))
        finally:
            os.close(fd)
    return count, digests.own
