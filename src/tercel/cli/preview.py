"""What the first tasks of a job would run, before it is handed in."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import islice

from tercel.core.points import CommandTemplate, item_values
from tercel.core.scripts import typed
from tercel.sdk.files import Draft

FIRST = 10


def first_commands(draft: Draft) -> list[tuple[int, str]]:
    """(task, its command as one would type it)."""
    numbers = (number for first, last in draft.ranges for number in range(first, last + 1))
    return list(_commands(draft, list(islice(numbers, FIRST))))


def _commands(draft: Draft, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    job = draft.submission
    template = CommandTemplate(job.argv, job.line) if job.template else None
    for number in numbers:
        if template is not None:
            values = (
                job.grid.point(number) if job.grid is not None else item_values((job.items or [])[number])
            )
            argv, line = template.command(values, number)
            command = line if argv is None else shlex.join(typed(argv))
        elif job.lines is not None:
            command = job.lines[number]
        elif job.function is not None:
            command = str(job.function)
        else:
            command = shlex.join(typed(job.argv)) if job.argv else job.line
        yield number, f"{command.rstrip()} {number}" if job.task_id_argument else command
