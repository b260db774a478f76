"""What each task of a job with a template runs: filled in here, on the worker, as its turn comes."""

import msgspec

from tercel.core.commands import plain_argv
from tercel.core.errors import UsageError
from tercel.core.model import Program
from tercel.core.points import CommandTemplate, as_json, item_values, one_line


class Points:
    """The points of a program's tasks. Made once for all of them; raises UsageError for what is no template."""

    def __init__(self, program: Program) -> None:
        self._grid = program.grid
        self._template = CommandTemplate(program.argv, program.line)

    def start(self, task: int, item: str) -> tuple[list[str] | None, str, str]:
        """(argv, line, point as JSON) of a task. Raises UsageError if its item does not fit the template."""
        try:
            if self._grid is not None:
                values = self._grid.point(task)
                point = as_json(values)
            else:
                values, point = item_values(item), one_line(item)
            argv, line = self._template.command(values, task)
        except (KeyError, IndexError, msgspec.DecodeError) as error:
            raise UsageError(f"task {task} has no point for its template: {error!r}") from None
        if argv is not None:
            return argv, "", point
        return (
            plain_argv(line),
            line or " ",
            point,
        )  # a line of nothing but {x:raw} is one, even if x is empty
