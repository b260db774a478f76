"""The program of a spawner: one small process per lane that runs one attempt after the other.

    start -> watch (output, time limit, kill, follower) -> end whatever is left -> report -> clear the sandbox

It is small and has one thread, so that starting a process from it is as cheap as the kernel allows; it imports
little, so that it is itself started quickly. All that descends from it belongs to the attempt under way. When its
worker is gone (end of file), it ends that attempt's processes at once, and itself.

A report waits at most a few milliseconds for others to travel with, and not at all if nothing else is queued.
"""

# ruff: noqa: PTH119, PTH120
# (Pathlib would double the start-up time.)

import gc
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable

from tercel.runners import programs, trees
from tercel.runners.channel import Channel, Message
from tercel.runners.engines import Containers
from tercel.runners.guard import Excess
from tercel.runners.isolation import Isolation
from tercel.runners.launching import Launcher, own_tree
from tercel.runners.pipes import Pipes
from tercel.runners.posix_spawn import Starter
from tercel.runners.reports import Config, Reports
from tercel.runners.run import ANNOUNCE_S, NEVER, Launch, Run
from tercel.runners.sandbox import Sandbox, Sweeper

KILL_PATIENCE_S = 10.0
"""After so long a process that survives KILL is given up: it hangs in the kernel or is another user's."""
TAIL_ROUNDS_AT_END = 16
BRIEF_S = 0.02
"""In so short a time no attempt can have left much in memory."""
BACKLOG_MOST = 64
"""Trees in the trash beyond which removing them goes before running the next attempt."""
GLANCE_S = 0.02
"""Between looks at what else is to be done, while files are put into a sandbox or gathered."""
LEAVE_S = 2.0
"""How long a spawner whose worker is gone tidies up."""


class Spawner:
    def __init__(self, channel: Channel, config: Config) -> None:
        self._channel = channel
        self._config = config
        self._sweeper = Sweeper(config.trash, os.path.basename(config.lane))
        self._sandbox = Sandbox(config.lane, self._sweeper)
        self._queue: deque[Launch] = deque()
        self._reports = Reports(config)
        self._followed: set[int] = set()
        """Attempts in the queue that somebody wants to follow."""
        self._run: Run | None = None
        self._beginning: Run | None = None
        """The attempt whose files are being put into its sandbox, perhaps."""
        self._glance_at = 0.0
        self._left: Run | None = None
        """The attempt whose sandbox waits for its cleanup."""
        self._stuck: set[int] = set()
        self._program: programs.Program | None = None
        environment = dict(os.environb) | {b"TERCEL_NODE": config.node.encode()}
        self._containers = Containers(config.node, config.lane, config.container_args, environment)
        self._on: dict[object, Callable[..., None]] = {
            "setup": self._on_setup,
            "start": self._on_start,
            "files": self._on_files,
            "kill": self._on_kill,
            "withdraw": self._on_withdraw,
            "follow": self._on_follow,
            "warn": self._on_warn,
            "exceeded": self._on_exceeded,
        }
        trees.become_subreaper()
        self._signals = trees.child_signals()
        self._children = trees.own_children()
        # A stop of the whole group (Ctrl-C, a terminal that closes) is the worker's to handle.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        ignored = [n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN]
        self._idle_poll, self._run_poll = select.poll(), select.poll()
        for poll in (self._idle_poll, self._run_poll):
            poll.register(self._signals, select.POLLIN)
            poll.register(channel.fd, select.POLLIN)
        self._pipes = Pipes(self._run_poll, config.lane)
        self._launcher = Launcher(
            config, self._sandbox, self._pipes, Starter(ignored), self._reports, self._meanwhile
        )
        self._launcher.bounds.gather()

    def serve(self) -> None:
        """Ends with EOFError when the worker is gone."""
        queue, trash = self._queue, self._sweeper.todo
        while True:
            while queue:
                self._attempt(queue.popleft())
                if not queue or self._reports.full():
                    self._send(self._reports.take())
                while len(trash) > BACKLOG_MOST:
                    self._sweeper.step()
            self._idle()

    def close(self) -> None:
        """Leave nothing behind: no process, and no file if that is quick."""
        trees.kill_descendants(_reap_strangers, self._stuck, KILL_PATIENCE_S)
        stop_at = time.monotonic() + LEAVE_S
        self._send(self._reports.take())
        while self._channel.unsent and time.monotonic() < stop_at:
            select.select([], [self._channel.fd], [], LEAVE_S)
            self._channel.flush()
        os.chdir("/")
        self._sandbox.remove()
        self._sweeper.sweep(stop_at - time.monotonic())
        self._launcher.bounds.leave()

    # -- the worker's messages ----------------------------------------------------------------------------

    def _on_setup(self, *fields: object) -> None:
        self._program = programs.Program(self._containers, *fields)  # type: ignore[arg-type]

    def _on_start(self, task: int, attempt: int, argv: list[str] | None, line: str, point: str = "") -> None:
        assert self._program is not None
        self._queue.append(Launch(self._program, task, attempt, argv, line, point))

    def _on_files(self, attempt: int, *files: object) -> None:
        if self._queue and self._queue[-1].attempt == attempt:  # it may have been refused before it came here
            self._queue[-1].files = files  # type: ignore[assignment]

    def _on_kill(self, attempts: list[int]) -> None:
        wanted = set(attempts)
        if self._beginning is not None and self._beginning.launch.attempt in wanted:
            self._beginning.ending = "cancelled"
        if self._run is not None and self._run.launch.attempt in wanted:
            self._end(self._run, "cancelled")
        for run in self._unqueue(wanted):
            self._reports.add(run, "cancelled", 0, "cancelled before it started")

    def _on_withdraw(self, attempts: list[int]) -> None:
        for run in self._unqueue(set(attempts)):
            run.started_at = 0.0
            self._reports.add(run, "interrupted", 0, "withdrawn before it began")

    def _unqueue(self, attempts: set[int]) -> list[Run]:
        found = [launch for launch in self._queue if launch.attempt in attempts]
        for launch in found:
            self._queue.remove(launch)
        return [Run(launch) for launch in found]

    def _on_follow(self, attempt: int, on: bool) -> None:
        if self._run is not None and self._run.launch.attempt == attempt:
            self._run.follow(on)
        elif on and (self._begins(attempt) or any(launch.attempt == attempt for launch in self._queue)):
            self._followed.add(attempt)
        else:
            self._followed.discard(attempt)

    def _on_warn(self, attempts: list[int]) -> None:
        if self._run is not None and self._run.launch.attempt in attempts:
            self._run.warn_at = time.monotonic()
            self._run.set_due()

    def _on_exceeded(self, attempt: int, what: str, note: str) -> None:
        """The worker has found that it takes too much."""
        run = self._run
        if run is not None and run.launch.attempt == attempt and run.status is None:
            run.exceed(Excess(what, note))

    def _begins(self, attempt: int) -> bool:
        return self._beginning is not None and self._beginning.launch.attempt == attempt

    # -- waiting ------------------------------------------------------------------------------------------

    def _idle(self) -> None:
        """Until there is something to run; meanwhile, sweep."""
        self._send(self._reports.take())
        os.chdir("/")  # hold no file system busy
        while not self._queue:
            events = self._idle_poll.poll(0 if self._sweeper.todo else None)
            for fd, event in events:
                self._on_event(fd, event)
            if not events:
                self._sweeper.step()
            self._send(self._reports.take())  # of what was asked back before it began

    def _on_event(self, fd: int, event: int) -> None:
        """All but the pipes of the attempt under way."""
        if fd == self._signals:
            os.read(fd, 1024)
            (self._run.reap if self._run is not None else _reap_strangers)()
            return
        if event & select.POLLOUT:
            self._channel.flush()
            self._watch_channel()
        if event & ~select.POLLOUT:
            for kind, *fields in self._channel.receive():
                self._on[kind](*fields)

    def _send(self, messages: list[Message]) -> None:
        if messages:
            self._channel.send(messages)
        if self._channel.unsent:
            self._watch_channel()

    def _watch_channel(self) -> None:
        events = select.POLLIN | select.POLLOUT if self._channel.unsent else select.POLLIN
        for poll in (self._idle_poll, self._run_poll):
            poll.modify(self._channel.fd, events)

    def _meanwhile(self) -> None:
        """Between the pieces of what may take long: see to the rest now and then."""
        now = time.monotonic()
        if now < self._glance_at:
            return
        self._glance_at = now + GLANCE_S
        for fd, event in self._idle_poll.poll(0):
            self._on_event(fd, event)
        if now >= self._reports.due:
            self._send(self._reports.take())

    # -- one attempt --------------------------------------------------------------------------------------

    def _attempt(self, launch: Launch) -> None:
        run = Run(launch, self._children)
        if self._left is not None and self._left.launch.attempt != launch.attempt:
            self._sandbox.clear(self._left.begun)  # nobody cleaned up after it
            self._left = None
        try:
            if self._start(run):
                self._watch(run)
                self._finish(run)
        finally:
            self._run = self._beginning = None
            run.close()
            if not (self._left_no_trace(run) and self._pipes.untouched()):
                self._pipes.close()
        if launch.program.cleans:
            self._left = run
            return
        self._sandbox.clear(self._left.begun if self._left is not None else run.begun)
        self._left = None

    def _left_no_trace(self, run: Run) -> bool:
        """See pipes. Nobody can have got hold of the outputs of an attempt that was over so soon."""
        return (
            run.status == 0
            and run.captures is None
            and not (run.left or run.announced or run.ending or self._stuck)
        )

    def _start(self, run: Run) -> bool:
        """Whether it runs; if not, that is reported."""
        self._beginning = run
        if not self._launcher.start(run):
            return False
        self._run, self._beginning = run, None
        attempt = run.launch.attempt
        if self._followed and attempt in self._followed:
            self._followed.discard(attempt)
            run.follow(True)
        return True

    def _watch(self, run: Run) -> None:
        """Until the main process has ended; if it is being ended, until its whole tree has, or the grace is over."""
        now = run.begun
        while True:
            due = min(run.due, self._reports.due)
            sweep = run.announced and self._sweeper.todo
            # At most a minute at a time: poll takes no larger number of milliseconds than fits into an int.
            events = self._run_poll.poll(0 if sweep else max(0, int(min(due - now, 60.0) * 1000) + 1))
            for fd, event in events:
                if fd in self._pipes.readers:
                    self._pipes.read(fd, run.take)
                else:
                    self._on_event(fd, event)
            if run.status is not None and (not run.ending or not run.children_left):
                return
            now = time.monotonic()
            if now >= run.kill_at:
                return
            if now >= due:
                self._on_time(run, now)
            elif sweep and not events:
                self._sweeper.step()

    def _on_time(self, run: Run, now: float) -> None:
        if not run.announced and now >= run.begun + ANNOUNCE_S:
            run.announced = True
            self._send([("Started", run.launch.attempt, run.pid, run.started_at)])
            self._launcher.bounds.hold_cpu(own_tree)
        if run.guard is not None and now >= run.guard.look_at and not run.ending:
            run.look(run.guard)
        if now >= run.warn_at:
            run.warn(now)
        if now >= run.limit_at:
            self._end(run, "timed_out")
        if now >= self._reports.due:
            self._send(self._reports.take())
        self._send(list(run.tail(now, room=not self._channel.unsent)))
        run.set_due()

    def _end(self, run: Run, reason: str) -> None:
        run.limit_at = run.warn_at = NEVER
        if run.ending:
            return
        run.ending = reason
        grace_s = run.launch.program.kill_grace_s
        run.kill_at = time.monotonic() + grace_s
        run.set_due()
        isolation = run.launch.program.isolation
        if grace_s > 0 and run.children_left:
            isolation.terminate(run.pid) if isolation is not None else trees.terminate_descendants()

    def _finish(self, run: Run) -> None:
        """The attempt is over: end what is left of it, take what is in the pipes, report."""
        stuck: set[int] = set()
        if run.launch.program.isolation is not None:
            self._conclude(run, run.launch.program.isolation)
        if run.children_left:
            stuck_before = set(self._stuck)
            run.left = trees.kill_descendants(run.reap, self._stuck, KILL_PATIENCE_S)
            stuck = self._stuck - stuck_before
        if run.announced or (run.guard is not None and run.ended - run.begun > BRIEF_S):
            self._launcher.bounds.after_attempt()
        self._pipes.drain(run.take)
        if run.captures is not None:
            for _ in range(TAIL_ROUNDS_AT_END):
                if not (pieces := list(run.tail(NEVER, room=True))):
                    break
                self._send(pieces)
        if run.guard is not None:
            self._reports.judge(run, run.guard)
        fault = self._gather(run) if run.launch.files is not None else None
        if run.launch.program.keep != "remove" and run.is_kept():
            run.kept = self._keep(run)
        if fault is None:
            self._reports.add_ended(run, stuck)
        else:
            self._reports.add(run, *fault)

    def _gather(self, run: Run) -> tuple[str, int, str, str] | None:
        """What is to be reported if what it leaves could not be saved."""
        from tercel.runners.run_files import gather  # noqa: PLC0415  # 10 ms that only those with files pay

        return gather(run, self._sandbox.path, self._config.node, self._meanwhile)

    def _keep(self, run: Run) -> str:
        """For the report: where its sandbox is."""
        launch, program = run.launch, run.launch.program
        name = b"%d.%d.%d" % (program.job, launch.task, launch.attempt)
        try:
            path = self._sandbox.keep(os.path.dirname(self._config.trash) + b"/kept", name)
        except OSError as error:
            return f"sandbox not kept on {self._config.node}: {os.strerror(error.errno or 0)}"
        return f"sandbox kept: {self._config.node}:{os.fsdecode(path)}" if path else ""

    def _conclude(self, run: Run, isolation: Isolation) -> None:
        """What runs inside of something may end in ways that only that knows."""
        self._pipes.drain(run.take)
        code = os.waitstatus_to_exitcode(run.status) if run.status is not None else 0
        said = run.last_words() if code else ""
        run.conclusion = isolation.conclude(code, bool(run.ending), said)
        if not run.ending or isolation.holds is not None:  # what it is made of ends by itself now
            stop_at = time.monotonic() + LEAVE_S
            while run.reap() and time.monotonic() < stop_at:
                time.sleep(0.001)


def _reap_strangers() -> bool:
    """Between attempts: processes given up earlier that have ended after all."""
    while True:
        try:
            if os.wait4(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def main() -> None:
    gc.freeze()  # what was imported is there to stay, and need not be looked at again
    channel, *config = sys.argv[1:]
    os.set_inheritable(int(channel), False)  # a task that held it would hide our end from the worker
    spawner = Spawner(Channel(int(channel)), Config(*config))
    try:
        spawner.serve()
    except EOFError:
        pass
    finally:
        spawner.close()
