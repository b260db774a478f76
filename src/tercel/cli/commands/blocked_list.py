"""tercel blocked list"""

import time

import click

from tercel.cli.blockage import next_test
from tercel.cli.completing import condition
from tercel.cli.conditions import condition_ids
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import Cell, count, duration, pairs, plain, short, table
from tercel.core.conditions import EVERYWHERE, Place
from tercel.sdk.client import AsyncClient
from tercel.wire.api import ConditionView

HEADERS = ("ID", "WAITS FOR", "WHERE", "TASKS", "TESTS", "LAST TEST", "NEXT TEST", "GIVES UP")
MOST_PER_REQUEST = 1000
WIDTH = 60
JOBS_SHOWN = 20


@click.command(cls=Command)
@click.argument("conditions", metavar="[CONDITION...]", nargs=-1, shell_complete=condition)
@click.option("-a", "--all", "every", is_flag=True, help="Also those that nothing waits for any more.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many."
)
@click.pass_obj
def command(screen: Screen, conditions: tuple[str, ...], every: bool, limit: int) -> None:
    """List what blocked tasks wait for, newest first; or show all about some (C3).

    TESTS are those in vain since it arose. When one has cleared, its tasks go on, some at first and then more.
    """
    ids = condition_ids(conditions)

    async def ask(client: AsyncClient) -> None:
        if ids:
            await _show(client, screen, ids)
        else:
            await _list(client, screen, every, limit)

    talk(screen, ask)


async def _list(client: AsyncClient, screen: Screen, every: bool, limit: int) -> None:
    found, more = await _pages(client, every, limit)
    screen.emit({"conditions": found, "more": more})
    if found:
        now = time.time()
        headers = (*HEADERS, "CLOSED") if every else HEADERS
        screen.tell(table(headers, (_row(one, now, every) for one in found)))
    else:
        screen.note("nothing is blocked" + ("" if every else " (`tercel blocked --all` shows what was)"))
    if more:
        screen.note(f"there are more: `tercel blocked{' --all' if every else ''} --limit {limit * 10}`")


async def _pages(client: AsyncClient, every: bool, limit: int) -> tuple[list[ConditionView], bool]:
    found: list[ConditionView] = []
    before: int | None = None
    while True:
        most = min(limit - len(found), MOST_PER_REQUEST)
        page = await client.conditions(before=before, limit=most, all=every)
        found += page.conditions
        if not page.more or not page.conditions or len(found) >= limit:
            return found, page.more
        before = found[-1].id


def _row(one: ConditionView, now: float, every: bool) -> list[Cell]:
    is_open = one.closed_at is None
    closed = (
        "" if one.closed_at is None else f"{duration(now - one.closed_at)} ago: {short(one.closed, WIDTH)}"
    )
    return [
        f"C{one.id}",
        short(one.tester, WIDTH),
        _where(one),
        _tasks(one) if is_open else "",
        one.tests,
        _last(one, now),
        short(next_test(one, now).removeprefix("next test "), WIDTH) if is_open else "",
        _gives_up(one, now),
        *([closed] if every else []),
    ]


def _where(one: ConditionView) -> str:
    match one.place:
        case Place.SITE:
            return "a worker" if one.where in ("", EVERYWHERE) else f"site {one.where}"
        case Place.WORKER:
            return f"worker {one.where}"
    return "manager"


def _tasks(one: ConditionView) -> str:
    return (
        f"{one.tasks:,} of job {one.jobs[0].job}"
        if one.job_count == 1
        else f"{one.tasks:,} of {one.job_count:,} jobs"
    )


def _last(one: ConditionView, now: float) -> str:
    if one.tested_at is None:
        return ""
    return f"{duration(now - one.tested_at)} ago" + (f": {short(one.note, WIDTH)}" if one.note else "")


def _gives_up(one: ConditionView, now: float) -> str:
    if one.gives_up_at is None:
        return "" if one.closed_at is not None else "never"
    if one.paused:
        return ""
    return f"in {duration(one.gives_up_at - now)}"


async def _show(client: AsyncClient, screen: Screen, ids: list[int]) -> None:
    found = [await client.condition(id) for id in ids]
    screen.emit({"conditions": found, "more": False})
    now = time.time()
    for at, one in enumerate(found):
        if at:
            screen.tell("")
        screen.tell(pairs(_facts(one, now)))


def _facts(one: ConditionView, now: float) -> list[tuple[str, str]]:
    jobs = ", ".join(f"{short(f'{job.job}.{job.tasks}', WIDTH)}" for job in one.jobs[:JOBS_SHOWN])
    more = f" and of {one.job_count - JOBS_SHOWN:,} more" if one.job_count > JOBS_SHOWN else ""
    return [
        ("condition", f"C{one.id}"),
        ("waits for", one.tester),
        ("where", _where(one)),
        ("owner", one.owner),
        (
            "tasks",
            f"{count(one.tasks, 'task')} of {count(one.job_count, 'job')}: {jobs}{more}" if one.tasks else "",
        ),
        ("since", f"{duration(now - one.opened_at)}"),
        ("policy", one.policy),
        ("tests", f"{one.tests:,} in vain"),
        ("last test", _last(one, now)),
        ("next", plain(one.next)),
        ("next wave", count(one.wave, "task") if one.closed_at is None else ""),
        ("closed", "" if one.closed_at is None else f"{duration(now - one.closed_at)} ago: {one.closed}"),
    ]
