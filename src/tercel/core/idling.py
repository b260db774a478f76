"""Why a worker takes no tasks, or not everybody's, in one sentence; empty if it takes what it is given."""

import shlex

from tercel.core.explain import reserved_for
from tercel.core.presence import Reservation, WorkerState
from tercel.core.standing import PROBES, probe_at
from tercel.core.workers import Worker

SOON_S = 600.0
"""A worker with so little time left takes few tasks."""


def why_idle(worker: Worker, now: float) -> str:
    if not worker.online:
        kept = [_why_quarantined(worker, now)] if worker.row.quarantined else []
        return "; ".join([_why_offline(worker, now), *kept])
    if worker.draining:
        return "draining: it finishes what it runs, takes nothing more, and leaves"
    reasons = []
    if worker.row.quarantined:
        reasons.append(_why_quarantined(worker, now))
    if worker.facts.unhealthy:
        reasons.append(f"unhealthy: {worker.facts.unhealthy}")
    if worker.reservation is not None:
        reasons.append(_why_reserved(worker.reservation, now))
    if worker.state is WorkerState.CLEANING:
        reasons.append("cleaning up after a task")
    elif worker.capacity.millicpus < worker.info.capacity.millicpus and not worker.capacity.millicpus:
        reasons.append("its node is busy with other things, and gives nothing to tasks for now")
    if worker.ends_at is not None and worker.ends_at - now < SOON_S:
        left = _span(max(0.0, worker.ends_at - now))
        reasons.append(f"its time is up in {left}: it takes only tasks that end before")
    if worker.saving_for is not None:
        reasons.append(f"it is being emptied for a large task of job {worker.saving_for.id}")
    return "; ".join(reasons)


def _why_offline(worker: Worker, now: float) -> str:
    if worker.note == "left":
        return f"left {_span(now - worker.since)} ago"
    away = f"away for {_span(now - worker.since)}"
    if worker.reported_state is WorkerState.CLEANING:
        return f"{away}, since it cleaned up: it may be restarting its machine, and is expected back"
    if worker.given_up or worker.lost_at is None:
        return f"{away}; what it had was given to others"
    left = _span(max(0.0, worker.lost_at - now))
    return f"{away}; others get what it has in {left} unless it comes back"


def _why_quarantined(worker: Worker, now: float) -> str:
    row = worker.row
    text = f"quarantined {row.quarantined}" if not row.pause_s else f"quarantined: {row.quarantined}"
    if not row.pause_s:
        return f"{text}; `tercel worker release {shlex.quote(worker.id)}` ends it"
    if worker.conduct.probing:
        return (
            f"{text}; it is tried with one task at a time, and {worker.conduct.passed} of {PROBES} went well"
        )
    return f"{text}; it is tried with a task in {_span(max(0.0, probe_at(row) - now))}"


def _why_reserved(reservation: Reservation, now: float) -> str:
    left = _span(max(0.0, reservation.until - now))
    lent = "; others may use it while it would be idle" if reservation.lend else ""
    return f"reserved for {reserved_for(reservation)} for another {left} (reservation {reservation.id}){lent}"


def _span(seconds: float) -> str:
    for unit, unit_s in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
