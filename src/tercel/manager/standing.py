"""Quarantine, tags and reservations of workers: what admins ask for, checked, and how it stands."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from tercel.core import cel
from tercel.core.attributes import ATTRIBUTES, Of
from tercel.core.commands import MAX_SECONDS
from tercel.core.errors import NotFound, UsageError
from tercel.core.placement import check_tags
from tercel.core.presence import Reservation
from tercel.core.rules import check_queue_name
from tercel.core.standing import covers
from tercel.manager.access import Identity, Tokens
from tercel.manager.requests import check_reason, saved
from tercel.manager.service import Manager
from tercel.wire.api import NewReservation, ReservationList, ReservationView, TagChange

MAX_RESERVATIONS = 1000
MAX_WHERE = 4096
LASTING = frozenset({"worker.tags", "worker.cpus", "worker.mem", "worker.resource"})
"""What may change of a worker, but is not measured."""


# -- workers ----------------------------------------------------------------------------------------------


async def quarantine(manager: Manager, who: Identity, worker: str, reason: str) -> None:
    check_reason(reason)
    _check_known(manager, worker)
    manager.check_saving()
    manager.machine.on_quarantine(worker, who.user, reason, manager.clock())
    await saved(manager)


async def release(manager: Manager, worker: str) -> int:
    """Whether it was in quarantine."""
    _check_known(manager, worker)
    manager.check_saving()
    was = bool(manager.machine.row_of(worker).quarantined)
    manager.machine.on_end_quarantine(worker, manager.clock())
    await saved(manager)
    return int(was)


async def tag(manager: Manager, worker: str, change: TagChange) -> list[str]:
    """What it has then."""
    check_tags(change.add, "add")
    check_tags(change.remove, "remove")
    if not change.add and not change.remove:
        raise UsageError("no tag is named: say which to add or to remove", "add")
    if both := sorted(set(change.add) & set(change.remove)):
        raise UsageError(f"tag {both[0]} is to be added and removed: choose one", "add")
    _check_known(manager, worker)
    row = manager.machine.row_of(worker)
    check_tags({*row.tags, *row.lost_tags, *change.add, *change.remove}, "add")
    manager.check_saving()
    manager.machine.on_tag(worker, change.add, change.remove, manager.clock())
    await saved(manager)
    known = manager.machine.workers.get(worker)
    return sorted(known.tags if known is not None else manager.machine.row_of(worker).tags)


def _check_known(manager: Manager, worker: str) -> None:
    if worker not in manager.machine.workers and worker not in manager.machine.rows:
        raise NotFound(f"there is no worker {worker[:128]!r}: see `tercel pool --all`", "worker")


# -- reservations -----------------------------------------------------------------------------------------


async def reserve(manager: Manager, tokens: Tokens, who: Identity, new: NewReservation) -> ReservationView:
    _check(new)
    if len(manager.machine.reservations) >= MAX_RESERVATIONS:
        raise UsageError(f"there are {MAX_RESERVATIONS:,} reservations already: end some first", "where")
    manager.check_saving()
    now = manager.clock()
    reservation = Reservation(
        id=manager.machine.next_reservation,
        owner=who.user,
        where=new.where,
        queue=new.queue,
        user=new.user,
        since=now,
        until=now + new.for_s,
        lend=new.lend,
    )
    manager.machine.on_reserve(reservation, now)
    notes = list(_notes(manager, tokens, reservation))
    await saved(manager)
    return _view(manager, reservation, notes)


def _notes(manager: Manager, tokens: Tokens, reservation: Reservation) -> Iterator[str]:
    """What may not be as it was meant."""
    machine = manager.machine
    if reservation.queue and reservation.queue not in machine.queues:
        yield f"there is no queue {reservation.queue} so far{_near(reservation.queue, machine.queues)}"
    users = _users(manager, tokens)
    if reservation.user and reservation.user not in users:
        yield f"there is no user {reservation.user} so far{_near(reservation.user, users)}"
    earlier: dict[int, list[str]] = {}
    for worker in machine.workers.values():
        other = worker.reservation
        if not worker.online or other is None or other == reservation:
            continue
        if covers(reservation, worker, reservation.since):
            earlier.setdefault(other.id, []).append(worker.id)
    for id, workers in sorted(earlier.items()):
        names = ", ".join(sorted(workers)[:5]) + (", …" if len(workers) > 5 else "")
        yield f"reservation {id} has {len(workers):,} of its workers until it ends: {names}"


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _users(manager: Manager, tokens: Tokens) -> set[str]:
    """Of whom there is a token, or was a job."""
    machine = manager.machine
    owners = {job.row.owner for job in machine.jobs.values()}
    shares = {user for queue in machine.queues.values() for user in queue.users}
    return owners | shares | {token.user for token in tokens.all()}


def _check(new: NewReservation) -> None:
    if not new.queue and not new.user:
        raise UsageError("for whom? name a queue, a user or both", "queue")
    if new.queue:
        check_queue_name(new.queue)
    if len(new.user) > 64 or not new.user.isprintable():
        raise UsageError("a user's name has at most 64 printable characters", "user")
    if not 0 < new.for_s <= MAX_SECONDS:
        raise UsageError(f"for_s is {new.for_s:g}; it must be above 0 and at most {MAX_SECONDS:g}", "for_s")
    if len(new.where) > MAX_WHERE:
        raise UsageError(f"where has at most {MAX_WHERE:,} characters", "where")
    if new.where:
        _check_names(cel.where(new.where).attributes)


def _check_names(names: Iterable[str]) -> None:
    for name in sorted(names):
        of = ATTRIBUTES[name].of
        if of not in (Of.FIXED, Of.LIVE):
            raise UsageError(f"where: {name} is not a worker's own, and a reservation is of workers", "where")
        if of is Of.LIVE and name not in LASTING:
            raise UsageError(
                f"where: {name} changes all the time, and a worker is reserved when it joins: ask about what lasts, "
                "as its tags, site, cpus or mem",
                "where",
            )


async def unreserve(manager: Manager, id: int) -> None:
    if id not in manager.machine.reservations:
        raise NotFound(f"there is no reservation {id}: see `tercel reserve list`", "reservation")
    manager.check_saving()
    manager.machine.on_unreserve(id, manager.clock())
    await saved(manager)


def reservations(manager: Manager) -> ReservationList:
    found = sorted(manager.machine.reservations.items())
    return ReservationList(reservations=[_view(manager, reservation) for _, reservation in found])


def _view(manager: Manager, reservation: Reservation, notes: Iterable[str] = ()) -> ReservationView:
    workers = manager.machine.workers.values()
    return ReservationView(
        id=reservation.id,
        owner=reservation.owner,
        where=reservation.where,
        queue=reservation.queue,
        user=reservation.user,
        since=reservation.since,
        until=reservation.until,
        lend=reservation.lend,
        workers=sorted(w.id for w in workers if w.online and w.reservation == reservation),
        notes=list(notes),
    )
