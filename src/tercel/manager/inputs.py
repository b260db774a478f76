"""What data tasks take, for ranks that ask where it is. Most jobs' ranks do not, and nothing is kept for those."""

from collections.abc import Sequence

from tercel.core.kinds import rank_of
from tercel.core.ledger import Job
from tercel.core.model import Call, JobRow
from tercel.stores.contract import Store


def asked(row: JobRow) -> bool:
    """Whether the job's rank asks what data a worker has, and its tasks take any."""
    rank = rank_of(row.spec.rank) if row.spec.function is not None else None
    return rank is not None and rank.pair


def inputs_of(row: JobRow, calls: Sequence[Call]) -> list[tuple[str, ...]] | None:
    """The keys of what each task takes; None if nobody asks."""
    return [call.values for call in calls] if asked(row) else None


def restored(job: Job, store: Store) -> list[tuple[str, ...]] | None:
    """The same, of a job that was known before."""
    if not asked(job.row):
        return None
    return inputs_of(job.row, store.calls(job.id, [(0, job.task_count - 1)]))
