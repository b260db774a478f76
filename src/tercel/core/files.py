"""Files: what tasks read and leave, by name, wherever the bytes are. Plain values, frozen where they travel.

A *file* is immutable: a name, a size, a digest. A *replica* is a place where its bytes are: a URL. What a job reads and
leaves is declared with it, with holes for what differs from task to task (`{task}`, `{job}`, and the names of its points):

    in     data/run{task}.root             uploaded by the client, under a name of the catalogue: up:…/data/run{task}.root
           https://…  s3://…  sftp://…     fetched by the worker, as any scheme that fsspec knows
           file:///data/x                  on the worker's own disks
           lfn:calib/2026                  a name of the catalogue: fetched from a replica
    out    hist_*.root -> sftp://store/results/{job}/
           result.json -> lfn:fit/{job}/{task}          kept at the manager, under that name
           result.json -> lfn:fit/{task} s3://bucket/   kept there, under that name; several places: the first that works

    sandbox <--linked-- cache <--fetched and checked-- replica
    sandbox --moved--> outgoing --to a temporary name, checked, renamed--> destination --reported--> catalogue
"""

import re
from enum import StrEnum

import msgspec

from tercel.core.states import Stage

LFN = "lfn:"
"""Begins a name that people gave."""
UPLOADED = "up:"
"""Begins a name that a client made for what it uploaded."""
KEPT = "tercel:"
"""Begins the URL of a replica at the manager: `tercel:blake3:…`."""
ALGORITHMS = {"blake3": 64, "sha256": 64, "md5": 32}
"""Of digests, with the number of their hex digits. Ours are of the first; others are checked where a source offers no better."""

_DIGEST = re.compile(r"(blake3|sha256|md5):([0-9a-f]+)")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[^/?#@]*@)?([^/?#]*)", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443, "sftp": 22, "ssh": 22, "ftp": 21}


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file that each task finds in its directory, read-only."""

    source: str
    """A URL or a name of the catalogue, with holes."""
    name: str = ""
    """Its path in the task's sandbox, with holes; empty: the last part of the source."""
    digest: str = ""
    """`sha256:…`: what it must be. Empty: what the catalogue says, or whatever comes."""


class When(StrEnum):
    """After which end of a task an output is delivered."""

    FINISHED = "finished"
    FAILED = "failed"
    ALWAYS = "always"


class Output(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file, or all that match a pattern, that a task leaves in its directory and that is delivered before it counts as finished."""

    name: str
    """A path in the task's directory, or a pattern (`hist_*.root`), with holes."""
    to: tuple[str, ...]
    """Where to, with holes: URLs in order of preference; one that ends with / is a directory. At most one is a name
    (`lfn:…`): it is what the file is registered as; alone, its bytes are kept at the manager."""
    optional: bool = False
    """It is no failure if there is none."""
    when: When = When.FINISHED


class FileRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of the catalogue."""

    name: str
    """`lfn:calib/2026`, or `up:…`; of an output that was given none: its URL."""
    size_bytes: int
    digest: str
    """`blake3:…`, mostly."""
    owner: str = ""
    made_at: float = 0.0
    job: int = 0
    """Which task made it; 0: somebody added it."""
    task: int = 0
    attempt: int = 0


class ReplicaRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the bytes of a file are."""

    name: str
    url: str
    verified_at: float = 0.0
    bad: str = ""
    """Why it is not to be read, if so: its bytes were others, or gone."""
    made: bool = False
    """The task that made the file has put it there: it is removed there if the task is undone. What others put elsewhere is theirs."""


class Made(msgspec.Struct, frozen=True, array_like=True):
    """An output that was delivered, and checked where it is now."""

    path: str
    """In the task's directory."""
    url: str
    size_bytes: int
    digest: str
    name: str = ""
    """What it is to be registered as; empty: under its URL."""


class Trouble(StrEnum):
    """What kept a transfer from being done. Those before MISSING pass by themselves, or by somebody's doing."""

    DOWN = "down"
    """Refused, unreachable, cut, or silent for too long."""
    UNKNOWN_HOST = "unknown-host"
    BUSY = "busy"
    """It asks to come again later (429, 503)."""
    FULL = "full"
    DENIED = "denied"
    """Who asks is not, or no longer, allowed to."""
    CORRUPT = "corrupt"
    """What came, or what was found there, had another size or digest, as often as it was tried."""
    MISSING = "missing"
    """There is no such file."""
    REFUSED = "refused"
    """It cannot be, whenever it is tried: no such scheme, no directory but a file in its place, a path that leads astray."""


class Hitch(msgspec.Struct, frozen=True, array_like=True):
    """Why the data of an attempt could not be brought or delivered, in a worker's words."""

    stage: Stage
    trouble: Trouble
    url: str
    """Without secrets."""
    note: str
    not_before_s: float = 0.0
    """It asked to be left alone for so long."""
    kept: bool = False
    """The attempt's outputs are kept at the worker: it goes on from there when it is told to."""


class Location(msgspec.Struct, frozen=True, array_like=True):
    """What the catalogue says of a name; of one that it does not know, only that."""

    name: str
    digest: str = ""
    size_bytes: int = 0
    urls: tuple[str, ...] = ()
    """Of replicas that are not known to be bad."""


def is_makers(known: FileRow, said: FileRow) -> bool:
    """Whether what is said of a file that is known comes from the task that made it."""
    return bool(said.job) and (said.job, said.task) == (known.job, known.task)


def is_digest(text: str) -> bool:
    match = _DIGEST.fullmatch(text)
    return match is not None and len(match[2]) == ALGORITHMS[match[1]]


def is_name(text: str) -> bool:
    """Of the catalogue, rather than a place."""
    return text.startswith((LFN, UPLOADED))


def endpoint_of(url: str) -> str:
    """Whom a transfer burdens: `sftp://store.lab:22`, `s3://bucket`, `file://`; `tercel:` is the manager."""
    if url.startswith(KEPT):
        return KEPT
    match = _URL.match(url)
    if match is None:
        return "file://"
    scheme, host = match[1].lower(), match[2].lower()
    port = _PORTS.get(scheme)
    if port is not None and host and not re.search(r":[0-9]+$", host):
        host = f"{host}:{port}"
    return f"{scheme}://{host}"


def directory_of(url: str) -> str:
    """Without its last part, and without what is asked of it."""
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    head, _, _ = bare.rpartition("/")
    return f"{head}/" if "//" in head and not head.endswith("//") else bare
