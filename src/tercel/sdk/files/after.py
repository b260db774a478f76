"""What a job comes after, and when it is tried again, as people write it.

37 · 37,38                     once they finished
afterok:37:38,afterany:39      as in sbatch; a comma means that all must hold
aftercorr:37                   task i after task i
afterok:37.0-9 · afterok:37_4  after some tasks only

75 · 75,137:5 · 75:5:30s       exit codes, how often, and the pause before the first further try
"""

import re
from collections.abc import Iterator

from tercel.core.commands import parse_time
from tercel.core.errors import UsageError
from tercel.core.intervals import Range
from tercel.core.model import After, AfterKind, RetryRule
from tercel.core.selectors import MAX_ID, parse_tasks

_KINDS = {
    "after": None,
    "afterok": AfterKind.OK,
    "afterany": AfterKind.ANY,
    "afternotok": AfterKind.NOTOK,
    "aftercorr": AfterKind.OK,
    "singleton": None,
}
"""Those of sbatch. None: known, and not supported."""
_JOB = re.compile(r"(\d{1,16})(?:\.([\d,\-]+)|_(\d{1,10}))?")
_WORD = re.compile(r"[a-z]+")
_JOB_PATTERN = r"\s*0*[1-9]\d{0,15}(?:\.[\d,\-]+|_\d{1,10})?\s*"
_PART_PATTERN = rf"(?:\s*after(?:ok|any|notok|corr):{_JOB_PATTERN}(?::{_JOB_PATTERN})*|{_JOB_PATTERN})"
AFTER_PATTERN = rf"{_PART_PATTERN}(?:,{_PART_PATTERN})*"
"""For editors."""
_HOW = "write 37, afterok:37:38, afterany:37, afternotok:37 or aftercorr:37"


def parse_after(text: str) -> list[After]:
    """Raises UsageError for what is not a list of jobs, and for what cannot be waited for."""
    if "?" in text:
        raise UsageError(f"{text!r}: waiting for any one of several (?) is not supported; a comma means all")
    return [after for part in _parts(text) for after in _parse_part(part, text)]


def _parts(text: str) -> Iterator[str]:
    """Commas separate parts, but also ranges of tasks within one: in 37.0-9,12 the 12 is a task."""
    part = ""
    for piece in text.split(","):
        goes_on = "." in part.rpartition(":")[2] and re.fullmatch(r"\s*\d+(-\d+)?\s*(:.*)?", piece)
        if part and not goes_on:
            yield part
            part = piece
        else:
            part = f"{part},{piece}" if part else piece
    yield part


def _parse_part(part: str, whole: str) -> Iterator[After]:
    word, colon, rest = part.strip().partition(":")
    if not colon:
        word, rest = ("afterok", word) if not _WORD.fullmatch(word) else (word, "")
    kind = _KINDS.get(word)
    if kind is None:
        why = "is not supported" if word in _KINDS else "is not a kind of dependency"
        raise UsageError(f"{whole!r}: {word or part!r} {why}; {_HOW}")
    for job in rest.split(":"):
        number, tasks = _job(job.strip(), whole)
        yield After(job=number, kind=kind, tasks=tuple(tasks), each=word == "aftercorr")


def _job(text: str, whole: str) -> tuple[int, list[Range]]:
    match = _JOB.fullmatch(text)
    if match is None or not text.isascii() or not 0 < int(match[1]) <= MAX_ID:
        raise UsageError(f"{whole!r}: {text!r} is not a job's id; {_HOW}")
    if match[3]:
        return int(match[1]), [(int(match[3]), int(match[3]))]
    return int(match[1]), parse_tasks(match[2], text) if match[2] else []


def parse_retry(text: str) -> dict[str, object]:
    """`75,137:5:30s` -> what stands in a [[retry]] table."""
    codes, _, rest = text.partition(":")
    retries, _, backoff = rest.partition(":")
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", codes) or not re.fullmatch(r"\d{0,9}", retries):
        raise UsageError(f"{text!r} is not CODES[:RETRIES[:BACKOFF]]; write 75, 75,137:5 or 75:5:30s")
    rule: dict[str, object] = {"codes": [int(code) for code in codes.split(",")]}
    if retries:
        rule["retries"] = int(retries)
    if backoff:
        rule["backoff"] = backoff
    return rule


def retry_rule(table: dict[str, object]) -> RetryRule:
    """Of a checked [[retry]] table."""
    codes, retries, backoff = table["codes"], table.get("retries", 1), table.get("backoff", "0s")
    assert isinstance(codes, list) and isinstance(retries, int) and isinstance(backoff, str)
    return RetryRule(codes=tuple(codes), retries=retries, backoff_s=parse_time(backoff, "backoff"))
