"""Attempts under way, and the leases that they were issued with. No decisions here.

A Flight stands in its job's `flights` (by task) and in its worker's (by attempt).
"""

from typing import TYPE_CHECKING

from tercel.core.intervals import IntervalSet
from tercel.core.model import Lease, Needs
from tercel.core.states import Stage, TaskState

if TYPE_CHECKING:
    from tercel.core.ledger import Job
    from tercel.core.workers import Worker


class LeaseBook:
    """Attempts issued together, how many of them are not concluded, and the rows that stand for them on disk."""

    __slots__ = ("charge", "cut", "needs", "open", "rows", "timed_from")

    def __init__(self, lease: Lease, needs: Needs, charge: float = 0.0) -> None:
        self.open = lease.last - lease.first + 1
        self.needs = needs
        """Of each task, as booked at the worker: the job's may be others by now."""
        self.charge = charge
        """What the accounts were charged in advance for each task, to be given back."""
        self.timed_from: float | None = None
        """The accounts are charged as time goes by, from when a second was worth so much."""
        self.rows = [lease]
        """At first the lease as it was issued; less what was cut out."""
        self.cut: list[int] = []
        """Concluded attempts that must disappear from the rows, because their tasks may run again."""

    def cut_out(self) -> tuple[list[int], list[Lease]]:
        """Take `cut` out of the rows. Returns the ids that are no more, and the rows that are new or smaller."""
        gone: list[int] = []
        fresh: list[Lease] = []
        rows: list[Lease] = []
        for row in self.rows:
            left = IntervalSet([(row.id, row.id + row.last - row.first)])
            for attempt in self.cut:
                left.discard(attempt)
            pieces = [
                Lease(low, row.worker, row.job, low - row.id + row.first, high - row.id + row.first)
                for low, high in left.ranges()
            ]
            if pieces[:1] != [row]:
                fresh += pieces
                if not pieces or pieces[0].id != row.id:
                    gone.append(row.id)
            rows += pieces
        self.rows, self.cut = rows, []
        return gone, fresh


class Flight:
    """One attempt under way, as far as the manager knows."""

    __slots__ = (
        "attempt",
        "ending",
        "gave_way_at",
        "job",
        "lease",
        "light",
        "moving",
        "outdone",
        "parked",
        "recalled",
        "running_since",
        "task",
        "worker",
    )

    def __init__(self, job: "Job", task: int, attempt: int, worker: "Worker", lease: LeaseBook) -> None:
        self.job = job
        self.task = task
        self.attempt = attempt
        self.worker = worker
        self.lease = lease
        self.running_since: float | None = None
        """None: offered, not known to run."""
        self.light = False
        """It takes no room at its worker any more: it has run, and only its files are under way."""
        self.moving: Stage | None = None
        """STAGE_IN or STAGE_OUT, while its worker is known to bring or deliver its files."""
        self.parked = False
        """A stray that has run: what it left is kept at its worker, which goes on with that when it is told to."""
        self.recalled = False
        """Asked back; it comes back or is reported."""
        self.ending = False
        """Its task is concluded already; it only still occupies its worker."""
        self.gave_way_at: float | None = None
        """A stray because an older attempt came back while this one's worker was away, since then."""
        self.outdone = False
        """A stray whose task has been tried since, and goes on: of this one only counts if it has finished it."""

    @property
    def state(self) -> TaskState:
        if self.moving is Stage.STAGE_OUT:
            return TaskState.STAGING_OUT
        if self.running_since is not None:
            return TaskState.RUNNING
        return TaskState.OFFERED if self.moving is None else TaskState.STAGING_IN
