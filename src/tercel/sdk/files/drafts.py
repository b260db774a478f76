"""From the words that describe a job to what is submitted.

    Words (keys, values, where each was written)  ->  lay one description over another  ->  Draft

Everything is checked by the rules that the manager goes by, so that a mistake submits nothing and is told with its place.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tercel.core.commands import check_spec
from tercel.core.errors import UsageError
from tercel.core.files import Input
from tercel.core.grids import Grid
from tercel.core.intervals import Range
from tercel.core.rules import check_rules
from tercel.sdk.files.data import based, from_here, is_here
from tercel.sdk.files.directories import directory
from tercel.sdk.files.items import read_items
from tercel.sdk.files.keys import BY_FIELD, BY_NAME, WHAT_IS_RUN
from tercel.sdk.files.kinds import Mistake, check, without_field
from tercel.sdk.files.lines import Lines, read_lines
from tercel.sdk.files.sources import Given, Source, Words
from tercel.sdk.files.sweeps import read_grid, values_of
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
    step: str = ""
    """Of a flow: the step's name."""

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


def make_draft(
    words: Words, source: Source, remarks: Sequence[str] = (), *, grid: Grid | None = None
) -> Draft:
    """Raises UsageError. `source` is blamed for what is missing; `grid` is one that was read otherwise."""
    fields: dict[str, object] = {}
    for name, given in words.items():
        fields |= field_of(name, given)
    lines = _program(words, source, fields)
    items = _items(words.get("items_file"))
    grid = grid or _grid(words)
    fields |= {
        "items": items.lines if items else None,
        "grid": grid,
        "template": bool(grid or items),
        "array": _array(words.get("array"), grid),
    }
    remarks = [*remarks, *_place(words, fields)]
    submission = Submission(**fields)  # type: ignore[arg-type]
    try:
        ranges, _ = check_spec(submission, submission.lines, items=submission.items, uploads=True)
        check_rules(submission)
    except UsageError as error:
        raise _placed(error, words, source, items or lines) from None
    said = [*remarks, lines.remark()] if lines else remarks
    return Draft(submission, ranges, remarks=[remark for remark in said if remark])


def field_of(name: str, given: Given) -> dict[str, object]:
    """The field of Submission that a key alone decides, if it does. Raises UsageError."""
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


def _grid(words: Words) -> Grid | None:
    sweep, zipped, cwd = words.get("sweep"), words.get("sweep_zip"), words.get("cwd")
    if sweep is None:
        if zipped is not None:
            raise zipped.source.wrong(zipped.path, "there is no sweep: its values stand in the table [sweep]")
        return None
    assert isinstance(sweep.value, Mapping)
    outside = values_of(sweep.source.base, str(cwd.value) if cwd is not None else ".")
    try:
        return read_grid(sweep.value, zipped is not None and zipped.value is True, outside, sweep.path)
    except Mistake as mistake:
        raise sweep.source.wrong(mistake.path, mistake.text) from None


def _array(given: Given | None, grid: Grid | None) -> str:
    """As it was given; `%10` of a sweep: all points, but only so many at a time."""
    text = str(given.value) if given is not None else ""
    few = grid is not None and grid.axes and text.startswith("%")
    return f"0-{max(grid.count, 1) - 1}{text}" if grid is not None and few else text


def _items(given: Given | None) -> Lines | None:
    if given is None:
        return None
    assert isinstance(given.value, str)
    try:
        return read_items(given.value, given.source.base)
    except UsageError as error:
        raise given.source.wrong(given.path, str(error)) from None


def _is_given(cwd: Given | None) -> bool:
    """Where a flow's steps run if nothing is said stands nowhere."""
    return cwd is not None and cwd.path != ()


def _place(words: Words, fields: dict[str, object]) -> list[str]:
    """Adds where tasks run: with data, in directories of their own if nothing else is said. Returns what is to be said."""
    inputs = fields.get("inputs", ())
    assert isinstance(inputs, tuple)
    if inputs:
        fields["inputs"] = inputs = based(inputs, words["inputs"].source.base)
    with_data = bool(inputs or fields.get("outputs"))
    fields["cwd"] = _directory(words.get("cwd"), with_data)
    return _begin_here(fields, inputs) if with_data and not _is_given(words.get("cwd")) else []


def _begin_here(fields: dict[str, object], inputs: tuple[Input, ...]) -> list[str]:
    """Programs that are named from here, for tasks that run elsewhere. Returns what is to be said about them."""
    argv, lines = fields.get("argv"), fields.get("lines") or [fields.get("line")]
    if isinstance(argv, tuple):
        fields["argv"] = from_here(argv, inputs, bool(fields["template"]))
        return []
    assert isinstance(lines, list)
    first = next((words[0] for line in lines[:1] if (words := str(line).split())), "")
    if not is_here(first, inputs):
        return []
    return [
        f"tasks with --in or --out run in directories of their own: {first} is not there unless --in brings it"
    ]


def _directory(given: Given | None, with_data: bool) -> str:
    if with_data and not _is_given(given):
        return ""
    if given is None:
        return directory(".")
    assert isinstance(given.value, str)
    try:
        return directory(given.value)
    except UsageError as error:
        raise given.source.wrong(given.path, str(error)) from None


_MEMBER = re.compile(r"(?:lines|items)\[(\d+)\]")


def _placed(error: UsageError, words: Words, source: Source, lines: Lines | None) -> UsageError:
    """A complaint of the rules about a field of Submission, at the place where its key was given."""
    whole, text = str(error), without_field(error)
    member = _MEMBER.fullmatch(error.field)
    if lines is not None:
        told = [_MEMBER.sub(lambda match: lines.place(int(match[1])), said) for said in (whole, text)]
        whole, text = told[0], told[0] if member else told[1]
    key = BY_FIELD.get(error.field.partition("[")[0], "")
    given = words.get(key) or words.get("lines_file" if key == "lines" else "")
    if given is None:
        wrong = source.wrong((), str(error))
    else:
        path = (*given.path, int(member[1])) if member is not None and lines is None else given.path
        wrong = given.source.wrong(path, text if path else whole)
    return UsageError(str(wrong), wrong.field or error.field)
