"""Files that tasks left: delivered before their reports come, registered with the outcome, parked if that cannot be.

    report with files --> names are free --> registered, in the same commit as the outcome
                      \\--> one is another file's: the attempt is parked, its task blocked, until that name is free
    report of a hitch --> something outside: blocked; what has run already is parked at its worker
                      \\--> anything else: the task's own failure

A parked attempt is a stray whose worker keeps what it left. When its task goes on, so does it, where it is.
"""

import msgspec

from tercel.core.accounts import Settings
from tercel.core.adopting import Adopting
from tercel.core.changes import AttemptLost, FileRegistered, FileRemoved, LeftRemoved, Loaded, Noted
from tercel.core.conditions import Fault
from tercel.core.faults import fault_of_hitch
from tercel.core.files import FileRow, Hitch, Trouble, is_name
from tercel.core.flights import Flight
from tercel.core.ledger import Job
from tercel.core.reports import Blame, Outcome, Report
from tercel.core.states import Stage, TaskEvent, TaskState
from tercel.core.workers import Worker

PARKED_MOST = 100
"""Of a job: with so many that have run and cannot deliver what they left, no more are begun."""


class Registering(Adopting):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self._parked: list[int] = []
        """Attempts of the reports at hand that are to be kept where they came from."""

    def on_removed(self, id: int, task: int) -> None:
        """Nothing that earlier attempts of a task had delivered is left where it was."""
        job = self.jobs.get(id)
        if job is not None and task in job.left:
            job.left.discard(task)
            self.changes.append(LeftRemoved(id, task))

    def _unregistrable(self, report: Report, event: TaskEvent) -> Hitch | None:
        """Why what it left cannot be registered, if its end is one that counts."""
        if event is TaskEvent.TRY_AGAIN:
            return None
        for made in report.files:
            if not self.names.holds(made.url):
                note = f"{made.path} was kept here, and is not any more: it is delivered again"
                return Hitch(Stage.REGISTER, Trouble.MISSING, made.url, note, kept=True)
            if made.name and (other := self.names.other(made.name, made.digest)):
                note = f"{made.name} is another file already: {other}"
                return Hitch(Stage.REGISTER, Trouble.REFUSED, made.name, note, kept=True)
        return None

    def _register(self, job: Job, report: Report, now: float) -> None:
        for made in report.files:
            name = made.name or made.url
            file = FileRow(
                name=name,
                size_bytes=made.size_bytes,
                digest=made.digest,
                owner=job.row.owner,
                made_at=now,
                job=job.id,
                task=report.task,
                attempt=report.attempt,
            )
            if not is_name(name):
                self._change_files(FileRemoved(name))  # what was there is overwritten
            self._change_files(FileRegistered(file, (made.url,)))
            self.on_name(name, now)

    def _take_hitched(self, worker: Worker, flight: Flight, report: Report, hitch: Hitch, now: float) -> bool:
        """Whether something outside keeps its data from being moved or registered: then its task waits for that.

        If it is not its task any more, that is no news, and nothing of it need be kept.
        """
        job, task = flight.job, flight.task
        fault = fault_of_hitch(hitch, worker.id, worker.info)
        if fault is None:
            return False
        if hitch.stage is not Stage.STAGE_IN:
            told = msgspec.structs.replace(report, note=f"{hitch.note}; blocked on {fault.tester}", files=())
            self.changes.append(AttemptLost(Outcome(TaskState.BLOCKED, worker.id, now, told, Blame.OUTSIDE)))
        if job.flights.get(task) is not flight:
            self._take_stray(worker, flight, hitch)
            return True
        job.due += self.worth_of(flight, report.wall_s)
        self._outdo_strays(job, task)
        if hitch.kept:
            self._park(flight, hitch)
        else:
            self._land(flight, again=True)
        job.rest(task)
        self._await(job, task, fault, report.wall_s, now)
        if hitch.kept and len(job.stages.get(Stage.STAGE_OUT, ())) >= PARKED_MOST:
            self._start_no_more(job, fault, now)
        return True

    def _start_no_more(self, job: Job, fault: Fault, now: float) -> None:
        """What its tasks leave cannot be delivered, and fills their workers' disks: the rest waits for the same, untried."""
        if job.ready:
            why = f"{PARKED_MOST:,} tasks of the job wait with what they left already"
            fault = msgspec.structs.replace(fault, stage=Stage.ADMISSION, context=(why,))
            self._block_all(job, job.ready.copy(), fault, now)

    def _take_stray(self, worker: Worker, flight: Flight, hitch: Hitch) -> None:
        """Its hitch is no news. What it left is kept as long as nobody does the same anew."""
        flight.worker = worker  # it may have been forgotten, and be known anew
        if hitch.kept and flight.task not in flight.job.flights:
            flight.parked = True
            if hitch.stage is Stage.REGISTER:
                self._parked.append(flight.attempt)
            return
        if hitch.kept:
            self._end_later(flight)
        self._forget_stray(flight)
        self._close(flight, again=True)

    def _park(self, flight: Flight, hitch: Hitch) -> None:
        """Its worker keeps what it left. It is off its worker already."""
        del flight.job.flights[flight.task]
        self._stray(flight, release=False)
        flight.parked = True
        if hitch.stage is Stage.REGISTER:  # whoever has a report to keep must be told
            self._parked.append(flight.attempt)

    def _await(self, job: Job, task: int, fault: Fault, wall_s: float, now: float) -> None:
        told = f"{fault.stage}: {'; '.join(fault.context)}; blocked on {fault.tester}"
        self.changes.append(Noted(job.id, ((task, task),), now, "blocked", told))
        if task in job.ready:
            self._meet_fault(job, task, fault, wall_s, now)
        else:
            self._postpone_one(job, task, fault)
