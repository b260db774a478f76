"""What attempts left, on its way out: delivered, then reported; or parked, until the manager says that they go on. Pure.

    ended -> delivering --delivered()--> reported, with where its files are
                 ^   \\--hitched()--> something outside: reported so, and parked; or for good: reported as that
                 |                          |
                 +------- resume() ---------+<-- park(): delivered, but its names are taken

The bytes lie in a directory of the attempt's own, with its report beside them, so that a worker that was killed finds both.
"""

from collections.abc import Iterable

import msgspec

from tercel.core.files import Hitch, Made
from tercel.core.presence import Held
from tercel.core.reports import End, Report

MADE_BYTES = 96
"""What it takes to tell of a file, about, beside its path, its URL and its name: mostly its digest."""
OWN_ENDS = frozenset({End.EXITED, End.SIGNALLED, End.TIMED_OUT, End.EXCEEDED})


class Parcels:
    def __init__(self) -> None:
        self.delivering: dict[int, Report] = {}
        """By attempt: how it ended."""
        self.parked: dict[int, Report] = {}

    def __contains__(self, attempt: int) -> bool:
        return attempt in self.delivering or attempt in self.parked

    def __len__(self) -> int:
        return len(self.delivering) + len(self.parked)

    def begin(self, report: Report) -> None:
        self.delivering[report.attempt] = report

    def delivered(self, attempt: int, files: tuple[Made, ...]) -> Report | None:
        """The report that is owed now; None: nobody wants it any more."""
        report = self.delivering.pop(attempt, None)
        return None if report is None else told(msgspec.structs.replace(report, files=files))

    def hitched(self, attempt: int, hitch: Hitch) -> Report | None:
        """The report of that; what can go on later is parked."""
        report = self.delivering.pop(attempt, None)
        if report is None:
            return None
        if hitch.kept:
            self.parked[attempt] = report
        return unstaged(report, hitch)

    def spoilt(self, attempt: int, note: str, errno: str) -> Report | None:
        """The report of an attempt whose files are gone from this node, or cannot be read."""
        report = self.delivering.pop(attempt, None)
        if report is None:
            return None
        lost = msgspec.structs.replace(
            report, end=End.INTERRUPTED, code=0, note=note, errno=errno, value=None
        )
        return told(lost)

    def park(self, report: Report) -> None:
        """Its files are delivered, and cannot be registered yet. They are delivered anew when it goes on: that changes nothing."""
        self.parked[report.attempt] = report

    def resume(self, attempts: Iterable[int]) -> list[Report]:
        """Those that go on."""
        going = [self.parked.pop(attempt) for attempt in attempts if attempt in self.parked]
        for report in going:
            self.begin(report)
        return going

    def drop(self, attempts: Iterable[int]) -> tuple[list[Report], list[int]]:
        """Not wanted any more. Returns (those that were being delivered, those that were parked)."""
        attempts = list(attempts)
        under_way = [self.delivering.pop(attempt) for attempt in attempts if attempt in self.delivering]
        return under_way, [attempt for attempt in attempts if self.parked.pop(attempt, None) is not None]

    def held(self, owed: Iterable[int]) -> list[Held]:
        """For Hello. Those of which a report is owed are told by that."""
        told = set(owed)
        here = [Held(r.job, r.task, r.attempt, True, False) for r in self.delivering.values()]
        return here + [
            Held(r.job, r.task, r.attempt, True, False, True)
            for r in self.parked.values()
            if r.attempt not in told
        ]


def delivers(report: Report) -> bool:
    """Whether there is something to deliver after such an end: of an attempt that ran to one of its own."""
    return bool(report.started_at) and report.end in OWN_ENDS


def unstaged(report: Report, hitch: Hitch) -> Report:
    return msgspec.structs.replace(
        report, end=End.UNSTAGED, code=0, note=hitch.note, hitch=hitch, files=(), value=None, gathered=()
    )


def told(report: Report) -> Report:
    """As the manager hears it: what was gathered is the worker's business."""
    return msgspec.structs.replace(report, gathered=()) if report.gathered else report


def files_bytes(report: Report) -> int:
    """What it takes to tell where its files are, about."""
    if not report.files:
        return 0
    return sum(MADE_BYTES + len(made.path) + len(made.url) + len(made.name) for made in report.files)
