"""The pool, and how the manager is doing."""

from tercel import __version__
from tercel.core.idling import why_idle
from tercel.core.workers import Worker
from tercel.manager.access import Identity
from tercel.manager.service import Manager
from tercel.manager.views import counts
from tercel.wire.api import Counts, Pool, Status, WorkerView


def worker_view(worker: Worker, now: float) -> WorkerView:
    facts, info = worker.facts, worker.info
    running = sum(1 for f in worker.flights.values() if f.running_since is not None)
    return WorkerView(
        id=worker.id,
        node=worker.info.node,
        state=worker.state,
        since=worker.since,
        cpus=worker.capacity.millicpus / 1000,
        mem_bytes=worker.capacity.mem_bytes,
        running=running,
        queued=len(worker.flights) - running,
        completed=worker.completed,
        version=worker.info.version,
        note="; ".join(filter(None, (worker.note, facts.note))),
        cpus_all=info.capacity.millicpus / 1000,
        site=info.site,
        os=info.os,
        arch=info.arch,
        gpus=len(info.gpus),
        tags=sorted(worker.tags),
        resources={name: amount / 1000 for name, amount in worker.capacity.resources},
        load=facts.load,
        cpus_free=facts.millicpus_free / 1000,
        mem_free_bytes=facts.mem_free_bytes,
        disk_free_bytes=facts.disk_free_bytes,
        time_left_s=None if worker.ends_at is None else max(0.0, worker.ends_at - now),
        unhealthy=facts.unhealthy,
        quarantined=worker.row.quarantined,
        reservation=worker.reservation.id if worker.reservation is not None else None,
        faults=dict(worker.conduct.faults),
        why=why_idle(worker, now),
    )


def pool(manager: Manager) -> Pool:
    workers = sorted(manager.machine.workers.values(), key=lambda w: (not w.online, w.id))
    online = [w for w in workers if w.online]
    now = manager.clock()
    return Pool(
        workers=[worker_view(worker, now) for worker in workers],
        online=len(online),
        cpus=sum(w.capacity.millicpus for w in online) / 1000,
    )


def status(manager: Manager, who: Identity) -> Status:
    jobs = [job for job in manager.machine.jobs.values() if who.may_see(job.row)]
    online = [w for w in manager.machine.workers.values() if w.online]
    each = [counts(job.row, job) for job in jobs]
    return Status(
        version=__version__,
        epoch=manager.machine.epoch,
        started_at=manager.started_at,
        user=who.user,
        role=who.role,
        jobs=len(jobs),
        counts=Counts(
            waiting=sum(c.waiting for c in each),
            paused=sum(c.paused for c in each),
            blocked=sum(c.blocked for c in each),
            ready=sum(c.ready for c in each),
            offered=sum(c.offered for c in each),
            staging_in=sum(c.staging_in for c in each),
            running=sum(c.running for c in each),
            staging_out=sum(c.staging_out for c in each),
            finished=sum(c.finished for c in each),
            failed=sum(c.failed for c in each),
            cancelled=sum(c.cancelled for c in each),
        ),
        workers=len(online),
        cpus=sum(w.capacity.millicpus for w in online) / 1000,
        trouble=manager.trouble,
    )
