"""The clock was set: what was to happen happens as much later or earlier by it, and nothing is late or early in truth.

Times that people chose stay (reservations end when they said), and so do those of what has been.
"""

import heapq

from tercel.core.blocked import moved
from tercel.core.recovery import Recovery


class Clocks(Recovery):
    def on_clock_set(self, by_s: float) -> None:
        """Forward by so much; less than 0: back."""
        self._clock.move(by_s)
        self.throttle.move(by_s)
        self._releases.move(by_s)
        for worker in self.workers.values():
            if worker.ends_at is not None:
                worker.ends_at += by_s
            for flight in worker.flights.values():
                if flight.running_since is not None:
                    flight.running_since += by_s
        self._move_deadlines(by_s)
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
        self._avoided = [(at + by_s, worker, job, why) for at, worker, job, why in self._avoided]

    def _move_tests(self, by_s: float) -> None:
        self._tests.clear()
        self._answers = [(at + by_s, number) for at, number in self._answers]
        for condition in {*self.conditions.values(), *self._known.values()}:
            condition.row = moved(condition.row, by_s)
            if condition.unasked_at is not None:
                condition.unasked_at += by_s
        for condition in self.conditions.values():
            self._set(condition)
            self._await_test(condition)
