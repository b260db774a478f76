"""Conditions that blocked tasks wait for: who may see and change them, and how they stand.

open     the machine's
closed   the store's: for those who look back
"""

import asyncio
import heapq
import math
from itertools import islice

from tercel.core.blocked import Condition
from tercel.core.conditions import ConditionRow
from tercel.core.errors import NotFound, UsageError
from tercel.core.explain import what_next
from tercel.core.intervals import IntervalSet
from tercel.core.model import Role
from tercel.core.policies import parse_policy
from tercel.manager.access import Identity
from tercel.manager.requests import SAFE_TASKS, check_reason, saved
from tercel.manager.service import Manager
from tercel.wire.api import ConditionJob, ConditionList, ConditionView, Counted

JOBS_SHOWN = 100
RANGES_SHOWN = 100
ROWS_AT_ONCE = 1000
"""Read from the store at a time."""
MAX_COUNT = 10**9


# -- looking ----------------------------------------------------------------------------------------------


async def listed(
    manager: Manager, who: Identity, *, closed_too: bool, before: int | None, limit: int
) -> ConditionList:
    """Newest first."""
    await manager.settled()
    if closed_too:
        rows = await asyncio.to_thread(_kept, manager, who, before, limit + 1)
    else:
        wanted = (
            condition.row
            for condition in manager.machine.conditions.values()
            if _may_see(who, condition.row) and (before is None or condition.id < before)
        )
        rows = heapq.nlargest(limit + 1, wanted, key=lambda row: row.id)
    return ConditionList(conditions=[_view(manager, row) for row in rows[:limit]], more=len(rows) > limit)


def _kept(manager: Manager, who: Identity, before: int | None, limit: int) -> list[ConditionRow]:
    """Costs all newer ones, whoever's they are: they are few, compared with tasks."""
    found: list[ConditionRow] = []
    while len(found) < limit:
        page = manager.store.conditions(open_only=False, before=before, limit=ROWS_AT_ONCE)
        found += [row for row in page if _may_see(who, row)]
        if len(page) < ROWS_AT_ONCE:
            break
        before = page[-1].id
    return found[:limit]


async def shown(manager: Manager, who: Identity, id: int) -> ConditionView:
    await manager.settled()
    return _view(manager, await _found(manager, who, id))


def _may_see(who: Identity, row: ConditionRow) -> bool:
    return who.role is Role.ADMIN or (who.role is Role.USER and row.owner == who.user)


async def _found(manager: Manager, who: Identity, id: int) -> ConditionRow:
    condition = manager.machine.conditions.get(id)
    if condition is not None:
        row: ConditionRow | None = condition.row
    else:
        row = await asyncio.to_thread(manager.store.condition, id)
    if row is None or not _may_see(who, row):
        raise NotFound(f"there is no condition C{id} (or it is not yours): see `tercel blocked`", "condition")
    return row


def _view(manager: Manager, row: ConditionRow) -> ConditionView:
    condition = manager.machine.conditions.get(row.id)
    if condition is not None:
        row = condition.row
    jobs = condition.jobs if condition is not None else {}
    is_tested = condition is not None and not row.paused
    return ConditionView(
        id=row.id,
        owner=row.owner,
        tester=row.tester,
        place=row.place,
        where=row.where,
        policy=row.policy,
        opened_at=row.arose_at or row.opened_at,
        tests=row.asked,
        tested_at=row.tested_at or None,
        next_test_at=row.next_test_at if is_tested else None,
        gives_up_at=_end(row) if condition is not None else None,
        note=row.note,
        next=what_next(condition, manager.clock()) if condition is not None else "",
        paused=row.paused,
        wave=row.wave,
        testing=condition is not None and condition.probe != 0,
        tasks=condition.count if condition is not None else 0,
        job_count=len(jobs),
        jobs=[
            _job(id, job.blocks[condition])
            for id, job in islice(jobs.items(), JOBS_SHOWN)
            if condition is not None
        ],
        closed_at=row.closed_at,
        closed=row.closed,
    )


def _end(row: ConditionRow) -> float | None:
    """None: it waits its turn, for ever."""
    end = parse_policy(row.policy).ends_at(row.tests, row.opened_at, row.next_test_at)
    return None if end == math.inf else end


def _job(id: int, tasks: IntervalSet) -> ConditionJob:
    ranges = tasks.first_ranges(RANGES_SHOWN + 1)
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:RANGES_SHOWN]]
    return ConditionJob(
        job=id, count=len(tasks), tasks=",".join(texts) + (",…" if len(ranges) > RANGES_SHOWN else "")
    )


# -- changing ---------------------------------------------------------------------------------------------


async def _open(manager: Manager, who: Identity, id: int) -> Condition:
    manager.check_saving()
    condition = manager.machine.conditions.get(id)
    row = condition.row if condition is not None else await _found(manager, who, id)
    if not _may_see(who, row):
        raise NotFound(f"there is no condition C{id} (or it is not yours): see `tercel blocked`", "condition")
    if condition is None:
        raise UsageError(f"nothing waits for C{id} any more: {row.closed or 'it is closed'}", "condition")
    return condition


async def test(manager: Manager, who: Identity, id: int) -> int:
    """1 if it is tested now, 0 if nobody is connected who could."""
    condition = await _open(manager, who, id)
    before = condition.row
    manager.machine.on_test_now(condition, manager.clock())
    await saved(manager)
    return int(condition.probe != 0 or condition.row is not before)


async def release(manager: Manager, who: Identity, id: int, count: int) -> int:
    """How many tasks were let go."""
    if not 0 <= count <= MAX_COUNT:
        raise UsageError(f"count is from 1 to {MAX_COUNT:,}, or 0 for all, not {count}", "count")
    condition = await _open(manager, who, id)
    released = manager.machine.on_release_condition(condition, count, who.user, manager.clock())
    await saved(manager)
    return released


async def fail(manager: Manager, who: Identity, id: int, why: str) -> Counted:
    """How many tasks failed by this. Of many a snapshot is taken before, as if they were cancelled."""
    check_reason(why, "why")
    condition = await _open(manager, who, id)
    reason = f"given up by {who.user}" + (f": {why}" if why else "")
    note = ""
    if condition.count > SAFE_TASKS:
        note = await manager.safety_snapshot(list(condition.jobs), f"before it was {reason}")
        condition = await _open(manager, who, id)  # it may have cleared meanwhile
    failed = manager.machine.on_fail_condition(condition, reason, manager.clock())
    await saved(manager)
    return Counted(count=failed, note=note)


async def pause(manager: Manager, who: Identity, id: int) -> int:
    """1 if it was not paused before."""
    condition = await _open(manager, who, id)
    paused = not condition.row.paused
    manager.machine.on_pause_condition(condition, f"paused by {who.user}", manager.clock())
    await saved(manager)
    return int(paused)


async def resume(manager: Manager, who: Identity, id: int) -> int:
    """1 if it was paused."""
    condition = await _open(manager, who, id)
    resumed = bool(condition.row.paused)
    manager.machine.on_resume_condition(condition, manager.clock())
    await saved(manager)
    return int(resumed)
