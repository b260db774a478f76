"""What data tasks take, for ranks that ask where it is. Most jobs' ranks do not, and nothing is kept for those.

calls     the keys of the values that they name: known at once
files     the names and URLs of what they read, filled in for each task: found out in a thread, while the job runs already
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tercel.core.declared import Declared
from tercel.core.errors import PassingFault, UsageError
from tercel.core.inputs import Keys
from tercel.core.kinds import rank_of
from tercel.core.ledger import Job
from tercel.core.model import Call, JobRow
from tercel.stores.contract import Store

if TYPE_CHECKING:
    from tercel.manager.service import Manager

log = logging.getLogger("tercel.manager")

FILED_MOST = 1_000_000
"""Tasks of a job whose files are looked at: of larger ones, tasks go to wherever there is room."""
AT_ONCE = 10_000
"""Lines that are read in one go."""


def asked(row: JobRow) -> bool:
    """Whether the job's rank asks what data a worker has."""
    rank = rank_of(row.spec.rank) if row.spec.rank else None
    return rank is not None and rank.pair


def inputs_of(row: JobRow, calls: Sequence[Call]) -> Keys | None:
    """What each call takes; None if nobody asks."""
    if row.spec.function is None or not asked(row):
        return None
    return {task: call.values for task, call in enumerate(calls)}


def restored(job: Job, store: Store) -> Keys | None:
    """The same, of a job that was known before."""
    if job.row.spec.function is None or not asked(job.row):
        return None
    return inputs_of(job.row, store.calls(job.id, [(0, job.task_count - 1)]))


class FilesRead:
    """Of jobs whose ranks ask about files, found out beside everything else."""

    def __init__(self, manager: "Manager") -> None:
        self._manager = manager
        self._under_way: set[asyncio.Task[None]] = set()

    def look(self, job: Job) -> None:
        """One that has just been accepted, or is known again."""
        if job.row.spec.inputs and job.inputs is None and job.task_count <= FILED_MOST and asked(job.row):
            task = asyncio.get_running_loop().create_task(self._find(job.row))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _find(self, row: JobRow) -> None:
        try:
            keys = await asyncio.to_thread(files_read, row, self._manager.store)
        except (UsageError, PassingFault) as error:
            # Its tasks run all the same, wherever there is room.
            log.warning("cannot tell what files job %d reads: %s", row.id, error)
            return
        job = self._manager.machine.jobs.get(row.id)
        if job is not None:
            self._manager.machine.set_inputs(job, keys)
            self._manager.wake()

    def close(self) -> None:
        for task in list(self._under_way):
            task.cancel()


def files_read(row: JobRow, store: Store) -> Keys:
    """The sources of what each task reads. Raises UsageError or PassingFault."""
    declared = Declared(row.spec)
    found: dict[int, tuple[str, ...]] = {}
    for first, last in row.ranges:
        for begin in range(first, last + 1, AT_ONCE):
            end = min(last, begin + AT_ONCE - 1)
            has_items = row.has_lines and declared.pointed
            lines = store.lines(row.id, [(begin, end)]) if has_items else [""] * (end - begin + 1)
            for task, line in zip(range(begin, end + 1), lines, strict=True):
                found[task] = tuple(wanted.source for wanted in declared.inputs_of(row.id, task, line))
    return found
