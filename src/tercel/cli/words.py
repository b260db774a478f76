"""Numbers, sizes, times and tables for people. Pure text; colour is the caller's."""

from collections.abc import Iterable, Sequence

from tercel.core.intervals import IntervalSet
from tercel.core.model import After
from tercel.wire.api import Counts

Cell = str | int


def plain(text: str) -> str:
    """Text of others on one line of ours: control characters (a terminal would obey them) are made visible."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else {"\n": "↵", "\t": " "}.get(char, "�") for char in text)


def short(text: str, width: int) -> str:
    text = plain(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def ends(text: str, width: int) -> str:
    """Its beginning and its end: of testers, addresses and paths both tell something."""
    text = plain(text)
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def count(number: int, one: str, many: str = "") -> str:
    """`1 task`, `10,000 tasks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(size_bytes: int) -> str:
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def duration(seconds: float) -> str:
    """`0.3 s`, `12 s`, `5 m 12 s`, `3 h 20 m`, `2 d 4 h`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.3g} s"
    whole = round(seconds)
    for unit, unit_s, below, below_s in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= unit_s:
            rest = whole % unit_s // below_s
            return f"{whole // unit_s} {unit} {rest} {below}" if rest else f"{whole // unit_s} {unit}"
    return f"{whole} s"


def cpus(number: float) -> str:
    return f"{number:g}"


def total(counts: Counts) -> int:
    resting = counts.waiting + counts.paused + counts.blocked + counts.ready
    return resting + under_way(counts) + ended(counts)


def under_way(counts: Counts) -> int:
    return counts.offered + counts.staging_in + counts.running + counts.staging_out


def ended(counts: Counts) -> int:
    return counts.finished + counts.failed + counts.cancelled


def states(counts: Counts) -> str:
    """`3 ready, 2 running, 5 finished`: what there is, in the order of a task's life."""
    named = {
        "waiting": counts.waiting,
        "paused": counts.paused,
        "blocked": counts.blocked,
        "ready": counts.ready,
        "offered": counts.offered,
        "staging in": counts.staging_in,
        "running": counts.running,
        "staging out": counts.staging_out,
        "finished": counts.finished,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
    }
    return ", ".join(f"{number:,} {state}" for state, number in named.items() if number) or "no tasks"


def needs(after: Sequence[After]) -> str:
    """`37 (ok), 38.0-9 (any), 40 (ok, task by task)`: what a job waits for."""
    return ", ".join(map(_need, after))


def _need(after: After) -> str:
    which = f".{ranges(IntervalSet(after.tasks))}" if after.tasks else ""
    return f"{after.job}{which} ({after.kind}{', task by task' if after.each else ''})"


def ranges(tasks: IntervalSet) -> str:
    """`0-9,12`, as selectors are written."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in tasks.ranges())


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """Aligned columns, numbers to the right, no trailing blanks."""
    rows = list(rows)
    texts = [[str(cell) if isinstance(cell, int) else plain(cell) for cell in row] for row in rows]
    numeric = [bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(headers))]
    widths = [max(len(header), *(len(row[at]) for row in texts), 0) for at, header in enumerate(headers)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return [line(headers), *(line(row) for row in texts)]


def pairs(facts: Iterable[tuple[str, str]]) -> list[str]:
    """`name     value` lines, one per fact that has a value."""
    given = [(name, value) for name, value in facts if value]
    width = max((len(name) for name, _ in given), default=0)
    return [f"{name.ljust(width)}  {plain(value)}" for name, value in given]
