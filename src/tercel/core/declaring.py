"""Inputs and outputs of a job as people write them, and back.

    in    SOURCE [=NAME] [DIGEST]          data/run{task}.root · s3://bucket/geometry.db=geo.db · lfn:calib/2026
          SOURCE -> NAME [DIGEST]          https://host/x?y=z -> z.json sha256:…
    out   PATTERN [; WORDS]                log.txt: kept at the manager, as lfn:job/{job}/{task}/log.txt
          PATTERN=DESTINATION…             result.json=lfn:fit/{job}/{task}
          PATTERN -> DESTINATION… [; WORDS]    hist_*.root -> sftp://store/{job}/, file:///backup/{job}/; optional, always

Several destinations are alternatives, the best first, with blanks or commas between them. WORDS are `optional`, and `on
failure` or `always`. What `=`, `->`, `;` and blanks mean is decided before any hole is filled: a value cannot change it.
Names that cannot be written so have a table in job files, and fields in the API.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from tercel.core.errors import UsageError
from tercel.core.files import ALGORITHMS, LFN, Input, Output, When, is_digest
from tercel.core.locating import Form, form_of, is_pattern

T = TypeVar("T")

_ARROW = re.compile(r"\s*->\s*")
_DIGEST = re.compile(rf"\s+((?:{'|'.join(ALGORITHMS)}):\S*)\Z", re.IGNORECASE)
_PLACE = r"(?:lfn:|[A-Za-z][A-Za-z0-9+.\-]*://)"
_APART = re.compile(rf"[\s,]+(?={_PLACE})")
_EQUALS = re.compile(rf"=(?={_PLACE})")
_OPTIONAL = "optional"
_WHEN = {"on failure": When.FAILED, "always": When.ALWAYS}


def parse_input(text: str) -> Input:
    """Raises UsageError. What the parts may be is checked with the job's other rules."""
    body, digest = text.strip(), ""
    if match := _DIGEST.search(body):
        body, digest = body[: match.start()], match[1].lower()
    parts = _ARROW.split(body)
    if len(parts) > 2:
        raise UsageError(f"{_short(text)} has more than one ->; write SOURCE -> NAME", "inputs")
    source, name = parts if len(parts) == 2 else _split_name(body)
    if not source or (len(parts) == 2 and not name) or _DIGEST.search(f" {name}"):
        what = "name before the digest" if _DIGEST.search(f" {name}") else "name" if source else "source"
        raise UsageError(
            f"{_short(text)} has no {what}; write SOURCE, SOURCE=NAME or SOURCE -> NAME", "inputs"
        )
    return input_of(source, name, digest)


def input_of(source: str, name: str = "", digest: str = "") -> Input:
    if digest and not is_digest(digest):
        known = ", ".join(f"{name}: and {digits} hex digits" for name, digits in ALGORITHMS.items())
        raise UsageError(f"{_short(digest)} is no digest: there is {known}", "inputs")
    return Input(source=source, name=name.removeprefix("./"), digest=digest)


def _split_name(text: str) -> tuple[str, str]:
    """A page's `?a=b` is no name; nor is what has a / in it: that may be a directory called `year=2026`."""
    if form_of(text) is Form.URL and "?" in text:
        return text, ""
    source, equals, name = (part.strip() for part in text.rpartition("="))
    if not equals:
        return text, ""
    if "/" in name or not name or not source:
        last = text.rpartition("/")[2] or "NAME"
        raise UsageError(
            f"{_short(text)}: does a name follow the =, or does it belong to the source? "
            f"Write '{text[:200]} -> {last[:80]}', or 'SOURCE -> NAME'",
            "inputs",
        )
    return source, name


def parse_output(text: str) -> Output:
    """Raises UsageError. What the parts may be is checked with the job's other rules."""
    body, semicolon, words = text.strip().rpartition(";")
    if not semicolon:
        body, words = words, ""
    while semicolon and ";" in body and _are_words(body.rpartition(";")[2]):  # each behind one of its own
        body, _, more = body.rpartition(";")
        words = f"{more},{words}"
    optional, when = _words(words, text) if semicolon else (False, When.FINISHED)
    parts = _ARROW.split(body.strip())
    if len(parts) > 2:
        raise UsageError(f"{_short(text)} has more than one ->; write PATTERN -> DESTINATION", "outputs")
    if len(parts) == 1 and (match := _EQUALS.search(body)):
        parts = [body[: match.start()].strip(), body[match.end() :].strip()]
    elif len(parts) == 1 and "=" in body:
        to = body.partition("=")[2]
        raise UsageError(
            f"{_short(text)}: {_short(to)} is no destination (a URL, or lfn:NAME). If the = belongs to the name, write "
            f"'{body[:200]} -> {kept(body)[:200]}'",
            "outputs",
        )
    if not all(parts):
        raise UsageError(f"{_short(text)} is incomplete; write PATTERN, or PATTERN -> DESTINATION", "outputs")
    return output_of(parts[0], _APART.split(parts[1]) if len(parts) == 2 else (), optional, when)


def output_of(
    name: str, to: Sequence[str] = (), optional: bool = False, when: When = When.FINISHED
) -> Output:
    """Without a destination it is kept at the manager."""
    name = name.removeprefix("./")
    return Output(name=name, to=tuple(to) or (kept(name),), optional=optional, when=when)


def kept(name: str) -> str:
    """What an output is called that goes back to the submitter."""
    return f"{LFN}job/{{job}}/{{task}}/{'' if is_pattern(name) else name}"


def _are_words(words: str) -> bool:
    found = [" ".join(word.lower().split()) for word in words.split(",")]
    return all(word in _WHEN or word == _OPTIONAL for word in found)


def _words(words: str, text: str) -> tuple[bool, When]:
    found = [" ".join(word.lower().split()) for word in words.split(",")]
    whens = [_WHEN[word] for word in found if word in _WHEN]
    if any(word not in _WHEN and word != _OPTIONAL for word in found) or len(whens) > 1:
        raise UsageError(
            f"{_short(text)}: after ; come `optional`, and `on failure` or `always`, not {_short(words.strip())}; a "
            "name with ; in it is written in a job file, as name = …",
            "outputs",
        )
    return _OPTIONAL in found, whens[0] if whens else When.FINISHED


# -- tables, as job files and programs have them ----------------------------------------------------------


def read_input(given: str | Mapping[str, str] | Input) -> Input:
    if isinstance(given, Input):
        return given
    if isinstance(given, str):
        return parse_input(given)
    one = _converted(given, Input, "inputs")
    return input_of(one.source, one.name, one.digest)


def read_output(given: str | Mapping[str, object] | Output) -> Output:
    if isinstance(given, Output):
        return given
    if isinstance(given, str):
        return parse_output(given)
    to = given.get("to", ())
    one = _converted({**given, "to": [to] if isinstance(to, str) else to}, Output, "outputs")
    return output_of(one.name, one.to, one.optional, one.when)


def _converted(given: Mapping[str, object], kind: type[T], field: str) -> T:
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{field}: {error}", field) from None


# -- and back ---------------------------------------------------------------------------------------------


def input_text(given: Input) -> str:
    """As people write it: what `parse_input` made is made of this again."""
    name = f" -> {given.name}" if given.name else ""
    return given.source + name + (f" {given.digest}" if given.digest else "")


def output_text(given: Output) -> str:
    words = [_OPTIONAL] if given.optional else []
    words += [word for word, when in _WHEN.items() if when is given.when]
    to = "" if given.to == (kept(given.name),) and "=" not in given.name else f" -> {' '.join(given.to)}"
    return given.name + to + (f"; {', '.join(words)}" if words else "")


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")
