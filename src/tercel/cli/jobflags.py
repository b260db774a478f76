"""The options of `run`, `submit` and `sweep` that describe a job, and the Submission they make.

Everything is checked here by the same rules as in the manager, so that a mistake starts nothing and says so at once.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, TypeVar

import click

from tercel.cli.preview import first_commands
from tercel.cli.screen import Screen
from tercel.cli.sources import called, named_by_line, read_items, read_lines
from tercel.cli.words import count, cpus, duration, pairs, short, size, table
from tercel.core.commands import check_spec, parse_size, parse_time, plain_argv
from tercel.core.errors import UsageError
from tercel.core.grids import Grid
from tercel.core.intervals import Range
from tercel.core.model import DEFAULT_OUTPUT_LIMIT_BYTES, DEFAULT_PRIORITY
from tercel.wire.api import Submission

F = TypeVar("F", bound=Callable[..., object])

SANDBOX = "sandbox"


class JobFlags(TypedDict):
    """What click hands over, by the options' names."""

    name: str
    cpus: float
    mem: str
    time: str
    array: str
    priority: int
    retries: int
    cwd: str
    env: tuple[str, ...]
    task_id_argument: bool
    output_limit: str


class SourcedFlags(JobFlags):
    """Of commands whose tasks may come from a file."""

    each_line: str
    from_json: str


class Order(NamedTuple):
    """A checked job, ready to be handed in."""

    submission: Submission
    ranges: Sequence[Range]
    """The numbers of its tasks."""
    skipped: int
    """Blank and comment lines."""

    @property
    def tasks(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


_OPTIONS = (
    click.option("-J", "--name", "--job-name", default="", metavar="NAME", help="The job's name."),
    click.option(
        "-c", "--cpus", type=float, default=1.0, metavar="N", show_default=True, help="Cores per task."
    ),
    click.option("--mem", default="0", metavar="SIZE", help="Memory per task: 500M, 2G."),
    click.option(
        "-t", "--time", default="0s", metavar="TIME", help="Limit per attempt: 90s, 1h30m, 2-12:00:00."
    ),
    click.option("--array", default="", metavar="RANGES", help="Task numbers: 0-99, 0-99:2%10, 1,5,9."),
    click.option(
        "--priority",
        type=int,
        default=DEFAULT_PRIORITY,
        metavar="N",
        show_default=True,
        help="0 is most urgent.",
    ),
    click.option(
        "--retries",
        type=int,
        default=0,
        metavar="N",
        show_default=True,
        help="Further tries of a failed task.",
    ),
    click.option(
        "--cwd",
        default=".",
        metavar="DIR",
        help=f"Where tasks run; '{SANDBOX}': in an empty directory of their own.  [default: here]",
    ),
    click.option(
        "--env", multiple=True, metavar="NAME[=VALUE]", help="Set (or pass on) a variable; repeatable."
    ),
    click.option("--task-id-argument", is_flag=True, help="Append the task's number to the command."),
    click.option(
        "--output-limit",
        default=f"{DEFAULT_OUTPUT_LIMIT_BYTES}B",
        metavar="SIZE",
        help="How much of each task's stdout and stderr is kept.  [default: 10M]",
    ),
)
_SOURCES = (
    click.option(
        "--each-line",
        default="",
        metavar="FILE",
        help="One task per line of FILE ('-': stdin); blank lines and # comments are skipped.",
    ),
    click.option(
        "--from-json",
        default="",
        metavar="FILE",
        help="One task per JSON object in FILE (lines, or an array; '-': stdin), whose values replace {name}.",
    ),
)


def job_options(function: F) -> F:
    function = shared_options(function)
    for option in reversed(_SOURCES):
        function = option(function)
    return function


def shared_options(function: F) -> F:
    """Those that do not say where the commands come from."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_order(words: Sequence[str], flags: SourcedFlags) -> Order:
    """What the options and the command's words ask for. Raises UsageError without having done anything."""
    each_line, from_json = flags["each_line"], flags["from_json"]
    if each_line and from_json:
        raise UsageError(
            "--each-line and --from-json are two sources of tasks: give one of them", "from_json"
        )
    lines, numbers, skipped = read_lines(each_line) if each_line else (None, [], 0)
    items, item_numbers = read_items(from_json) if from_json else (None, [])
    argv, line = program(words)
    if lines is not None and (argv or line):
        raise UsageError("--each-line brings its own commands: leave the other command out", "each_line")
    if lines is None and not argv and not line:
        hint = "a command with {names} after --" if from_json else "a command after --, or --each-line FILE"
        raise UsageError(f"nothing to run: give {hint}", "argv")
    submission = described(flags, argv=argv, line=line, lines=lines, items=items, template=items is not None)
    try:
        return checked(submission, skipped)
    except UsageError as error:
        if from_json:
            raise named_by_line(error, from_json, item_numbers, "from_json") from None
        raise named_by_line(error, each_line, numbers, "each_line") from None


def described(
    flags: JobFlags,
    *,
    argv: tuple[str, ...],
    line: str,
    lines: list[str] | None = None,
    items: list[str] | None = None,
    grid: Grid | None = None,
    template: bool = False,
) -> Submission:
    """A job of this program, with all that the options say of it."""
    return Submission(
        argv=argv,
        line=line,
        lines=lines,
        items=items,
        grid=grid,
        template=template,
        name=flags["name"],
        array=flags["array"],
        cpus=flags["cpus"],
        mem_bytes=parse_size(flags["mem"], "mem"),
        time_limit_s=parse_time(flags["time"], "time"),
        priority=flags["priority"],
        retries=flags["retries"],
        cwd=_directory(flags["cwd"]),
        env=dict(_variable(text) for text in flags["env"]),
        task_id_argument=flags["task_id_argument"],
        output_limit_bytes=parse_size(flags["output_limit"], "output-limit"),
    )


def checked(submission: Submission, skipped: int = 0) -> Order:
    ranges, _ = check_spec(submission, submission.lines, items=submission.items)
    return Order(submission, ranges, skipped)


def show_order(screen: Screen, order: Order) -> None:
    """For --dry-run."""
    job = order.submission
    first = first_commands(job, order.ranges)
    commands = [command for _, command in first]
    screen.emit({"dry_run": True, "tasks": order.tasks, "count": order.tasks, "first": commands, "job": job})
    lines = job.lines or []
    command = " ".join(job.argv) or job.line or (lines[0] if lines else "")
    more = f" (and {count(len(lines) - 1, 'line')} more)" if len(lines) > 1 else ""
    facts = [
        ("tasks", f"{order.tasks:,}" + (f" ({job.array})" if job.array else "")),
        ("points", str(job.grid) if job.grid is not None else ""),
        ("command", short(command, 100) + more),
        ("name", job.name),
        ("needs", f"{cpus(job.cpus)} cpus" + (f", {size(job.mem_bytes)}" if job.mem_bytes else "")),
        ("time limit", duration(job.time_limit_s) if job.time_limit_s else ""),
        ("retries", str(job.retries or "")),
        ("directory", job.cwd or "an empty one of its own"),
        ("variables", ", ".join(job.env)),
    ]
    screen.tell(["Nothing is submitted. This would be:", *pairs(facts)])
    if job.template:
        screen.tell(["", *table(("TASK", "COMMAND"), ((task, short(text, 200)) for task, text in first))])
        if order.tasks > len(first):
            screen.tell(f"... and {order.tasks - len(first):,} more")


def say_skipped(screen: Screen, order: Order, source: str) -> None:
    if order.skipped:
        screen.note(f"{count(order.skipped, 'blank or comment line')} of {called(source)} skipped")


def program(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """(argv, line). One word with blanks or shell syntax is a line for the shell, unless a file has that name."""
    if len(words) == 1 and plain_argv(words[0]) != [words[0]] and not _is_file(words[0]):
        return (), words[0]
    return tuple(words), ""


def _is_file(word: str) -> bool:
    try:
        return "/" in word and Path(word).is_file()
    except (OSError, ValueError):
        return False


def _directory(text: str) -> str:
    if text == SANDBOX:
        return ""
    try:
        here = Path.cwd()
    except OSError as error:
        why = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be used ({error.strerror})"
        )
        raise UsageError(f"the current directory {why}: give one with --cwd", "cwd") from None
    return os.path.normpath(_as_the_shell_calls_it(here) / text)


def _as_the_shell_calls_it(here: Path) -> Path:
    """With the symbolic links that people (and automounters) go by."""
    shell = Path(os.environ.get("PWD", ""))
    try:
        return shell if shell.is_absolute() and shell.samefile(here) else here
    except OSError:  # it is gone, or another user's: sudo passes it on
        return here


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals:
        return name, value
    if name not in os.environ:
        raise UsageError(f"--env {name}: this variable is not set here; write {name}=VALUE", "env")
    return name, os.environ[name]
