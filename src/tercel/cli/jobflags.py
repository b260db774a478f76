"""The options of `run` and `submit` that describe a job, and the Submission they make.

Everything is checked here by the same rules as in the manager, so that a mistake starts nothing and says so at once.
"""

import codecs
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, TypeVar

import click

from tercel.cli.screen import Screen
from tercel.cli.words import count, cpus, duration, pairs, short, size
from tercel.core.commands import check_spec, parse_size, parse_time, plain_argv
from tercel.core.errors import UsageError
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
    each_line: str
    priority: int
    retries: int
    cwd: str
    env: tuple[str, ...]
    task_id_argument: bool
    output_limit: str


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
        "--each-line",
        default="",
        metavar="FILE",
        help="One task per line of FILE ('-': stdin); blank lines and # comments are skipped.",
    ),
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


def job_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_order(words: Sequence[str], flags: JobFlags) -> Order:
    """What the options and the command's words ask for. Raises UsageError without having done anything."""
    lines, numbers, skipped = _read_lines(flags["each_line"]) if flags["each_line"] else (None, [], 0)
    argv, line = _program(words)
    if lines is not None and (argv or line):
        raise UsageError("--each-line brings its own commands: leave the other command out", "each_line")
    if lines is None and not argv and not line:
        raise UsageError("nothing to run: give a command after --, or --each-line FILE", "argv")
    submission = Submission(
        argv=argv,
        line=line,
        lines=lines,
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
    try:
        ranges, _ = check_spec(submission, lines)
    except UsageError as error:
        raise _named_by_line(error, flags["each_line"], numbers) from None
    return Order(submission, ranges, skipped)


def show_order(screen: Screen, order: Order) -> None:
    """For --dry-run."""
    job = order.submission
    screen.emit({"dry_run": True, "tasks": order.tasks, "job": job})
    lines = job.lines or []
    command = " ".join(job.argv) or job.line or (lines[0] if lines else "")
    more = f" (and {count(len(lines) - 1, 'line')} more)" if len(lines) > 1 else ""
    facts = [
        ("tasks", f"{order.tasks:,}" + (f" ({job.array})" if job.array else "")),
        ("command", short(command, 100) + more),
        ("name", job.name),
        ("needs", f"{cpus(job.cpus)} cpus" + (f", {size(job.mem_bytes)}" if job.mem_bytes else "")),
        ("time limit", duration(job.time_limit_s) if job.time_limit_s else ""),
        ("retries", str(job.retries or "")),
        ("directory", job.cwd or "an empty one of its own"),
        ("variables", ", ".join(job.env)),
    ]
    screen.tell(["Nothing is submitted. This would be:", *pairs(facts)])


def say_skipped(screen: Screen, order: Order, source: str) -> None:
    if order.skipped:
        where = "stdin" if source == "-" else source
        screen.note(f"{count(order.skipped, 'blank or comment line')} of {where} skipped")


def _program(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """(argv, line). One word with blanks or shell syntax is a line for the shell, unless a file has that name."""
    if len(words) == 1 and plain_argv(words[0]) != [words[0]] and not _is_file(words[0]):
        return (), words[0]
    return tuple(words), ""


def _is_file(word: str) -> bool:
    try:
        return "/" in word and Path(word).is_file()
    except (OSError, ValueError):
        return False


def _read_lines(source: str) -> tuple[list[str], list[int], int]:
    """(commands, the number of each one's line in the file, how many lines were skipped)."""
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}", "each_line") from None
    data = data.removeprefix(codecs.BOM_UTF8)  # which some editors write, and no shell understands
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{source}:{number} is not UTF-8 text", "each_line") from None
    every = text.removesuffix("\n").split("\n") if text else []
    lines: list[str] = []
    numbers: list[int] = []
    for number, raw in enumerate(every, start=1):
        line = raw.strip()
        if line and not line.startswith("#"):
            lines.append(line)
            numbers.append(number)
    if not lines:
        raise UsageError(f"{'stdin' if source == '-' else source} has no lines to run", "each_line")
    return lines, numbers, len(every) - len(lines)


def _named_by_line(error: UsageError, source: str, numbers: Sequence[int]) -> UsageError:
    """The same complaint with the line's number in the user's file instead of the task's."""
    match = re.fullmatch(r"lines\[(\d+)\]", error.field)
    if match is None:
        return error
    where = f"{source}:{numbers[int(match[1])]}"
    return UsageError(str(error).replace(error.field, where, 1), "each_line")


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
