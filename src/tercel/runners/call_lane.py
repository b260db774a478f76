"""A lane that makes calls: its line of launches, and the interpreter that works it off.

    waiting --given to the interpreter--> given --its report--> told

What has not begun when an interpreter ends goes on in the next one; only the call that was running ends with it. An
interpreter serves jobs of one path and environment: for another it is replaced, when it has done what it was given.

While calls are given a timer looks at the board. It announces a call that lasts, ends one whose time is over, reads what
a followed one has written, and takes reports that wait behind a long call.
"""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from tercel.core.model import Program
from tercel.core.reports import End, Report
from tercel.runners.board import NOBODY
from tercel.runners.call_ends import (
    Ending,
    Futility,
    can_be_made,
    died,
    refused,
    unable,
    unbegun,
    unstartable,
)
from tercel.runners.call_process import InterpreterProcess, Left, kind_of, setup_of
from tercel.runners.call_watch import TICK_S, CallWatch
from tercel.runners.channel import Message
from tercel.runners.commands import errno_name
from tercel.runners.contract import Launch, Listener
from tercel.runners.following import Follower, Read
from tercel.runners.guard import Excess
from tercel.runners.lane import interrupted
from tercel.runners.run import NEVER, TAIL_S
from tercel.runners.starting import Directories

IDLE_S = 300.0
"""An interpreter that had nothing to do for so long ends: it may be large."""


class CallLane:
    def __init__(
        self,
        new_directories: Callable[[], Directories],
        node: str,
        listener: Listener,
        on_ended: Callable[[list[Report]], None],
        on_gone: "Callable[[CallLane], None]",
        read_output: Read,
    ) -> None:
        self.lost = False
        """Nothing more can be launched in it."""
        self._new_directories = new_directories
        self._node = node
        self._on_ended = on_ended
        self._on_gone = on_gone
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Launch] = deque()
        self._given: dict[int, Launch] = {}
        """In order."""
        self._process: InterpreterProcess | None = None
        self._kind: object = None
        """What launches must have in common to be given to it."""
        self._proven = False
        """It has made a call to its end."""
        self._futility = Futility()
        self._job: tuple[int, Program] | None = None
        """Of its last setup."""
        self._watch: CallWatch | None = None
        """Of the interpreter."""
        self._ending: Ending | None = None
        self._follower = Follower(listener, read_output)
        self._timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0

    # -- what the pool asks -------------------------------------------------------------------------------

    def launch(self, launches: list[Launch]) -> None:
        refusals = [refused(launch, self._node) for launch in launches if not can_be_made(launch)]
        if refusals:
            self._loop.call_soon(self._on_ended, refusals)
        self._waiting += filter(can_be_made, launches)
        self._feed()

    def holds(self, attempt: int) -> bool:
        return attempt in self._given or any(launch.attempt == attempt for launch in self._waiting)

    @property
    def directory(self) -> bytes | None:
        """With its sandbox in it, if it has one."""
        return self._process.directory if self._process is not None else None

    def running(self) -> int:
        """The attempt that runs, or NOBODY."""
        if self._process is None or self._process.gone:
            return NOBODY
        attempt, _, running = self._process.board.standing()
        return attempt if running and attempt in self._given else NOBODY

    def withdraw(self, attempts: list[int]) -> None:
        self._drop(attempts, End.INTERRUPTED, "withdrawn before it began", 0.0)

    def kill(self, attempts: list[int]) -> None:
        running = self._drop(attempts, End.CANCELLED, "cancelled before it started", time.time())
        if running is not None:
            self._end(running, End.CANCELLED)

    def warn(self, attempts: list[int]) -> None:
        if self._watch is not None:
            for attempt in attempts:
                self._watch.warn(attempt, time.monotonic())
            self._tick_in(0.0)

    def end_for_excess(self, attempt: int, what: str, note: str) -> None:
        """If it runs."""
        if (launch := self._given.get(attempt)) is not None:
            self._end(launch, End.EXCEEDED, Excess(what, note))

    def follow(self, attempt: int, on: bool) -> None:
        self._follower.follow(attempt, on)
        self._tick_in(TAIL_S)

    def leave(self) -> None:
        """What runs ends at once, and nothing more begins."""
        self.lost = True
        if self._process is None:
            self._loop.call_soon(self._on_gone, self)
            return
        self._process.board.raise_bar()
        self._process.leave()
        self._absorb(self._process.take_reports())
        if self._process.board.standing().attempt in self._given:
            self._process.signal(signal.SIGKILL)

    def kill_process(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGKILL)

    def interrupted(self, why: str, errno: str = "") -> list[Report]:
        """For what it still held, once it is gone."""
        held = [*self._given.values(), *self._waiting]
        self._given.clear()
        self._waiting.clear()
        return [interrupted(launch, f"{self._node}: {why}", errno) for launch in held]

    # -- to the interpreter -------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Give what waits to the interpreter that can take it, or see to it that there is one."""
        if not self._waiting or self.lost:
            return
        if self._process is None and not self._start(self._waiting[0]):
            return
        process = self._process
        assert process is not None
        messages: list[Message] = []
        while self._waiting and not process.leaving and kind_of(self._waiting[0]) == self._kind:
            self._give(self._waiting.popleft(), messages)
        if messages:
            process.send(messages)
            self._tick_in(TICK_S)
        if self._waiting and not self._given and not process.leaving:
            process.leave()  # the next one is of another kind

    def _give(self, launch: Launch, messages: list[Message]) -> None:
        assert launch.call is not None
        if self._job is None or self._job[0] != launch.job or self._job[1] is not launch.program:
            self._job = (launch.job, launch.program)
            messages.append(setup_of(launch.job, launch.program))
        inputs = launch.call.named(launch.inputs)
        messages.append(("start", launch.task, launch.attempt, launch.call.arguments, inputs))
        if launch.links or launch.gathers:
            messages.append(("files", launch.attempt, launch.links, launch.gathers, launch.gather_dir))
        self._given[launch.attempt] = launch

    def _start(self, launch: Launch) -> bool:
        try:
            self._process = InterpreterProcess(
                self._new_directories(), self._node, launch, self._take, self._on_end, self._dying
            )
        except OSError as error:
            why = f"no interpreter can be started: {error}"
            self._loop.call_soon(self._give_up, why, errno_name(error))
            return False
        except ValueError as error:  # a NUL among its variables, say
            self._loop.call_soon(self._fail, kind_of(launch), partial(unstartable, why=str(error)))
            return False
        self._kind = kind_of(launch)
        self._watch = CallWatch(self._process, self._listener, self._follower)
        self._proven = False
        self._job = None
        return True

    def _give_up(self, why: str, errno: str = "") -> None:
        if reports := self.interrupted(why, errno):
            self._tell(reports)

    def _despair(self, left: Left) -> None:
        """It ended before it made a call."""
        why = ": ".join(filter(None, ["its interpreter was lost", left.last_words]))
        if self._waiting and self._futility.is_certain(self._waiting[0].job, left):
            self._fail(self._kind, partial(unable, note=f"{self._node}: {why} (again and again)"))
        else:
            self._give_up(why)

    def _fail(self, kind: object, report_of: Callable[[Launch], Report]) -> None:
        failed = [launch for launch in self._waiting if kind_of(launch) == kind]
        self._waiting = deque(launch for launch in self._waiting if kind_of(launch) != kind)
        if failed:
            self._tell([report_of(launch) for launch in failed])
        self._feed()

    def _dying(self, attempt: int) -> tuple[Launch | None, bool]:
        launch, ending = self._given.get(attempt), self._ending
        return launch, ending is not None and ending.end is End.CANCELLED

    # -- taking back, ending ------------------------------------------------------------------------------

    def _drop(self, attempts: list[int], end: End, note: str, started_at: float) -> Launch | None:
        """Of these, report those that have not begun; returns the one that has, if it is among them."""
        wanted = set(attempts)
        begun: Launch | None = None
        dropped = [launch for launch in self._waiting if launch.attempt in wanted]
        if dropped:
            self._waiting = deque(launch for launch in self._waiting if launch.attempt not in wanted)
        if self._process is not None and not wanted.isdisjoint(self._given):
            bar = self._process.board.raise_bar()
            # Certain while the bar is up: calls begin in the order in which they were given.
            last = self._process.board.standing().attempt
            given = list(self._given)
            behind = given[given.index(last) + 1 :] if last in self._given else given
            begun = self._given.get(last) if last in wanted else None
            taken = [attempt for attempt in behind if attempt in wanted]
            dropped += [self._given.pop(attempt) for attempt in taken]
            self._process.send([("withdraw", taken)])
            if self._ending is None:
                self._process.send([("go", bar)])
        if dropped:
            reports = [unbegun(launch, end, note, started_at) for launch in dropped]
            self._loop.call_soon(self._tell, reports)
        return begun

    def _end(self, launch: Launch, end: End, excess: Excess | None = None) -> None:
        """Nothing else begins while the call is being ended, so that no signal meets another."""
        if self._ending is not None or self._process is None:
            return
        self._process.board.raise_bar()
        if self._process.board.standing().attempt != launch.attempt:
            self._process.send([("go", self._process.board.bar)])  # it has ended; its report is on the way
            return
        # One that takes too much would take more in any grace.
        grace_s = launch.program.kill_grace_s if excess is None else 0.0
        self._ending = Ending(launch.attempt, end, time.monotonic() + grace_s, excess)
        if grace_s > 0:
            self._process.signal(signal.SIGTERM)
            self._tick_in(grace_s)
        else:
            self._kill()

    def _kill(self) -> None:
        assert self._ending is not None and self._process is not None
        self._ending.killed = True
        self._ending.kill_at = NEVER
        self._process.signal(signal.SIGKILL)

    # -- from the interpreter -----------------------------------------------------------------------------

    def _take(self, reports: list[Report]) -> None:
        if self._absorb(reports):
            self._feed()
            self._tick_in(TICK_S)

    def _absorb(self, reports: list[Report]) -> bool:
        """Tell those that are new; whether there were any."""
        news = self._new(reports)
        if news:
            self._tell(news)
        return bool(news)

    def _new(self, reports: list[Report]) -> list[Report]:
        given = self._given
        news = [report for report in reports if given.pop(report.attempt, None) is not None]
        if news:
            self._proven = True
            self._futility.on_reports(news)
            self._idle_since = time.monotonic()
            if self._ending is not None:
                news = [self._ended_in_time(report) for report in news]
        return news

    def _ended_in_time(self, report: Report) -> Report:
        """A call that made an end of itself when it was asked to."""
        ending = self._ending
        if ending is None or ending.attempt != report.attempt:
            return report
        self._ending = None
        if self._process is not None:
            self._process.send([("go", self._process.board.bar)])
        if ending.excess is not None:
            report = msgspec.structs.replace(report, note=ending.excess.note, exceeded=ending.excess.what)
        return msgspec.structs.replace(report, end=ending.end)

    def _tell(self, reports: list[Report]) -> None:
        self._follower.on_ended(reports)
        self._on_ended(reports)

    def _on_end(self, process: InterpreterProcess, left: Left) -> None:
        """The interpreter is gone. Its books are closed before anybody is told, who may launch more at once."""
        self._process = self._watch = None
        reports = self._new(left.reports)
        ending, self._ending = self._ending, None
        dead = self._given.get(left.attempt)
        hopeless = dead is None and ending is None and not self._proven and not process.leaving
        if dead is not None and not self.lost:
            reports.append(died(self._given.pop(dead.attempt), left, ending))
        elif ending is not None and (missed := self._given.pop(ending.attempt, None)) is not None:
            reports.append(unbegun(missed, ending.end, "ended before it began", time.time()))
        self._waiting.extendleft(reversed(self._given.values()))
        self._given.clear()
        if reports:
            self._tell(reports)
        if self.lost:
            self._on_gone(self)
        elif hopeless:
            self._despair(left)
        else:
            self._feed()

    # -- time ---------------------------------------------------------------------------------------------

    def _tick_in(self, seconds: float) -> None:
        """At the latest."""
        at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        process = self._process
        if process is None:
            return
        if not self._given:
            self._tick_idle(process)
            return
        self._take(process.take_reports())
        now = time.monotonic()
        attempt, since, running = process.board.standing()
        launch = self._given.get(attempt) if running else None
        if launch is None:
            self._tick_in(TICK_S)
            return
        assert self._watch is not None
        end = self._watch.look(launch, since, now)
        if self._ending is not None:
            if now >= self._ending.kill_at:
                self._kill()
        elif end is not None:
            self._end(launch, *end)
        alone = len(self._given) == 1
        self._tick_in(self._watch.next_s(launch, since, now, self._ending, alone))

    def _tick_idle(self, process: InterpreterProcess) -> None:
        idle_s = time.monotonic() - self._idle_since
        if idle_s >= IDLE_S:
            process.leave()
        else:
            self._tick_in(IDLE_S - idle_s)
