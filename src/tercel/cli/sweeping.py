"""What `tercel sweep` is told -> a checked job with a grid."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tercel.cli.jobflags import given_words, program
from tercel.core.errors import UsageError
from tercel.core.grids import Grid
from tercel.core.gridtext import Outside, parse_axis, parse_grid_file
from tercel.core.points import CommandTemplate
from tercel.sdk.files import Draft
from tercel.sdk.files.drafts import make_draft
from tercel.sdk.files.lines import read_text
from tercel.sdk.files.sources import Given, OptionSource, Words
from tercel.sdk.files.sweeps import values_of
from tercel.wire.api import Submission


def read_sweep(words: Sequence[str], argv: Sequence[str], zipped: bool, flags: Mapping[str, Any]) -> Draft:
    """`words` are the template (unless `argv`, what stood after --, is it) and NAME=VALUES; or a grid file."""
    given = given_words(flags)
    if len(words) == 1 and not argv and _is_file(words[0]):
        line, grid = parse_grid_file(read_text(Path(words[0])), words[0])
        return _draft(given, line, grid)
    command = argv or words[:1]
    names = words if argv else words[1:]
    if not command:
        raise UsageError("nothing to run: give a command with {names}, then NAME=VALUES", "line")
    if not names:
        lacking = "" if argv else f", nor is there a file {words[0]}"
        raise UsageError(f"nothing to sweep over: there is no NAME=VALUES, as in C=0.1,1,10{lacking}", "grid")
    files = outside(str(given["cwd"].value) if "cwd" in given else ".")
    grid = Grid(axes=tuple(parse_axis(text, files) for text in names), zipped=zipped)
    return _draft(given, program(command), grid)


def outside(cwd: str) -> Outside:
    """Values from files, for tasks that run in this directory."""
    return values_of(Path(), cwd)


def _draft(given: Words, command: str | list[str], grid: Grid) -> Draft:
    source = OptionSource()
    return make_draft({**given, "command": Given(command, source, ())}, source, grid=grid)


def unused_names(submission: Submission) -> list[str]:
    """Names of the sweep that its command does not have."""
    assert submission.grid is not None
    holes = {hole.name for hole in CommandTemplate(submission.argv, submission.line).holes}
    return [name for name in submission.grid.names if name not in holes]


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False
