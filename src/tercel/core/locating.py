"""Where files may be: paths in a task's directory, URLs, names of the catalogue. Checked whenever holes have been filled.

    path     hist_1.root · out/log.txt        relative, within the directory, whatever is filled in
    URL      s3://bucket/x · file:///data/x   `file` is the disks of whoever reads or writes: a worker
    name     lfn:calib/2026 · up:…/x          of the catalogue
    local    data/x · /home/me/x              of the submitter, who uploads it: nobody else knows it

Nothing here may show a secret that somebody wrote into a URL.
"""

import posixpath
import re
from enum import Enum, auto
from urllib.parse import quote

from tercel.core.errors import UsageError
from tercel.core.filenames import NAME_MOST, URL_MOST, check_name
from tercel.core.files import KEPT, LFN, UPLOADED, is_name

MAX_PATH_BYTES = 2048
"""Of a path in a sandbox, whose own path comes before it: Linux takes 4096 for both."""
MAX_PART_BYTES = 255
MAX_URL_BYTES = URL_MOST
MAX_LOCAL = NAME_MOST - 30
"""Of a path that becomes a part of one."""

CREDENTIALS = "credentials come from the worker's environment, files or agent, and never stand in a job"

_UNQUOTED = frozenset({"file", "http", "https", "sftp", "ssh"})
"""Whose URLs are read with %20 for a blank: what a file is called must be written so."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")
_ADDRESS = re.compile(r"\[[0-9a-f:.]*\]", re.IGNORECASE)
"""Of a host that is given by its number: the only place of :: in a URL that is one."""
_HOSTED = frozenset({"http", "https", "s3", "gs", "sftp", "ssh", "ftp"})
_WITH_USER = frozenset({"sftp", "ssh"})
"""Where a login's name is part of the address, and no secret."""
_SECRET = re.compile(
    r"[?&](x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|sig|signature|access_token|token|api_?key|password|passwd|secret)=",
    re.IGNORECASE,
)


class Form(Enum):
    NAME = auto()
    URL = auto()
    LOCAL = auto()


def form_of(place: str) -> Form:
    if is_name(place):
        return Form.NAME
    return Form.URL if _SCHEME.match(place) else Form.LOCAL


def is_pattern(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def last_part(place: str) -> str:
    """What a file is called where it is; empty if it has no name there."""
    match form_of(place):
        case Form.NAME:
            return place.partition(":")[2].rpartition("/")[2]
        case Form.URL:
            return _path_of(place).rpartition("/")[2]
    return place.rpartition("/")[2]


def placed(destination: str, pattern: str, path: str) -> str:
    """Where a file of this path goes. Into a directory it goes by what its pattern leaves open, so that no two meet there:
    `out/*.root` finds out/a.root, which goes there as a.root; `*/x` finds a/x and b/x, which go as such.
    """
    if not destination.endswith("/"):
        return destination
    parts, found = pattern.split("/"), path.split("/")
    first = next((at for at, part in enumerate(parts) if is_pattern(part)), len(parts) - 1)
    rest = "/".join(found[first:])
    match = _SCHEME.match(destination)
    return destination + (quote(rest) if match is not None and match[1].lower() in _UNQUOTED else rest)


# -- what is allowed --------------------------------------------------------------------------------------


def check_path(path: str, field: str) -> None:
    """Of a file, or of a pattern of some, in a task's directory."""
    wrong = _unprintable(path, MAX_PATH_BYTES)
    if not path:
        wrong = "it is empty"
    elif path.startswith("/"):
        wrong = "it is absolute, and only what is in that directory can be named"
    for part in path.split("/") if not wrong else ():
        if part == "..":
            wrong = "it leads out of that directory"
        elif part in ("", "."):
            wrong = "it has an empty part"
        elif len(part.encode()) > MAX_PART_BYTES:
            wrong = f"a part of it is longer than {MAX_PART_BYTES} bytes"
    if wrong:
        raise UsageError(f"{_short(path)} is no path in a task's directory: {wrong}", field)


def check_source(place: str, field: str, *, uploads: bool = False) -> None:
    """Of an input. `uploads`: it may be the submitter's own, yet to be uploaded."""
    match form_of(place):
        case Form.NAME:
            check_name(place, field)
        case Form.URL:
            _check_url(place, field)
        case Form.LOCAL if uploads:
            _check_local(place, field)
        case Form.LOCAL:
            raise UsageError(
                f"{_short(place)} is neither a URL nor a name (lfn:…): a path of your own is uploaded first, as "
                "`tercel submit` and the Python client do; file:///… is on the worker's disks",
                field,
            )


def check_destination(place: str, field: str) -> None:
    """Of an output."""
    if place.startswith(LFN):
        check_name(place.removesuffix("/"), field)
    elif form_of(place) is Form.URL:
        _check_url(place, field)
        if not _path_of(place):
            raise UsageError(f"{_short(place)} names no file there: end it with / for a directory", field)
    else:
        hint = f"file://{place}" if place.startswith("/") else "file:///…"
        raise UsageError(
            f"{_short(place)} is no destination: write a URL, lfn:NAME, or {hint} for the worker's own disks; "
            "without any, the file is kept at the manager, for `tercel file get`",
            field,
        )


def canonical(name: str) -> str:
    """Of a name that a client made from a path of its own, whatever that had in it: `up:1f/./a/../b` -> `up:1f/b`."""
    if not name.startswith(UPLOADED):
        return name
    start, _, path = name.partition("/")
    return start + posixpath.normpath("/" + path.lstrip("/"))


def _check_local(path: str, field: str) -> None:
    wrong = _no_name(path, MAX_LOCAL)
    if path.startswith(KEPT):
        wrong = "say which file it is by its name (lfn:…), not by its digest"
    elif path.endswith("/") or not path:
        wrong = "it names a directory, and files are brought one by one"
    if wrong:
        raise UsageError(f"{_short(path)} cannot be uploaded: {wrong}", field)


def _check_url(url: str, field: str) -> None:
    wrong = _unprintable(url, MAX_URL_BYTES)
    if wrong:
        raise UsageError(f"{_short(_without_secrets(url))} is no URL: {wrong}", field)
    scheme, host = _scheme_and_host(url)
    user, at, host = host.rpartition("@")
    if at and (":" in user or "@" in user or scheme not in _WITH_USER):
        raise UsageError(f"{_without_secrets(url)} has a login in it: leave it out; {CREDENTIALS}", field)
    if match := _SECRET.search(url):
        raise UsageError(f"{_without_secrets(url)} has {match[1]} in it: {CREDENTIALS}", field)
    if scheme == "file" and host:
        raise UsageError(f"{_short(url)}: after file:// comes an absolute path, as in file:///data/x", field)
    if scheme in _HOSTED and not host:
        raise UsageError(f"{_short(url)} names no {'bucket' if scheme in ('s3', 'gs') else 'host'}", field)
    if "::" in _ADDRESS.sub("", url):
        raise UsageError(
            f"{_short(url)} is an address within another: give one, and unpack in the task", field
        )
    if ".." in _path_of(url).split("/"):
        raise UsageError(f"{_short(url)} has .. in it: write where it leads", field)


def _scheme_and_host(url: str) -> tuple[str, str]:
    match = _SCHEME.match(url)
    assert match is not None, "who asks knows that it is a URL"
    return match[1].lower(), re.split(r"[/?#]", url[match.end() :], maxsplit=1)[0]


def _path_of(url: str) -> str:
    """Behind the host; of pages without what is asked of them. Elsewhere ? and # are letters like others."""
    scheme, host = _scheme_and_host(url)
    rest = url[len(scheme) + 3 + len(host) :]
    return re.split(r"[?#]", rest, maxsplit=1)[0] if scheme in ("http", "https") else rest


def _without_secrets(url: str) -> str:
    """As much of it as may be shown, wherever in it something is secret."""
    scheme, host = _scheme_and_host(url)
    return f"{scheme}://{host.rpartition('@')[2][:80]}/…"


def _unprintable(text: str, most_bytes: int) -> str:
    if _CONTROL.search(text):
        return "it has control characters or line breaks"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return f"it has {size:,} bytes; at most {most_bytes:,}" if size > most_bytes else ""


def _no_name(text: str, most: int) -> str:
    if not text.isprintable():
        return "it has characters that cannot be printed"
    return f"it has {len(text):,} characters; at most {most:,}" if len(text) > most else ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
