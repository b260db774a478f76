"""job.sh: a script with directives. Its text is what is submitted, so that changing or removing the file changes nothing.

    #!/bin/bash
    #SBATCH -J fit -c 2          as far as it is understood
    #TERCEL --mem 4G             options as on the command line; they count more than #SBATCH ones
    ./fit.sh "$1"

Directives end at the first line of commands. On the worker a line of shell writes the text into the attempt's sandbox
and becomes its interpreter: exit codes and signals are the script's own.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from tercel.core.commands import MAX_ARGV_BYTES
from tercel.core.errors import UsageError
from tercel.sdk.files.drafts import SCRIPT_WORDS, Draft, lay_over, make_draft
from tercel.sdk.files.options import read_options
from tercel.sdk.files.sbatch import Directive, read_sbatch
from tercel.sdk.files.sources import Given, LineSource, Words

_MARK = re.compile(r"#(TERCEL|SBATCH)(?:[ \t]+(.*)|$)")
_SHELL = "/bin/sh"
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
    for line in directives:
        if line.mark == "TERCEL":
            more = read_options(line.words, LineSource(file, line.number))
            words = lay_over(words, more)
    words = lay_over(words, above)
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
    started = _starting(name, text)
    assert len(started) == SCRIPT_WORDS
    if (
        "items_file" in words or "sweep" in words
    ):  # the arguments have holes, and the script has braces of its own
        started = [word.replace("{", "{{").replace("}", "}}") for word in started]
    words["command"] = Given([*started, *arguments], source, ())
    words.setdefault("name", Given(name[:256], source, ()))
    return make_draft(words, source, ignored)._replace(script=file)


def _starting(name: str, text: str) -> list[str]:
    """What a worker runs. The text travels as an argument, which no shell reads; `$0` is the script's name.

    The interpreter is started by name rather than by the kernel, because a sandbox may lie where nothing may be executed.
    """
    interpreter = " ".join(shlex.quote(word) for word in _interpreter(text))
    line = (
        'f=${TERCEL_SANDBOX:?}/.tercel; mkdir -p "$f" && f=$f/$0 && printf %s "$1" >"$f" && chmod u+x "$f" && shift '
        f'&& exec {interpreter} "$f" "$@"; exit 126'
    )
    return [_SHELL, "-c", line, name, text]


def _interpreter(text: str) -> list[str]:
    """As the kernel reads #!: a path, and all that follows as one argument."""
    first = text.partition("\n")[0].strip()
    words = first[2:].strip().split(None, 1) if first.startswith("#!") else []
    return words or [_SHELL]


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
