"""job.sh: a script with directives. Its text is what is submitted, so that changing or removing the file changes nothing.

    #!/bin/bash
    #SBATCH -J fit -c 2          as far as it is understood
    #TERCEL --mem 4G             options as on the command line; they count more than #SBATCH ones
    ./fit.sh "$1"

Directives end at the first line of commands. How it is started on the worker: tercel.core.scripts. Exit codes and signals
are the script's own.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from tercel.core.commands import MAX_ARGV_BYTES
from tercel.core.errors import UsageError
from tercel.core.scripts import in_template, starting
from tercel.sdk.files.drafts import Draft, lay_over, make_draft
from tercel.sdk.files.options import read_options
from tercel.sdk.files.sbatch import Directive, read_sbatch
from tercel.sdk.files.sources import Given, LineSource, Words

_MARK = re.compile(r"#(TERCEL|SBATCH)(?:[ \t]+(.*)|$)")
ROOM_BYTES = 4096
"""Of the arguments' limit kept for the line that starts the script, and for arguments."""


class _Line(NamedTuple):
    number: int
    mark: str
    words: list[str]


def has_directives(text: str) -> bool:
    return any(_MARK.match(line) for _, line in _comments(text))


def read_script(file: str, text: str, arguments: Sequence[str], above: Words) -> Draft:
    """The job that a script describes; `above` counts more than its directives. Raises UsageError."""
    directives = list(_directives(file, text))
    sbatch = [Directive(line.number, line.words) for line in directives if line.mark == "SBATCH"]
    words, ignored = read_sbatch(file, sbatch)
    own: Words = {}
    for line in directives:
        if line.mark == "TERCEL":
            own = read_options(line.words, LineSource(file, line.number), own)
    words = lay_over(lay_over(words, own), above)
    source = LineSource(file, 1)
    name = PurePath(file).name
    if len(text.encode()) > MAX_ARGV_BYTES - ROOM_BYTES:
        raise source.wrong(
            (),
            f"the script has {len(text.encode()):,} bytes; at most {MAX_ARGV_BYTES - ROOM_BYTES:,} travel with a job",
        )
    if "\0" in text:
        raise source.wrong((), "the script contains a NUL byte")
    for key in ("lines_file", "lines"):
        if key in words:
            given = words[key]
            raise given.source.wrong(given.path, "the script itself is what is run: leave it out")
    started = starting(name, text)
    if "items_file" in words or "sweep" in words:
        started = [in_template(word) for word in started]  # the holes are in the arguments
    words["command"] = Given([*started, *arguments], source, ())
    words.setdefault("name", Given(name[:256], source, ()))
    return make_draft(words, source, ignored)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of those before the first line of commands."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.startswith("#"):
            return
        yield number, line.rstrip("\r")


def _directives(file: str, text: str) -> Iterator[_Line]:
    for number, line in _comments(text):
        match = _MARK.match(line)
        if match is None:
            continue
        try:
            yield _Line(number, match[1], shlex.split(match[2] or "", comments=True))
        except ValueError as error:
            raise UsageError(f"{file}:{number}: #{match[1]}: {str(error).lower()}") from None
