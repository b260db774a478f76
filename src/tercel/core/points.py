"""A job whose command is a template: the point of each task, and the command it makes.

A point is a row of named values: from the job's grid, or an item of the task's own, which is a JSON object. In a command
a text stands for itself and everything else as it stands in the JSON: 0.10, true, null, [1,2].
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tercel.core.errors import UsageError
from tercel.core.grids import Axis, Grid
from tercel.core.templates import TASK, Hole, Template, line_template, quoted, word_template

MAX_ITEM_BYTES = 64 * 1024
LONGEST_NUMBER = "0" * 80
"""At least as long as any that an axis' rule makes."""

_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_object = msgspec.json.Decoder(dict[str, object]).decode


class CommandTemplate:
    """A program's argv or line with holes. Raises UsageError for what is no template."""

    def __init__(self, argv: Sequence[str], line: str) -> None:
        self._words = [word_template(word) for word in argv]
        self._line = None if argv else line_template(line)

    @property
    def holes(self) -> list[Hole]:
        return [hole for template in self._templates for hole in template.holes]

    @property
    def literal_bytes(self) -> int:
        return sum(len(template.literal.encode()) + 1 for template in self._templates)

    def check_names(self, known: Iterable[str], where: str) -> None:
        names = set(known)
        for template in self._templates:
            template.check_names(names, where)

    def command(self, values: Mapping[str, str], task: int) -> tuple[list[str] | None, str]:
        """(argv, line) of a task: one of them."""
        named = {TASK: str(task), **values}
        if self._line is not None:
            return None, self._line.filled(named)
        return [word.filled(named) for word in self._words], ""

    @property
    def _templates(self) -> list[Template]:
        return self._words if self._line is None else [self._line]


def item_values(item: str) -> dict[str, str]:
    """What stands in a command for each value of an item."""
    return {name: _text(raw) for name, raw in _raw(item).items()}


def item_point(item: str) -> dict[str, object]:
    return _object(item)


def one_line(item: str) -> str:
    """The same item without blanks and line breaks."""
    return msgspec.json.format(item, indent=-1)


def as_json(point: Mapping[str, str]) -> str:
    """A point of a grid as an item."""
    return msgspec.json.encode(point).decode()


def _text(raw: msgspec.Raw) -> str:
    data = bytes(raw).strip()
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str)
    return (msgspec.json.format(data, indent=-1) if data[:1] in b"[{" else data).decode()


# -- what is allowed --------------------------------------------------------------------------------------


def check_sweep(argv: Sequence[str], line: str, grid: Grid, most_bytes: int) -> None:
    """Of a grid that is as it should be: whether each of its points makes a command that can be started."""
    template = CommandTemplate(argv, line)
    template.check_names(grid.names, "the sweep")
    axes = {axis.name: axis for axis in grid.axes}
    longest = sum(_longest(axes[hole.name], hole) for hole in template.holes if hole.name in axes)
    _check_size("the command of a point", template.literal_bytes + longest, most_bytes, "grid")
    point = sum(len(name) + 6 + _longest_json(axis) for name, axis in axes.items())
    _check_size("a point", point, most_bytes, "grid")


def _longest(axis: Axis, hole: Hole) -> int:
    return max(len(quoted(value, hole.place).encode()) for value in axis.values or (LONGEST_NUMBER,))


def _longest_json(axis: Axis) -> int:
    return max(len(msgspec.json.encode(value)) for value in axis.values or (LONGEST_NUMBER,))


def check_items(argv: Sequence[str], line: str, items: Sequence[str], most_bytes: int) -> None:
    """Whether each item is an object that has every name of the template, and makes a command that can be started."""
    template = CommandTemplate(argv, line)
    names = {hole.name for hole in template.holes} - {TASK}
    for number, item in enumerate(items):
        field = f"items[{number}]"
        values = _checked_values(item, field)
        if not names <= values.keys():
            template.check_names(values, field)
        words, shell = template.command(values, number)
        size = sum(len(word.encode()) + 1 for word in words) if words is not None else len(shell.encode())
        _check_size(f"the command of {field}", size, most_bytes, field)


def _checked_values(item: str, field: str) -> dict[str, str]:
    try:
        size = len(item.encode())
        values = item_values(item)
        if "[" in item or "{" in item[1:]:
            item_point(item)  # which is nested too deeply, perhaps
    except msgspec.ValidationError:
        raise UsageError(f'{field} is not a JSON object, as in {{"name": "a", "size": 3}}', field) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{field} is not valid JSON: {error}", field) from None
    if any("\0" in value for value in values.values()):
        raise UsageError(f"{field} contains a NUL byte", field)
    _check_size(field, size, MAX_ITEM_BYTES, field)
    return values


def _check_size(what: str, size: int, most: int, field: str) -> None:
    if size > most:
        raise UsageError(f"{what} may be {size:,} bytes long; at most {most:,}", field)
