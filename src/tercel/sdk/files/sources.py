"""Where a part of a job's description was written, so that a complaint about it can say so."""

from pathlib import Path
from typing import NamedTuple, Protocol

from tercel.core.errors import UsageError
from tercel.sdk.files.kinds import Path as KeyPath
from tercel.sdk.files.places import Places


class Source(Protocol):
    @property
    def base(self) -> Path:
        """Files that are named there are looked for here."""
        ...

    def wrong(self, path: KeyPath, text: str) -> UsageError:
        """The complaint about what stands at a path."""
        ...


class Given(NamedTuple):
    """A key's value, and where it was given."""

    value: object
    source: Source
    path: KeyPath


Words = dict[str, Given]
"""What describes a job, by the keys of the table in `keys`."""


class TomlSource:
    """job.toml:7: mem: …"""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._places = Places(text)
        self.base = Path(file).parent
        self.names: dict[KeyPath, KeyPath] = {}
        """What people call the tables at these paths: a step's name says more than its number."""

    def wrong(self, path: KeyPath, text: str) -> UsageError:
        where = f"{self._file}:{self._places.line(path)}: "
        called = self.names.get(path[:2], path[:2]) + path[2:]
        return UsageError(where + (f"{dotted(called)}: {text}" if path else text), _field(path))


class LineSource:
    """job.sh:3: --mem: …"""

    def __init__(self, file: str, line: int) -> None:
        self._file = file
        self._line = line
        self.base = Path(file).parent

    def wrong(self, path: KeyPath, text: str) -> UsageError:
        label = f"{path[0]}: " if path else ""
        return UsageError(f"{self._file}:{self._line}: {label}{text}", _field(path))


class OptionSource:
    """--mem: …"""

    base = Path()

    def wrong(self, path: KeyPath, text: str) -> UsageError:
        return UsageError(f"{path[0]}: {text}" if path else text, _field(path).lstrip("-").replace("-", "_"))


def dotted(path: KeyPath) -> str:
    """step[3].env.HOME"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _field(path: KeyPath) -> str:
    """The key, for programs."""
    return next((part for part in reversed(path) if isinstance(part, str)), "")
