"""Cleaning up after a task: finished first, then the cleanup, then its place is free again (K12, K13).

    an attempt ends -> its report is acknowledged -> due -> launched in the same lane -> ended -> the lane is closed

A cleanup is launched like an attempt, under the number of the one that it cleans up after: its time is limited, its tree is
ended with it and with its worker, and it finds what the task left in its sandbox. How it ends is nobody's business but the
worker's: it is told in the worker's log and note, and the worker goes on.
"""

from tercel.core.model import Keep, Limits, Program
from tercel.core.reports import End, Report
from tercel.runners.contract import Launch
from tercel.worker.held import Lane

OUTPUT_BYTES = 8 * 1024
"""Kept of each stream, for the log."""
SHOWN_LINES = 20


class Cleanup:
    """Of one attempt that has ended."""

    __slots__ = ("due", "lane", "launched", "program", "report")

    def __init__(self, lane: Lane, report: Report, *, due: bool) -> None:
        self.lane = lane
        """It stays open, and its resources taken, until this is done."""
        self.report = report
        """Of the attempt."""
        self.program = cleanup_program(lane.job.program, report)
        self.due = due
        """The attempt's report is acknowledged, or goes nowhere."""
        self.launched = False

    @property
    def task(self) -> str:
        return f"{self.report.job}.{self.report.task}"

    def launch(self) -> Launch:
        self.launched = True
        report = self.report
        return Launch(
            self.lane.number, report.job, report.task, report.attempt, self.program, env=self.lane.env
        )

    def fault(self, end: Report) -> str:
        """What is to be told of how it ended, if anything."""
        if end.end is End.EXITED and end.code == 0:
            return ""
        return f"the cleanup after {self.task} {_how(end, self.program.time_limit_s)}"


def cleans_after(program: Program, report: Report) -> bool:
    """Not if nothing of the task can have run here."""
    return bool(program.cleanup) and report.started_at > 0 and report.end is not End.REFUSED


def cleanup_program(program: Program, report: Report) -> Program:
    """Where the task ran and with its variables, but outside of its container and its limits."""
    code = report.code if report.end is End.EXITED else 128 + report.code
    told = {"TERCEL_EXIT_CODE": str(code), "TERCEL_END": str(report.end)}
    return Program(
        line=program.cleanup,
        cwd=program.cwd,
        env=program.env | told,
        time_limit_s=program.cleanup_limit_s,
        kill_grace_s=program.kill_grace_s,
        output_limit_bytes=OUTPUT_BYTES,
        limits=Limits(),
        sandbox=Keep.REMOVE,
    )


def _how(end: Report, limit_s: float) -> str:
    match end.end:
        case End.TIMED_OUT:
            return f"was killed: it took longer than {limit_s:g} s"
        case End.EXITED:
            return f"failed with exit code {end.code}"
        case End.SIGNALLED:
            return f"failed: {end.note}"
        case End.INTERRUPTED if end.wall_s > 0:  # it had begun
            return f"was ended: {end.note}"
    return f"could not be run: {end.note}"


def last_words(end: Report) -> str:
    """The tail of what it wrote, for the log."""
    written = b"".join(output.inline for output in (end.out, end.err) if output is not None)
    lines = written.decode(errors="replace").splitlines()[-SHOWN_LINES:]
    return "".join(f"\n    {line}" for line in lines)
