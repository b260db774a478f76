"""Which kind of job file a file is, by its name and what stands in it; and reading it."""

from collections.abc import Sequence
from pathlib import Path

from tercel.core.errors import UsageError
from tercel.sdk.files.drafts import Draft
from tercel.sdk.files.flow import read_flow
from tercel.sdk.files.kestrel import is_kestrel, read_kestrel
from tercel.sdk.files.lines import read_text
from tercel.sdk.files.script import has_directives, read_script
from tercel.sdk.files.sources import Words
from tercel.sdk.files.toml import load, read_job

MOST_LOOKED_AT_BYTES = 256 * 1024
"""A larger file that is not called .toml is a program, not a description."""


def is_job_file(word: str) -> bool:
    """Whether a command of this one word describes a job rather than is one."""
    try:
        path = Path(word)
        if not path.is_file():
            return False
        if path.suffix == ".toml":
            return True
        with path.open("rb") as file:
            start = file.read(MOST_LOOKED_AT_BYTES + 1)
    except (OSError, ValueError):
        return False
    if len(start) > MOST_LOOKED_AT_BYTES or b"\0" in start:
        return False
    text = start.decode(errors="replace")
    return has_directives(text) or is_kestrel(text)


def read_file(file: str, arguments: Sequence[str] = (), above: Words | None = None) -> list[Draft]:
    """The jobs that a file describes: one, or of a flow one per step, each after those it needs.

    `arguments` are a script's. What `above` says counts more than the file. Raises UsageError with line and key.
    """
    text = read_text(Path(file))
    over = above or {}
    toml = Path(file).suffix == ".toml"
    if not toml and (text.startswith("#!") or has_directives(text)):
        return [read_script(file, text, arguments, over)]
    if arguments:
        raise UsageError(f"{file} is not a script: it takes no arguments ({arguments[0]!r})")
    if not toml and is_kestrel(text):
        return [read_kestrel(file, text, over)]
    if not toml:
        raise UsageError(
            f"{file} is no job file: neither a .toml, nor a script with #! or #TERCEL lines, nor a Kestrel [job]"
        )
    document = load(file, text)
    if "step" in document:
        return read_flow(file, text, document, over)
    return [read_job(file, text, document, over)]
