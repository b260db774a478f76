"""Kinds of tasks and shapes of workers: who may run what is asked once for each pair of these, never task by task.

A *kind* is all that jobs ask of a worker; jobs that ask for the same are of one kind. A *shape* is all that kinds ask
about, of a worker: workers that differ only in what nobody asks about have one shape. What nobody asks about is most of
it, so a pool of thousands has a few shapes; but what somebody asks about is part of it from then on.

Some attributes are a worker's own (its name, what it measures): a kind that asks about those is `particular`, and each
worker is asked by itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tercel.core import cel
from tercel.core.attributes import ATTRIBUTES, Of
from tercel.core.cel import Expression, ExpressionError, Value
from tercel.core.model import JobRow, Needs
from tercel.core.resources import Stock

if TYPE_CHECKING:
    from tercel.core.workers import Worker

OWN = frozenset(
    {
        "worker.name",
        "worker.node",
        "worker.cpus_free",
        "worker.mem_free",
        "worker.disk_free",
        "worker.load",
        "worker.tasks",
        "worker.time_left",
    }
)
"""Attributes that are never part of a shape."""
KINDS_MOST = 10_000
VERDICTS_MOST = 20_000
"""Of one kind on shapes, some of which nobody has any more."""
_NO_TAGS: frozenset[str] = frozenset()


class Shape:
    """What some workers have in common. Compared by identity: there is one of each."""

    __slots__ = ("_stock", "attributes", "capacity", "generation", "python", "tags")

    def __init__(
        self, worker: "Worker", attributes: Mapping[str, Value], tags: frozenset[str], generation: int
    ) -> None:
        self.generation = generation
        self.capacity = worker.info.capacity
        self.python = worker.python
        self.attributes = attributes
        """Those that some kind asks about."""
        self.tags = tags
        self._stock = Stock(self.capacity, worker.info.indices)

    def has(self, needs: Needs) -> bool:
        """Whether such a task would fit if nothing else ran."""
        return (
            needs.millicpus <= self.capacity.millicpus
            and needs.mem_bytes <= self.capacity.mem_bytes
            and (not needs.python or needs.python == self.python)
            and (not needs.resources or self._stock.slots(needs.resources) > 0)
        )


class Kind:
    """Compared by identity: there is one of each, mostly. Where there are two, jobs just stand in two lines."""

    __slots__ = (
        "_generation",
        "_verdicts",
        "job",
        "needs",
        "particular",
        "rank",
        "requires",
        "span_s",
        "where",
    )

    def __init__(
        self,
        needs: Needs,
        requires: frozenset[str] = _NO_TAGS,
        where: Expression | None = None,
        rank: Expression | None = None,
        span_s: float = 0.0,
        job: Mapping[str, Value] | None = None,
    ) -> None:
        self.needs = needs
        self.requires = requires
        self.where = where
        self.rank = rank
        self.span_s = span_s
        """How long a task of it may take, as far as is known; 0: nothing is."""
        self.job = job or {}
        """What its expressions ask about the job."""
        self.particular = where is not None and not OWN.isdisjoint(where.attributes)
        self._verdicts: dict[Shape, bool] = {}
        """On the shapes of one generation: there are no others any more."""
        self._generation = -1

    def suits(self, shape: Shape) -> bool:
        """Whether workers of this shape could run it; if it is particular, each must be asked beside that."""
        verdict = self._verdicts.get(shape)
        if verdict is None:
            if shape.generation != self._generation or len(self._verdicts) >= VERDICTS_MOST:
                self._verdicts.clear()
                self._generation = shape.generation
            verdict = self._verdicts[shape] = self._suits(shape)
        return verdict

    def _suits(self, shape: Shape) -> bool:
        if not shape.has(self.needs) or not self.requires <= shape.tags:
            return False
        if self.where is None or self.particular:
            return True
        return self.where.evaluate({**shape.attributes, **self.job}) is True

    def allows(self, worker: "Worker", now: float) -> bool:
        """What a shape does not tell: of this worker, at this time."""
        if self.outlasts(worker, now):
            return False
        if not self.particular or self.where is None:
            return True
        return self.where.evaluate({**worker.attributes(now), **self.job}) is True

    def outlasts(self, worker: "Worker", now: float) -> bool:
        """Whether it would not be over before the worker's time is up."""
        return worker.ends_at is not None and self.span_s > 0 and now + self.span_s > worker.ends_at


class Significant:
    """What kinds ask about by now, and so the shapes of workers."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.tags: set[str] = set()
        """Those that some kind requires and some worker has (or had)."""
        self.asks_time = False
        """Whether any kind asks how much time a worker has left."""
        self.generation = 0
        """Grows whenever shapes must be drawn anew."""
        self._required: set[str] = set()
        self._had: set[str] = set()
        self._shapes: dict[tuple[object, ...], Shape] = {}

    def note(self, kind: Kind) -> None:
        """Jobs of this kind are about to wait."""
        if kind.where is not None:
            self.asks_time = self.asks_time or "worker.time_left" in kind.where.attributes
            asked = kind.where.attributes - OWN - self.names
            names = {name for name in asked if ATTRIBUTES[name].of is not Of.JOB}
            if names:
                self.names |= names
                self._draw_anew()
        if not kind.requires <= self._required:
            self._required |= kind.requires
            self._match_tags(kind.requires & self._had)

    def note_tags(self, tags: frozenset[str]) -> None:
        """Of a worker."""
        if not tags <= self._had:
            self._had |= tags
            self._match_tags(tags & self._required)

    def _match_tags(self, tags: frozenset[str]) -> None:
        """A tag that is required and that nobody has needs no shape: no worker has one with it."""
        if not tags <= self.tags:
            self.tags |= tags
            self._draw_anew()

    def _draw_anew(self) -> None:
        self.generation += 1
        self._shapes.clear()

    def shape(self, worker: "Worker") -> Shape:
        info = worker.info
        tags = worker.tags & self.tags if self.tags else _NO_TAGS
        asked = [worker.tell(name) for name in self.names]
        indices = tuple(sorted(info.indices.items())) if info.indices else ()
        key = (info.capacity, info.python, tags, indices, *map(_hashable, asked))
        shape = self._shapes.get(key)
        if shape is None:
            told = {name: value for name, value in zip(self.names, asked, strict=True) if value is not None}
            shape = self._shapes[key] = Shape(worker, told, tags, self.generation)
        return shape


def _hashable(value: Value) -> object:
    return tuple(sorted(value.items())) if type(value) is dict else value


_KINDS: dict[tuple[object, ...], Kind] = {}


def kind_of(row: JobRow, span_s: float = 0.0) -> Kind:
    """The kind of a job's tasks. `span_s` is how long they take, where the job itself sets no limit."""
    spec = row.spec
    needs, span_s = spec.needs, spec.time_limit_s or span_s
    if not spec.where and not spec.rank and not spec.requires:
        key: tuple[object, ...] = (needs, span_s)
        return _KINDS.get(key) or _new(key, Kind(needs, span_s=span_s))
    where, rank = where_of(spec.where), rank_of(spec.rank)
    job = _asked_of_job(row, where, rank)
    requires = frozenset(spec.requires)
    key = (needs, span_s, requires, spec.where, spec.rank, *job.items())
    return _KINDS.get(key) or _new(key, Kind(needs, requires, where, rank, span_s, job))


def where_of(text: str) -> Expression | None:
    """Of a job that was accepted: by an earlier version, perhaps, that took what this one refuses. Then nobody may run it."""
    try:
        return cel.where(text) if text else None
    except ExpressionError:
        return cel.where("false")


def rank_of(text: str) -> Expression | None:
    """Likewise; then nobody is preferred."""
    try:
        return cel.rank(text) if text else None
    except ExpressionError:
        return None


def _new(key: tuple[object, ...], kind: Kind) -> Kind:
    if len(_KINDS) >= KINDS_MOST:
        _KINDS.clear()
    _KINDS[key] = kind
    return kind


def _asked_of_job(row: JobRow, *expressions: Expression | None) -> dict[str, Value]:
    names = {name for one in expressions if one is not None for name in one.attributes}
    if not any(ATTRIBUTES[name].of is Of.JOB for name in names):
        return {}
    spec = row.spec
    attributes: dict[str, Value] = {
        "task.job": row.id,
        "task.name": spec.name,
        "task.owner": row.owner,
        "task.queue": spec.queue or row.owner,
        "task.cpus": spec.cpus,
        "task.gpus": spec.gpus,
        "task.mem": spec.mem_bytes,
        "task.priority": spec.priority,
    }
    if spec.time_limit_s:
        attributes["task.time_limit"] = spec.time_limit_s
    return {name: value for name, value in attributes.items() if name in names}
