"""Queues: who may change them, and how they stand."""

import msgspec

from tercel.core.errors import Forbidden, NotFound, PassingFault, UsageError
from tercel.core.model import QueueRow, Role
from tercel.core.rules import check_queue
from tercel.core.shares import Queue
from tercel.manager.access import Identity
from tercel.manager.service import Manager
from tercel.wire.api import QueueList, QueueSettings, QueueView

MAX_REASON = 500


def listed(manager: Manager) -> QueueList:
    machine = manager.machine
    busy = {job.queue.name for job in machine.jobs.values()}
    weights = sum(queue.row.weight for name, queue in machine.queues.items() if name in busy)
    had = {name: machine.usage_of(queue) for name, queue in machine.queues.items()}
    total = sum(had.values())
    return QueueList(
        queues=[
            _view(
                manager,
                queue,
                usage=had[name],
                share=had[name] / total if total else 0.0,
                fair=queue.row.weight / weights if name in busy else 0.0,
            )
            for name, queue in sorted(machine.queues.items())
        ]
    )


def _view(manager: Manager, queue: Queue, *, usage: float, share: float, fair: float) -> QueueView:
    jobs = [job for job in manager.machine.jobs.values() if job.queue is queue]
    row = queue.row
    return QueueView(
        name=row.name,
        owner=row.owner,
        weight=row.weight,
        max_running=row.max_running,
        max_queued=row.max_queued,
        user_max=row.user_max,
        paused=row.paused,
        jobs=len(jobs),
        ready=sum(len(job.ready) for job in jobs),
        waiting=sum(len(job.waiting) + len(job.paused) + len(job.blocked) for job in jobs),
        running=queue.account.under_way,
        usage=usage,
        share=share,
        fair=fair,
    )


async def change(manager: Manager, who: Identity, name: str, settings: QueueSettings) -> QueueView:
    """Make or change a queue. Only admins; but owners may pause and resume their own."""
    manager.check_saving()
    queue = manager.machine.queues.get(name)
    row = queue.row if queue is not None else QueueRow(name=name, owner=who.user)
    fields = {
        field: value
        for field in ("weight", "max_running", "max_queued", "user_max")
        if (value := getattr(settings, field)) is not None
    }
    own = name == who.user or (queue is not None and row.owner == who.user)
    if who.role is not Role.ADMIN and (fields or not own):
        raise Forbidden(
            f"queue {name[:80]!r}: only an admin makes queues and sets their weights and caps; the owner may pause it",
            "queue",
        )
    if len(settings.reason) > MAX_REASON or not settings.reason.isprintable():
        raise UsageError(f"a reason has at most {MAX_REASON} printable characters", "reason")
    if settings.paused is not None:
        fields["paused"] = _pause(who, settings.reason) if settings.paused else ""
    row = msgspec.structs.replace(row, **fields)
    check_queue(row)
    manager.machine.on_queue_set(row)
    await _saved(manager)
    return next(view for view in listed(manager).queues if view.name == name)


def _pause(who: Identity, reason: str) -> str:
    return f"paused by {who.user}" + (f": {reason}" if reason else "")


async def remove(manager: Manager, who: Identity, name: str) -> None:
    who.require(Role.ADMIN)
    queue = manager.machine.queues.get(name)
    if queue is None:
        raise NotFound(f"there is no queue {name[:80]!r}: see `tercel queue list`", "queue")
    unfinished = sum(1 for job in manager.machine.jobs.values() if job.queue is queue)
    if unfinished:
        jobs, them = ("job", "it") if unfinished == 1 else ("jobs", "them")
        raise UsageError(
            f"queue {name} has {unfinished:,} unfinished {jobs}: let {them} end, or cancel {them}, first",
            "queue",
        )
    manager.machine.on_queue_removed(name)
    await _saved(manager)


async def _saved(manager: Manager) -> None:
    manager.wake()
    await manager.settled()
    if manager.trouble:
        raise PassingFault(f"this is done as soon as it can be saved, which it cannot now: {manager.trouble}")
