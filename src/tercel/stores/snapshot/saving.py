"""A store -> a file: jobs that were chosen, with what they need, as they stood at one moment.

A job that is needed by a chosen one comes along, and what that needs: without it, nobody could say whether the need is met. What
is under way is not in the file; restored, it is ready. Nothing of tokens, queues or workers is, but for the names of workers
that ran something.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tercel import __version__
from tercel.core.changes import LiveJob
from tercel.core.intervals import Range
from tercel.stores.contract import Store, needed_by
from tercel.stores.snapshot.contract import Reading
from tercel.stores.snapshot.files import Writer, writing
from tercel.stores.snapshot.records import BlockedPart, CallsPart, ConditionPart, Header, JobPart, Part


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are to be in a snapshot, and who says so."""

    jobs: frozenset[int] | None = None
    """None: all there are."""
    owner: str | None = None
    """None: of all owners."""
    why: str = ""


def save(store: Store, path: Path, choice: Choice, id: str, now: float) -> Header:
    """Write a snapshot. It is there when it is whole; else there is nothing."""
    with writing(path) as file, store.reading() as reading:
        writer = Writer(file)
        try:
            told = _parts(reading, choice, id, now)
            header = next(told)
            assert isinstance(header, Header)
            writer.add(header)
            for part in told:
                writer.add(part)
            writer.finish()
        finally:
            writer.close()
    return header


def _parts(reading: Reading, choice: Choice, id: str, now: float) -> Iterator[Part]:
    lives = _chosen(reading, choice)
    yield Header(
        id=id,
        saved_at=now,
        version=__version__,
        why=choice.why,
        jobs=tuple(sorted(lives)),
        owners=tuple(sorted({live.job.owner for live in lives.values()})),
        tasks=sum(live.job.task_count for live in lives.values()),
        ended=sum(map(ended_count, lives.values())),
    )
    awaited = {condition for live in lives.values() for condition, *_ in live.blocked}
    rows = {number: reading.condition(number) for number in sorted(awaited)}
    conditions = {number: row for number, row in rows.items() if row is not None and row.closed_at is None}
    for row in conditions.values():
        yield ConditionPart(row)
    named: dict[str, None] = {}
    for number in sorted(lives):
        live = lives.pop(number)
        yield JobPart(live.job, tuple(live.edges))
        function = live.job.spec.function
        if function is not None and function.value:
            named[function.value] = None
        for part in reading.parts(number):
            if isinstance(part, CallsPart):
                named |= {key: None for call in part.calls for key in call.values if key.startswith("b")}
            if isinstance(part, BlockedPart):
                # Of a condition that is closed nothing is to be expected any more: what waits for it is ready.
                waiting = [row for row in part.rows if row[2] in conditions]
                part = BlockedPart(part.job, waiting, part.stage)
            yield part
    for key in named:
        yield from reading.value(key)


def _chosen(reading: Reading, choice: Choice) -> dict[int, LiveJob]:
    """Those that were chosen, and what they need."""
    todo = sorted(reading.job_ids(choice.owner) if choice.jobs is None else choice.jobs)
    lives: dict[int, LiveJob] = {}
    while todo:
        number = todo.pop()
        if number in lives or (live := reading.live(number)) is None:
            continue
        if choice.owner is None or live.job.owner == choice.owner:
            lives[number] = live
            todo += needed_by(live) - lives.keys()
    return lives


def ended_count(live: LiveJob) -> int:
    return sum(_count(ranges) for ranges in (live.finished, live.failed, live.cancelled))


def _count(ranges: Iterable[Range]) -> int:
    return sum(last - first + 1 for first, last in ranges)
