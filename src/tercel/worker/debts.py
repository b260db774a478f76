"""What a worker owes its manager: reports that are not acknowledged yet. Pure."""

from collections.abc import Iterable

from tercel.core.reports import Report
from tercel.worker.parcels import files_bytes

OWED_MOST_BYTES = 64 * 2**20
"""Nothing is launched while unacknowledged reports take more memory than this."""
_REPORT_BYTES = 512
"""What a report takes in memory beside its outputs and files, about."""


class Debts:
    def __init__(self) -> None:
        self.owed: dict[int, Report] = {}
        """In order of ending."""
        self._bytes = 0

    @property
    def clogged(self) -> bool:
        """Whether it is too much for anything to be added."""
        return self._bytes > OWED_MOST_BYTES

    def add(self, report: Report) -> None:
        self.forget([report.attempt])  # it went on, and ended otherwise
        self.owed[report.attempt] = report
        self._bytes += _weight(report)

    def forget(self, attempts: Iterable[int]) -> None:
        for attempt in attempts:
            report = self.owed.pop(attempt, None)
            if report is not None:
                self._bytes -= _weight(report)


def _weight(report: Report) -> int:
    weight = _REPORT_BYTES + files_bytes(report)
    for output in (report.out, report.err, report.value):
        if output is not None:
            weight += len(output.inline)
    return weight
