"""What workers ask and say about the files that they move."""

from typing import TYPE_CHECKING

from tercel.core.changes import ReplicaSet
from tercel.core.errors import PeerError
from tercel.core.files import ReplicaRow
from tercel.core.locating import MAX_URL_BYTES
from tercel.manager.hearing import legible
from tercel.wire.messages import Book, Booked, Locate, Located, Marked, Removed

if TYPE_CHECKING:
    from tercel.manager.conversation import Conversation
    from tercel.manager.service import Manager

NAMES_MOST = 1000
ENDPOINTS_MOST = 10
UNSAID = "a worker found it bad, and did not say why"


def take(manager: "Manager", who: "Conversation", said: Locate | Book | Marked | Removed, now: float) -> None:
    """Raises PeerError for what no worker of ours says."""
    match said:
        case Locate(number, names):
            _check(names, NAMES_MOST)
            who.post(Located(number, manager.catalogue.located(names)))
        case Book(number, endpoints):
            _check(endpoints, ENDPOINTS_MOST)
            who.post(Booked(number, manager.machine.book_transfers(endpoints, now)))
        case Marked(name, url, why):
            _check([name, url], 2)
            _mark(manager, name, url, legible(why).strip() or UNSAID, now)
        case Removed(id, task):
            job = manager.machine.jobs.get(id)
            flight = job.flights.get(task) if job is not None else None
            if flight is not None and flight.worker.id == who.worker:
                manager.machine.on_removed(id, task)


def _check(words: list[str], most: int) -> None:
    if len(words) > most or any(not 0 < len(word) <= MAX_URL_BYTES for word in words):
        raise PeerError("asks about too many files, or about names that no file has")


def _mark(manager: "Manager", name: str, url: str, why: str, now: float) -> None:
    """A replica that nobody knows is none."""
    for found in manager.catalogue.files([name]):
        if any(replica.url == url for replica in found.replicas):
            change = ReplicaSet(ReplicaRow(name=name, url=url, verified_at=now, bad=why))
            manager.machine.changes.append(change)
            manager.catalogue.note(change)
