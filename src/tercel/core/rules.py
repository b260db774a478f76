"""What a submission says about failure, waiting and sharing: checked before anything is accepted."""

import re
from collections.abc import Iterable, Sequence

from tercel.core import blocking
from tercel.core.changes import Edge
from tercel.core.errors import UsageError
from tercel.core.graph import check_edges
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import MAX_BACKOFF_S, After, Call, JobSpec, QueueRow, RetryRule

MAX_RETRIES = 1_000_000
MAX_RULES = 100
MAX_NEEDS = 10_000
MAX_EDGES = 10_000_000
MAX_CAP = 2**31
MAX_WEIGHT = 1e6

_MAX_FAILS = re.compile(r"([0-9]{1,9})|([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_QUEUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")


def check_rules(spec: JobSpec) -> None:
    _between("backoff_s", spec.backoff_s, 0, MAX_BACKOFF_S)
    if len(spec.retry_rules) > MAX_RULES:
        raise UsageError(f"at most {MAX_RULES} rules for retries", "retry_rules")
    for number, rule in enumerate(spec.retry_rules):
        _check_retry_rule(f"retry_rules[{number}]", rule)
    if spec.block_on:
        blocking.check_rules(spec.block_on)
    match = _MAX_FAILS.fullmatch(spec.max_fails)
    if spec.max_fails and (match is None or (match[2] and float(match[2]) > 100)):
        raise UsageError(
            f"max_fails {spec.max_fails[:40]!r} is neither a number of tasks (10) nor a share of them (5%)",
            "max_fails",
        )
    if spec.queue:
        check_queue_name(spec.queue)
    if len(spec.after) > MAX_NEEDS:
        raise UsageError(f"a job waits for at most {MAX_NEEDS:,} others", "after")
    for number, after in enumerate(spec.after):
        _check_after(f"after[{number}]", after)


def _check_retry_rule(where: str, rule: RetryRule) -> None:
    if not rule.codes:
        raise UsageError(f"{where} names no exit code", where)
    for code in rule.codes:
        if not 1 <= code <= 255:
            raise UsageError(f"{where}: {code} is not the exit code of a failure (1 to 255)", where)
    _between(f"{where}.retries", rule.retries, 0, MAX_RETRIES)
    _between(f"{where}.backoff_s", rule.backoff_s, 0, MAX_BACKOFF_S)


def _check_after(where: str, after: After) -> None:
    if after.job == 0:
        raise UsageError(f"{where}: jobs are numbered from 1", where)
    if any(not 0 <= first <= last for first, last in after.tasks):
        raise UsageError(f"{where}: its tasks are not ranges of numbers", where)


def check_queue_name(name: str) -> None:
    if not _QUEUE.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is no name for a queue: 1 to 64 of A-Z a-z 0-9 _ . @ + -, the first a letter or digit",
            "queue",
        )


def check_queue(row: QueueRow) -> None:
    check_queue_name(row.name)
    if not 0 < row.weight <= MAX_WEIGHT:
        raise UsageError(f"weight is {row.weight:g}; it must be above 0 and at most {MAX_WEIGHT:g}", "weight")
    for field in ("max_running", "max_queued", "user_max"):
        _between(field, getattr(row, field), 0, MAX_CAP)


def edges_of(
    edges: Sequence[Edge], calls: Sequence[Call] | None, ranges: Sequence[Range]
) -> tuple[Edge, ...]:
    """What single tasks of a job need, by task: as was said (job 0 is the job itself), and as its calls name values."""
    if not edges and not calls:
        return ()
    if len(edges) > MAX_EDGES:
        raise UsageError(f"{len(edges):,} edges; at most {MAX_EDGES:,} per job", "edges")
    tasks = IntervalSet(ranges)
    arrows = 0
    for task, job, first, last in edges:
        if task not in tasks or not 0 <= first <= last or job < 0:
            raise UsageError(
                f"edges: [{task}, {job}, {first}, {last}] is not [task, job, first, last]", "edges"
            )
        arrows += last - first + 1
        if job == 0:
            _check_own(task, first, last, tasks)
    if arrows > MAX_EDGES:
        raise UsageError(
            f"edges: tasks need {arrows:,} others, counted one by one; at most {MAX_EDGES:,} per job: "
            "what needs very many tasks is better a job of its own that waits (after)",
            "edges",
        )
    if cycle := check_edges(edges, 0, ranges):
        told = " -> ".join(map(str, cycle if len(cycle) <= 12 else [*cycle[:11], "…", cycle[-1]]))
        raise UsageError(f"tasks of the job wait for one another in a circle: {told}", "edges")
    return tuple(sorted([*edges, *_named_by_calls(calls or ())]))


def _check_own(task: int, first: int, last: int, tasks: IntervalSet) -> None:
    """Who needs a task that there is not would wait for ever."""
    if first in tasks and last == first:
        return
    there = IntervalSet([(first, last)]).intersection(tasks).ranges()
    if there != [(first, last)]:
        missing = there[0][1] + 1 if there and there[0][0] == first else first
        raise UsageError(f"edges: task {task} needs task {missing}, which the job does not have", "edges")


def _named_by_calls(calls: Iterable[Call]) -> Iterable[Edge]:
    for task, call in enumerate(calls):
        for key in call.values:
            if key.startswith("t"):
                job, _, number = key[1:].partition(".")
                yield task, int(job), int(number), int(number)


def _between(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # also true of what is not a number
        raise UsageError(f"{what} is {value}; it must be between {least:g} and {most:g}", what)
