"""What a submission says about where and how its tasks run: checked before anything is accepted."""

import re
from collections.abc import Iterable

from tercel.core.errors import UsageError
from tercel.core.model import MAX_MEM_BYTES, JobSpec, Keep
from tercel.core.sizes import size

MAX_AMOUNT = 1e9
LEAST_AMOUNT = 0.001
"""Amounts are counted in thousandths."""
MAX_RESOURCES = 1000
MAX_TAGS = 10_000
MAX_TAG = 100
MAX_PIDS = 2**22
MAX_GROWTH = 100.0
MAX_IMAGE = 1000
MAX_CLEANUP_BYTES = 64 * 1024
MAX_CLEANUP_S = 7 * 86400.0
MAX_WARNING_S = 365 * 86400.0
ISOLATIONS = ("bwrap",)
SIGNALS = frozenset(
    "HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM CHLD CONT TSTP TTIN TTOU URG XCPU XFSZ VTALRM "
    "PROF WINCH IO SYS".split()
)
"""What a task may be warned by: KILL and STOP cannot be heard."""

RESOURCE = r"[A-Za-z][A-Za-z0-9_.\-]{0,63}"
TAG = rf"[!-+\--~]{{1,{MAX_TAG}}}"
"""For editors and clients; letters of other scripts are taken as well."""
_RESOURCE = re.compile(RESOURCE)
_TAKEN = {
    "cpus": "cpus has an option of its own",
    "mem": "memory has an option of its own: mem",
    "memory": "memory has an option of its own: mem",
    "gpus": "gpus has an option of its own",
}
_WARNING = re.compile(r"(?:SIG)?([A-Z][A-Z0-9]{1,9})@(\d{1,9}(?:\.\d{1,3})?)", re.ASCII)


LEAST_CALL_BYTES = 64 * 2**20


def check_placement(spec: JobSpec) -> None:
    """Also of a job that is to be revised. Raises UsageError."""
    _check_amounts(spec)
    check_tags(spec.requires, "requires")
    _between("pids", spec.pids, 0, MAX_PIDS)
    _between("disk_bytes", spec.disk_bytes, 0, MAX_MEM_BYTES)
    _check_growth(spec)
    if spec.function is not None and 0 < spec.mem_bytes < LEAST_CALL_BYTES:
        least = size(LEAST_CALL_BYTES)
        raise UsageError(
            f"a function needs at least {least} of memory: its interpreter alone takes half", "mem_bytes"
        )
    if spec.where or spec.rank:
        _check_expressions(spec)
    _check_surroundings(spec)
    _check_cleanup(spec)
    if spec.warn_signal:
        parse_warning(spec.warn_signal)


def _check_expressions(spec: JobSpec) -> None:
    from tercel.core import cel  # noqa: PLC0415  (every command line imports this module; few have expressions)

    if spec.where:
        cel.where(spec.where)  # which is remembered: the machine will ask for the same
    if spec.rank:
        cel.rank(spec.rank)


def _check_amounts(spec: JobSpec) -> None:
    _check_amount("gpus", spec.gpus)
    if spec.gpus > 1 and spec.gpus != int(spec.gpus):
        raise UsageError(
            f"gpus is {spec.gpus:g}; more than one GPU are whole ones: write 0.5 for a part of one, or 2",
            "gpus",
        )
    if len(spec.resources) > MAX_RESOURCES:
        raise UsageError(f"at most {MAX_RESOURCES:,} resources", "resources")
    for name, amount in spec.resources.items():
        check_resource_name(name)
        _check_amount("resources", amount, f"resources: {name}")


def _check_growth(spec: JobSpec) -> None:
    _between("mem_growth", spec.mem_growth, 0, MAX_GROWTH)
    if 0 < spec.mem_growth <= 1:
        raise UsageError(
            f"mem_growth is {spec.mem_growth:g}; it must be above 1, as 1.5: so many times as much memory is given",
            "mem_growth",
        )
    if spec.mem_growth and not spec.mem_bytes:
        raise UsageError("mem_growth needs mem: say how much memory a task is given at first", "mem_growth")


def check_resource_name(name: str, field: str = "resources") -> None:
    if name in _TAKEN:
        raise UsageError(f"{field}: {_TAKEN[name]}", field)
    if _RESOURCE.fullmatch(name) is None:
        raise UsageError(
            f"{field}: {_cut(name)} is no name: a letter, then up to 63 of A-Z a-z 0-9 _ . -, as in licence.matlab",
            field,
        )


def _check_amount(field: str, amount: float, what: str = "") -> None:
    if amount and not LEAST_AMOUNT <= amount <= MAX_AMOUNT:  # also true of what is not a number
        raise UsageError(
            f"{what or field} is {amount:g}; it must be 0, or between {LEAST_AMOUNT:g} and {MAX_AMOUNT:g}",
            field,
        )


def check_tags(tags: Iterable[str], field: str) -> None:
    """The same tag twice is one."""
    distinct = set(tags)
    if len(distinct) > MAX_TAGS:
        raise UsageError(f"{field}: {len(distinct):,} tags; at most {MAX_TAGS:,}", field)
    for tag in sorted(distinct):
        if not tag or len(tag) > MAX_TAG or not tag.isprintable() or "," in tag or " " in tag:
            raise UsageError(
                f"{field}: {_cut(tag)} is no tag: 1 to {MAX_TAG} printable characters without blanks and commas",
                field,
            )


def _check_surroundings(spec: JobSpec) -> None:
    if spec.isolate and spec.isolate not in ISOLATIONS:
        raise UsageError(
            f"isolate {_cut(spec.isolate)} is not known; there is {', '.join(ISOLATIONS)}", "isolate"
        )
    image = spec.container
    if image and (len(image) > MAX_IMAGE or not image.isprintable() or " " in image or image.startswith("-")):
        raise UsageError(
            f"container {_cut(image)} is not the name of an image; write one as in docker.io/library/python:3.12",
            "container",
        )
    if image and spec.isolate:
        raise UsageError("a container is isolated as it is: leave isolate out", "isolate")
    if spec.sandbox is not Keep.REMOVE and spec.function is not None:
        raise UsageError("sandbox: what functions leave in theirs cannot be kept", "sandbox")
    for field in ("isolate", "container"):
        if getattr(spec, field) and spec.function is not None:
            raise UsageError(
                f"{field}: functions are called by the worker's own Python, outside of any: run a command instead",
                field,
            )


def _check_cleanup(spec: JobSpec) -> None:
    _between("cleanup_limit_s", spec.cleanup_limit_s, LEAST_AMOUNT, MAX_CLEANUP_S)
    if spec.cleanup and not spec.cleanup.strip():
        raise UsageError("cleanup is blank: give a command line, or leave it out", "cleanup")
    _check_text("cleanup", spec.cleanup, MAX_CLEANUP_BYTES)


def parse_warning(text: str) -> tuple[str, float]:
    """`USR1@120` -> (the signal's name, how many seconds before the end it is sent)."""
    match = _WARNING.fullmatch(text)
    if match is None:
        raise UsageError(f"warn_signal {_cut(text)} is not NAME@SECONDS, as in USR1@120", "warn_signal")
    name, seconds = match[1], float(match[2])
    if name in ("KILL", "STOP"):
        raise UsageError(f"warn_signal: no task can heed {name}: use USR1, INT or TERM", "warn_signal")
    if name not in SIGNALS:
        raise UsageError(
            f"warn_signal: there is no signal {name}; there are USR1, INT, TERM, …", "warn_signal"
        )
    _between("warn_signal", seconds, LEAST_AMOUNT, MAX_WARNING_S)
    return name, seconds


def _check_text(field: str, text: str, most_bytes: int) -> None:
    if "\0" in text:
        raise UsageError(f"{field} contains a NUL byte", field)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{field} is no text: it is not UTF-8", field) from None
    if size > most_bytes:
        raise UsageError(f"{field} is {size:,} bytes long; at most {most_bytes:,}", field)


def _between(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # also true of what is not a number
        raise UsageError(f"{field} is {value:g}; it must be between {least:g} and {most:g}", field)


def _cut(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
