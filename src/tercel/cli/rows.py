"""A job's results as a table: one row per task, with its point, how it ended, and what it said of itself.

Columns are known when all rows have been seen, so rows are laid down first (on disk if they are many) and written out
then. A task says something of itself by the last line of its stdout that is a JSON object.
"""

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, Self

import msgspec

from tercel.wire.api import TaskView

IN_MEMORY_BYTES = 32 * 2**20
FIRST, LAST = ("task",), ("state", "exit", "seconds")
"""Columns that every table has, before and after those of the points."""

Value = Any
"""Of JSON."""
Row = dict[str, Value]


class _Laid(msgspec.Struct, array_like=True):
    """What a row is made of."""

    task: int
    state: str
    exit: int | None
    seconds: float | None
    point: dict[str, Value]
    said: dict[str, Value]


class Table:
    """Rows as they come, columns in the end."""

    def __init__(self) -> None:
        self.count = 0
        self._inputs: dict[str, None] = {}
        self._outputs: dict[str, None] = {}
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 - closed by __exit__
        self._encode = msgspec.json.Encoder().encode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, view: TaskView) -> None:
        last = view.attempts[-1] if view.attempts else None
        said = last_object(view.stdout or "")
        point = view.point or {}
        laid = _Laid(
            view.task, view.state, view.exit_code, round(last.wall_s, 6) if last else None, point, said
        )
        self._inputs.update(dict.fromkeys(point))
        self._outputs.update(dict.fromkeys(said))
        self._file.write(self._encode(laid) + b"\n")
        self.count += 1

    @property
    def inputs(self) -> set[str]:
        """The columns of the points."""
        return set(self._names()[0].values())

    @property
    def columns(self) -> list[str]:
        inputs, outputs = self._names()
        return [*FIRST, *inputs.values(), *LAST, *outputs.values()]

    def rows(self) -> Iterator[Row]:
        """Each with all columns that it has a value for."""
        inputs, outputs = self._names()
        decode = msgspec.json.Decoder(_Laid).decode
        self._file.seek(0)
        for line in self._file:
            laid = decode(line)
            yield {
                "task": laid.task,
                **{inputs[name]: value for name, value in laid.point.items()},
                "state": laid.state,
                "exit": laid.exit,
                "seconds": laid.seconds,
                **{outputs[name]: value for name, value in laid.said.items()},
            }

    def _names(self) -> tuple[dict[str, str], dict[str, str]]:
        """What the values of points, and those that tasks told, are called: no two columns alike."""
        taken = {*FIRST, *LAST, "schema"}  # which every row has as JSON
        return _apart(self._inputs, "in_", taken), _apart(self._outputs, "out_", taken)


def _apart(names: dict[str, None], prefix: str, taken: set[str]) -> dict[str, str]:
    """Adds to `taken`."""
    apart: dict[str, str] = {}
    for name in names:
        column = name
        while column in taken:
            column = prefix + column
        taken.add(column)
        apart[name] = column
    return apart


def last_object(text: str) -> dict[str, Value]:
    """The last line that is a JSON object; nothing if there is none."""
    end = len(text)
    while end > 0:
        begin = text.rfind("\n", 0, end) + 1
        line = text[begin:end].strip()
        end = begin - 1
        if line.startswith("{") and line.endswith("}"):
            try:
                return msgspec.json.decode(line, type=dict[str, Value])
            except (msgspec.DecodeError, RecursionError):
                continue
    return {}
