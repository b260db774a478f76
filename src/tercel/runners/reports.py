"""What a spawner says about attempts that are over, gathered so that several travel together."""

import os
import signal
import time
from collections.abc import Iterator, Set

from tercel.runners import cgroups, outputs
from tercel.runners.channel import Message
from tercel.runners.guard import Guard
from tercel.runners.isolation import Conclusion
from tercel.runners.run import NEVER, Run

WAIT_S = 0.016
"""How long a report may wait for others while there is more to run."""
MOST = 24
"""Of them; fewer than wait in a lane ahead, so that it never runs dry before it hears again."""

_UNTOLD: Message = (None, "", (), "", "", (), ())
"""Fields of core.reports.Report from `value` up to `hitch`, in a report that says nothing there."""
_BEFORE_VALUE = 12
"""How many come before them."""


class Config:
    """What the pool tells a spawner on its command line."""

    __slots__ = (
        "container_args",
        "groups",
        "inline_bytes",
        "lane",
        "node",
        "number",
        "outputs",
        "segment_bytes",
        "trash",
    )

    def __init__(
        self,
        lane: str,
        trash: str,
        outputs_dir: str,
        node: str,
        inline_bytes: str,
        segment_bytes: str,
        number: str,
        groups: str,
        container_args: str,
    ) -> None:
        self.lane = os.fsencode(lane)
        """The lane's own directory; its sandbox is in it."""
        self.trash = os.fsencode(trash)
        self.outputs = os.fsencode(outputs_dir)
        self.node = node
        self.inline_bytes = int(inline_bytes)
        self.segment_bytes = int(segment_bytes)
        self.number = int(number)
        """The lane's."""
        self.groups = cgroups.from_text(groups)
        self.container_args = container_args
        """For the container engine, one per line."""


class Reports:
    def __init__(self, config: Config) -> None:
        self.due = NEVER
        """When what waits must be sent."""
        self._config = config
        self._waiting: list[Message] = []

    def full(self) -> bool:
        return len(self._waiting) >= MOST or time.monotonic() >= self.due

    def take(self) -> list[Message]:
        """All that wait, as messages."""
        if not self._waiting:
            return []
        waiting, self._waiting = self._waiting, []
        self.due = NEVER
        return [("Ended", waiting)]

    def add(self, run: Run, end: str, code: int, note: str, errno: str = "") -> None:
        """`errno`: the name of the system's reason, if that kept it from being run."""
        out = err = None
        if run.captures is not None:
            out, note = self._settle(run, 0, note)
            err, note = self._settle(run, 1, note)
        if run.kept:
            note += f"{'; ' if note else ''}{run.kept}"
        if run.ungathered:
            note += f"{'; ' if note else ''}{run.ungathered}"
        if not self._waiting:
            self.due = time.monotonic() + WAIT_S
        launch, wall_s, max_rss_bytes = run.launch, run.ended - run.begun, run.max_rss_kib * 1024
        job, task, attempt = launch.program.job, launch.task, launch.attempt
        used = (run.started_at, wall_s, run.cpu_s, max_rss_bytes)
        row: Message = (job, task, attempt, end, code, *used, note, out, err)
        if run.excess is not None:
            row = (*row, None, run.excess.what)
        elif errno:
            row = (*row, None, "", (), errno)
        if run.gathered or run.hitch is not None:
            row = (*row, *_UNTOLD[len(row) - _BEFORE_VALUE :], run.hitch, tuple(run.gathered or ()))
        self._waiting.append(row)

    def add_not_started(self, run: Run, code: int, reason: str, errno: str = "") -> None:
        """`code` as a shell would give it; 0: it is not the command's doing but this node's."""
        if code:
            run.capture(1, self._config.lane).add(f"tercel: {reason}\n".encode())
            self.add(run, "exited", code, reason, errno)
        else:
            self.add(run, "interrupted", 0, f"{self._config.node}: {reason}", errno)

    def add_ended(self, run: Run, stuck: Set[int]) -> None:
        """Those in `stuck` could not be killed."""
        if run.conclusion is not None and not run.ending:
            self._conclude(run, run.conclusion)
            return
        if run.status == 0 and not (run.left or stuck or run.ending):
            self.add(run, "exited", 0, run.guard.remark() if run.guard is not None else "")
            return
        if run.status is None:  # it would not die, and was given up
            run.ended = time.monotonic()
            end, code = "signalled", int(signal.SIGKILL)
        elif os.WIFSIGNALED(run.status):
            end, code = "signalled", os.WTERMSIG(run.status)
        else:
            end, code = "exited", os.WEXITSTATUS(run.status)
        notes = list(_notes(run, end, code))
        if stuck:
            notes.append(f"processes that cannot be killed on {self._config.node}: {sorted(stuck)}")
        self.add(run, run.ending or end, code, "; ".join(notes))

    def _conclude(self, run: Run, conclusion: Conclusion) -> None:
        run.excess = conclusion.excess
        self.add(run, conclusion.end, conclusion.code, conclusion.note)

    def judge(self, run: Run, guard: Guard) -> None:
        """Before `add_ended`: whether it ended by itself because it took too much."""
        run.max_rss_kib = max(run.max_rss_kib, guard.peak_bytes // 1024)
        if run.ending or run.conclusion is not None or run.status is None:
            return
        huge_file = os.WIFSIGNALED(run.status) and os.WTERMSIG(run.status) == signal.SIGXFSZ
        run.excess = guard.verdict(run.status != 0, huge_file)
        if run.excess is not None:
            run.ending = "exceeded"

    def _settle(self, run: Run, stream: int, note: str) -> tuple[outputs.OutputRow | None, str]:
        config = self._config
        name = outputs.STREAMS[stream]
        capture = run.capture(stream, config.lane)
        path = outputs.path_of(config.outputs, run.launch.attempt, name)
        row = outputs.settle(capture, path, config.inline_bytes, config.segment_bytes)
        if capture.fault:
            note += f"{'; ' if note else ''}less of std{name} kept: {capture.fault} on {config.node}"
        return row, note


def _notes(run: Run, end: str, code: int) -> Iterator[str]:
    """For people: what the code does not say."""
    program = run.launch.program
    if run.excess is not None:
        yield run.excess.note
        return
    if run.guard is not None and (remark := run.guard.remark()):
        yield remark
    if run.ending == "timed_out":
        yield f"time limit of {program.time_limit_s:g} s reached"
    if run.ending and run.left and program.kill_grace_s:
        yield f"killed: it had not ended {program.kill_grace_s:g} s after TERM"
    elif run.left and not run.ending:
        yield f"{run.left} process{'es' if run.left > 1 else ''} left behind by it ended"
    if end == "signalled" and not run.ending:
        yield signal_note(code)


def signal_note(number: int) -> str:
    if number == signal.SIGKILL:
        return "ended by SIGKILL: by somebody, or by the system for want of memory"
    try:
        return f"ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended by signal {number}"
