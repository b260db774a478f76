"""Testers that ask the manager's own books: nothing outside is asked, so they answer at once.

    quota:queue=chem<50      tasks under way of a queue, a user, a node or those that hold a resource (licence.matlab)
    worker:worker.gpus >= 1  a worker is connected that meets a condition
    made:lfn:calib/2026      the catalogue has a file of that name; unused:lfn:…: it has none
    enabled:queue=chem       a queue is not paused; a worker (or node, or site) takes tasks; a system or application (app=matlab)
                             is not switched off

They say for how many there is room.
"""

import re

from tercel.core import cel
from tercel.core.books import Books
from tercel.core.cel import ExpressionError
from tercel.core.conditions import ConditionRow, Verdict
from tercel.core.errors import UsageError
from tercel.core.files import is_name
from tercel.core.kinds import where_of

KINDS = {
    "quota": "fewer tasks than so many are under way: quota:queue=chem<50, user=ada<10, node=n1<4, resource=licence.matlab<5",
    "worker": "a worker is connected that meets a condition: worker:worker.gpus >= 1",
    "made": "the catalogue has a file of this name: made:lfn:calib/2026",
    "unused": "the catalogue has no file of this name: unused:lfn:calib/2026",
    "enabled": "it is not turned off: enabled:queue=chem, worker=w1, node=n1, site=lab, or what `tercel switch` turns: "
    "app=matlab, system=hpc1",
}
_QUOTA = re.compile(r"(queue|user|node|resource)\s*=\s*([^\s<]{1,200})\s*<\s*([0-9]{1,9})")
_ENABLED = re.compile(r"(queue|worker|node|site|app|system)\s*=\s*(\S{1,200})")


def normalise_here(kind: str, text: str) -> str:
    """The one way in which it is written; UsageError if it means nothing."""
    text = text.strip()
    if kind == "worker":
        try:
            cel.where(text)
        except ExpressionError as error:
            raise UsageError(f"worker:{text[:100]}: {error}", "block_on") from None
        return text
    if kind in ("made", "unused"):
        if not is_name(text) or not text.isprintable():
            raise UsageError(f"{kind}:{text[:100]} is not one: {KINDS[kind]}", "block_on")
        return text
    match = (_QUOTA if kind == "quota" else _ENABLED).fullmatch(text)
    if match is None:
        raise UsageError(f"{kind}:{text[:100]} is not one: {KINDS[kind]}", "block_on")
    if kind == "quota":
        if int(match[3]) < 1:
            raise UsageError(f"quota:{text[:100]} never clears: fewer than 1 is none", "block_on")
        return f"{match[1]}={match[2]}<{int(match[3])}"
    return f"{match[1]}={match[2]}"


def verdict_here(books: Books, row: ConditionRow, now: float) -> Verdict:
    kind, _, text = row.tester.partition(":")
    if kind == "quota":
        return _quota(books, text)
    if kind == "worker":
        return _worker(books, text, now)
    if kind in ("made", "unused"):
        is_there = books.names.has(text)
        if is_there is None:
            return Verdict(False, 0, "the catalogue cannot be read just now")
        return Verdict(is_there == (kind == "made"), 0, "it is there" if is_there else "there is none")
    return _enabled(books, text)


def _quota(books: Books, text: str) -> Verdict:
    match = _QUOTA.fullmatch(text)
    if match is None:
        return Verdict(False, 0, f"{text} is no quota")
    of, name, most = match[1], match[2], int(match[3])
    used = _under_way(books, of, name)
    return Verdict(used < most, max(0, most - used), f"{used:,} of {most:,} under way")


def _under_way(books: Books, of: str, name: str) -> int:
    """Tasks, or (of a resource) what they hold of it."""
    if of == "queue":
        queue = books.queues.get(name)
        return queue.account.under_way if queue is not None else 0
    if of == "user":
        return sum(user.under_way for queue in books.queues.values() if (user := queue.users.get(name)))
    if of == "node":
        return sum(len(worker.flights) for worker in books.workers.values() if worker.info.node == name)
    held = sum(
        amount
        for worker in books.workers.values()
        for flight in worker.flights.values()
        for resource, amount in flight.lease.needs.resources
        if resource == name
    )
    return -(-held // 1000)


def _worker(books: Books, text: str, now: float) -> Verdict:
    where = where_of(text)
    able = [
        worker
        for worker in books.workers.values()
        if worker.takes_more and where is not None and where.evaluate(worker.attributes(now)) is True
    ]
    return Verdict(bool(able), 0, f"{len(able):,} of {len(books.workers):,} workers meet it")


def _enabled(books: Books, text: str) -> Verdict:
    of, _, name = text.partition("=")
    if of == "queue":
        queue = books.queues.get(name)
        paused = queue.row.paused if queue is not None else ""
        return Verdict(not paused, 0, paused or "enabled")
    if of in ("app", "system"):
        switch = books.switches.get(text)
        return Verdict(switch is None, 0, "enabled" if switch is None else f"off {switch.off}")
    here = [
        worker
        for worker in books.workers.values()
        if _names(of, name, worker.id, worker.info.node, worker.info.site)
    ]
    taking = [worker for worker in here if worker.takes_more]
    return Verdict(bool(taking), 0, f"{len(taking):,} of {len(here):,} workers take tasks")


def _names(of: str, name: str, id: str, node: str, site: str) -> bool:
    return name == {"worker": id, "node": node, "site": site}[of]
