"""Every fault is booked, and workers that are at fault are found, by `blame`.

    a worker fails what others run, or loses its tasks
        --> it is quarantined, with the evidence; what failed there is given back: reopened, its retries unspent
    it succeeds when it is tried
        --> it is released
    the same fails elsewhere as well, after all
        --> it is released: it was not its fault

A task is given back FORGIVEN_MOST times at most: then it fails, wherever it ran.
"""

from collections.abc import Iterable

import msgspec

from tercel.core.accounts import Settings
from tercel.core.blame import (
    FEWEST,
    Evidence,
    Run,
    blame_of_interruption,
    fails_what_others_run,
    loses_tasks,
    rate_elsewhere,
)
from tercel.core.changes import AttemptLost, Blamed, Loaded
from tercel.core.flights import Flight
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.presence import WorkerState
from tercel.core.reports import Blame, Outcome, Report
from tercel.core.standing import PROBES, Standing
from tercel.core.states import TaskState
from tercel.core.workers import Worker

FORGIVEN_MOST = 3
HOPELESS = 0.5
"""A job that fails so often elsewhere says nothing about who fails it."""


class Suspicion(msgspec.Struct):
    """What must be known of a worker in quarantine to see that it was not its fault."""

    rate: float
    """Of its tasks, so many failed there."""
    before: dict[int, tuple[int, int]]
    """By job: how many tasks had been tried and had failed elsewhere by then."""
    again: set[tuple[int, int]]
    """(job, task): what was given back and has not ended elsewhere."""
    finished: int = 0
    failed: int = 0
    """How those ended that have."""


class Booking(Standing):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self._suspicions: dict[str, Suspicion] = {}
        """Of workers in quarantine for what failed there."""

    # -- what happens at a worker -------------------------------------------------------------------------

    def _book_successes(self, worker: Worker, job: Job, tasks: list[int], now: float) -> None:
        """Of these tasks, which have ended, those that finished."""
        conduct = worker.conduct
        if conduct.accused:
            tasks = [task for task in tasks if task in job.finished]
        conduct.succeeded(worker.id, job, len(tasks))
        for suspicion in self._suspicions.values():
            for task in tasks:
                if (job.id, task) in suspicion.again:
                    suspicion.again.discard((job.id, task))
                    suspicion.finished += 1
        if conduct.probing:
            conduct.passed += len(tasks)
            if conduct.passed >= PROBES:
                self._clear(worker, "was quarantined, and has run tasks without fault since", now)

    def _book_failure(self, worker: Worker, flight: Flight, now: float) -> None:
        """Of a task, as far as is known."""
        worker.conduct.failed(worker.id, flight.job, flight.lease, flight.task, flight.attempt)
        for id, suspicion in list(self._suspicions.items()):
            if id != worker.id and self._was_innocent(suspicion, flight.job, flight.task):
                suspect = self.workers.get(id)
                if suspect is None:
                    self.on_end_quarantine(id, now)
                else:
                    self._clear(suspect, "was quarantined for what fails on other workers as well", now)

    def _book_interruption(self, worker: Worker, job: Job, report: Report, now: float) -> None:
        """It ended an attempt for reasons of its own: unless it is about to leave, that is a fault of it or its node."""
        if worker.draining or blame_of_interruption(report) is Blame.OUTSIDE:
            return
        worker.conduct.interrupted("interrupted")
        self._probe_failed(worker, job, now)
        self._avoid(job, worker, report.note, now)

    def _book_loss(self, worker: Worker, now: float) -> None:
        """It went away with tasks that ran, however many. If it was cleaning up, it did so on purpose."""
        if worker.reported_state is WorkerState.CLEANING:
            return
        worker.conduct.interrupted("lost")
        jobs = {flight.job for flight in worker.flights.values()}
        for job in jobs:
            self._probe_failed(worker, job, now)
        self._suspect(worker, jobs, now)

    # -- what it means ------------------------------------------------------------------------------------

    def _suspect(self, worker: Worker, jobs: Iterable[Job], now: float) -> dict[int, IntervalSet]:
        """Quarantine it if there is evidence enough, and others for these jobs and those that it failed.

        Returns the tasks that run again because of that, by job.
        """
        conduct = worker.conduct
        if worker.row.quarantined:
            return {}
        evidence = fails_what_others_run(worker.id, conduct) or loses_tasks(
            conduct, (other.conduct for other in self.workers.values())
        )
        if evidence is None:
            return {}
        concerned = {job.id: job for job in (*jobs, *self._accusers(evidence)) if job.id in self.jobs}
        alone = [job.id for job in concerned.values() if not self._another_for(job, worker)]
        if alone:
            worker.note = f"{evidence.text}; not quarantined, for no other worker could run job {min(alone)}"
            return {}
        if self._is_fit_for_others(worker, evidence):
            self._part(worker, evidence)
        else:
            self._quarantine(worker, evidence.text, now)
            if evidence.runs:
                self._suspicions[worker.id] = _suspicion(evidence)
        return self._give_back(evidence.runs, now)

    def _accusers(self, evidence: Evidence) -> list[Job]:
        """The jobs that a worker failed, as far as they have not ended."""
        found = {run.record: self.jobs.get(run.record.job) for run in evidence.runs}
        return [job for record, job in found.items() if job is not None and job.record is record]

    def _is_fit_for_others(self, worker: Worker, evidence: Evidence) -> bool:
        """Whether it ran other jobs well while it failed these."""
        failed = {run.record for run in evidence.runs}
        ends = list(worker.conduct.window)
        first = next((at for at, (record, _) in enumerate(ends) if record in failed), len(ends))
        return sum(run is None and record not in failed for record, run in ends[first:]) >= FEWEST

    def _part(self, worker: Worker, evidence: Evidence) -> None:
        """It is good for all but these jobs."""
        for job in self._accusers(evidence):
            self._refuse(job, worker, f"it {evidence.text}")
        failed = {run.record for run in evidence.runs}
        others = [end for end in worker.conduct.window if end[0] not in failed]
        worker.conduct.window.clear()
        worker.conduct.window.extend(others)

    def _was_innocent(self, suspicion: Suspicion, job: Job, task: int) -> bool:
        """Now that a task of a job failed elsewhere."""
        if (job.id, task) in suspicion.again:
            suspicion.again.discard((job.id, task))
            suspicion.failed += 1
        if suspicion.failed >= 2 and suspicion.failed > suspicion.finished:
            return True
        if job.id not in suspicion.before or job.record is None:
            return False
        tries, faults = suspicion.before[job.id]
        more_tries, more_faults = job.record.all_tries - tries, job.record.all_faults - faults
        return more_faults >= FEWEST and more_faults >= suspicion.rate / 2 * more_tries

    def _clear(self, worker: Worker, why: str, now: float) -> None:
        self.on_end_quarantine(worker.id, now)
        worker.note = why

    def on_end_quarantine(self, id: str, now: float) -> None:
        self._suspicions.pop(id, None)
        super().on_end_quarantine(id, now)

    # -- what failed there --------------------------------------------------------------------------------

    def _give_back(self, runs: tuple[Run, ...], now: float) -> dict[int, IntervalSet]:
        """What a worker failed and was not at fault for, of jobs that have not ended, is as if it had not been tried."""
        by_job: dict[Job, list[tuple[int, int]]] = {}
        for run in runs:
            job = self.jobs.get(run.record.job)
            if job is not None and job.record is run.record:
                by_job.setdefault(job, []).extend(run.members)
        reopened = {}
        for job, members in by_job.items():
            again = IntervalSet()
            blamed = []
            for task, attempt in members:
                if task not in job.failed and task not in job.failures:
                    continue  # it has ended otherwise since, or was given back
                if not self._forgive(job, task):
                    continue
                blamed.append((task, attempt))
                if task in job.failed:
                    again.add(task)
                else:
                    _unspend(job, task)
            if again:
                self._reopen(job, again)
                reopened[job.id] = again
            if blamed:
                self.changes.append(Blamed(job.id, tuple(blamed), Blame.WORKER))
            if again:
                self._wait_again(job, again, now)
                self._revive_behind(job, again, now)
        return reopened

    def _forgive(self, job: Job, task: int) -> bool:
        times = job.forgiven.get(task, 0)
        if times >= FORGIVEN_MOST:
            return False
        job.forgiven[task] = times + 1
        return True

    def _is_workers_fault(self, worker: Worker, flight: Flight, report: Report, now: float) -> bool:
        """Whether a failure is booked to a worker that is in quarantine for its faults. Its task is given back then."""
        row, job, task = worker.row, flight.job, flight.task
        if not row.quarantined or not row.pause_s:
            return False
        rate = rate_elsewhere(job.record, worker.id)
        if (rate is not None and rate >= HOPELESS) or not self._forgive(job, task):
            return False
        worker.conduct.fault("failed")
        if rate is not None:  # else it may be the job's way: this says nothing
            self._probe_failed(worker, job, now)
        self._avoid(job, worker, report.note or "it failed there", now)
        self.changes.append(AttemptLost(Outcome(TaskState.FAILED, worker.id, now, report, Blame.WORKER)))
        return True

    def _probe_failed(self, worker: Worker, job: Job, now: float) -> None:
        if not worker.conduct.probing:
            return
        if self._another_for(job, worker):
            self._renew_quarantine(worker, now)
        else:
            self._clear(worker, f"was quarantined, but no other worker could run job {job.id}", now)

    def _spare_the_last(self, now: float) -> None:
        """Nobody else is left: better one that is not to be trusted than none."""
        if not self.rows or any(
            worker.takes_more for worker in self.workers.values() if not worker.row.quarantined
        ):
            return
        for worker in self.workers.values():
            if worker.online and worker.row.pause_s:
                self._clear(worker, "was quarantined, but no other worker is left", now)


def _suspicion(evidence: Evidence) -> Suspicion:
    records = {run.record for run in evidence.runs}
    before = {record.job: (record.all_tries, record.all_faults) for record in records}
    again = {(run.record.job, task) for run in evidence.runs for task, _ in run.members}
    return Suspicion(evidence.rate, before, again)


def _unspend(job: Job, task: int) -> None:
    """One of its retries."""
    job.failures[task] -= 1
    if not job.failures[task]:
        del job.failures[task]
