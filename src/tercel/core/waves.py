"""What waits for a condition is let go in waves, or given up.

    cleared --> a wave goes on; the next, twice as large, after another test, as long as none comes back
    one that was let go meets the fault again --> those of its wave that have not begun come back; the next wave is smaller,
        and tested for later; if others of it went through, places are few: then waves grow by one, and each that ends makes
        room for the next
    too late --> its tasks fail, with that reason

A wave waits long enough that the one before it would have met the fault. tests/core/test_waves.py compares this with fixed
batches of ten.
"""

import msgspec

from tercel.core.accounts import Settings
from tercel.core.blocked import Condition
from tercel.core.changes import Loaded, Noted, SpanConcluded
from tercel.core.conditions import Fault
from tercel.core.effects import Progressed
from tercel.core.ending import forget_tries
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.reports import End
from tercel.core.sizes import duration
from tercel.core.states import RESUMES, Stage, TaskState, rests_as
from tercel.core.throttles import Throttle
from tercel.core.undoing import Undoing
from tercel.core.waiting import members_among, named

WAVE_MOST = 1_000_000
WAVE_PAUSE_S, WAVE_PAUSE_MOST_S = 0.2, 60.0
"""Between two waves: at least, and at most."""
AGAIN = "tasks met the fault again"


class Waves(Undoing):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self._releases: Throttle[int] = Throttle(settings.rates.releases)
        """By condition."""

    def _test_later(self, condition: Condition, now: float, pause_s: float) -> None:
        """Or never again, if that was the last time."""
        row = condition.row
        if not row.paused and self._expire(condition, now):
            return
        end = row.opened_at + condition.policy.patience_s
        self._test_at(condition, max(now, min(now + pause_s, end)))

    def _test_at(self, condition: Condition, at: float) -> None:
        self._set(condition, next_test_at=at)
        self._await_test(condition)

    def _expire(self, condition: Condition, now: float) -> bool:
        row = condition.row
        if not condition.policy.is_over(row.tests, row.opened_at, now):
            return False
        seen = f", the last time: {row.note}" if row.note else ""
        self._give_up(
            condition, f"gave up after {row.tests:,} tests in {duration(now - row.opened_at)}{seen}", now
        )
        return True

    # -- waves --------------------------------------------------------------------------------------------

    def _let_go(self, condition: Condition, room: int, not_before_s: float, now: float) -> None:
        """It has cleared, for so many (0: for all): a wave of tasks goes on."""
        wave = self.settings.fixed_wave or condition.row.wave
        count = wave
        if room:  # for those too that were let go before and have not begun
            unbegun = (len(job.out[condition].intersection(job.ready)) for job in condition.out.values())
            count = min(wave, max(0, room - sum(unbegun)))
        pause_s = self._wave_pause_s(condition) if count else self.pause_s(condition)
        if count and not self._releases.room(condition.id, now):
            pause_s = max(pause_s, self._releases.next_slot(condition.id, now) - now)
        count = min(count, self._releases.room(condition.id, now))
        self._releases.take(condition.id, count, now)
        condition.flows = True
        if room and room <= wave and not self.settings.fixed_wave:
            condition.steady = True  # it knows its places: each that becomes free is for another
        if condition.progress:  # some went through: as long as that goes on it is not given up
            condition.progress = False
            condition.row = msgspec.structs.replace(condition.row, opened_at=now, tests=0)
        if 0 < count < condition.count:
            more = wave + 1 if condition.steady else 2 * wave
            condition.row = msgspec.structs.replace(condition.row, wave=min(more, WAVE_MOST))
        self._release(condition, count, "cleared", now)
        if condition.id in self.conditions:
            self._test_at(condition, now + max(pause_s, not_before_s))

    def _came_through(self, job: Job, task: int, now: float) -> None:
        """A task has ended. If a condition had let it go, that was to some avail; where places are few, it leaves one."""
        for condition, out in list(job.out.items()):
            if task not in out:
                continue
            out.discard(task)
            condition.progress = True
            if not out:
                self._none_out(condition, job)
            at = now + self._wave_pause_s(condition)
            if condition.steady and condition.id in self.conditions and condition.row.next_test_at > at:
                self._test_at(condition, at)

    def _wave_pause_s(self, condition: Condition) -> float:
        """Long enough for the wave before to have met the fault. Fixed waves, as Tapis has them, follow without pause."""
        if self.settings.fixed_wave:
            return 0.0
        return min(WAVE_PAUSE_MOST_S, max(WAVE_PAUSE_S, 2 * condition.wall_s))

    def _release(self, condition: Condition, count: int, why: str, now: float) -> int:
        """So many of its tasks are ready: the jobs take turns. Returns how many went."""
        released = 0
        while released < count and condition.jobs:
            id, job = next(iter(condition.jobs.items()))
            share = max(1, (count - released) // len(condition.jobs))
            tasks = condition.next_of(job, share)
            released += len(tasks)
            met = self._unwait(condition, job, tasks)
            if id in condition.jobs:  # to the end of the line
                condition.jobs[id] = condition.jobs.pop(id)
            self._go_on(condition, job, met, why, now)
        self._close_if_empty(condition, why, now)
        return released

    def _release_job(self, condition: Condition, job: Job, why: str, now: float) -> None:
        """All of its tasks that wait for this, and nobody else's."""
        met = self._unwait(condition, job, job.blocks[condition].copy())
        self._go_on(condition, job, met, why, now)
        self._close_if_empty(condition, why, now)

    def _go_on(
        self, condition: Condition, job: Job, met: list[tuple[Stage, IntervalSet]], why: str, now: float
    ) -> None:
        """Each in the state that is right for the stage in which it met the fault."""
        tasks, kept = IntervalSet(), IntervalSet()
        for stage, some in met:
            job.rests_in(rests_as(stage)).update(some)
            tasks.update(some)
            if RESUMES[stage] is TaskState.STAGING_OUT:
                kept.update(some)
        self._forgive_job(job)
        job.out.setdefault(condition, IntervalSet()).update(tasks)
        condition.out[job.id] = job
        self.changes.append(
            Noted(job.id, tuple(tasks.ranges()), now, "released", f"{condition.row.tester}: {why}")
        )
        self._tell_progress(job)
        self._wait_again(job, tasks, now)
        for task in kept.intersection(job.ready):
            self._resume_ready(job, task)

    def _meet_fault(self, job: Job, task: int, fault: Fault, wall_s: float, now: float) -> Condition:
        """A ready task has been tried, and met something outside that is broken. Returns what it waits for."""
        condition = self._block(job, task, fault, now)
        condition.wall_s += (wall_s - condition.wall_s) * (1.0 if condition.count == 1 else 0.1)
        if condition in job.out and task in job.out[condition]:
            self._came_back(condition, job, task, now)
        return condition

    def _came_back(self, condition: Condition, job: Job, task: int, now: float) -> None:
        """A task that was let go has met the fault again: it has not cleared after all."""
        job.out[condition].discard(task)
        if condition.flows:
            condition.flows = False
            row = condition.row
            went = 1 + sum(len(one.out[condition]) for one in condition.out.values())
            condition.row = msgspec.structs.replace(
                row,
                wave=max(1, min(row.wave, went) // 4),
                tests=row.tests + 1,
                note=f"{row.note}; {AGAIN}" if row.note and AGAIN not in row.note else AGAIN,
            )
            self._call_back(condition, now)
            if not condition.probe:
                self._test_later(condition, now, self.pause_s(condition))
            condition.steady = went > 1 and not self.settings.fixed_wave
        if not job.out.get(condition, True):
            self._none_out(condition, job)

    def _call_back(self, condition: Condition, now: float) -> None:
        """Those that it let go and that have not begun wait again: they would only meet the same.

        Whatever they had met before they were let go, they are ready now, and kept from being tried: that is admission.
        """
        for job in list(condition.out.values()):
            tasks = job.out[condition].intersection(job.ready)
            if tasks:
                job.ready.difference_update(tasks)
                job.out[condition].difference_update(tasks)
                self._wait_for(condition, job, tasks, Stage.ADMISSION, now)
                self.changes.append(
                    Noted(
                        job.id, tuple(tasks.ranges()), now, "blocked", f"{condition.row.tester}: broken again"
                    )
                )
                self._tell_progress(job)
                self.settle(job)
            if not job.out[condition]:
                self._none_out(condition, job)

    # -- the end ------------------------------------------------------------------------------------------

    def _give_up(self, condition: Condition, why: str, now: float) -> int:
        """All that wait for it fail, by no fault of theirs. Returns how many."""
        reason = f"blocked on {condition.row.tester}: {why}"
        count = 0
        for job in list(condition.jobs.values()):
            if condition not in job.blocks:
                continue  # what became of another has ended it
            if borrowed := job.blocks[condition].intersection(job.borrowed):
                # They had met something else, and find out anew.
                self._go_on(condition, job, self._unwait(condition, job, borrowed), why, now)
            if condition not in job.blocks:
                continue
            tasks = job.blocks[condition].copy()
            count += len(tasks)
            self._unwait(condition, job, tasks)
            forget_tries(job, tasks)
            for task in members_among(job.strays, tasks):
                self._conclude_strays(job, task, again=True)
            job.failed.update(tasks)
            for first, last in tasks.ranges():
                self.changes.append(
                    SpanConcluded(job.id, first, last, TaskState.FAILED, now, reason, End.BLOCKED)
                )
            self.effects.append(Progressed(job.id, named(tasks), []))
            self._settle_or_end(job, now)
            if job.minds_ends:
                self._after_ends(job, tasks, now)
        self._close_if_empty(condition, why, now)
        if (
            condition.id in self.conditions
        ):  # some came meanwhile, who waited for the end of these: it is anew for them
            condition.row = msgspec.structs.replace(condition.row, opened_at=now, tests=0)
            self._test_at(condition, now)
        return count
