"""Bytes of files from where a client reaches them by itself: its own disks, and plain HTTP. Loaded only where they are read.

All else (s3:, sftp: …) is a worker's to speak: whoever adds such a file says what is in it.
"""

import asyncio
import http.client
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, TypeVar, cast
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit

from tercel.core.errors import NotFound, PassingFault, UsageError

T = TypeVar("T")
PIECE_BYTES = 2**20
SILENCE_S = 60.0
GONE = (404, 410)
SPOKEN = ("http", "https", "file")


class Absent(NotFound):
    """There is no such file. On this machine, if it is a path: others may have it."""


class Unspoken(UsageError):
    """Of a place that only workers reach."""


def is_url(text: str) -> bool:
    return "://" in text or text.startswith("file:")


async def pieces(url: str) -> AsyncGenerator[bytes, None]:
    """Raises Absent, Unspoken, or PassingFault for what may be there and cannot be read now."""
    scheme = urlsplit(url).scheme.lower() if is_url(url) else "file"
    if scheme not in SPOKEN:
        raise Unspoken(f"{url}: a client reads {', '.join(SPOKEN)} only", "url")
    opened: Callable[[str], BinaryIO] = _path_opened if scheme == "file" else _page_opened
    with ExitStack() as stack:
        file = stack.enter_context(await _in_thread(url, lambda: opened(url)))
        while piece := await _in_thread(url, lambda: file.read(PIECE_BYTES)):
            yield piece


async def _in_thread(url: str, work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except FileNotFoundError:
        raise Absent(f"{url}: there is no such file here", "url") from None
    except HTTPError as error:
        with error:
            told = f"{url}: HTTP status {error.code}"
        raise (Absent(told, "url") if error.code in GONE else PassingFault(told)) from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise PassingFault(f"cannot read {url}: {getattr(reason, 'strerror', None) or reason}") from None


def _path_opened(url: str) -> BinaryIO:
    path = Path(unquote(urlsplit(url).path)) if is_url(url) else Path(url)
    return path.open("rb")


def _page_opened(url: str) -> BinaryIO:
    """An answer that is cut may be read to its end: whoever compares sizes notices."""
    return cast("BinaryIO", urllib.request.urlopen(url, timeout=SILENCE_S))  # noqa: S310 - of a scheme that was looked at
