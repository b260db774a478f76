"""Stories of the machine that can be read aloud, and are checked word by word.

    # says what the story is about
    > something happens
    + what is made durable because of it
    < what is done after that
    ? 1.3            asks why this task is not running; the answer follows, indented
    = 1.3 ready      states what must be true now

Attempts are named by their task and a letter: 1.0a is the first attempt of task 0 of job 1, 1.0b the second. After
each event a round is played, its changes are committed, and the invariants are checked.

    > worker w1 joins cpus=2 [mem=4] [pid=2] [tags=a,b] [gpus=2] [resources=licence.matlab:2] [time=60]
      [holding 1.0a running, 1.1a waiting, 1.2a ended]
    > w1 starts 1.0a · w1 returns 1.0a · w1 loses its link · w1 says bye · w1 gives cpus=1
    > w1 is draining | cleaning | available · w1 is unhealthy: why · w1 is well
    > w1 reports 1.0a exit 0 | exit 1 | signal 9 | timeout | refused: why | interrupted | cancelled   [after 2s] [errno=ENOSPC]
    > w1 reports 1.0a exceeded memory 3 | exceeded disk 9
    > w1 brings 1.0a · w1 delivers 1.0a · lfn:x is taken | free
    > w1 reports 1.0a exit 0 made=lfn:x,sftp://store/y · w1 reports 1.0a unstaged stage-out down sftp://store/y [kept] [after 2s]
    > w1 removed 1.0
    > submit 1 tasks=0-9 [cpus=1 mem=0 priority=1000 retries=0], and all that `wording.spec_of` reads
    > cancel 1.0-3 · retry 1.0-3 · retry all 1 · hold 1.0-3 · release 1 · revise 1 priority=0 cpus=2 mem=4
    > rollback 1.0-3 · rollback only 1.0-3
    > C1 cleared [for 3] [: note] · C1 not cleared [: note] · test C1 · release C1 [3] · fail C1: why · pause C1 · resume C1
    > quarantine w1: why · release worker w1 · tag w1 +gpu -old · reserve 1 queue=lab for=60s [user= where= lend=yes] · unreserve 1
    > queue lab weight=3 max_running=2 max_queued=9 user_max=1 paused=ada · drain w1 · wait 60s · the manager restarts

TERCEL_REWRITE=1 writes the stories anew, as the machine tells them now: read the difference before you keep it.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tercel.core import states
from tercel.core.accounts import Settings
from tercel.core.blocked import Condition
from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Blamed,
    Change,
    Concluded,
    ConditionSet,
    FileRegistered,
    FileRemoved,
    JobAdded,
    JobEnded,
    JobResumed,
    JobRevised,
    LeaseClosed,
    Leased,
    LeftRemoved,
    LiveJob,
    MadeUndone,
    Noted,
    QueueRemoved,
    QueueSet,
    Reopened,
    ReservationRemoved,
    ReservationSet,
    SpanConcluded,
    SwitchSet,
    TasksBlocked,
    TasksUnblocked,
    WorkerSet,
)
from tercel.core.conditions import ConditionRow, SwitchRow, Verdict
from tercel.core.effects import (
    Acknowledged,
    Drained,
    Effect,
    Ended,
    JobDone,
    Offered,
    Parked,
    Probe,
    Progressed,
    Recalled,
    Resumed,
    Revised,
    Welcomed,
)
from tercel.core.explain import why_blocked, why_paused, why_ready, why_under_way, why_waiting
from tercel.core.files import Hitch, Made, Trouble
from tercel.core.intervals import IntervalSet
from tercel.core.invariants import violations
from tercel.core.ledger import Job
from tercel.core.machine import Machine
from tercel.core.model import Lease, Needs
from tercel.core.presence import Facts, Held, WorkerState
from tercel.core.reports import End, Report
from tercel.core.selectors import parse_selector
from tercel.core.states import TaskState
from tercel.stores.contract import needed_by
from tercel.stores.memory import MemoryStore

from .wording import (
    edges_of,
    info_of,
    kept_of,
    made_of,
    needs_of,
    options_of,
    queue_of,
    range_text,
    reservation_of,
    revised,
    row_of,
    task_of,
)

ENDS = {
    "exit": End.EXITED,
    "signal": End.SIGNALLED,
    "timeout": End.TIMED_OUT,
    "exceeded": End.EXCEEDED,
    "refused": End.REFUSED,
    "interrupted": End.INTERRUPTED,
    "cancelled": End.CANCELLED,
    "unstaged": End.UNSTAGED,
}


class Stage:
    def __init__(self) -> None:
        self.now = 1000.0
        self.store = MemoryStore()
        self.machine = Machine(Settings(grace_s=60.0), self.store.load(), self.now)
        self._names: dict[int, str] = {}
        self._attempts: dict[str, int] = {}
        self._leases: dict[int, str] = {}
        self._probes: dict[str, int] = {}
        self.taken: set[str] = set()
        """Names of other files."""
        self.made: set[str] = set()
        """Names of those that were registered."""

    def play(self, event: str) -> list[str]:
        """What an event leads to, line by line."""
        self.machine.names = self
        self._happen(event)
        self.machine.tick(self.now)
        self.machine.round()
        changes, effects = self.machine.take()
        self.store.write(changes)
        self.store.commit()
        assert violations(self.machine) == []
        told = [f"+ {text}" for change in changes if (text := self._tell_change(change))]
        return told + [f"< {text}" for effect in effects if (text := self._tell_effect(effect))]

    # -- what the catalogue says (core.names.Names) -----------------------------------------------------------

    def other(self, name: str, _digest: str, /) -> str:
        return "job 9's" if name in self.taken else ""

    def has(self, name: str, /) -> bool:
        return name in self.taken or name in self.made

    def holds(self, url: str, /) -> bool:
        return url not in self.taken

    def note(self, change: Change, /) -> None:
        if isinstance(change, FileRegistered):
            self.made.add(change.file.name)

    # -- what happens -------------------------------------------------------------------------------------

    def _happen(self, event: str) -> None:
        words = event.split()
        match words:
            case ["submit", job, *options]:
                self._submit(int(job), options_of(options))
            case ["worker", name, "joins", *rest]:
                self._join(name, rest)
            case [name, "reports", attempt, *rest]:
                self._report(name, attempt, rest)
            case [name, "brings" | "delivers" as what, *attempts]:
                numbers = self._numbers(attempts)
                moving = (numbers, []) if what == "brings" else ([], numbers)
                self.machine.on_stages(name, *moving, self.now)
            case [file, "is", "taken" | "free" as how]:
                (self.taken.add if how == "taken" else self.taken.discard)(file)
                self.machine.on_name(file, self.now)
            case [_, "removed", task]:
                self.machine.on_removed(*task_of(task))
            case [name, "starts", *attempts]:
                self.machine.on_started(name, self._numbers(attempts), self.now)
            case [name, "returns", *attempts]:
                self.machine.on_returned(name, self._numbers(attempts))
            case [name, "loses", "its", "link"]:
                self.machine.on_link_closed(name, self.now)
            case [name, "says", "bye"]:
                self.machine.on_bye(name, self.now)
            case [name, "gives", *options]:
                self.machine.on_presence(name, WorkerState.AVAILABLE, needs_of(options_of(options)), self.now)
            case [name, "is", "draining" | "cleaning" | "busy" | "available" as state]:
                capacity = self.machine.workers[name].info.capacity
                if state == "cleaning":
                    capacity = Needs(0, 0)
                self.machine.on_presence(name, WorkerState(state), capacity, self.now)
            case [name, "is", "unhealthy:", *why]:
                worker = self.machine.workers[name]
                facts = Facts(unhealthy=" ".join(why))
                self.machine.on_presence(name, worker.reported_state, worker.capacity, self.now, facts)
            case [name, "is", "well"]:
                worker = self.machine.workers[name]
                self.machine.on_presence(name, worker.reported_state, worker.capacity, self.now, Facts())
            case ["drain", name]:
                self.machine.on_drain(name, self.now)
            case ["cancel", selector]:
                job, tasks = self._select(selector)
                self.machine.on_cancel(job, tasks, "cancelled by ada", self.now)
            case ["retry", "all", selector]:
                self._retry(selector, finished_too=True)
            case ["retry", selector]:
                self._retry(selector)
            case ["rollback", selector]:
                self._roll_back(selector)
            case ["rollback", "only", selector]:
                self._roll_back(selector, only=True)
            case ["hold", selector]:
                self.machine.on_hold(*self._select(selector))
            case ["release", selector]:
                self.machine.on_release(*self._select(selector), self.now)
            case ["revise", id, *options]:
                job = self.machine.jobs[int(id)]
                self.machine.revise(job, revised(job.row.spec, options_of(options)))
            case ["queue", name, *options]:
                self.machine.on_queue_set(queue_of(name, options_of(options)))
            case ["remove", "queue", name]:
                self.machine.on_queue_removed(name)
            case [id, "cleared" | "not" as how, *rest] if id[0] == "C":
                self._answer(id, how == "cleared", rest)
            case ["test", id]:
                self.machine.on_test_now(self._condition(id), self.now)
            case ["release", id, *count] if id[0] == "C":
                self.machine.on_release_condition(
                    self._condition(id), int((count or ["0"])[0]), "ada", self.now
                )
            case ["fail", id, *why]:
                self.machine.on_fail_condition(self._condition(id), " ".join(why), self.now)
            case ["pause", id]:
                self.machine.on_pause_condition(self._condition(id), "paused by ada", self.now)
            case ["resume", id]:
                self.machine.on_resume_condition(self._condition(id), self.now)
            case ["switch", name, "off" | "on" as how]:
                off = "by ada" if how == "off" else ""
                self.machine.on_switch(SwitchRow(name=name, off=off, since=self.now))
            case ["quarantine", name, *why]:
                self.machine.on_quarantine(name.rstrip(":"), "ada", " ".join(why), self.now)
            case ["release", "worker", name]:
                self.machine.on_end_quarantine(name, self.now)
            case ["tag", name, *tags]:
                added, removed = ([tag[1:] for tag in tags if tag[0] == sign] for sign in "+-")
                self.machine.on_tag(name, added, removed, self.now)
            case ["reserve", id, *options]:
                self.machine.on_reserve(reservation_of(int(id), options_of(options), self.now), self.now)
            case ["unreserve", id]:
                self.machine.on_unreserve(int(id), self.now)
            case ["wait", seconds]:
                self.now += float(seconds.removesuffix("s"))
            case ["the", "manager", "restarts"]:
                self.store.crash()
                self.machine = Machine(Settings(grace_s=60.0), self.store.load(), self.now)
            case _:
                raise AssertionError(f"no such event: {event}")

    def _condition(self, id: str) -> Condition:
        return self.machine.conditions[int(id.strip("C:"))]

    def _answer(self, id: str, cleared: bool, rest: list[str]) -> None:
        """The probe under way is answered: `[for 3] [: what it saw]`."""
        room = int(rest[1].rstrip(":")) if rest[:1] == ["for"] else 0
        note = " ".join(rest).partition(": ")[2]
        number = self._probes.pop(id)
        self.machine.on_tested(number, Verdict(cleared, room, note), self.now)

    def _submit(self, id: int, options: dict[str, str]) -> None:
        row, edges = row_of(id, options, self.now), edges_of(id, options)
        self.store.write([JobAdded(row, edges=edges)])
        self.store.commit()
        with self._known(needed_by(LiveJob(row, [], [], [], {}, edges=list(edges)))):
            self.machine.on_accepted(row, edges, self.now)

    @contextmanager
    def _known(self, needed: Iterable[int]) -> Iterator[None]:
        """The machine knows these jobs meanwhile, also if they have ended."""
        pinned = sorted(set(needed))
        for id in pinned:
            self.machine.pin(id)
            if (live := self.store.live(id)) is not None:
                self.machine.remember(live)
        yield
        for id in pinned:
            self.machine.unpin(id)

    def _retry(self, selector: str, finished_too: bool = False) -> None:
        chosen = parse_selector(selector)
        with self._reopened(chosen.first) as job:
            tasks = IntervalSet(job.row.ranges if chosen.tasks is None else chosen.tasks)
            self.machine.on_retry(job, tasks, self.now, finished_too)
        todo, seen = deque([chosen.first]), {chosen.first}
        while todo:  # as the manager's requests.py does
            for id in self.store.dependents(todo.popleft()):
                more = 0
                if id not in self.machine.jobs:
                    with self._reopened(id) as job:
                        more = self.machine.on_retry(job, job.skipped.copy(), self.now)
                if more or id not in seen:
                    seen.add(id)
                    todo.append(id)

    def _roll_back(self, selector: str, only: bool = False) -> None:
        """If nothing is in the way."""
        chosen = parse_selector(selector)
        behind, todo = {chosen.first}, [chosen.first]
        while todo:  # as the manager's rollback.py does
            fresh = [id for id in self.store.dependents(todo.pop()) if id not in behind]
            behind.update(fresh)
            todo += fresh
        lives = [live for id in behind if (live := self.store.live(id)) is not None]
        with self._known(behind | {needed for live in lives for needed in needed_by(live)}):
            job = self.machine.find(chosen.first)
            assert job is not None
            tasks = IntervalSet(job.row.ranges if chosen.tasks is None else chosen.tasks)
            plan = self.machine.plan_rollback({job.id: tasks}, behind, only=only)
            if not plan.in_the_way:
                self.machine.on_rollback(plan, behind, "by ada", self.now)

    @contextmanager
    def _reopened(self, id: int) -> Iterator[Job]:
        if (job := self.machine.jobs.get(id)) is not None:
            yield job
            return
        live = self.store.live(id)
        assert live is not None
        with self._known(needed_by(live)):
            yield self.machine.restore(live)

    def _join(self, name: str, rest: list[str]) -> None:
        at = rest.index("holding") if "holding" in rest else len(rest)
        options = options_of(rest[:at])
        held = []
        for part in " ".join(rest[at + 1 :]).split(","):
            if part.strip():
                attempt, how = part.split()
                job, task = task_of(attempt)
                number = self._attempts[attempt]
                held.append(
                    Held(job, task, number, how != "waiting", ended=how == "ended", parked=how == "parked")
                )
        info = info_of(name, options)
        self.machine.on_hello(name, f"pid {options.get('pid', '1')}", info, held, self.now)

    def _report(self, name: str, attempt: str, rest: list[str]) -> None:
        wall_s, errno = 2.0, ""
        files: tuple[Made, ...] = ()
        if rest[-1].startswith("made="):
            files = tuple(made_of(name) for name in rest.pop().removeprefix("made=").split(","))
        if rest[-1].startswith("errno="):
            errno = rest.pop().removeprefix("errno=")
        if rest[-2:-1] == ["after"]:
            wall_s = float(rest[-1].removesuffix("s"))
            rest = rest[:-2]
        named = attempt
        if rest[0] == "as":  # an attempt under another task's name
            named, rest = rest[1], rest[2:]
        how = rest[0].rstrip(":")
        code = int(rest[1]) if how in ("exit", "signal") else 0
        job, task = task_of(named)
        number = self._attempts.get(attempt, 999 << 32)
        note = " ".join(rest[1:]) if how in ("refused", "interrupted") else ""
        what, used = (rest[1], int(rest[2])) if how == "exceeded" else ("", 0)
        note = f"used {used}" if what else note
        hitch = None
        if how == "unstaged":
            where, trouble, url, *kept = rest[1:]
            why = f"{url} is {trouble}"
            hitch = Hitch(states.Stage(where), Trouble(trouble), url, why, kept=bool(kept))
        times = (self.now - wall_s, wall_s, 0.0)
        report = Report(
            *(job, task, number, ENDS[how], code, *times, used, note),
            exceeded=what,
            errno=errno,
            files=files,
            hitch=hitch,
        )
        self.machine.on_reports(name, [report], self.now)

    def _numbers(self, attempts: Iterable[str]) -> list[int]:
        return [self._attempts.get(attempt, 999 << 32) for attempt in attempts]

    def _select(self, selector: str) -> tuple[Job, IntervalSet]:
        chosen = parse_selector(selector)
        job = self.machine.jobs[chosen.first]
        return job, IntervalSet(job.row.ranges if chosen.tasks is None else chosen.tasks)

    # -- what is told -------------------------------------------------------------------------------------

    def _tell_change(self, change: Change) -> str:
        match change:
            case Leased(lease):
                self._leases[lease.id] = f"{lease.worker} {self._attempts_of(lease)}"
                return f"leased {self._leases[lease.id]}"
            case LeaseClosed(id):
                return f"lease closed {self._leases[id]}"
            case Concluded(outcome):
                return f"{self._names[outcome.report.attempt]} {outcome.state} on {outcome.worker}"
            case AttemptSpent(outcome):
                return f"{self._names[outcome.report.attempt]} failed on {outcome.worker} and is tried again"
            case AttemptLost(outcome) if outcome.state is TaskState.BLOCKED:
                return f"{self._names[outcome.report.attempt]} blocked on {outcome.worker}"
            case AttemptLost(outcome):
                return (
                    f"{self._names[outcome.report.attempt]} lost on {outcome.worker}: {outcome.report.note}"
                )
            case JobRevised(job, spec, held, postponed):
                ranges = ",".join(range_text(first, last) for first, last in held)
                asks = f"priority {spec.priority}, {spec.cpus:g} cpus, {spec.mem_bytes} mem"
                told = f"job {job} revised: {asks}" + (f"; {ranges} held" if held else "")
                for fault, blocked in ((one.fault, one.ranges) for one in postponed):
                    told += f", {','.join(range_text(*one) for one in blocked)} blocked on {fault.tester}"
                    told += _where(fault.stage)
                return told
            case QueueSet(queue):
                return f"queue {queue.name} set"
            case QueueRemoved(name):
                return f"queue {name} removed"
            case Blamed(job, attempts, blame):
                return f"{' '.join(self._names[attempt] for _, attempt in attempts)} booked to the {blame}"
            case WorkerSet(row):
                return f"worker {row.name} kept: {kept_of(row) or 'nothing'}"
            case ReservationSet(reservation):
                return f"reservation {reservation.id} {'made' if reservation.until else 'is over'}"
            case ReservationRemoved(id):
                return f"reservation {id} is over"
            case SpanConcluded(job, first, last, state, _, reason):
                return f"{job}.{range_text(first, last)} {state}: {reason}"
            case ConditionSet(row):
                return self._tell_condition(row)
            case TasksBlocked(job, ranges, condition, _, stage):
                return f"{job}.{self._ranges(ranges)} waits for C{condition}{_where(stage)}"
            case TasksUnblocked(job, ranges):
                return f"{job}.{self._ranges(ranges)} waits for no condition"
            case SwitchSet(switch):
                return f"switch {switch.name} {'off' if switch.off else 'on'}"
            case FileRegistered(file, urls):
                return f"file {file.name} by {self._names[file.attempt]} at {' '.join(urls)}"
            case FileRemoved(name):
                return f"file {name} removed"
            case MadeUndone(job, ranges):
                return f"what {job}.{self._ranges(ranges)} made is undone"
            case LeftRemoved(job, task):
                return f"nothing is left of {job}.{task}"
            case Noted():
                return ""
            case Reopened(job, ranges):
                return f"{job}.{','.join(range_text(first, last) for first, last in ranges)} reopened"
            case JobEnded(job, _, finished, failed, cancelled):
                return f"job {job} ended: {finished} finished, {failed} failed, {cancelled} cancelled"
            case JobResumed(job):
                return f"job {job} resumed"
        raise AssertionError(change)

    def _tell_effect(self, effect: Effect) -> str:
        match effect:
            case Welcomed(worker, drop):
                return f"welcome {worker}" + (f", drop {self._tell(drop)}" if drop else "")
            case Offered(leases):
                return f"offer {leases[0].worker} {' '.join(map(self._attempts_of, leases))}"
            case Acknowledged(worker, attempts):
                return f"ack {worker} {self._tell(attempts)}"
            case Parked(worker, attempts):
                return f"park at {worker} {self._tell(attempts)}"
            case Resumed(worker, attempts):
                return f"go on at {worker} {self._tell(attempts)}"
            case Recalled(worker, attempts):
                return f"take back from {worker} {self._tell(attempts)}"
            case Ended(worker, attempts):
                return f"end at {worker} {self._tell(attempts)}"
            case Drained(worker):
                return f"drain {worker}"
            case Probe(number, row, worker):
                self._probes[f"C{row.id}"] = number
                return f"probe C{row.id} by {worker or 'the manager'}: {row.tester}"
            case JobDone(job):
                return f"done {job}"
            case Progressed() | Revised():
                return ""
        raise AssertionError(effect)

    def _tell_condition(self, row: ConditionRow) -> str:
        if row.closed_at is not None:
            return f"C{row.id} closed: {row.closed}"
        due = f"next test in {row.next_test_at - self.now:g} s" if not row.paused else row.paused
        return f"C{row.id} {row.tester}: {row.tests} tests, {due}, next wave {row.wave}"

    @staticmethod
    def _ranges(ranges: Iterable[tuple[int, int]]) -> str:
        return ",".join(range_text(first, last) for first, last in ranges)

    def _attempts_of(self, lease: Lease) -> str:
        for at, task in enumerate(range(lease.first, lease.last + 1)):
            if lease.id + at not in self._names:
                letters = sum(1 for name in self._attempts if task_of(name) == (lease.job, task))
                name = f"{lease.job}.{task}{'abcdefghijklmnopqrstuvwxyz'[letters]}"
                self._names[lease.id + at] = name
                self._attempts[name] = lease.id + at
        return self._tell(range(lease.id, lease.id + lease.last - lease.first + 1))

    def _tell(self, attempts: Iterable[int]) -> str:
        return " ".join(self._names.get(attempt, "(unknown)") for attempt in attempts)

    # -- what is asked ------------------------------------------------------------------------------------

    def explain(self, task: str) -> str:
        id, number = task_of(task)
        job = self.machine.jobs[id]
        flight = job.flights.get(number)
        if flight is not None:
            return why_under_way(flight, self.now)
        match job.state_of(number):
            case TaskState.WAITING:
                return why_waiting(self.machine, job, number, self.now)
            case TaskState.PAUSED:
                return why_paused(job)
            case TaskState.BLOCKED:
                (condition,) = (one for one, tasks in job.blocks.items() if number in tasks)
                return why_blocked(condition, self.now)
            case TaskState.READY:
                return why_ready(self.machine, job, self.now)
        return f"has ended: {job.state_of(number)}"

    def state(self, what: str) -> str:
        if re.fullmatch(r"\d+\.\d+", what):
            id, number = task_of(what)
            job = self.machine.jobs.get(id)
            if job is not None:
                return str(job.state_of(number))
            (outcome,) = self.store.outcomes(id, ranges=[(number, number)], limit=2)
            return str(outcome.state)
        worker = self.machine.workers[what]
        quarantined = f", quarantined: {worker.row.quarantined}" if worker.row.quarantined else ""
        probing = ", may be tried" if worker.conduct.probing else ""
        reserved = f", reserved by {worker.reservation.id}" if worker.reservation else ""
        note = f", {worker.note}" if worker.note else ""
        return f"{worker.state}{quarantined}{probing}{reserved}{note}"


def _where(stage: states.Stage) -> str:
    """In which stage tasks met their fault, if not in the usual one."""
    return "" if stage is states.Stage.RUN else f" ({stage})"


def rewritten(path: Path) -> str:
    """The story as the machine tells it."""
    stage = Stage()
    told: list[str] = []
    for line in path.read_text().splitlines():
        match line[:1]:
            case ">":
                told.append(line)
                told += stage.play(line[1:].strip())
            case "?":
                told += [line, f"    {stage.explain(line[1:].strip())}"]
            case "=":
                what = line[1:].split()[0]
                told.append(f"= {what} {stage.state(what)}")
            case "+" | "<" | " ":
                continue
            case _:
                told.append(line)
    return "\n".join(told) + "\n"
