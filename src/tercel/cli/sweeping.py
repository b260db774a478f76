"""What `tercel sweep` is told -> a checked job with a grid."""

import glob
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from tercel.cli.jobflags import SANDBOX, JobFlags, Order, checked, described, program
from tercel.cli.sources import read_lines, read_text
from tercel.core.errors import UsageError
from tercel.core.grids import Grid
from tercel.core.gridtext import Outside, parse_axis, parse_grid_file
from tercel.core.points import CommandTemplate
from tercel.wire.api import Submission


def read_sweep(words: Sequence[str], argv: Sequence[str], zipped: bool, flags: JobFlags) -> Order:
    """`words` are the template (unless `argv`, what stood after --, is it) and NAME=VALUES; or a grid file."""
    if len(words) == 1 and not argv and _is_file(words[0]):
        line, grid = parse_grid_file(read_text(words[0], "grid"), words[0])
        return _order(described(flags, argv=(), line=line, grid=grid, template=True))
    command = argv or words[:1]
    names = words if argv else words[1:]
    if not command:
        raise UsageError("nothing to run: give a command with {names}, then NAME=VALUES", "line")
    if not names:
        lacking = "" if argv else f", nor is there a file {words[0]}"
        raise UsageError(f"nothing to sweep over: there is no NAME=VALUES, as in C=0.1,1,10{lacking}", "grid")
    files = outside(flags["cwd"])
    grid = Grid(axes=tuple(parse_axis(text, files) for text in names), zipped=zipped)
    words_of_it, line = program(command)
    return _order(described(flags, argv=words_of_it, line=line, grid=grid, template=True))


def outside(cwd: str) -> Outside:
    """Values from files, for tasks that run in this directory."""
    return Outside(
        lines=lambda source: read_lines(source, "grid")[0], names=lambda pattern: _fitting(pattern, cwd)
    )


def _order(submission: Submission) -> Order:
    if submission.array.startswith("%"):  # all points, but only so many at a time
        every = checked(replace(submission, array="")).ranges
        submission = replace(submission, array=f"0-{every[-1][1]}{submission.array}")
    return checked(submission)


def unused_names(submission: Submission) -> list[str]:
    """Names of the sweep that its command does not have."""
    assert submission.grid is not None
    holes = {hole.name for hole in CommandTemplate(submission.argv, submission.line).holes}
    return [name for name in submission.grid.names if name not in holes]


def _fitting(pattern: str, cwd: str) -> list[str]:
    """Files by pattern, called as tasks can find them from the directory they run in."""
    if pattern.startswith("~/"):
        pattern = str(Path.home() / pattern[2:])
    if cwd == SANDBOX:
        return glob.glob(str(Path.cwd() / pattern), recursive=True)  # noqa: PTH207 - it may begin with /
    return glob.glob(pattern, root_dir=cwd, recursive=True)  # noqa: PTH207


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False
