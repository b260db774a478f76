"""Keys that say which files tasks read and leave: part of the table in `keys`; and where a submitter's own ones are."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from tercel.core.declaring import parse_input, parse_output, read_input, read_output
from tercel.core.files import Input, Output, When
from tercel.core.locating import Form, form_of, last_part
from tercel.core.scripts import in_template
from tercel.sdk.files.directories import directory
from tercel.sdk.files.key import Key
from tercel.sdk.files.kinds import AnyOf, Flag, ListOf, Table, Text

INPUT = Table(
    {
        "source": (
            Text(),
            "A path here, a URL or a name (lfn:…), with {task}, {job} and the names of points.",
        ),
        "name": (Text(), "What it is called in a task's directory; else the last part of its source."),
        "digest": (Text(), "What it must be: sha256:…, blake3:… or md5:…."),
    },
    required=("source",),
)
OUTPUT = Table(
    {
        "name": (Text(), "A path in a task's directory, or a pattern: hist_*.root."),
        "to": (
            AnyOf((Text(), ListOf(Text(), least=1))),
            "URLs, the best first, and at most one lfn:NAME; else it is kept as lfn:job/{job}/{task}/….",
        ),
        "optional": (Flag(), "It is no failure if there is none."),
        "when": (Text(enum=tuple(When)), "Delivered after a task that finished, that failed, or always."),
    },
    required=("name",),
)
_SOME = r"[\s\S]*\S[\s\S]*"
_INPUT_TEXT, _OUTPUT_TEXT = Text(_SOME, parse_input), Text(_SOME, parse_output)


def _inputs(value: str | list[str | dict[str, str]]) -> tuple[Input, ...]:
    return tuple(map(read_input, value if isinstance(value, list) else [value]))


def _outputs(value: str | list[str | dict[str, object]]) -> tuple[Output, ...]:
    return tuple(map(read_output, value if isinstance(value, list) else [value]))


DATA = (
    Key(
        "inputs",
        AnyOf((_INPUT_TEXT, ListOf(AnyOf((_INPUT_TEXT, INPUT))))),
        "A file for each task: data/run{task}.root, s3://bucket/geometry.db=geo.db, 'URL -> NAME', lfn:calib/2026; repeatable.",
        "inputs",
        _inputs,
        flags=("--in",),
        metavar="SOURCE[=NAME]",
        from_text=lambda text: [text],
        repeatable=True,
        is_file=True,
    ),
    Key(
        "outputs",
        AnyOf((_OUTPUT_TEXT, ListOf(AnyOf((_OUTPUT_TEXT, OUTPUT))))),
        "What each task leaves, and where it goes: log.txt, 'hist_*.root -> sftp://store/{job}/; optional, always', "
        "fit.json=lfn:fit/{job}/{task}; repeatable.",
        "outputs",
        _outputs,
        flags=("--out",),
        metavar="PATTERN[=PLACE]",
        from_text=lambda text: [text],
        repeatable=True,
    ),
)
"""What a task reads and leaves; stands behind cwd and env. With either, tasks run in directories of their own."""


def based(inputs: Iterable[Input], base: Path) -> tuple[Input, ...]:
    """Paths of a file's author begin where that file is."""
    return tuple(
        replace(one, source=_joined(one.source, base)) if form_of(one.source) is Form.LOCAL else one
        for one in inputs
    )


def _joined(path: str, base: Path) -> str:
    if path.startswith("~/"):
        return f"{in_template(str(Path.home()))}/{path[2:]}"
    # What begins with a hole may turn out to be a URL, or absolute.
    if str(base) == "." or path.startswith("/") or (path.startswith("{") and not path.startswith("{{")):
        return path
    return f"{in_template(str(base))}/{path}"


def from_here(argv: Sequence[str], inputs: Iterable[Input], template: bool) -> tuple[str, ...]:
    """Tasks with data run in directories of their own: `./fit.sh` is the one here, unless it is brought along."""
    if not is_here(argv[0], inputs) or (template and "{" in argv[0]):
        return tuple(argv)
    program = directory(argv[0])
    return (in_template(program) if template else program, *argv[1:])


def is_here(program: str, inputs: Iterable[Input]) -> bool:
    """Whether a program is named by a path that begins where the user is, and is not brought along."""
    if "/" not in program or program.startswith(("/", "~")):
        return False
    names = {one.name or last_part(one.source) for one in inputs}
    return os.fspath(PurePosixPath(program)) not in names
