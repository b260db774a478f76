"""The simulation is worth something only if it notices: each way of breaking Tercel here must be caught.

Every mutant is a bug that somebody could write (some were). A mutant that survives means that a check is missing.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest

from tercel.core.changes import MadeUndone, TasksUnblocked
from tercel.core.effects import Acknowledged, Ended, Welcomed
from tercel.core.flights import Flight, LeaseBook
from tercel.core.graph import Need
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.machine import Machine
from tercel.core.model import Lease
from tercel.core.policies import Policy
from tercel.core.presence import Held
from tercel.core.reports import End, Report
from tercel.core.shares import Queue
from tercel.core.states import Stage, TaskEvent
from tercel.core.waiting import _Skips
from tercel.core.workers import Worker
from tercel.wire.session import FrameOrder
from tercel.worker.agent import Agent

from .files import SimFiles
from .manager import SimManager
from .network import Link
from .witness import Violation
from .world import simulate

SEEDS_MOST = 600

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}
FIRST: dict[str, int] = {}
"""The first seed to try, of those for which the right day is rare."""


def mutant(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTANTS[break_it.__name__] = break_it
    return break_it


def rare(first: int) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def noted(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
        FIRST[break_it.__name__] = first
        return mutant(break_it)

    return noted


# -- commit, then act --------------------------------------------------------------------------------------


@mutant
def reports_are_acknowledged_before_their_commit(patch: Patch) -> None:
    take = Machine.take

    def hasty(self: Machine) -> Any:
        changes, effects = take(self)
        service = service_of[id(self)]
        for effect in effects:
            link = service._link_of(effect)
            if isinstance(effect, Acknowledged) and link is not None and link.welcomed:
                link.send_down(service._messages(effect, link))
        return changes, [effect for effect in effects if not isinstance(effect, Acknowledged)]

    service_of: dict[int, SimManager] = {}
    step = SimManager._step

    def remember(self: SimManager) -> None:
        service_of[id(self.machine)] = self
        step(self)

    patch.setattr(SimManager, "_step", remember)
    patch.setattr(Machine, "take", hasty)


@mutant
def offers_are_sent_before_their_commit(patch: Patch) -> None:
    step = SimManager._step

    def hasty(self: SimManager) -> None:
        perform, self._perform = self._perform, lambda: None  # type: ignore[method-assign]
        step(self)
        self._perform = perform  # type: ignore[method-assign]
        if self.alive:
            perform()

    patch.setattr(SimManager, "_step", hasty)


@mutant
def what_is_due_to_a_dead_link_is_sent_on_the_next(patch: Patch) -> None:
    link_of = SimManager._link_of

    def careless(self: SimManager, effect: Any) -> Link | None:
        link = link_of(self, effect)
        if link is not None and not isinstance(effect, Welcomed):
            link.welcomed = True
        return link

    patch.setattr(SimManager, "_link_of", careless)


@rare(185)
def what_is_due_to_a_dead_link_is_sent_after_the_welcome_of_another(patch: Patch) -> None:
    link_of = SimManager._link_of

    def careless(self: SimManager, effect: Any) -> Link | None:
        link = link_of(self, effect)
        if link is not None and isinstance(effect, Welcomed):
            link.welcomed = True
        return link

    patch.setattr(SimManager, "_link_of", careless)


@mutant
def an_offer_that_was_never_sent_stays_booked(patch: Patch) -> None:
    patch.setattr(Agent, "unknown", lambda *_: [])


@rare(255)
def a_retry_reads_the_store_before_the_last_results_are_in_it(patch: Patch) -> None:
    def hasty(self: SimManager, id: int, tasks: IntervalSet) -> None:
        job = self.machine.jobs.get(id) or self._reopen(id)
        if job is not None:
            self.world.witness.retry_asked |= {(id, task) for task in tasks}
            self.machine.on_retry(job, tasks, self.world.now)
            self.moved()

    patch.setattr(SimManager, "retry", hasty)


# -- one result per task -----------------------------------------------------------------------------------


@mutant
def late_reports_are_not_fenced(patch: Patch) -> None:
    claim = Machine._claim

    def gullible(self: Machine, worker: Worker, job: Job | None, report: Report) -> Flight | None:
        flight = claim(self, worker, job, report)
        if flight is None and job is not None and job.state_of(report.task) is not None:
            book = LeaseBook(Lease(report.attempt, worker.id, job.id, report.task, report.task), job.needs)
            flight = Flight(job, report.task, report.attempt, worker, book)
            job.strays.setdefault(report.task, []).append(flight)
            self._strays[report.attempt] = flight
        return flight

    patch.setattr(Machine, "_claim", gullible)


@mutant
def late_reports_are_thrown_away(patch: Patch) -> None:
    patch.setattr(Machine, "_find_stray", lambda *_: None)


@rare(210)
def settled_attempts_stay_in_their_lease(patch: Patch) -> None:
    close = Machine._close
    patch.setattr(Machine, "_close", lambda self, flight, again: close(self, flight, False))


@mutant
def leases_are_forgotten_at_a_restart(patch: Patch) -> None:
    patch.setattr(Machine, "_restore_lease", lambda *_: None)


@mutant
def attempt_ids_begin_anew_at_a_restart(patch: Patch) -> None:
    init = Machine.__init__

    def amnesic(self: Machine, settings: Any, loaded: Any, now: float) -> None:
        init(self, settings, loaded, now)
        self._next_attempt = 1 << 32

    patch.setattr(Machine, "__init__", amnesic)


@mutant
def finished_tasks_are_ready_again_after_a_restart(patch: Patch) -> None:
    restore = Job.restore
    patch.setattr(Job, "restore", lambda self, _, *others: restore(self, [], *others))


@mutant
def ended_tasks_of_a_lost_worker_are_queued_again(patch: Patch) -> None:
    lose = Machine._lose

    def careless(self: Machine, worker: Worker, now: float) -> None:
        for flight in worker.flights.values():
            if flight.ending and flight.task not in flight.job.flights and flight.job.id in self.jobs:
                flight.job.ready.add(flight.task)
        lose(self, worker, now)

    patch.setattr(Machine, "_lose", careless)


@mutant
def a_task_with_a_report_on_its_way_is_given_away(patch: Patch) -> None:
    still_wanted = Machine._still_wanted

    def hasty(self: Machine, worker: Worker, held: Held, now: float) -> bool:
        return True if held.ended else still_wanted(self, worker, held, now)

    patch.setattr(Machine, "_still_wanted", hasty)


@mutant
def the_grace_time_is_not_waited_for(patch: Patch) -> None:
    def impatient(self: Machine, id: str, now: float) -> None:
        worker = self.workers[id]
        worker.online, worker.since = False, now
        self._set_deadline(worker, now)

    patch.setattr(Machine, "on_link_closed", impatient)


@mutant
def workers_forget_reports_once_they_are_sent(patch: Patch) -> None:
    on_ended = Agent.on_ended

    def forgetful(self: Agent, reports: list[Report]) -> list[Report]:
        owed = on_ended(self, reports)
        self.on_ack([report.attempt for report in owed])
        return owed

    patch.setattr(Agent, "on_ended", forgetful)


# -- blame is right ----------------------------------------------------------------------------------------


@rare(140)
def the_loss_of_a_worker_spends_retries(patch: Patch) -> None:
    lose = Machine._lose

    def unjust(self: Machine, worker: Worker, now: float) -> None:
        for flight in worker.flights.values():
            if not flight.ending:
                flight.job.failures[flight.task] = flight.job.failures.get(flight.task, 0) + 1
        lose(self, worker, now)

    patch.setattr(Machine, "_lose", unjust)


@mutant
def an_interruption_is_the_tasks_fault(patch: Patch) -> None:
    judge = Machine._judge

    def unjust(self: Machine, worker: Worker, flight: Flight, report: Report, now: float, known: Any) -> bool:
        if report.end is End.INTERRUPTED:
            report = Report(
                *[
                    End.EXITED if f == "end" else 1 if f == "code" else getattr(report, f)
                    for f in Report.__struct_fields__
                ]
            )
        return judge(self, worker, flight, report, now, known)

    patch.setattr(Machine, "_judge", unjust)


@mutant
def spent_retries_are_forgotten_at_a_restart(patch: Patch) -> None:
    restore = Machine.restore

    def forgetful(self: Machine, live: Any) -> Job:
        job = restore(self, live)
        job.failures = {}
        return job

    patch.setattr(Machine, "restore", forgetful)


# -- no silent stall ---------------------------------------------------------------------------------------


@mutant
def cancelled_attempts_occupy_their_worker_for_ever(patch: Patch) -> None:
    release = Worker.release

    def leak(self: Worker, flight: Flight) -> None:
        if not flight.ending:
            release(self, flight)

    patch.setattr(Worker, "release", leak)


@mutant
def resources_are_not_given_back(patch: Patch) -> None:
    patch.setattr(Worker, "release", lambda self, flight: self.flights.pop(flight.attempt) and None)


@mutant
def a_returning_workers_missing_tasks_are_not_noticed(patch: Patch) -> None:
    on_hello = Machine.on_hello

    def blind(self: Machine, *arguments: Any) -> None:
        self._requeue = lambda *_: None  # type: ignore[method-assign]
        on_hello(self, *arguments)
        del self._requeue

    patch.setattr(Machine, "on_hello", blind)


@mutant
def room_after_a_return_is_not_noticed(patch: Patch) -> None:
    on_returned = Machine.on_returned

    def blind(self: Machine, *arguments: Any) -> None:
        dispatcher = self._dispatcher
        dispatcher.worker_changed = lambda _: None  # type: ignore[method-assign]
        on_returned(self, *arguments)
        del dispatcher.worker_changed

    patch.setattr(Machine, "on_returned", blind)


@mutant
def a_lost_workers_tasks_are_not_put_in_line(patch: Patch) -> None:
    lose = Machine._lose

    def blind(self: Machine, worker: Worker, now: float) -> None:
        self.settle = lambda _: None  # type: ignore[method-assign]
        lose(self, worker, now)
        del self.settle

    patch.setattr(Machine, "_lose", blind)


@mutant
def gaps_between_frames_are_not_noticed(patch: Patch) -> None:
    patch.setattr(FrameOrder, "accept", lambda *_: True)


@mutant
def a_lost_attempt_closes_no_lease(patch: Patch) -> None:
    def forget(self: Machine, job: Job, task: int, again: bool) -> None:
        for stray in job.strays.pop(task, ()):
            del self._strays[stray.attempt]

    patch.setattr(Machine, "_conclude_strays", forget)


@mutant
def the_table_lets_a_ready_task_be_lost_twice(patch: Patch) -> None:
    requeue = Machine._requeue

    def twice(self: Machine, flight: Flight, event: TaskEvent, again: bool = False) -> None:
        requeue(self, flight, event, again)
        flight.lease.open -= 1

    patch.setattr(Machine, "_requeue", twice)


# -- needs, holds, retries and queues ----------------------------------------------------------------------


@mutant
def needs_are_ignored(patch: Patch) -> None:
    patch.setattr(Machine, "_attach", lambda self, job, now: self._settle_or_end(job, now))


@mutant
def a_skip_is_not_spread(patch: Patch) -> None:
    def deaf(self: Any, job: Job, tasks: IntervalSet, why: str) -> None:
        add(self, job, tasks, why)
        self.todo.clear()

    add = _Skips.add
    patch.setattr(_Skips, "add", deaf)


@mutant
def revived_tasks_forget_their_needs(patch: Patch) -> None:
    patch.setattr(Machine, "_wait_again", lambda self, job, tasks, now: self._settle_or_end(job, now))


@mutant
def held_tasks_are_offered_after_a_restart(patch: Patch) -> None:
    init = Job.__init__

    def loose(self: Job, row: Any, queue: Any) -> None:
        init(self, row, queue)
        self.held = IntervalSet()

    patch.setattr(Job, "__init__", loose)


@mutant
def a_held_task_of_a_lost_worker_is_ready(patch: Patch) -> None:
    patch.setattr(Job, "rest", lambda self, task: self.ready.add(task))


@mutant
def the_end_of_a_pause_is_not_noticed(patch: Patch) -> None:
    patch.setattr(Machine, "_end_delays", lambda *_: None)


@mutant
def needs_that_are_met_at_a_restart_are_waited_for(patch: Patch) -> None:
    patch.setattr(Need, "hear", lambda *_: (IntervalSet(), IntervalSet()))


@mutant
def what_ended_is_forgotten_while_others_need_it(patch: Patch) -> None:
    patch.setattr(Machine, "find", lambda self, id: self.jobs.get(id))


@mutant
def caps_of_queues_are_ignored(patch: Patch) -> None:
    patch.setattr(Queue, "room", lambda self, _: 0 if self.row.paused else 10**9)


@mutant
def paused_queues_go_on(patch: Patch) -> None:
    room = Queue.room

    def heedless(self: Queue, user: Any) -> int:
        row, self.row = self.row, msgspec.structs.replace(self.row, paused="")
        left = room(self, user)
        self.row = row
        return left

    patch.setattr(Queue, "room", heedless)


@mutant
def those_that_stood_back_are_forgotten(patch: Patch) -> None:
    patch.setattr(Machine, "_admit_more", lambda *_: None)


@mutant
def time_of_a_stray_is_charged_for_ever(patch: Patch) -> None:
    patch.setattr(Machine, "_no_stray", lambda self, stray: self._strays.pop(stray.attempt) and None)


@mutant
def tasks_under_way_are_booked_by_what_their_job_needs_now(patch: Patch) -> None:
    release = Worker.release

    def confused(self: Worker, flight: Flight) -> None:
        flight.lease.needs = flight.job.needs
        release(self, flight)

    patch.setattr(Worker, "release", confused)


# -- blocked instead of failed -----------------------------------------------------------------------------


@mutant
def an_outage_is_the_tasks_fault(patch: Patch) -> None:
    patch.setattr("tercel.core.judging.rule_for", lambda *_: None)


@mutant
def blocked_tasks_are_ready_after_a_restart(patch: Patch) -> None:
    init = Machine.__init__

    def careless(self: Machine, settings: Any, loaded: Any, now: float) -> None:
        jobs = [msgspec.structs.replace(live, blocked=[]) for live in loaded.jobs]
        init(self, settings, msgspec.structs.replace(loaded, jobs=jobs), now)

    patch.setattr(Machine, "__init__", careless)


@mutant
def after_a_restart_all_that_is_blocked_had_run(patch: Patch) -> None:
    join = Machine._join_again

    def careless(self: Machine, id: int, job: Job, tasks: IntervalSet, stage: Stage) -> None:
        join(self, id, job, tasks, Stage.RUN)

    patch.setattr(Machine, "_join_again", careless)


@mutant
def the_stage_of_what_waits_no_more_is_kept(patch: Patch) -> None:
    patch.setattr(Job, "take_stages", lambda self, tasks: [(Stage.RUN, tasks)])


@mutant
def a_probe_that_is_lost_is_waited_for_for_ever(patch: Patch) -> None:
    patch.setattr(Machine, "_ask_again", lambda *_: None)


@mutant
def what_was_let_go_is_not_put_in_line(patch: Patch) -> None:
    patch.setattr(Machine, "_wait_again", lambda *_: None)


@mutant
def cancelled_tasks_go_on_waiting_for_their_condition(patch: Patch) -> None:
    patch.setattr(Machine, "_leave_conditions", lambda *_: None)


@mutant
def conditions_are_given_up_at_once(patch: Patch) -> None:
    patch.setattr(Policy, "is_over", lambda *_: True)


@mutant
def who_waits_for_what_is_not_made_durable(patch: Patch) -> None:
    take = Machine.take

    def forgetful(self: Machine) -> Any:
        changes, effects = take(self)
        return [change for change in changes if not isinstance(change, TasksUnblocked)], effects

    patch.setattr(Machine, "take", forgetful)


# -- files that tasks left ---------------------------------------------------------------------------------


@rare(115)
def nobody_is_told_to_go_on_after_a_hello(patch: Patch) -> None:
    patch.setattr(Machine, "_resume_all", lambda *_: None)


@mutant
def what_is_parked_is_not_told_of_its_tasks_end(patch: Patch) -> None:
    conclude = Machine._conclude_strays

    def silent(self: Machine, job: Job, task: int, again: bool) -> None:
        for stray in job.strays.get(task, ()):
            stray.parked = False
        conclude(self, job, task, again)

    patch.setattr(Machine, "_conclude_strays", silent)


@mutant
def what_is_parked_is_not_known_again_after_a_restart(patch: Patch) -> None:
    stays = Machine._stays_parked

    def forgetful(self: Machine, worker: Worker, held: Held) -> bool:
        stray = self._strays.get(held.attempt)
        parked = stray is not None and stray.parked
        stayed = stays(self, worker, held)
        if stray is not None:
            stray.parked = parked
        return stayed

    patch.setattr(Machine, "_stays_parked", forgetful)


@mutant
def a_worker_forgets_its_parcels_when_it_is_killed(patch: Patch) -> None:
    restore = Agent.restore
    patch.setattr(Agent, "restore", lambda self, reports, _: restore(self, reports))


@rare(1360)
def a_worker_that_was_forgotten_keeps_what_nobody_asks_for(patch: Patch) -> None:
    stays = Machine._stays_parked

    def forgetful(self: Machine, worker: Worker, held: Held) -> bool:
        stray = self._strays.get(held.attempt)
        before = stray.worker if stray is not None else worker
        stayed = stays(self, worker, held)
        if stray is not None:
            stray.worker = before
        return stayed

    patch.setattr(Machine, "_stays_parked", forgetful)


@rare(1220)
def what_is_parked_is_run_again(patch: Patch) -> None:
    patch.setattr(Machine, "_without_parked", lambda self, job, worker, tasks: tasks)


@rare(890)
def a_late_hitch_drops_what_is_kept(patch: Patch) -> None:
    def hasty(self: Machine, worker: Worker, flight: Flight, _: Any) -> None:
        self._end_later(flight)
        self._forget_stray(flight)
        self._close(flight, again=True)

    patch.setattr(Machine, "_take_stray", hasty)


@rare(3990)
def a_worker_does_not_say_that_it_has_lost_what_is_to_go_on(patch: Patch) -> None:
    resume = SimFiles.take

    def silent(self: SimFiles, message: Any) -> None:
        say, self._worker.say = self._worker.say, lambda _: None  # type: ignore[method-assign]
        resume(self, message)
        self._worker.say = say  # type: ignore[method-assign]

    patch.setattr(SimFiles, "take", silent)


@mutant
def a_worker_forgets_a_report_that_it_is_to_keep(patch: Patch) -> None:
    patch.setattr(Agent, "on_park", Agent.on_ack)


@mutant
def what_is_kept_of_a_task_that_is_over_is_only_acknowledged(patch: Patch) -> None:
    on_reports = Machine.on_reports

    def silent(self: Machine, id: str, reports: Any, *others: Any) -> None:
        before = len(self.effects)
        on_reports(self, id, reports, *others)
        self.effects[before:] = [one for one in self.effects[before:] if not isinstance(one, Ended)]

    patch.setattr(Machine, "on_reports", silent)


@mutant
def files_are_registered_twice(patch: Patch) -> None:
    register = Machine._register

    def twice(self: Machine, job: Job, report: Report, now: float) -> None:
        register(self, job, report, now)
        register(self, job, report, now)

    patch.setattr(Machine, "_register", twice)


@mutant
def files_are_registered_by_attempts_that_are_tried_again(patch: Patch) -> None:
    try_again = Machine._try_again

    def hasty(self: Machine, job: Job, task: int, report: Report, *others: Any) -> None:
        self._register(job, report, 0.0)
        try_again(self, job, task, report, *others)

    patch.setattr(Machine, "_try_again", hasty)


@mutant
def a_name_that_is_taken_is_taken_over(patch: Patch) -> None:
    patch.setattr(Machine, "_unregistrable", lambda *_: None)


@mutant
def files_of_what_runs_again_stay_in_the_catalogue(patch: Patch) -> None:
    change = Machine._change_files

    def lazy(self: Machine, told: Any) -> None:
        if not isinstance(told, MadeUndone):
            change(self, told)

    patch.setattr(Machine, "_change_files", lazy)


@mutant
def a_storage_that_is_down_is_the_tasks_fault(patch: Patch) -> None:
    patch.setattr("tercel.core.registering.fault_of_hitch", lambda *_: None)


@pytest.mark.must("e")
@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_catches_the_mutant(name: str, monkeypatch: Patch) -> None:
    MUTANTS[name](monkeypatch)
    first = FIRST.get(name, 0)
    for seed in count(first):
        assert seed < first + SEEDS_MOST, f"{name} survived {SEEDS_MOST} seeds"
        try:
            simulate(seed)
        except Violation as violation:
            assert not isinstance(violation.__cause__, TypeError | AttributeError), (
                "the mutant itself is broken"
            )
            print(f"{name}: seed {seed}: {str(violation).splitlines()[0]}")
            return
