"""The attempt under way in a spawner: its outputs, its timers, what is known of how it goes."""

import os
import time
from collections.abc import Iterator

from tercel.runners import trees
from tercel.runners.capture import Capture
from tercel.runners.guard import Excess, Guard
from tercel.runners.isolation import Conclusion
from tercel.runners.outputs import STREAMS
from tercel.runners.pipes import READ_BYTES
from tercel.runners.programs import Program

ANNOUNCE_S = 0.1
"""Shorter attempts are never announced as started: their report says it all."""
TAIL_S = 0.05
"""Live output is gathered so long before it is sent."""
WORDS_BYTES = 2048
WARN_AGAIN_S = 1.0
"""Between looks for a process that minds the signal by which a job wants to be warned."""

NEVER = float("inf")

FilesRow = tuple[list[tuple[str, str]], list[tuple[str, str]], str]
"""Of contract.Launch: links, gathers, gather_dir."""
HitchRow = tuple[str, str, str, str]
"""Of core.files.Hitch: its first fields."""


class Launch:
    """An attempt that waits for its turn."""

    __slots__ = ("argv", "attempt", "files", "line", "point", "program", "task")

    def __init__(
        self, program: Program, task: int, attempt: int, argv: list[str] | None, line: str, point: str = ""
    ) -> None:
        self.program = program
        self.task = task
        self.attempt = attempt
        self.argv = argv
        self.line = line
        self.point = point
        """JSON, if the job is of a template."""
        self.files: FilesRow | None = None
        """If it finds any in its sandbox, or leaves any that are gathered."""


class Run:
    """Times are of the monotonic clock, except started_at.

    Defaults stand in the class, because most attempts end at once and change few of them.
    """

    pid = 0
    status: int | None = None
    """The main process's, once it has ended."""
    children_left = True
    left = 0
    """How many processes outlived the main one, and were killed."""
    cpu_s = 0.0
    max_rss_kib = 0
    """At least a spawner's own: the kernel counts the moment between fork and exec."""
    ending = ""
    """Why it is being ended, if it is: a value of core.reports.End."""
    announced = False
    kept = ""
    """What is told of its sandbox, if that was to be kept."""
    ungathered = ""
    """What is told of files that could not be gathered, where that changes nothing about its end."""
    gathered: list[tuple[str, int]] | None = None
    """Paths and sizes of what was taken out of its directory."""
    hitch: HitchRow | None = None
    """Why its files could not be had or left."""
    guard: Guard | None = None
    """If its job has limits that must be watched."""
    excess: Excess | None = None
    """What it took too much of, if that is why it ended."""
    conclusion: Conclusion | None = None
    """If it ran inside of something that knows better how it ended."""
    kill_at = NEVER
    warn_at = NEVER
    captures: tuple[Capture, Capture] | None = None
    """Made when something is written."""
    _told: list[int] | None = None
    """How much of each stream a follower has been told; None: nobody follows."""
    _tail_at = 0.0

    def __init__(self, launch: Launch, children: int = -1) -> None:
        """`children` as of trees.own_children."""
        self.launch = launch
        self._children = children
        self.begin()

    def begin(self) -> None:
        """Its time runs from now on."""
        launch = self.launch
        self.started_at = time.time()
        self.begun = self.ended = time.monotonic()
        self.due = self.begun + ANNOUNCE_S
        """When something is to be done if nothing happens."""
        limit_s = launch.program.time_limit_s
        self.limit_at = self.begun + limit_s if limit_s else NEVER
        if limit_s:
            if launch.program.warn_signal:
                self.warn_at = max(self.begun, self.limit_at - launch.program.warn_s)
            self.due = min(self.due, self.limit_at, self.warn_at)

    # -- its outputs --------------------------------------------------------------------------------------

    def take(self, stream: int, data: bytes, directory: bytes) -> None:
        """What it has written."""
        self.capture(stream, directory).add(data)
        if self._told is not None:
            self.set_due()

    def capture(self, stream: int, directory: bytes) -> Capture:
        if self.captures is None:
            limit_bytes = self.launch.program.output_limit_bytes
            self.captures = (Capture(limit_bytes, directory), Capture(limit_bytes, directory))
        return self.captures[stream]

    def last_words(self) -> str:
        """The end of what it wrote on stderr."""
        if self.captures is None:
            return ""
        err = self.captures[1]
        begin = max(err.begin, err.total - WORDS_BYTES)
        return err.read(begin, WORDS_BYTES).decode(errors="replace")

    def is_kept(self) -> bool:
        """Its sandbox, if its job's program does not say that it never is."""
        well = self.status == 0 and not self.ending and self.excess is None
        return not (self.launch.program.keep == "keep-on-failure" and well)

    def close(self) -> None:
        if self.captures is not None:
            for capture in self.captures:
                capture.close()

    # -- its processes ------------------------------------------------------------------------------------

    def reap(self) -> bool:
        """Take in every child that has ended, orphans too; whether any is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.children_left = False
                return False
            if pid == 0:
                return True
            self.cpu_s += usage.ru_utime + usage.ru_stime
            if usage.ru_maxrss > self.max_rss_kib:
                self.max_rss_kib = usage.ru_maxrss
            if pid == self.pid:
                self.status = status
                self.ended = time.monotonic()
                if self._children >= 0 and not os.pread(self._children, 1, 0):
                    self.children_left = False
                    return False

    def look(self, guard: Guard) -> None:
        """Whether it takes too much."""
        if (excess := guard.look()) is not None:
            self.exceed(excess)

    def exceed(self, excess: Excess) -> None:
        """It ends at once: in any grace it would take more."""
        if not self.ending:
            self.ending = "exceeded"
            self.excess = excess
            self.limit_at = self.warn_at = NEVER
            self.kill_at = time.monotonic()
            self.set_due()

    def warn(self, now: float) -> None:
        """Its end is near. If nobody minds the signal yet, somebody may in a moment."""
        number, isolation = self.launch.program.warn_signal, self.launch.program.isolation
        self.warn_at = NEVER
        if number:
            tree = trees.descendants(os.getpid())
            if not (isolation.warn(number) if isolation is not None else trees.warn(tree, number)):
                self.warn_at = now + WARN_AGAIN_S

    # -- its timers ---------------------------------------------------------------------------------------

    def set_due(self) -> None:
        due = min(self.limit_at, self.kill_at, self.warn_at)
        if self.guard is not None and not self.ending:
            due = min(due, self.guard.look_at)
        if not self.announced:
            due = min(due, self.begun + ANNOUNCE_S)
        if self._untold():
            due = min(due, self._tail_at)
        self.due = due

    # -- its follower -------------------------------------------------------------------------------------

    def follow(self, on: bool) -> None:
        self._told = [0, 0] if on else None
        self.set_due()

    def _untold(self) -> bool:
        if self._told is None or self.captures is None:
            return False
        return self.captures[0].total > self._told[0] or self.captures[1].total > self._told[1]

    def tail(self, now: float, room: bool) -> Iterator[tuple[object, ...]]:
        """A piece of each stream that the follower has not been told, if it is time and there is room for it.

        A follower that cannot keep up misses what is no longer kept; the offset shows it.
        """
        if self._told is None or self.captures is None or now < self._tail_at:
            return
        self._tail_at = now + TAIL_S
        if not room:
            return
        for at, capture in enumerate(self.captures):
            offset = max(self._told[at], capture.begin)
            if offset < capture.total:
                data = capture.read(offset, READ_BYTES)
                self._told[at] = offset + len(data)
                yield "Tail", self.launch.attempt, STREAMS[at], offset, data
