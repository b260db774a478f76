"""What is told of a node's state while it runs: rounded, and only when it has changed enough to matter to anybody. Pure."""

import msgspec

from tercel.core.presence import Facts
from tercel.worker.pressure import Reading

EVERY_S = 5.0
"""No oftener, beside the beats."""
_MILLICPUS = 500
_MEM_PART = 32
_DISK_PART = 64
_LOAD = 0.5
_WORDS_MOST = 500


class Telling:
    def __init__(self) -> None:
        self.facts = Facts()
        self._told_at: float | None = None

    def on_reading(self, reading: Reading, now: float) -> None:
        """`facts` are those that it brings, or the old ones if nothing is much different."""
        mem_step, disk_step = reading.mem_bytes // _MEM_PART, reading.disk_bytes // _DISK_PART
        old = self.facts
        free = old.millicpus_free if reading.busy is None else round(1000 * (reading.cores - reading.busy))
        new = Facts(
            _rounded(max(0, free), _MILLICPUS // 2),
            _rounded(reading.mem_free_bytes, mem_step // 2),
            _rounded(reading.disk_free_bytes, disk_step // 2),
            round(reading.load * 4) / 4,
            old.unhealthy,
            old.note,
        )
        differs = (
            abs(new.millicpus_free - old.millicpus_free) >= _MILLICPUS
            or abs(new.mem_free_bytes - old.mem_free_bytes) >= max(1, mem_step)
            or abs(new.disk_free_bytes - old.disk_free_bytes) >= max(1, disk_step)
            or abs(new.load - old.load) >= max(_LOAD, old.load / 8)
        )
        if self._told_at is None or (differs and now - self._told_at >= EVERY_S):
            self.facts, self._told_at = new, now

    def unhealthy(self, why: str) -> None:
        self.facts = msgspec.structs.replace(self.facts, unhealthy=_words(why))

    def note(self, note: str) -> None:
        self.facts = msgspec.structs.replace(self.facts, note=_words(note))


def _words(text: str) -> str:
    """As a manager accepts them: a path in them may contain anything."""
    return "".join(c if c.isprintable() else "?" for c in text)[:_WORDS_MOST]


def _rounded(value: int, step: int) -> int:
    """Down, so that nothing is told that is not there."""
    return value // step * step if step > 0 else value
