"""A job by its number: as its owner may see it, and as the machine must know it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tercel.core.changes import LiveJob
from tercel.core.errors import NotFound, PassingFault
from tercel.core.model import JobRow
from tercel.manager.access import Identity
from tercel.manager.respelling import respelled_job
from tercel.manager.service import Manager

SETTLINGS = 5
"""How often a job that comes and goes (retried while somebody looks) is waited for."""


def find_job(manager: Manager, who: Identity, id: int, field: str = "job") -> JobRow:
    """The job, if it exists and the caller may see it; to others it does not exist."""
    job = manager.machine.jobs.get(id)
    row = job.row if job is not None else manager.store.job(id) if id < 2**62 else None
    if row is None or not who.may_see(row):
        raise NotFound(f"there is no job {id} (or it is not yours): see `tercel list`", field)
    return row


async def standing(manager: Manager, who: Identity, id: int, field: str = "job") -> JobRow:
    """As `find_job`; and if the machine does not know it (any more), the row tells how it ended.

    A job leaves the machine when its last task ends, a moment before the disk knows. Whoever looked in between
    would find it nowhere: nothing unfinished, nothing ended.
    """
    for _ in range(SETTLINGS):
        if id not in manager.machine.jobs:
            await manager.settled()
        row = find_job(manager, who, id, field)
        if id in manager.machine.jobs or row.ended_at is not None:
            return row
    raise PassingFault(f"how job {id} stands is being saved: ask again. {manager.trouble}".strip())


async def ended(manager: Manager, id: int) -> LiveJob:
    """All that is known of a job which the machine does not know (any more).

    It has ended; but how may still be on its way to the disk, and less than all would be wrong.
    """
    for _ in range(SETTLINGS):
        await manager.settled()
        manager.check_saving()
        live = await asyncio.to_thread(manager.store.live, id)
        if live is None:
            raise NotFound(f"there is no job {id}: see `tercel list`", "job")
        if live.job.ended_at is not None:
            return await respelled_job(manager.examiners, live)
    raise PassingFault(f"how job {id} ended is being saved: ask again")


@asynccontextmanager
async def pinned(manager: Manager, needed: set[int]) -> AsyncIterator[None]:
    """The machine knows these jobs, ended ones too, and does not forget them meanwhile."""
    machine = manager.machine
    for id in sorted(needed & manager.removing):
        raise NotFound(f"job {id} is being removed: it ended long ago", "job")
    for id in needed:
        machine.pin(id)
    try:
        for id in sorted(needed):
            if machine.find(id) is None:
                machine.remember(await ended(manager, id))
        yield
    finally:
        for id in needed:
            machine.unpin(id)
