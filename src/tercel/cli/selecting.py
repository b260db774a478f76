"""What people choose (37, 37.0-9, 1-5,9, last, last.0, all) -> jobs and tasks."""

from collections.abc import AsyncGenerator, Iterable
from typing import NamedTuple

from tercel.cli.words import ranges
from tercel.core.commands import parse_array
from tercel.core.errors import NotFound, UsageError
from tercel.core.intervals import IntervalSet
from tercel.core.selectors import Selector, parse_selector
from tercel.sdk.client import AsyncClient
from tercel.wire.api import JobView, TaskView

PAGE = 1000
MOST_RANGES = 250
"""In one request: they go into its address, which servers limit to some 8 KiB."""


class Chosen(NamedTuple):
    """A job, and of its tasks all (None) or some."""

    job: int
    tasks: IntervalSet | None = None

    def __str__(self) -> str:
        return str(self.job) if self.tasks is None else f"{self.job}.{ranges(self.tasks)}"


def split(words: Iterable[str]) -> list[str]:
    """Single selectors, each checked: `1-5,9` are two; in `37.0-9,12` the comma belongs to the tasks."""
    texts = [part for word in words for part in ([word] if "." in word else word.split(","))]
    for text in texts:
        parse_selector(text)
    return texts


async def resolve(client: AsyncClient, words: Iterable[str], *, ended: bool) -> list[Chosen]:
    """The jobs that exist. `all` are the unfinished ones, or with `ended` really all, oldest first."""
    chosen: list[Chosen] = []
    for text in split(words):
        selector = parse_selector(text)
        tasks = IntervalSet(selector.tasks) if selector.tasks is not None else None
        if selector.word == "" and selector.first == selector.last:
            chosen.append(Chosen(selector.first, tasks))
        else:
            chosen += [Chosen(job, tasks) for job in await _jobs(client, selector, ended)]
    return list({str(choice): choice for choice in chosen}.values())


async def resolve_one(client: AsyncClient, word: str) -> Chosen:
    """For commands about one thing."""
    chosen = await resolve(client, [word], ended=True)
    if len(chosen) != 1:
        raise UsageError(f"{word!r} selects {len(chosen)} jobs: choose one", "select")
    return chosen[0]


def one_task(choice: Chosen) -> int | None:
    """The task's number, if exactly one is chosen."""
    return choice.tasks.first() if choice.tasks is not None and len(choice.tasks) == 1 else None


def existing(view: JobView, tasks: IntervalSet) -> IntervalSet:
    """Those of the chosen tasks that the job has. Raises NotFound if there are none."""
    numbers = IntervalSet(parse_array(view.array)[0] if view.array else [(0, view.tasks - 1)])
    common = numbers.intersection(tasks)
    if not common:
        spans = f"{numbers.first()} to {numbers.ranges()[-1][1]}"
        raise NotFound(f"job {view.id} has no task {ranges(tasks)}: its tasks are numbered {spans}", "select")
    return common


async def each_task(
    client: AsyncClient,
    job: int,
    tasks: IntervalSet | None,
    *,
    page: int = PAGE,
    outputs: bool = False,
) -> AsyncGenerator[TaskView, None]:
    """All tasks of a job (None) or some, by number, `page` at a time, in as many requests as that takes."""
    for part in _in_parts(tasks):
        after: int | None = None
        more = True
        while more:
            found = await client.tasks(job, tasks=part, after=after, limit=page, outputs=outputs)
            for task in found.tasks:
                yield task
            more = found.more and bool(found.tasks)
            after = found.tasks[-1].task if found.tasks else None


def _in_parts(tasks: IntervalSet | None) -> list[str]:
    if tasks is None:
        return [""]
    spans = tasks.ranges()
    return [ranges(IntervalSet(spans[at : at + MOST_RANGES])) for at in range(0, len(spans), MOST_RANGES)]


async def _jobs(client: AsyncClient, selector: Selector, ended: bool) -> list[int]:
    if selector.word == "last":
        newest = (await client.jobs(limit=1, all=True)).jobs
        if not newest:
            raise NotFound("there is no job yet", "select")
        return [newest[0].id]
    lowest = selector.first if selector.word == "" else 0
    before = selector.last + 1 if selector.word == "" else None
    found: list[int] = []
    more = True
    while more:
        page = await client.jobs(before=before, limit=PAGE, all=ended or selector.word == "")
        found += [job.id for job in page.jobs if job.id >= lowest]
        more = page.more and bool(page.jobs) and page.jobs[-1].id > lowest
        before = page.jobs[-1].id if page.jobs else None
    if not found and selector.word == "":
        raise NotFound(f"there are no jobs {selector.first}-{selector.last}", "select")
    return sorted(found)
