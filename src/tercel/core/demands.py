"""What a job asks of a worker, one demand after the other, and how the workers that there are measure up to it.

For `explain`: which demand nobody meets, who comes nearest, and what to give up.
"""

from collections.abc import Callable, Iterator

import msgspec

from tercel.core import cel
from tercel.core.attributes import ATTRIBUTES
from tercel.core.cel import Expression, Value
from tercel.core.kinds import where_of
from tercel.core.ledger import Job
from tercel.core.model import JobSpec
from tercel.core.resources import Stock
from tercel.core.sizes import size
from tercel.core.workers import Worker

SHOWN = 3
"""Demands that nobody meets, at most."""

_WORDS = {
    "worker.gpu.mem": "GPU memory",
    "worker.gpu.model": "GPU model",
    "worker.mem": "memory",
    "worker.mem_free": "free memory",
    "worker.disk": "disk",
    "worker.disk_free": "free disk",
    "worker.cpus": "cpus",
    "worker.cpus_free": "idle cpus",
    "worker.gpus": "GPUs",
}
_SIGNS = {">=": "≥", "<=": "≤", "==": "=", "!=": "≠", ">": ">", "<": "<"}


class Demand(msgspec.Struct, frozen=True):
    words: str
    flag: str
    """What could be left out to do without it."""
    meets: Callable[[Worker], bool]
    best: Callable[[list[Worker]], str]
    """Who comes nearest, in words; empty if nobody comes near or it is not a matter of more or less."""
    it: str = "it"
    """Or `them`."""


def demands(job: Job, now: float, ever: set[str]) -> Iterator[Demand]:
    """`ever`: attributes and resources that any worker has had."""
    spec, needs = job.row.spec, job.needs
    yield _amount("cpus", needs.millicpus / 1000, lambda w: w.info.capacity.millicpus / 1000, _plain)
    if needs.mem_bytes:
        yield _amount("memory", needs.mem_bytes, lambda w: w.info.capacity.mem_bytes, _size)
    for name, amount in needs.resources:
        yield _resource(name, amount, ever)
    if needs.python:
        words = f"Python {needs.python}, under which the function was pickled"
        yield Demand(words, "", lambda w: w.python == needs.python, _pythons)
    for tag in spec.requires:
        yield Demand(f"the tag {tag}", f"--requires {tag}", _has_tag(tag), lambda _: "")
    if spec.where:
        yield from _clauses(spec, job, now, ever)


def _amount(
    words: str, needed: float, has: Callable[[Worker], float], tell: Callable[[float], str]
) -> Demand:
    def best(workers: list[Worker]) -> str:
        return f"the largest has {tell(max(map(has, workers)))}"

    return Demand(f"{words} ≥ {tell(needed)}", "", lambda worker: has(worker) >= needed, best, _it(words))


def _it(words: str) -> str:
    return "them" if words in ("cpus", "gpus") else "it"


def _plain(number: float) -> str:
    return f"{number:g}"


def _size(number: float) -> str:
    return size(int(number))


def _resource(name: str, amount: int, ever: set[str]) -> Demand:
    only = ((name, amount),)
    flag = "--gpus" if name == "gpus" else f"--resource {name}"

    def total(worker: Worker) -> int:
        return dict(worker.info.capacity.resources).get(name, 0)

    def best(workers: list[Worker]) -> str:
        if f"resource {name}" not in ever:
            return f"no worker has ever had {'a GPU' if name == 'gpus' else 'any'}"
        most = max(workers, key=total)
        return f"nearest {most.id} has {total(most) / 1000:g}" if total(most) else "none has any now"

    def meets(worker: Worker) -> bool:
        return Stock(worker.info.capacity, worker.info.indices).slots(only) > 0

    return Demand(f"{'GPUs' if name == 'gpus' else name} ≥ {amount / 1000:g}", flag, meets, best, _it(name))


def _has_tag(tag: str) -> Callable[[Worker], bool]:
    return lambda worker: tag in worker.tags


def _pythons(workers: list[Worker]) -> str:
    return f"they run Python {', '.join(sorted({worker.python for worker in workers}))}"


def _clauses(spec: JobSpec, job: Job, now: float, ever: set[str]) -> Iterator[Demand]:
    where = where_of(spec.where)
    for clause in where.clauses if where is not None else ():
        flag = f"--where '{clause.text}'"
        compared = cel.comparison(clause)
        meets = _meets(clause, job, now)
        if compared is None:
            yield Demand(clause.text, flag, meets, _missing(clause, ever))
        else:
            words, best = _compared(clause, *compared, now, ever)
            yield Demand(words, flag, meets, best)


def _meets(clause: Expression, job: Job, now: float) -> Callable[[Worker], bool]:
    return lambda worker: clause.evaluate({**worker.attributes(now), **job.kind.job}) is True


def _missing(clause: Expression, ever: set[str]) -> Callable[[list[Worker]], str]:
    names = sorted(name for name in clause.attributes if name.startswith("worker.") and name not in ever)
    names += sorted(f'worker.resource["{key}"]' for key in clause.keys if f"resource {key}" not in ever)
    return lambda _: f"no worker has ever had {' or '.join(names)}" if names else ""


def _compared(
    clause: Expression, name: str, op: str, bound: Value, now: float, ever: set[str]
) -> tuple[str, Callable[[list[Worker]], str]]:
    attribute = ATTRIBUTES[name]

    def tell(value: Value) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return size(int(value)) if attribute.unit == "bytes" else f"{value:g}"
        return str(value)

    def best(workers: list[Worker]) -> str:
        if ever_missing := _missing(clause, ever)(workers):
            return ever_missing
        having = [(w, value) for w in workers if (value := w.attributes(now).get(name)) is not None]
        if not having:
            return "none has it now"
        numbers = [(value, w.id) for w, value in having if isinstance(value, int | float)]
        if op in ("==", "!=") or len(numbers) < len(having):
            return f"they have {', '.join(sorted({tell(value) for _, value in having})[:SHOWN])}"
        value, id = max(numbers) if op.startswith(">") else min(numbers)
        return f"nearest {id} has {tell(value)}"

    return f"{_WORDS.get(name, name)} {_SIGNS[op]} {tell(bound)}", best


def why_nobody(job: Job, workers: list[Worker], now: float, ever: set[str]) -> str:
    """None of these workers meets all that the job asks: what is in the way, and what to give up."""
    asked = list(demands(job, now, ever))
    met = [{worker.id for worker in workers if one.meets(worker)} for one in asked]
    hopeless = [one for one, by in zip(asked, met, strict=True) if not by]
    if hopeless:
        told = [
            f"{one.words}: 0 of {_workers(len(workers))} {_best(one, workers)}" for one in hopeless[:SHOWN]
        ]
    else:
        some = [one.words for one, by in zip(asked, met, strict=True) if len(by) < len(workers)]
        both = "both" if len(some) == 2 else "all"
        told = [f"{' and '.join(some)} together: 0 of {_workers(len(workers))} have {both}"]
    return f"waits for {'; and for '.join(told)}{_give_up(asked, met, len(hopeless))}"


def _best(one: Demand, workers: list[Worker]) -> str:
    best = one.best(workers)
    return f"have {one.it}; {best}" if best else f"have {one.it}"


def _give_up(asked: list[Demand], met: list[set[str]], hopeless: int) -> str:
    """The one demand whose loss would let most workers run it."""
    if hopeless > 1:
        return ""
    best, most = "", 0
    for at, one in enumerate(asked):
        others = [by for number, by in enumerate(met) if number != at]
        count = len(set.intersection(*others)) if others else 0
        if one.flag and count > most:
            best, most = one.flag, count
    return f"; drop {best} to run on {most}" if best else ""


def _workers(count: int) -> str:
    return f"{count:,} worker{'s' if count != 1 else ''}"


def told_by(worker: Worker) -> set[str]:
    """Which attributes and resources a worker has."""
    found = {name for name, value in worker.attributes(0.0).items() if value is not None}
    found |= {f"resource {name}" for name, amount in worker.info.capacity.resources if amount}
    return found
