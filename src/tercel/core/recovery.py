"""Conditions are tested: one probe is under way for each, however many tasks wait for it.

    due --probe--> cleared      --> see waves
                   not cleared  --> due again, as the policy says

Tests at a site are asked of its workers in turn; those at a worker of that one; some the manager asks itself, and some its own
books. Where nobody can be asked, the condition is tested as soon as somebody can: that is no test, and nothing is given up for
it meanwhile.
"""

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from tercel.core.accounts import Settings
from tercel.core.blocked import NOT_BEFORE_MOST_S, NOTE_MOST, Condition
from tercel.core.blocking import policy_of, trigger_of
from tercel.core.changes import Loaded
from tercel.core.conditions import (
    EVERYWHERE,
    ConditionRow,
    Fault,
    Place,
    Verdict,
)
from tercel.core.effects import Probe
from tercel.core.ledger import Job
from tercel.core.model import BlockRule, JobSpec
from tercel.core.presence import Held, WorkerInfo
from tercel.core.testing import verdict_here
from tercel.core.waves import Waves
from tercel.core.workers import Worker

TEST_LIMIT_S, TEST_LIMIT_MOST_S = 10.0, 60.0
ANSWER_GRACE_S = 30.0
"""A probe that is not answered so long after its limit is asked of another."""


class Recovery(Waves):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self._probes: dict[int, tuple[Condition, str]] = {}
        """Under way: whose, and asked of which worker ..."""
        self._asked: dict[str, set[int]] = {}
        """... and by worker."""
        self._probe_number = loaded.epoch << 32
        self._answers: list[tuple[float, int]] = []
        """When which probe must have been answered."""
        self._unasked: dict[str, dict[int, Condition]] = {}
        """Conditions that are due, by the site or worker that has nobody to ask."""
        self._sites: dict[str, dict[str, Worker]] = {}
        """Workers that are connected, by site; and all of them, under EVERYWHERE."""
        self._left: list[tuple[float, str]] = []
        """Until when which worker that said good-bye may come back before tasks stop waiting for what was wrong there."""

    # -- from the clock -----------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        heaps: tuple[Sequence[tuple[float, object]], ...] = (self._tests, self._answers, self._left)
        due = [heap[0][0] for heap in heaps if heap]
        if self.throttle.next_at is not None:
            due.append(self.throttle.next_at)
        others = super().next_deadline()
        return min(due if others is None else (*due, others), default=None)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self.throttle.next_at is not None and self.throttle.next_at <= now:
            self.throttle.next_at = None
            self._dispatcher.work_appeared()
        while self._left and self._left[0][0] <= now:
            worker = self.workers.get(heapq.heappop(self._left)[1])
            if worker is not None and worker.given_up:
                self._let_go_elsewhere(worker, now)
        while self._answers and self._answers[0][0] <= now:
            _, number = heapq.heappop(self._answers)
            if number in self._probes:
                self._ask_again(number, now)
        while self._tests and self._tests[0][0] <= now:
            at, id = heapq.heappop(self._tests)
            condition = self.conditions.get(id)
            if condition is None or condition.row.next_test_at != at or condition.row.paused:
                continue
            self._test_if_due(condition, now)

    def will_test(self, condition: Condition) -> bool:
        """Whether it is sure to be tested, sooner or later."""
        if condition.id in self._unasked.get(_place(condition.row), {}):
            return self._examiner(condition) is None
        return (condition.row.next_test_at, condition.id) in self._tests

    # -- tests --------------------------------------------------------------------------------------------

    def _test_if_due(self, condition: Condition, now: float) -> None:
        """Unless it is being tested, or is paused: then whoever resumes it has it tested."""
        if not condition.probe and not condition.row.paused:
            self._test(condition, now)

    def _test(self, condition: Condition, now: float) -> None:
        row = condition.row
        if row.place is Place.HERE:
            self._hear(condition, verdict_here(self, row, now), now)
            return
        worker = "" if row.place is Place.MANAGER else self._examiner(condition)
        if worker is None:
            self._unasked.setdefault(_place(row), {})[condition.id] = condition
            if condition.unasked_at is None:
                condition.unasked_at = min(now, row.next_test_at)
            return
        if condition.unasked_at is not None:  # no test, no verdict: that time does not count
            condition.row = row = msgspec.structs.replace(
                row, opened_at=row.opened_at + now - condition.unasked_at
            )
            condition.unasked_at = None
        condition.turns += 1
        self._probe_number += 1
        condition.probe = self._probe_number
        self._probes[condition.probe] = (condition, worker)
        self._asked.setdefault(worker, set()).add(condition.probe)
        heapq.heappush(self._answers, (now + limit_s(condition) + ANSWER_GRACE_S, condition.probe))
        self.effects.append(Probe(condition.probe, row, worker, limit_s(condition)))

    def _examiner(self, condition: Condition) -> str | None:
        """Who tests it: at a site its workers take turns, for one of them may be at fault itself."""
        row = condition.row
        if row.place is Place.WORKER:
            worker = self.workers.get(row.where)
            return worker.id if worker is not None and worker.online else None
        site = self._sites.get(row.where)
        expected = (worker for worker in self.workers.values() if not worker.given_up)
        if not site and not any(worker.info.site == row.where for worker in expected):
            site = self._sites.get(
                EVERYWHERE
            )  # nobody of that site will come back: any other knows more than nobody
        if not site:
            return None
        names = list(site)
        return names[(row.id + condition.turns) % len(names)]

    def on_tested(self, number: int, verdict: Verdict, now: float) -> None:
        """A probe was answered. An answer that nobody waits for any more is of no consequence."""
        condition = self._answered(number)
        if condition is not None:
            self._hear(condition, verdict, now)

    def asked_of(self, number: int) -> str | None:
        """Which worker is to answer this probe (empty: the manager itself); None: nobody is waited for (any more)."""
        found = self._probes.get(number)
        return found[1] if found is not None else None

    def _answered(self, number: int) -> Condition | None:
        """Whose probe it was, if that still waits for it. Or it will never be answered."""
        condition, worker = self._probes.pop(number, (None, ""))
        if condition is None:
            return None
        asked = self._asked[worker]
        asked.discard(number)
        if not asked:
            del self._asked[worker]
        if condition.probe != number:
            return None
        condition.probe = 0
        return condition

    def _hear(self, condition: Condition, verdict: Verdict, now: float) -> None:
        note = "".join(c if c.isprintable() else " " for c in verdict.note[:NOTE_MOST])
        row = condition.row
        tests = row.tests if verdict.cleared else row.tests + 1
        condition.row = msgspec.structs.replace(
            row, tests=tests, asked=row.asked + 1, tested_at=now, note=note
        )
        if verdict.cleared:
            self._let_go(condition, verdict.room, min(verdict.not_before_s, NOT_BEFORE_MOST_S), now)
            return
        condition.flows = False
        self._test_later(
            condition, now, max(self.pause_s(condition), min(verdict.not_before_s, NOT_BEFORE_MOST_S))
        )

    # -- who tests ----------------------------------------------------------------------------------------

    def on_hello(self, id: str, instance: str, info: WorkerInfo, held: Sequence[Held], now: float) -> int:
        if id in self.workers:
            self._leave_site(id)
        number = super().on_hello(id, instance, info, held, now)
        for site in (info.site, EVERYWHERE):
            self._sites.setdefault(site, {})[id] = self.workers[id]
        self._ask_others(id, now)
        self._ask_now(now)
        self._relieve(self.workers[id], now)
        for condition in list(self._for_workers.values()):
            # It is the one; else that was no test. However many come, waves keep their pauses.
            at = now + (self._wave_pause_s(condition) if condition.flows else 0.0)
            if at < condition.row.next_test_at and verdict_here(self, condition.row, now).cleared:
                self._test_at(condition, at)
        return number

    def _ask_now(self, now: float) -> None:
        """Who comes, or will not come back, may have made it clear whom to ask."""
        for place, waiting in list(self._unasked.items()):
            if self._examiner(next(iter(waiting.values()))) is None:
                continue  # all of them are asked of the same
            del self._unasked[place]
            for condition in waiting.values():
                if self.conditions.get(condition.id) is condition:
                    self._test_if_due(condition, now)

    def _relieve(self, newcomer: Worker, now: float) -> None:
        """It may run what waits for another worker to be well again."""
        for id, conditions in list(self._at_worker.items()):
            for condition in list(conditions.values()) if id != newcomer.id else ():
                for job in list(condition.jobs.values()) if condition.row.own else ():
                    if self._could_run(newcomer, job):
                        self._release_job(condition, job, f"{newcomer.id} can run them", now)

    def on_link_closed(self, id: str, now: float) -> None:
        self._leave_site(id)
        super().on_link_closed(id, now)
        self._ask_others(id, now)

    def on_bye(self, id: str, now: float) -> None:
        self._leave_site(id)
        super().on_bye(id, now)
        self._ask_others(id, now)

    def _leave_site(self, id: str) -> None:
        """Of which it was, if it was of any."""
        for site in (self.workers[id].info.site, EVERYWHERE):
            if (workers := self._sites.get(site)) is not None:
                workers.pop(id, None)
                if not workers:
                    del self._sites[site]

    def _ask_others(self, id: str, now: float) -> None:
        """What a worker was asked will not be answered any more."""
        for number in sorted(self._asked.get(id, ())):
            self._ask_again(number, now)

    def _ask_again(self, number: int, now: float) -> None:
        condition = self._answered(number)
        if condition is not None and self.conditions.get(condition.id) is condition:
            self._test_if_due(condition, now)

    def _give_up_on(self, worker: Worker, now: float) -> None:
        """What was wrong there need not hold up its tasks elsewhere; but one that leaves is often back in a moment."""
        super()._give_up_on(worker, now)
        back_by = worker.since + self.settings.grace_s
        if now < back_by and worker.id in self._at_worker:
            heapq.heappush(self._left, (back_by, worker.id))
        else:
            self._let_go_elsewhere(worker, now)
        self._ask_now(now)

    def _let_go_elsewhere(self, worker: Worker, now: float) -> None:
        """All that waits for something at a worker which is gone, but for what people have paused."""
        for condition in list(self._at_worker.get(worker.id, {}).values()):
            if not condition.row.paused:
                self._release(condition, condition.count, f"worker {worker.id} is gone", now)

    # -- what people ask ----------------------------------------------------------------------------------

    def on_test_now(self, condition: Condition, now: float) -> None:
        """Also if it is paused. What follows from that, follows."""
        if not condition.probe:
            self._test(condition, now)

    def on_release_condition(self, condition: Condition, count: int, who: str, now: float) -> int:
        """Let so many go (0: all) without a test. Returns how many went."""
        condition.flows = True
        return self._release(condition, count or condition.count, f"released by {who}", now)

    def on_fail_condition(self, condition: Condition, why: str, now: float) -> int:
        return self._give_up(condition, why, now)

    def on_pause_condition(self, condition: Condition, by: str, now: float) -> None:
        """Neither tested nor given up until `on_resume_condition`."""
        if not condition.row.paused:
            self._set(condition, paused=by, paused_at=now)

    def on_resume_condition(self, condition: Condition, now: float) -> None:
        row = condition.row
        if row.paused:
            slept_s = max(0.0, now - row.paused_at)
            self._set(
                condition, paused="", paused_at=0.0, opened_at=row.opened_at + slept_s, next_test_at=now
            )
            self._await_test(condition)
            worker = self.workers.get(row.where) if row.place is Place.WORKER else None
            if row.place is Place.WORKER and (worker is None or worker.given_up):
                self._release(condition, condition.count, f"worker {row.where} is gone", now)

    def retest(self, tester: str, now: float) -> None:
        """What it asks about is another by now: whoever waits for it need not wait for the next test."""
        for condition in self.conditions.values():
            if condition.row.tester == tester and condition.row.place is Place.HERE:
                self._test_at(condition, now)

    def on_name(self, name: str, now: float) -> None:
        """A file of this name was registered, or removed: whoever waits for either need not wait for the next test."""
        for tester in (f"made:{name}", f"unused:{name}"):
            for condition in list(self._for_names.get(tester, {}).values()):
                self._test_at(condition, now)

    def revise(self, job: Job, spec: JobSpec, now: float = 0.0, by: str = "") -> None:
        """If its rules were changed: what waits by one that is no more goes on, and finds out by the new ones."""
        before = job.row.spec.block_on
        if spec.block_on == before:
            super().revise(job, spec, now, by)
            return

        def is_gone(what: Fault | ConditionRow) -> bool:
            return _is_by(what, before) and not _is_by(what, spec.block_on)

        for key, (fault, _) in list(job.postponed.items()):
            if is_gone(fault):
                del job.postponed[key]
        super().revise(job, spec, now, by)  # which keeps what is left of these
        for condition in list(job.blocks):
            if is_gone(condition.row):
                self._release_job(condition, job, "the job's rules were changed", now)
        self._gate(job, job.ready, now)


def _is_by(what: Fault | ConditionRow, rules: Iterable[BlockRule]) -> bool:
    """Whether one of the rules may have made it so. What a worker could not do is no rule's."""
    for rule in () if what.own else rules:
        if trigger_of(rule.on).known:
            if policy_of(msgspec.structs.replace(rule, tester=what.tester)) == what.policy:
                return True
        elif (rule.tester, policy_of(rule)) == (what.tester, what.policy):
            return True
    return False


def limit_s(condition: Condition) -> float:
    """How long one test may take."""
    return min(TEST_LIMIT_MOST_S, max(TEST_LIMIT_S, condition.policy.pause_s(condition.row.tests)))


def _place(row: ConditionRow) -> str:
    return f"{row.place}:{row.where}"
