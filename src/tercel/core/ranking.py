"""Which tasks of a line go to which of the workers that have room for them, where a rank prefers.

    ranks ask about the worker only            the best places are taken, in order of arrival
    about data that workers have (pair)        most tasks are alike to most workers: only those that are not are looked at
    about the single task                      all tasks of a window, for all workers

A rank that cannot be worked out (an attribute is missing, a division by zero, not a number) is the lowest of all.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from tercel.core import assign
from tercel.core.assign import LOWEST, MOST
from tercel.core.cel import Expression, Missing, Value
from tercel.core.ledger import Job
from tercel.core.ready import Line
from tercel.core.workers import Worker

if TYPE_CHECKING:
    import numpy

WINDOW = 4_096
"""So many tasks are compared at a time where each must be looked at ..."""
SLOW_WINDOW = 256
"""... and so many if one by one."""
PLACES_AT_ONCE = 2_000
TAKERS_MOST = 64
"""Of one piece of data, beside as many as there are places."""

Task = tuple[Job, int]
Pairs = list[tuple[Worker, Job, int]]


class Crowd:
    """Tasks to choose from: of all jobs of a line, or of one that has waited long enough."""

    def __init__(self, line: Line, only: Job | None = None) -> None:
        self.kind = line.kind[0]
        self._line = line
        self._only = only

    def jobs(self) -> Iterable[Job]:
        return self._line.jobs() if self._only is None else (self._only,)

    @property
    def has_inputs(self) -> bool:
        return bool(self._line.takers)

    def near(self, keys: Collection[str]) -> Iterator[Job]:
        """Jobs that take any of these data."""
        if self._only is not None:
            if self._only.inputs is not None:
                yield self._only
            return
        for id in self._line.takers.near(keys):
            if (job := self._line.member(id)) is not None:
                yield job

    def tasks(self) -> Iterator[Task]:
        """What may go, in order of arrival."""
        for job in self.jobs():
            for task in islice(job.ready.lowest(), min(len(job.ready), job.cap_room)):
                yield job, task

    def supply(self, most: int) -> int:
        """How many tasks may go; not counted beyond `most`."""
        count = 0
        for job in self.jobs():
            count += min(len(job.ready), job.cap_room)
            if count >= most:
                return most
        return count


def choose(crowd: Crowd, places: list[Worker], count: int, now: float) -> Pairs:
    """The best `count` pairs of a task and a place. A worker with room for several is named as often.

    There are at least so many tasks, and so many places.
    """
    rank = crowd.kind.rank
    assert rank is not None
    ranks = Ranks(crowd.kind.rank, crowd.kind.job, now)
    if rank.per_task:
        return _choose_each(crowd, places, count, ranks)
    if rank.pair and crowd.has_inputs:
        if len(places) > count:
            return _choose_places(crowd, places, count, ranks)
        return _choose_tasks(crowd, places, ranks)
    chosen = sorted(places, key=ranks.base, reverse=True)[:count] if len(places) > 1 else places[:count]
    return [(worker, job, task) for worker, (job, task) in zip(chosen, crowd.tasks(), strict=False)]


class Ranks:
    """What a rank says of workers."""

    def __init__(self, rank: Expression | None, job: Mapping[str, Value], now: float) -> None:
        assert rank is not None
        self.rank = rank
        self._job = job
        self._now = now
        self._base: dict[str, float] = {}

    def attributes(self, worker: Worker) -> dict[str, Value]:
        return {**worker.attributes(self._now), **self._job}

    def base(self, worker: Worker) -> float:
        """Of a task none of whose data is there."""
        rank = self._base.get(worker.id)
        if rank is None:
            rank = self._base[worker.id] = number(self.rank.evaluate(self.attributes(worker)))
        return rank

    def with_data(self, worker: Worker, found: dict[Task, int]) -> dict[Task, float]:
        if not found:
            return {}
        attributes = self.attributes(worker)
        by_size: dict[int, float] = {}
        for size in set(found.values()):
            attributes["worker.cached_bytes"] = size
            by_size[size] = number(self.rank.evaluate(attributes))
        return {task: by_size[size] for task, size in found.items()}


def number(value: "Value | Missing") -> float:
    return min(max(float(value), -MOST), MOST) if isinstance(value, int | float) else LOWEST


def data_at(worker: Worker, crowd: Crowd, most: int) -> dict[Task, int]:
    """Tasks whose data is (partly) there, and how many bytes of it."""
    found: dict[Task, int] = {}
    cached = worker.cached
    for job in crowd.near(cached) if cached else ():
        inputs = job.inputs
        assert inputs is not None
        for key in cached if len(cached) <= len(inputs) else inputs.keys():
            if (size := cached.get(key)) is not None:
                for task in inputs.takers(key, job.ready, job.waiting, min(most, job.cap_room)):
                    found[job, task] = found.get((job, task), 0) + size
    return found


def _choose_tasks(crowd: Crowd, places: list[Worker], ranks: Ranks) -> Pairs:
    """Enough tasks for all places."""
    most = TAKERS_MOST + len(places)
    special = {w: ranks.with_data(w, data_at(w, crowd, most)) for w in dict.fromkeys(places)}
    numbers = {task: at for at, task in enumerate(dict.fromkeys(t for row in special.values() for t in row))}
    names = list(numbers)
    rows = {w: {numbers[task]: rank for task, rank in row.items()} for w, row in special.items()}
    chosen = assign.best_with_rest([ranks.base(w) for w in places], [rows[w] for w in places])
    taken = {names[column] for column in chosen if column >= 0}
    rest = _others(crowd, taken, numbers)
    pairs: Pairs = []
    for worker, column in zip(places, chosen, strict=True):
        task = names[column] if column >= 0 else next(rest, None)
        if task is not None:
            pairs.append((worker, *task))
    return _within_caps(pairs)


def _others(crowd: Crowd, taken: set[Task], special: Mapping[Task, int]) -> Iterator[Task]:
    """For whoever has no data of interest: what is of no interest to others first, if there is such."""
    kept: list[Task] = []
    for task in crowd.tasks():
        if task in taken:
            continue
        if task not in special:
            yield task
        elif len(kept) < WINDOW:
            kept.append(task)
    yield from kept


def _choose_places(crowd: Crowd, workers: list[Worker], count: int, ranks: Ranks) -> Pairs:
    """More places than tasks: some at a time, each looks at the places best for any task and those with its data."""
    pairs: Pairs = []
    places = sorted(workers, key=ranks.base, reverse=True)
    tasks = [task for task, _ in zip(crowd.tasks(), range(count), strict=False)]
    for start in range(0, len(tasks), PLACES_AT_ONCE):
        some = tasks[start : start + PLACES_AT_ONCE]
        wanted = set(some)
        near = dict.fromkeys(range(min(len(some), len(places))))
        special: dict[Worker, dict[Task, float]] = {}
        for at, worker in enumerate(places):
            if worker not in special:
                data = data_at(worker, crowd, TAKERS_MOST + len(workers))
                special[worker] = ranks.with_data(worker, {t: n for t, n in data.items() if t in wanted})
            if special[worker]:
                near[at] = None
        columns = list(near)
        rows = [[special[places[at]].get(task, ranks.base(places[at])) for at in columns] for task in some]
        chosen = assign.best(rows)
        pairs += [(places[columns[c]], *task) for task, c in zip(some, chosen, strict=True) if c >= 0]
        gone = {columns[c] for c in chosen if c >= 0}
        places = [place for at, place in enumerate(places) if at not in gone]
    return pairs


def _choose_each(crowd: Crowd, workers: list[Worker], count: int, ranks: Ranks) -> Pairs:
    """All tasks of a window with all places."""
    places = workers[:PLACES_AT_ONCE]
    most = max(len(places), WINDOW if ranks.rank.vectorisable else SLOW_WINDOW)
    tasks = [task for task, _ in zip(crowd.tasks(), range(most), strict=False)]
    rows = {}
    for worker in dict.fromkeys(places):
        data = data_at(worker, crowd, most) if ranks.rank.pair else {}
        rows[worker] = _row(ranks, worker, tasks, data)
    chosen = assign.best([rows[worker] for worker in places])  # type: ignore[misc]
    pairs = [(worker, *tasks[column]) for worker, column in zip(places, chosen, strict=True) if column >= 0]
    return _within_caps(pairs)[:count]


def _row(
    ranks: Ranks, worker: Worker, tasks: list[Task], data: dict[Task, int]
) -> "numpy.ndarray | list[float]":
    attributes = ranks.attributes(worker)
    if ranks.rank.vectorisable:
        columns: dict[str, numpy.ndarray | Value] = dict(attributes)
        columns["task.id"] = assign.column([task for _, task in tasks])
        columns["worker.cached_bytes"] = assign.column([data.get(task, 0) for task in tasks])
        return ranks.rank.over(columns)
    row = []
    for job, task in tasks:
        attributes["task.id"], attributes["worker.cached_bytes"] = task, data.get((job, task), 0)
        row.append(number(ranks.rank.evaluate(attributes)))
    return row


def _within_caps(pairs: Pairs) -> Pairs:
    """Of each job, not more than may be under way."""
    left: dict[int, int] = {}
    kept = []
    for worker, job, task in pairs:
        room = left.setdefault(job.id, job.cap_room)
        if room > 0:
            left[job.id] = room - 1
            kept.append((worker, job, task))
    return kept
