"""tercel blocked list"""

import textwrap
import time

import click

from tercel.cli.blockage import next_test
from tercel.cli.completing import condition
from tercel.cli.conditions import condition_ids
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import Cell, count, duration, ends, pairs, plain, short, table
from tercel.core.conditions import EVERYWHERE, Place
from tercel.sdk.client import AsyncClient
from tercel.wire.api import ConditionView

HEADERS = ("ID", "WAITS FOR", "WHERE", "TASKS", "TESTS", "LAST TEST", "NEXT TEST", "GIVES UP")
NARROW_HEADERS = ("ID", "WAITS FOR", "TASKS", "NEXT TEST", "GIVES UP")
"""On a terminal that has no room for all."""
NARROW_NEXT = 14
"""Characters for when the next test is."""
NARROWEST = 16
"""Of a tester at least so much is shown, though a line be broken for it."""
NARROW_LINES = 2
"""For what stands below a row: what the last test saw is at its end, and says most."""
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

    TESTS are all since it arose. When one has cleared, its tasks go on, some at first and then more.
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
        screen.tell(_lines(found, time.time(), every, screen.width))
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


def _lines(found: list[ConditionView], now: float, every: bool, width: int) -> list[str]:
    """A row for each; where that is too wide, what matters most, and the rest below it."""
    lines = table((*HEADERS, "CLOSED") if every else HEADERS, (_row(one, now, every) for one in found))
    return lines if not width or max(map(len, lines)) <= width else _narrow(found, now, width)


def _narrow(found: list[ConditionView], now: float, width: int) -> list[str]:
    rows = [_narrow_row(one, now) for one in found]
    others = table(NARROW_HEADERS, ([id, "", *more] for id, _, *more in rows))
    left = width - max(map(len, others)) + len(NARROW_HEADERS[1])
    header, *lines = table(
        NARROW_HEADERS, ([id, ends(tester, max(left, NARROWEST)), *more] for id, tester, *more in rows)
    )
    indent = header.index(NARROW_HEADERS[1])
    below = (_wrapped(_below(one, now), indent, max(width, indent + NARROWEST)) for one in found)
    return [header, *(part for line, more in zip(lines, below, strict=True) for part in (line, *more))]


def _wrapped(text: str, indent: int, width: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(
        plain(text),
        width,
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        max_lines=NARROW_LINES,
        placeholder=" …",
    )


def _narrow_row(one: ConditionView, now: float) -> list[str]:
    is_open = one.closed_at is None
    return [
        f"C{one.id}",
        one.tester,
        f"{one.tasks:,}" if is_open else "",
        _narrow_next(one, now) if is_open else "closed",
        _gives_up(one, now),
    ]


def _narrow_next(one: ConditionView, now: float) -> str:
    """What takes more words to say stands below."""
    upcoming = _next(one, now)
    return upcoming if len(upcoming) <= NARROW_NEXT else "paused" if one.paused else "not now"


def _below(one: ConditionView, now: float) -> str:
    """What the row has no room for."""
    upcoming = _next(one, now) if one.closed_at is None else ""
    return "; ".join(
        part
        for part in (
            upcoming if len(upcoming) > NARROW_NEXT else "",
            _of_jobs(one) if one.job_count else "",
            _closed(one, now),
            f"at {_where(one)}",
            count(one.tests, "test") if one.tests else "",
            _last(one, now),
        )
        if part
    )


def _row(one: ConditionView, now: float, every: bool) -> list[Cell]:
    is_open = one.closed_at is None
    return [
        f"C{one.id}",
        ends(one.tester, WIDTH),
        _where(one),
        _tasks(one) if is_open else "",
        one.tests,
        _last(one, now),
        short(_next(one, now), WIDTH) if is_open else "",
        _gives_up(one, now),
        *([_closed(one, now)] if every else []),
    ]


def _next(one: ConditionView, now: float) -> str:
    return next_test(one, now).removeprefix("next test ")


def _closed(one: ConditionView, now: float) -> str:
    return "" if one.closed_at is None else f"{duration(now - one.closed_at)} ago: {short(one.closed, WIDTH)}"


def _where(one: ConditionView) -> str:
    match one.place:
        case Place.SITE:
            return "a worker" if one.where in ("", EVERYWHERE) else f"site {one.where}"
        case Place.WORKER:
            return f"worker {one.where}"
    return "manager"


def _tasks(one: ConditionView) -> str:
    return f"{one.tasks:,} {_of_jobs(one)}"


def _of_jobs(one: ConditionView) -> str:
    return f"of job {one.jobs[0].job}" if one.job_count == 1 else f"of {one.job_count:,} jobs"


def _last(one: ConditionView, now: float, width: int = WIDTH) -> str:
    if one.tested_at is None:
        return ""
    note = short(one.note, width) if width else plain(one.note)
    return f"{duration(now - one.tested_at)} ago" + (f": {note}" if note else "")


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
        ("tests", f"{one.tests:,}"),
        ("last test", _last(one, now, width=0)),
        ("next", plain(one.next)),
        ("next wave", count(one.wave, "task") if one.closed_at is None else ""),
        ("closed", "" if one.closed_at is None else f"{duration(now - one.closed_at)} ago: {one.closed}"),
    ]
