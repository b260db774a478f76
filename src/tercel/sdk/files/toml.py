"""job.toml: one job, with the words of the command line as keys."""

import re
import tomllib

from tercel.core.errors import UsageError
from tercel.sdk.files.drafts import Draft, lay_over, make_draft
from tercel.sdk.files.keys import BY_NAME
from tercel.sdk.files.kinds import Path, unknown
from tercel.sdk.files.sources import Given, TomlSource, Words

_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def load(file: str, text: str) -> dict[str, object]:
    """The document. Raises UsageError with the line of what is not TOML."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{file}: lists or tables are nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError is one; a number of a million digits is another
        match = _PLACE.fullmatch(str(error))
        if match is None:
            raise UsageError(f"{file}: not valid TOML: {error}") from None
        what = match[1][:1].lower() + match[1][1:]
        line = int(match[2]) if match[2] else text.count("\n") + (not text.endswith("\n"))
        column = f" (column {match[3]})" if match[3] else " (at the end of the file)"
        raise UsageError(f"{file}:{line}: not valid TOML: {what}{column}") from None


def read_job(file: str, text: str, document: dict[str, object], above: Words) -> Draft:
    """The job of a document that `load` gave; `above` counts more than what the file says."""
    source = TomlSource(file, text)
    return make_draft(lay_over(words_of(document, source, ()), above), source)


def words_of(
    table: dict[str, object], source: TomlSource, path: Path, *, known: frozenset[str] = frozenset()
) -> Words:
    """The job's keys of a table. `known`: others that may stand there, for the caller to read."""
    words: Words = {}
    for name, value in table.items():
        if name in BY_NAME:
            words[name] = Given(value, source, (*path, name))
        elif name not in known:
            mistake = unknown((*path, name), "key", name, [*BY_NAME, *known])
            raise source.wrong(mistake.path, mistake.text)
    return words
