"""Names of the catalogue: which can be, and which job reads which.

    lfn:calib/2026             given by people
    up:7f3a…/data/run4.root    made by a client: behind `up:` stands the upload that it belongs to
    sftp://store/hist_4.root   of an output that was given none

A source of a job has holes (`lfn:fit/{task}`): what it begins with, up to the first of them, is all that can be looked up.
"""

import re
from collections.abc import Iterable

from tercel.core.errors import UsageError
from tercel.core.files import KEPT, LFN, UPLOADED, is_digest, is_name
from tercel.core.model import JobSpec

NAME_MOST = 1000
"""Characters of a name."""
URL_MOST = 4000

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@]*:[^/@]+@")
_SPECIAL = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
"""In a source: two braces that stand for one, or a hole."""


def check_name(name: str, where: str = "name") -> str:
    """A name under which a file can be registered by people; it is returned. Raises UsageError."""
    if not is_name(name):
        raise UsageError(
            f"{_shown(name)} is no name of the catalogue: one begins with {LFN}, as in lfn:calib/2026", where
        )
    begins = LFN if name.startswith(LFN) else UPLOADED
    if len(name) > NAME_MOST:
        raise UsageError(
            f"the name {_shown(name)} has {len(name):,} characters; at most {NAME_MOST:,}", where
        )
    if not name.isprintable():
        raise UsageError(
            f"the name {_shown(name)} has characters that cannot be printed, such as a newline or a tab; leave them out",
            where,
        )
    parts = name.removeprefix(begins).split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise UsageError(f"the name {_shown(name)} has a part that is empty, . or ..; leave it out", where)
    if begins == UPLOADED and len(parts) < 2:
        raise UsageError(f"the name {_shown(name)} has no path behind its upload: up:<upload>/<path>", where)
    return name


def is_registered_name(name: str) -> bool:
    """Under which a file can be in the catalogue: a name, or the URL of an output that was given none."""
    try:
        check_name(name)
    except UsageError:
        return is_place(name) and not is_name(name)
    return True


def is_place(url: str) -> bool:
    """Where a replica can be: `sftp://store/x`, `/data/x`, `tercel:blake3:…`."""
    if url.startswith(KEPT):
        return is_digest(url.removeprefix(KEPT))
    begins = url.startswith("/") or _SCHEME.match(url) is not None
    return begins and len(url) <= URL_MOST and url.isprintable()


def has_password(url: str) -> bool:
    """Everybody reads the catalogue: what is secret is named by workers, not there."""
    return _PASSWORD.match(url) is not None


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:79]}…")


def upload_of(name: str) -> str:
    """Of a name that a client made: what all names of the same upload begin with (`up:7f3a…/`)."""
    upload, slash, _ = name.partition("/")
    return upload + slash


def names_read(spec: JobSpec) -> set[str]:
    """The names of the catalogue that a job's tasks read, with holes."""
    return {one.source for one in spec.inputs if is_name(one.source)}


def begins_with(source: str) -> str:
    """What all names begin with that a source, with holes, may stand for."""
    return source.partition("{")[0]


def may_mean(source: str, name: str) -> bool:
    """Whether a task may read this file by that source."""
    pattern, at = "", 0
    for special in _SPECIAL.finditer(source):
        pattern += re.escape(source[at : special.start()])
        pattern += re.escape(special[0][0]) if special[0] in ("{{", "}}") else ".*"
        at = special.end()
    return re.fullmatch(pattern + re.escape(source[at:]), name, re.DOTALL) is not None


def uploads_of(sources: Iterable[str]) -> set[str]:
    return {upload_of(source) for source in sources if source.startswith(UPLOADED)}
