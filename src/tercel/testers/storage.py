"""`get:URL`: what tasks read there can be had. `put:URL`: a file can be put there, checked, and removed again.

Of every scheme that transfers know: `put:s3://bucket/results/`, `get:sftp://store.lab/x`. They are asked with the credentials of the
worker, in a process of their own (see host.py): whatever a storage's library does harms nobody else.
"""

import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.core.files import KEPT, Trouble
from tercel.data.contract import Deliver, TransferFailed
from tercel.data.delivering import deliver, remove, stat
from tercel.data.http_client import BEARER
from tercel.data.schemes import Schemes
from tercel.data.sftp import CONFIG
from tercel.data.urls import below, parse, shown
from tercel.data.watches import Cancelled, Watch
from tercel.testers.contract import Surroundings
from tercel.testers.threads import Threads
from tercel.testers.verdicts import not_cleared, printable

CREDENTIALS = (BEARER, CONFIG)
"""How the variables begin that transfers find credentials by."""
STORAGE = ("get", "put")
PROBE = ".tercel-probe"
"""Always the same, for some storages remove nothing."""
_URL_MOST = 3000

_threads = Threads()


def _normal(text: str, example: str) -> str:
    text = text.strip()
    if text.startswith(KEPT):
        raise UsageError(f"{text[:100]} is kept by the manager itself, which needs no tester")
    try:
        url = parse(text)
    except TransferFailed as failed:
        raise UsageError(f"{failed.note}; write {example}") from None
    if len(text) > _URL_MOST or not (url.path.strip("/") or url.host):
        raise UsageError(f"{shown(text)[:100]} names no file and no directory; write {example}")
    if text.startswith("/"):
        return text
    place, slash, rest = text.partition("://")[2].partition("/")
    user, at, host = place.rpartition("@")
    host = host if url.scheme in ("s3", "gs") else host.lower()
    return f"{url.scheme}://{user}{at}{host}{slash}{rest}"


async def _asked(of: str, look: Callable[[Watch], str]) -> Verdict:
    """In a thread that is woken if nobody waits for it any more."""
    watch = Watch()
    try:
        return Verdict(True, note=printable(await _threads.call(of, look, watch)))
    except TransferFailed as failed:
        return Verdict(False, note=printable(failed.note), not_before_s=failed.not_before_s)
    except Cancelled:
        return not_cleared("nobody waits for it any more")
    finally:
        watch.cancel()


class _StorageTester:
    place = Place.SITE

    def __init__(self) -> None:
        self._schemes = Schemes()

    def close(self) -> None:
        """Connections that are kept for the next test."""
        self._schemes.close()


class GetTester(_StorageTester):
    kind = "get"
    summary = "a file can be had, by any scheme: get:s3://bucket/geometry.db"

    def normalise(self, text: str) -> str:
        return _normal(text, "get:https://store.lab/x")

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        return await _asked(parse(text).host or "a disk", lambda watch: self._look(text, watch))

    def _look(self, url: str, watch: Watch) -> str:
        size_bytes, _ = stat(url, self._schemes, watch)
        return f"{shown(url)} is there" + (f", with {size_bytes:,} bytes" if size_bytes >= 0 else "")


class PutTester(_StorageTester):
    kind = "put"
    summary = "a file can be put into a directory, by any scheme: put:sftp://store.lab/results/"

    def normalise(self, text: str) -> str:
        return _normal(text, "put:sftp://store.lab/results/")

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        return await _asked(parse(text).host or "a disk", lambda watch: self._put(text, watch))

    def _put(self, text: str, watch: Watch) -> str:
        """A name of its own, in the directory: what has the name that it was asked for is not touched."""
        directory = text.partition("?")[0].rpartition("/")[0] + "/"
        tag = secrets.token_hex(8)
        url = below(directory, PROBE, self._schemes.of(text).unquotes)
        with tempfile.TemporaryDirectory(prefix="tercel-put-") as here:
            path = Path(here) / "probe"
            path.write_bytes(b"Tercel puts this here to see whether it can. It may be removed.\n")
            deliver(Deliver(path=str(path), url=url, tag=tag), self._schemes, watch)
        try:
            with watch.cleaning():
                remove(url, self._schemes, watch)
        except TransferFailed as failed:
            if failed.trouble is not Trouble.REFUSED:
                raise
            return f"{shown(directory)} takes files, and removes none: {PROBE} stays there"
        return f"{shown(directory)} takes files"
