"""What a store does for snapshots.

    reading    one committed state of it, for as long as that is held, beside everything else that goes on
    staging    parts of jobs that nobody sees yet, under numbers that nothing else has; then, by `adopt`, all of them at once

Staging and adopting are called where `commit` is, never between a `write` and its commit; each is durable when it returns, and
if it raises it has done nothing. What was staged and is not adopted, since it was unstaged or the store was opened anew, goes
with `clean`; its numbers are not used again.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tercel.core.changes import Change, LiveJob
from tercel.core.conditions import ConditionRow
from tercel.stores.snapshot.records import JobsPart, Restored, SegmentPart, ValuePart

ROWS = 10_000
"""Of one part, at most."""
PART_BYTES = 4 * 2**20
"""Of the outputs in one part, about."""

Placed = tuple[JobsPart, int]
"""A part under this manager's numbers; and, where it has attempts, the number of the first: the others follow."""


class Reading(Protocol):
    """One committed state of a store."""

    def job_ids(self, owner: str | None) -> list[int]:
        """Of all jobs, or all of an owner's, ascending."""

    def flow_ids(self, flow: int) -> list[int]:
        """Of all jobs of a flow, ascending."""

    def live(self, job: int) -> LiveJob | None:
        """A job with all that is known of its tasks, ended or not."""

    def parts(self, job: int) -> Iterator[JobsPart]:
        """What is known of a job beside its row and its edges, in the order of `records`."""

    def segments(self, attempt: int) -> Iterator[SegmentPart]:
        """The pieces of an attempt's output, as `parts` tells them."""

    def condition(self, id: int) -> ConditionRow | None: ...

    def value(self, key: str) -> Iterator[ValuePart]:
        """The pieces of an uploaded value; none if it is not there, or not wholly."""


class SnapshotStore(Protocol):
    def reading(self) -> AbstractContextManager[Reading]: ...

    def stage(self, jobs: Sequence[int], parts: Sequence[Placed]) -> None:
        """Keep parts of these jobs, which are all the jobs that will be adopted together."""

    def adopt(self, jobs: Sequence[int], changes: Sequence[Change], restored: Restored) -> None:
        """In one transaction: these jobs are staged no more, the changes (JobAdded and what belongs to them) are applied, and
        it is put down that the snapshot was restored."""

    def unstage(self, jobs: Sequence[int]) -> None:
        """They will not be adopted. Those that were, stay."""

    def restored(self, id: str) -> Restored | None:
        """Whether this snapshot was restored, and as what: the last time, if several."""
