"""Conditions are tested: one probe is under way for each, however many tasks wait for it.

    due --probe--> cleared      --> see waves
                   not cleared  --> due again, as the policy says

Tests at a site are asked of its workers in turn; those at a worker of that one; some the manager asks itself, and some its own
books. Where nobody can be asked, the condition is tested as soon as somebody can: that is no test, and nothing is given up for
it meanwhile.
"""

import heapq
from collections.abc import Sequence

import msgspec

from tercel.core.accounts import Settings
from tercel.core.blocked import NOTE_MOST, Condition
from tercel.core.changes import Loaded
from tercel.core.conditions import EVERYWHERE, ConditionRow, Place, Verdict
from tercel.core.effects import Probe
from tercel.core.ledger import Job
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

    # -- from the clock -----------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        due = [heap[0][0] for heap in (self._tests, self._answers) if heap]
        if self.throttle.next_at is not None:
            due.append(self.throttle.next_at)
        others = super().next_deadline()
        return min(due if others is None else (*due, others), default=None)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self.throttle.next_at is not None and self.throttle.next_at <= now:
            self.throttle.next_at = None
            self._dispatcher.work_appeared()
        while self._answers and self._answers[0][0] <= now:
            _, number = heapq.heappop(self._answers)
            if number in self._probes:
                self._ask_again(number, now)
        while self._tests and self._tests[0][0] <= now:
            at, id = heapq.heappop(self._tests)
            condition = self.conditions.get(id)
            if condition is None or condition.row.next_test_at != at or condition.row.paused:
                continue
            if not condition.probe:
                self._test(condition, now)

    def will_test(self, condition: Condition) -> bool:
        """Whether it is sure to be tested, sooner or later."""
        if condition.id in self._unasked.get(_place(condition.row), {}):
            return self._examiner(condition) is None
        return (condition.row.next_test_at, condition.id) in self._tests

    # -- tests --------------------------------------------------------------------------------------------

    def _test(self, condition: Condition, now: float) -> None:
        row = condition.row
        if row.place is Place.HERE:
            self._hear(condition, verdict_here(self, row, now), now)
            return
        worker = "" if row.place is Place.MANAGER else self._examiner(condition)
        if worker is None:
            self._unasked.setdefault(_place(row), {})[condition.id] = condition
            return
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
        if not site:
            return None
        names = list(site)
        return names[(row.id + row.tests) % len(names)]

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
        tests = condition.row.tests if verdict.cleared else condition.row.tests + 1
        condition.row = msgspec.structs.replace(condition.row, tests=tests, tested_at=now, note=note)
        if verdict.cleared:
            self._let_go(condition, verdict.room, now)
            return
        condition.flows = False
        self._test_later(condition, now, max(self.pause_s(condition), verdict.not_before_s))

    # -- who tests ----------------------------------------------------------------------------------------

    def on_hello(self, id: str, instance: str, info: WorkerInfo, held: Sequence[Held], now: float) -> int:
        if id in self.workers:
            self._leave_site(id)
        number = super().on_hello(id, instance, info, held, now)
        for site in (info.site, EVERYWHERE):
            self._sites.setdefault(site, {})[id] = self.workers[id]
        self._ask_others(id, now)
        for place in (f"{Place.SITE}:{info.site}", f"{Place.SITE}:{EVERYWHERE}", f"{Place.WORKER}:{id}"):
            for condition in self._unasked.pop(place, {}).values():
                if self.conditions.get(condition.id) is condition and not condition.probe:
                    self._test(condition, now)
        self._relieve(self.workers[id], now)
        return number

    def _relieve(self, newcomer: Worker, now: float) -> None:
        """It may run what waits for another worker to be well again."""
        for id, conditions in list(self._at_worker.items()):
            for condition in list(conditions.values()) if id != newcomer.id else ():
                able = [job for job in condition.jobs.values() if self._suits(newcomer, job, now)]
                if condition.row.own and able:
                    self._release(condition, condition.count, f"{newcomer.id} can run them", now)

    def _suits(self, worker: Worker, job: Job, now: float) -> bool:
        return (
            worker.takes_more
            and worker.id not in job.refused_by
            and job.kind.suits(worker.shape(self.ready.significant))
            and job.kind.allows(worker, now)
        )

    def on_link_closed(self, id: str, now: float) -> None:
        super().on_link_closed(id, now)
        self._leave_site(id)
        self._ask_others(id, now)

    def on_bye(self, id: str, now: float) -> None:
        super().on_bye(id, now)
        self._leave_site(id)
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
            self._test(condition, now)

    def _give_up_on(self, worker: Worker, now: float) -> None:
        """What was wrong there need not hold up its tasks elsewhere."""
        super()._give_up_on(worker, now)
        for condition in list(self._at_worker.get(worker.id, {}).values()):
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


def limit_s(condition: Condition) -> float:
    """How long one test may take."""
    return min(TEST_LIMIT_MOST_S, max(TEST_LIMIT_S, condition.policy.pause_s(condition.row.tests)))


def _place(row: ConditionRow) -> str:
    return f"{row.place}:{row.where}"
