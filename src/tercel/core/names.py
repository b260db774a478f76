"""Names of files, as the machine asks about them: the catalogue itself is not in its books.

Whoever answers does so at once and raises nothing: a fault in the middle of an event would leave the books half changed.
"""

from typing import Protocol

from tercel.core.changes import Change


class Names(Protocol):
    def other(self, name: str, digest: str, /) -> str:
        """What other file has this name; empty: it is free, or the same file's."""

    def has(self, name: str, /) -> bool | None:
        """Whether there is a file of this name that can be had; None: that cannot be told just now."""

    def holds(self, url: str, /) -> bool:
        """Whether the manager has the bytes of a replica that is said to be there; of one elsewhere it takes others' word."""

    def note(self, change: Change, /) -> None:
        """A change of the catalogue that is on its way to the store: whoever asks next must hear of it."""


class FreeNames:
    """Where nobody keeps a catalogue."""

    def other(self, _name: str, _digest: str, /) -> str:
        return ""

    def has(self, _name: str, /) -> bool | None:
        return False

    def holds(self, _url: str, /) -> bool:
        return True

    def note(self, _change: Change, /) -> None:
        pass
