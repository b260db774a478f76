"""Which values are here, which are awaited and by whom, and which may go. Pure: no value is looked into.

    need -> awaited --arrived()--> here, pinned --release()--> here, unpinned --room is needed--> dropped
                 \\--gone()--> forgotten: whoever needs it cannot run

A value is asked for once, however many attempts need it, and stays while any of them is held. After that what was
uploaded stays as long as there is room: the next ones may need it too. What a task returned does not, for `tercel retry
--all` may run that task again, and then the same key means another value.

Which values are in files is told to the manager, so that it can prefer workers that have them. Those in memory are too small
to be worth a word.
"""

from collections.abc import Iterable

MEMORY_BYTES = 64 * 2**20

Place = bytes | str
"""A value itself, or the path of the file that it is in."""


class Staging:
    def __init__(self, disk_bytes: int = 2**30) -> None:
        """`disk_bytes`: how much of values in files may stay when nobody needs them."""
        self._disk_bytes = disk_bytes
        self._here: dict[str, Place] = {}
        self._sizes: dict[str, int] = {}
        self._pins: dict[str, int] = {}
        """How many attempts need it, of each value that is needed."""
        self._awaited: dict[str, set[int]] = {}
        self._missing: dict[int, set[str]] = {}
        """What attempts that cannot run yet still wait for."""
        self._unpinned: dict[type, dict[str, None]] = {bytes: {}, str: {}}
        """Those that may go, in memory and in files; the one that was used longest ago first."""
        self._used: dict[type, int] = {bytes: 0, str: 0}
        self._new: dict[str, None] = {}
        """Awaited, and not asked for."""
        self._dropped: list[str] = []
        self._news: dict[str, int | None] = {}
        """Values in files that came, with their size, or went (None), and were not told."""

    # -- attempts -----------------------------------------------------------------------------------------

    def need(self, attempt: int, keys: Iterable[str]) -> bool:
        """Whether all of them are here. Until `release` they stay, or are awaited."""
        missing = set()
        for key in keys:
            self._pins[key] = self._pins.get(key, 0) + 1
            place = self._here.get(key)
            if place is not None:
                self._unpinned[type(place)].pop(key, None)
                continue
            missing.add(key)
            if key not in self._awaited:
                self._awaited[key] = set()
                self._new[key] = None
            self._awaited[key].add(attempt)
        if missing:
            self._missing[attempt] = missing
        return not missing

    def release(self, attempt: int, keys: Iterable[str]) -> None:
        """It is no longer held."""
        for key in self._missing.pop(attempt, ()):
            if (waiting := self._awaited.get(key)) is not None:
                waiting.discard(attempt)
                if not waiting:
                    del self._awaited[key]
                    self._new.pop(key, None)
        for key in keys:
            self._pins[key] -= 1
            if not self._pins[key]:
                del self._pins[key]
                self._unpin(key)
        self._make_room()

    def lacks(self, attempt: int) -> bool:
        """Whether it waits for any."""
        return attempt in self._missing

    def inputs(self, keys: Iterable[str]) -> dict[str, Place]:
        return {key: self._here[key] for key in keys}

    # -- values -------------------------------------------------------------------------------------------

    def take_new(self) -> list[str]:
        """Keys to ask for, each once."""
        new, self._new = list(self._new), {}
        return new

    def awaits(self, key: str) -> bool:
        return key in self._awaited

    def arrived(self, key: str, place: Place, size_bytes: int) -> list[int]:
        """Returns the attempts that now have all they need."""
        self._new.pop(key, None)
        self._here[key] = place
        self._sizes[key] = size_bytes
        self._used[type(place)] += size_bytes
        if isinstance(place, str):
            self._news[key] = size_bytes
        if key not in self._pins:
            self._unpin(key)
        complete = []
        for attempt in sorted(self._awaited.pop(key, ())):
            missing = self._missing[attempt]
            missing.discard(key)
            if not missing:
                del self._missing[attempt]
                complete.append(attempt)
        self._make_room()
        return complete

    def gone(self, key: str) -> list[int]:
        """It cannot be had. Returns the attempts that wait for it, in vain; who needs it later asks anew."""
        return sorted(self._awaited.pop(key, ()))

    def take_dropped(self) -> list[str]:
        """Paths of files that are of no more use."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def take_news(self) -> tuple[list[tuple[str, int]], list[str]] | None:
        """(those that came, with their sizes; those that went) since this was last asked."""
        if not self._news:
            return None
        news, self._news = self._news, {}
        kept = [(key, size_bytes) for key, size_bytes in news.items() if size_bytes is not None]
        return kept, [key for key, size_bytes in news.items() if size_bytes is None]

    def kept(self) -> list[tuple[str, int]]:
        """All that are in files; what there is of news is in it."""
        self._news.clear()
        return [(key, self._sizes[key]) for key, place in self._here.items() if isinstance(place, str)]

    def _unpin(self, key: str) -> None:
        place = self._here.get(key)
        if place is None:
            return
        if key.startswith("t"):
            self._drop(key)
        else:
            self._unpinned[type(place)][key] = None

    def _drop(self, key: str) -> None:
        place = self._here.pop(key)
        self._used[type(place)] -= self._sizes.pop(key)
        if isinstance(place, str):
            self._dropped.append(place)
            self._news[key] = None

    def _make_room(self) -> None:
        for kind, most in ((bytes, MEMORY_BYTES), (str, self._disk_bytes)):
            unpinned = self._unpinned[kind]
            while unpinned and self._used[kind] > most:
                key = next(iter(unpinned))
                del unpinned[key]
                self._drop(key)
