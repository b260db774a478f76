"""`main`: the table of commands, and what an error means for stderr and the exit code."""

import os
import sys
import traceback
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from tercel import __version__
from tercel.cli.codes import BUG, INTERRUPTED, NO_READER, OK, UNREACHABLE, USAGE, first_cause
from tercel.cli.lazy import Entry, LazyGroup
from tercel.cli.screen import Screen, Unwritable
from tercel.core.errors import (
    Conflict,
    Forbidden,
    NotFound,
    PassingFault,
    PeerError,
    StoreFull,
    TercelError,
    Unreachable,
    UsageError,
)

_COMPLETE = "_TERCEL_COMPLETE"
_RUN, _LOOK, _CHANGE, _POOL, _REST = "Run", "Look", "Change", "Machines", "More"
_HERE = "tercel.cli.commands"

COMMANDS = (
    Entry("run", f"{_HERE}.run", "Run commands, show their output, and wait for them.", _RUN),
    Entry("submit", f"{_HERE}.submit", "Hand in a job and print its id.", _RUN),
    Entry("sweep", f"{_HERE}.sweep", "Run a command for every combination of values.", _RUN),
    Entry("status", f"{_HERE}.status", "How the manager is doing (the same as a bare `tercel`).", _LOOK),
    Entry("list", f"{_HERE}.list", "Jobs, newest first; or the tasks of one.", _LOOK),
    Entry("show", f"{_HERE}.show", "All about a job, or about a task and every attempt at it.", _LOOK),
    Entry("logs", f"{_HERE}.logs", "What tasks wrote.", _LOOK),
    Entry("results", f"{_HERE}.results", "A table of what a job's tasks were given and gave.", _LOOK),
    Entry("wait", f"{_HERE}.wait", "Wait until jobs or tasks have ended.", _LOOK),
    Entry("explain", f"{_HERE}.explain", "Why a task is not running.", _LOOK),
    Entry("history", f"{_HERE}.history", "What befell a task or a job, oldest first.", _LOOK),
    Entry("blocked", f"{_HERE}.blocked", "What blocked tasks wait for; test, release, give up.", _LOOK),
    Entry("cancel", f"{_HERE}.cancel", "End jobs or tasks.", _CHANGE),
    Entry("retry", f"{_HERE}.retry", "Run failed tasks again.", _CHANGE),
    Entry("rollback", f"{_HERE}.rollback", "Return ended tasks to an earlier checkpoint.", _CHANGE),
    Entry("hold", f"{_HERE}.hold", "Start nothing more of jobs or tasks for now.", _CHANGE),
    Entry("release", f"{_HERE}.release", "Let go what is held.", _CHANGE),
    Entry("revise", f"{_HERE}.revise", "Change what unfinished jobs ask for.", _CHANGE),
    Entry("reprioritise", f"{_HERE}.reprioritise", "Give jobs another priority.", _CHANGE),
    Entry("clone", f"{_HERE}.clone", "Submit a job like another, with some things changed.", _CHANGE),
    Entry("fork", f"{_HERE}.fork", "Replay jobs from a moment, with some things changed.", _CHANGE),
    Entry("queue", f"{_HERE}.queue", "Queues: weights, caps, who has had how much.", _CHANGE),
    Entry("up", f"{_HERE}.up", "Start a manager and a worker on this machine.", _POOL),
    Entry("manager", f"{_HERE}.manager", "Start a manager alone.", _POOL),
    Entry("worker", f"{_HERE}.worker", "Start a worker that joins a manager; drain, quarantine, tag.", _POOL),
    Entry("pool", f"{_HERE}.pool", "The workers: what they are, what they do, and why not.", _POOL),
    Entry("reserve", f"{_HERE}.reserve", "Set workers aside for a queue or a user.", _POOL),
    Entry("switch", f"{_HERE}.switch", "Turn systems and applications off and on.", _POOL),
    Entry(
        "snapshot",
        f"{_HERE}.snapshot",
        "Save jobs with all their state; restore them, here or elsewhere.",
        _REST,
    ),
    Entry("file", f"{_HERE}.file", "Files by name: add, find, get, check, remove.", _REST),
    Entry("token", f"{_HERE}.token", "Make, list and revoke access tokens.", _REST),
    Entry("clean", f"{_HERE}.clean", "Remove jobs that ended long ago.", _REST),
    Entry("schema", f"{_HERE}.schema", "Print the JSON schema of job files, for editors.", _REST),
    Entry("completion", f"{_HERE}.completion", "Print a shell's completion script.", _REST),
    Entry("version", f"{_HERE}.version", "Print the version.", _REST),
)


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    default="status",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="tercel %(version)s")
def tercel() -> None:
    """Run very many tasks on whatever machines you can reach, and never lose one.

    \b
    tercel run --each-line commands.txt          run them here, now
    tercel up                                    a manager and a worker on this machine
    tercel submit --array 0-9999 -- ./fit.sh     10,000 tasks

    Jobs and tasks are chosen as 37, 37.99, 37.0-9, 1-5, last or all. Every command takes --json.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code. Nothing escapes but a second interrupt."""
    _open_standard_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    screen = Screen()
    try:
        code = _run(words, screen)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except (Exception, KeyboardInterrupt) as error:
        cause = first_cause(error)
        if isinstance(cause, BrokenPipeError):
            return _reader_left()
        code, kind, text = verdict(cause)
        field = cause.field if isinstance(cause, UsageError) else ""
        return _complain(screen, words, code, kind, text, field)
    return code


def _open_standard_streams() -> None:
    """What a daemon or `<&-` closed becomes /dev/null, or the next file opened would get its number.

    A socket there makes uvloop abort the process; a file there would get what is printed.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
            os.set_inheritable(opened, True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for good


def _run(words: list[str], screen: Screen) -> int:
    if _COMPLETE in os.environ:
        return shell_complete(tercel, {"obj": screen}, "tercel", _COMPLETE, os.environ[_COMPLETE])
    try:
        with tercel.make_context("tercel", words, obj=screen) as context:
            result = tercel.invoke(context)
    except click.exceptions.Exit as left:
        return left.exit_code
    return result if isinstance(result, int) else OK


def verdict(error: BaseException) -> tuple[int, str, str]:
    """(exit code, kind, text) of an error. The kind is for programs."""
    match error:
        case click.ClickException():
            return USAGE, "usage", _click_text(error)
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED, "interrupted", ""
        case NotFound():
            return USAGE, "not_found", str(error)
        case Forbidden():
            return USAGE, "forbidden", str(error)
        case Conflict():
            return USAGE, "conflict", str(error)
        case UsageError():
            return USAGE, "usage", str(error)
        case Unreachable():
            return UNREACHABLE, "unreachable", str(error)
        case StoreFull():
            return UNREACHABLE, "store_full", str(error)
        case PassingFault():
            return UNREACHABLE, "passing_fault", str(error)
        case PeerError():
            return UNREACHABLE, "peer_error", str(error)
        case Unwritable():
            return UNREACHABLE, "unwritable", str(error)
        case UnicodeEncodeError(object=text) if any("\udc80" <= c <= "\udcff" for c in text):
            shown = text[:80].encode(errors="surrogateescape").decode(errors="backslashreplace")
            return USAGE, "usage", f"{shown} is no text: it is not UTF-8"
        case TercelError():
            return BUG, "error", str(error)
        case _:
            what = f"{type(error).__name__}: {error}"
            return (
                BUG,
                "bug",
                f"a fault of Tercel itself, please report it ({what}); TERCEL_DEBUG=1 shows more",
            )


def _complain(screen: Screen, words: list[str], code: int, kind: str, text: str, field: str) -> int:
    """One line on stderr (more, indented, if a place in an expression is shown), and with --json a document on stdout."""
    if code == BUG and os.environ.get("TERCEL_DEBUG"):
        traceback.print_exc()
    if text:
        screen.warn(text if "\n  " in text else text.replace("\n", " "))
    options = words[: words.index("--")] if "--" in words else words
    if screen.json or "--json" in options:  # a wrong option may stand before --json
        screen.json = True
        more = {"field": field} if field else {}
        try:
            screen.emit({"error": text or kind, "kind": kind, **more})
        except BrokenPipeError:
            return _reader_left()
        except Unwritable:
            pass  # stderr has it
    if kind == "unwritable":
        _drop_output()
    return code


def _reader_left() -> int:
    """Whoever read stdout (`| head`) has enough: leave quietly, as a program killed by SIGPIPE would."""
    _drop_output()
    return NO_READER


def _drop_output() -> None:
    """What Python could not write it tries again as it ends, with a complaint and exit code 120 if it cannot."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def _click_text(error: click.ClickException) -> str:
    text = error.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{text} (see `{context.command_path} --help`)" if context else text
