"""The clock was set: what was to happen happens as much later or earlier by it, and nothing is late or early in truth.

Times that people chose stay: reservations end when they said, and what waits for a time of day looks at the new clock at once.
Those of what has been stay in histories; where something is reckoned from one (a test's patience, a quarantine), it is moved.
"""

import heapq

import msgspec

from tercel.core.blocked import moved
from tercel.core.changes import WorkerSet
from tercel.core.recovery import Recovery


class Clocks(Recovery):
    def on_clock_set(self, by_s: float) -> None:
        """Forward by so much; less than 0: back."""
        self._clock.move(by_s)
        self.throttle.move(by_s)
        self._releases.move(by_s)
        self._transfers.move(by_s)
        for stray in self._strays.values():
            if stray.gave_way_at is not None:
                stray.gave_way_at += by_s
        for worker in self.workers.values():
            worker.since += by_s
            if worker.ends_at is not None:
                worker.ends_at += by_s
            for flight in worker.flights.values():
                if flight.running_since is not None:
                    flight.running_since += by_s
        self._move_deadlines(by_s)
        self._move_quarantines(by_s)
        self._move_tests(by_s)

    def _move_deadlines(self, by_s: float) -> None:
        self._deadlines.clear()
        for worker in self.workers.values():
            if worker.lost_at is not None:
                self._set_deadline(worker, worker.lost_at + by_s)
        self._delays.clear()
        for job in self.jobs.values():
            for task, until in job.delayed.items():
                job.delayed[task] = until + by_s
                heapq.heappush(self._delays, (until + by_s, job.id, task))
            if job.passed_at is not None:
                job.passed_at += by_s
            if job.outranked_at is not None:
                job.outranked_at += by_s
        self._left = [(at + by_s, worker) for at, worker in self._left]
        self._avoided = [(at + by_s, worker, job, why) for at, worker, job, why in self._avoided]

    def _move_quarantines(self, by_s: float) -> None:
        self._pauses.clear()
        for row in list(self.rows.values()):
            if row.quarantined and row.pause_s:
                row = msgspec.structs.replace(row, quarantined_at=row.quarantined_at + by_s)
                self.rows[row.name] = row
                self.changes.append(WorkerSet(row))
                if (worker := self.workers.get(row.name)) is not None:
                    worker.row = row
                self._await_probe(row)

    def _move_tests(self, by_s: float) -> None:
        self._tests.clear()
        self._answers = [(at + by_s, number) for at, number in self._answers]
        for condition in {*self.conditions.values(), *self._known.values()}:
            condition.row = moved(condition.row, by_s)
            if condition.unasked_at is not None:
                condition.unasked_at += by_s
        for condition in self.conditions.values():
            if condition.row.tester.startswith("time:"):
                self._set(condition, next_test_at=self._clock.now)
            else:
                self._set(condition)
            self._await_test(condition)
