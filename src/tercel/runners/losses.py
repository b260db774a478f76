"""Spawners that were killed while a task ran in them: at first that is the node's fault, at last the task's.

Somebody may kill a spawner, or the kernel may. A task under which that happens again and again does it itself
(`kill -9 $PPID`), and would run for ever if it never failed.
"""

import signal

import msgspec

from tercel.core.reports import End, Report

BELIEVED = 3
"""The loss from which on the task is blamed."""
_TASKS_MOST = 1000


class Losses:
    def __init__(self, node: str) -> None:
        self._node = node
        self._counts: dict[tuple[int, int], int] = {}
        """By job and task, the latest last."""

    def judge(self, report: Report) -> Report:
        """Of the attempt that ran when its spawner was killed: as it is, or the task's own failure."""
        if report.end is not End.INTERRUPTED:
            return report  # it is known already what killed it
        task = report.job, report.task
        count = self._counts.pop(task, 0) + 1
        self._counts[task] = count
        if len(self._counts) > _TASKS_MOST:
            del self._counts[next(iter(self._counts))]
        if count < BELIEVED:
            return report
        note = f"its spawner was killed while it ran, {count} times: the task did that, or something on {self._node}"
        return msgspec.structs.replace(report, end=End.SIGNALLED, code=int(signal.SIGKILL), note=note)

    def forget(self, reports: list[Report]) -> None:
        """Those of these that have ended have done so in another way."""
        for report in reports if self._counts else ():
            if report.end is not End.INTERRUPTED:
                self._counts.pop((report.job, report.task), None)
