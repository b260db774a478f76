"""From the words that describe a job to what is submitted.

    Words (keys, values, where each was written)  ->  lay one description over another  ->  Draft

Everything is checked by the rules that the manager goes by, so that a mistake submits nothing and is told with its place.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tercel.core.commands import check_spec
from tercel.core.errors import UsageError
from tercel.core.intervals import Range
from tercel.sdk.files.directories import directory
from tercel.sdk.files.keys import BY_FIELD, BY_NAME, WHAT_IS_RUN
from tercel.sdk.files.kinds import Mistake, check, without_field
from tercel.sdk.files.lines import Lines, read_lines
from tercel.sdk.files.points import read_grid, read_items
from tercel.sdk.files.sources import Given, Source, Words
from tercel.wire.api import Submission


class Draft(NamedTuple):
    """A checked job, ready to be handed in."""

    submission: Submission
    ranges: Sequence[Range]
    """The numbers of its tasks."""
    needs: Sequence[tuple[int, str]] = ()
    """In a flow: indexes of the drafts it comes after, and whether after `all` of its tasks or after the `same` one."""
    remarks: Sequence[str] = ()
    """What was not taken as it was written."""
    shown: str = ""
    """The command for people, where what is run does not show it."""

    @property
    def tasks(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


def lay_over(below: Words, above: Words) -> Words:
    """Two descriptions as one: what `above` says counts. Variables are put together; commands replace one another."""
    words = dict(below)
    if not WHAT_IS_RUN.isdisjoint(above):
        for key in WHAT_IS_RUN:
            words.pop(key, None)
    for key, given in above.items():
        under = below.get(key)
        if key == "env" and under is not None:
            given = given._replace(value=_joined(under.value, given.value))
        words[key] = given
    return words


def _joined(below: object, above: object) -> object:
    """Tables as one; if either is something else, it stays for the check to find."""
    if not isinstance(below, Mapping):
        return below
    return {**below, **above} if isinstance(above, Mapping) else above


def make_draft(words: Words, source: Source, remarks: Sequence[str] = ()) -> Draft:
    """Raises UsageError. `source` is blamed for what is missing."""
    fields: dict[str, object] = {}
    for name, given in words.items():
        fields |= _field(name, given)
    lines = _program(words, source, fields)
    items = _points(words, fields)
    fields["cwd"] = _directory(words.get("cwd"))
    submission = Submission(**fields)  # type: ignore[arg-type]
    try:
        ranges, _ = check_spec(submission, submission.lines, items=submission.items)
    except UsageError as error:
        raise _placed(error, words, source, items or lines) from None
    said = [*remarks, lines.remark()] if lines else remarks
    return Draft(submission, ranges, remarks=[remark for remark in said if remark])


def _field(name: str, given: Given) -> dict[str, object]:
    """The field of Submission that a key alone decides, if it does."""
    key = BY_NAME[name]
    try:
        check(key.kind, given.value, given.path)
        return {key.field: key.read(given.value)} if key.field else {}
    except Mistake as mistake:
        raise given.source.wrong(mistake.path, mistake.text) from None
    except UsageError as error:
        raise given.source.wrong(given.path, without_field(error)) from None


def _program(words: Words, source: Source, fields: dict[str, object]) -> Lines | None:
    """Adds what is run to the fields. Returns the lines that were read from a file, if any were."""
    given = [key for key in words if key in WHAT_IS_RUN]
    if not given:
        raise source.wrong((), "nothing to run: give a command, lines or lines_file")
    if len(given) > 1:
        other = words[given[1]]
        raise other.source.wrong(other.path, f"{given[0]} says already what is run: give one of them")
    [name] = given
    value, origin, path = words[name]
    match name, value:
        case "command", "":
            raise origin.wrong(path, "the command is empty")
        case "command", str():
            fields["line"] = value
        case "command", list():
            fields["argv"] = tuple(value)
        case "lines", _:
            fields["lines"] = value
        case "lines_file", str():
            try:
                lines = read_lines(value, origin.base)
            except UsageError as error:
                raise origin.wrong(path, str(error)) from None
            fields["lines"] = lines.lines
            return lines
    return None


def _points(words: Words, fields: dict[str, object]) -> Lines | None:
    """Adds what fills the holes of the command to the fields. Returns the items that were read, if any were."""
    sweep, zipped, items = words.get("sweep"), words.get("sweep_zip"), words.get("items_file")
    if zipped is not None and sweep is None:
        raise zipped.source.wrong(zipped.path, "there is no sweep: its values stand in the table [sweep]")
    if sweep is not None:
        assert isinstance(sweep.value, Mapping)
        try:
            fields["grid"] = read_grid(
                sweep.value, zipped is not None and zipped.value is True, sweep.source.base, sweep.path
            )
        except Mistake as mistake:
            raise sweep.source.wrong(mistake.path, mistake.text) from None
    if items is None:
        return None
    assert isinstance(items.value, str)
    try:
        read = read_items(items.value, items.source.base)
    except UsageError as error:
        raise items.source.wrong(items.path, str(error)) from None
    fields["items"] = read.lines
    return read


def _directory(given: Given | None) -> str:
    if given is None:
        return directory(".")
    assert isinstance(given.value, str)
    try:
        return directory(given.value)
    except UsageError as error:
        raise given.source.wrong(given.path, str(error)) from None


def _placed(error: UsageError, words: Words, source: Source, lines: Lines | None) -> UsageError:
    """A complaint of the rules about a field of Submission, at the place where its key was given."""
    member = re.fullmatch(r"(?:lines|items)\[(\d+)\]", error.field)
    key = BY_FIELD.get(error.field.partition("[")[0], "")
    given = words.get(key) or words.get("lines_file" if key == "lines" else "")
    if given is None:
        return source.wrong((), str(error))
    if member is None:
        return given.source.wrong(given.path, without_field(error))
    if lines is None:
        return given.source.wrong((*given.path, int(member[1])), without_field(error))
    return given.source.wrong(given.path, str(error).replace(error.field, lines.place(int(member[1])), 1))
