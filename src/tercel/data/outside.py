"""Every other storage, through fsspec: s3 (s3fs), ftp, gs, az, … Its libraries are imported when one is first asked for.

Stores of objects take a file whole: it appears when all of it is there. Elsewhere it is written under a temporary name.
Credentials are found as each library finds them: AWS_…, ~/.aws, a role of the machine.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tercel.core.files import Trouble
from tercel.data.contract import Reading, Seen, TransferFailed
from tercel.data.urls import note_of, parse, shown
from tercel.data.watches import Watch

CHUNK_BYTES = 4 << 20
PART_BYTES = 8 << 20
KEPT_S = 60.0
"""Afterwards its credentials are looked for again: those that had expired may have been renewed."""
_PARTS_MOST = 9000
"""Of one upload to S3, with some room."""
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "obs"})
_OPTIONS: dict[str, dict[str, Any]] = {
    # One try: whoever asked is told, and asks again when there is hope.
    "s3": {"config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 20}},
}
_OPTIONS["s3a"] = _OPTIONS["s3"]
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs", "oss": "ossfs"}


class OutsideScheme:
    unquotes = False

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self.puts_whole = scheme in OBJECT_STORES
        self._made: tuple[float, Any] = (0.0, None)

    def _at(self, url: str) -> tuple[Any, str]:
        """The file system and what it calls this. None of it is remembered from before: it may be another by now."""
        parse(url)
        made_at, made = self._made
        if made is None or time.monotonic() - made_at > KEPT_S:
            made = _file_system(self._scheme, url)
            self._made = (time.monotonic(), made)
        return made, made._strip_protocol(url)

    def stat(self, url: str, watch: Watch) -> Seen:
        watch.check()
        file_system, path = self._at(url)
        return _seen(file_system.info(path), url)

    @contextmanager
    def read(
        self, url: str, watch: Watch, begin: int = 0, end: int = -1, same_as: str = ""
    ) -> Iterator[Reading]:
        file_system, path = self._at(url)
        seen = _seen(file_system.info(path), url)
        if same_as and seen.validator != same_as:
            begin, end = 0, -1
        with file_system.open(path, "rb", block_size=CHUNK_BYTES, cache_type="readahead") as file:
            if begin:
                file.seek(begin)
            yield Reading(seen, begin, _chunks(file, begin, end, watch))
        if _seen(file_system.info(path), url) != seen:
            note = f"{shown(url)} changed while it was read"
            raise TransferFailed(Trouble.CORRUPT, shown(url), note_of(note))

    def write(self, path: str, url: str, watch: Watch) -> None:
        file_system, to = self._at(url)
        watch.check()
        parent = file_system._parent(to)
        if not self.puts_whole and parent:
            file_system.makedirs(parent, exist_ok=True)
        size_bytes = Path(path).stat().st_size
        options: dict[str, Any] = {}
        if self._scheme in ("s3", "s3a"):
            options["chunksize"] = max(PART_BYTES, size_bytes // _PARTS_MOST)
        file_system.put_file(path, to, callback=_stepping(watch), **options)
        watch.check()

    def rename(self, url: str, to: str, watch: Watch) -> None:
        watch.check()
        file_system, path = self._at(url)
        file_system.mv(path, self._at(to)[1])

    def remove(self, url: str, watch: Watch) -> None:
        watch.check()
        file_system, path = self._at(url)
        with suppress(FileNotFoundError):
            file_system.rm_file(path)


def _file_system(scheme: str, url: str) -> Any:
    try:
        import fsspec  # noqa: PLC0415  80 ms, and s3fs half a second: only who needs it waits for it

        return fsspec.filesystem(
            scheme, use_listings_cache=False, skip_instance_cache=True, **_OPTIONS.get(scheme, {})
        )
    except ImportError as error:
        package = (
            "'tercel[data]'" if scheme in ("s3", "s3a") else _PACKAGES.get(scheme, error.name or "fsspec")
        )
        note = f"{shown(url)}: {error}; on the worker: pip install {package}"
        raise TransferFailed(Trouble.REFUSED, shown(url), note_of(note)) from error
    except ValueError as error:
        note = f"{shown(url)}: {scheme} is no scheme that is known on the worker"
        raise TransferFailed(Trouble.REFUSED, shown(url), note_of(note)) from error


def _seen(info: dict[str, Any], url: str) -> Seen:
    if info.get("type", "file") != "file":
        raise TransferFailed(Trouble.REFUSED, shown(url), note_of(f"{shown(url)} is a directory"))
    size = info.get("size")
    marks = [
        info[key] for key in ("ETag", "etag", "VersionId", "LastModified", "mtime", "modify") if info.get(key)
    ]
    return Seen(size if isinstance(size, int) else -1, "-".join(map(str, marks)), ranges=True)


def _chunks(file: Any, begin: int, end: int, watch: Watch) -> Iterator[bytes]:
    while end < 0 or begin < end:
        watch.check()
        data = file.read(CHUNK_BYTES if end < 0 else min(CHUNK_BYTES, end - begin))
        if not data:
            return
        begin += len(data)
        yield data


def _stepping(watch: Watch) -> Any:
    """What fsspec calls with each part that it has sent."""
    from fsspec.callbacks import Callback  # noqa: PLC0415  see above

    class Stepping(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            watch.step(inc)

    return Stepping()
