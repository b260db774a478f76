"""What clients ask for: cancel, retry, hold, release, revise, drain. Each is checked whole before anything changes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec

from tercel.core.blocking import check_rules, rule_text
from tercel.core.commands import check_numbers
from tercel.core.errors import NotFound, PassingFault, UsageError
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.model import BlockRule, JobRow, JobSpec
from tercel.core.selectors import Selector, parse_selector
from tercel.core.states import TERMINAL
from tercel.manager import blocking
from tercel.manager.access import Identity
from tercel.manager.finding import ended, find_job, pinned, standing
from tercel.manager.inputs import restored
from tercel.manager.service import Manager
from tercel.stores.contract import needed_by
from tercel.wire.api import Counted, Retry, Revision, Selection

MAX_SELECTORS = 1000
MAX_REASON = 500
MAX_NOTE = 1000
"""Of what is told in a history."""
_REVISABLE = [name for name in Revision.__struct_fields__ if name not in Selection.__struct_fields__]
JOBS_AT_ONCE = 1000
"""Read from the store, cancelled or retried before others get their turn."""

SAFE_TASKS = 1000
"""More unfinished ones than these are put into a snapshot before they are cancelled or given up, of however many jobs they are."""

Chosen = tuple[int, IntervalSet | None]
"""A job, and of its tasks some, or None for all."""


# -- changes ----------------------------------------------------------------------------------------------


async def cancel(manager: Manager, who: Identity, selection: Selection) -> Counted:
    """How many tasks ended by this."""
    chosen = await resolve(manager, who, selection)
    reason = f"cancelled by {who.user}" + (f": {selection.reason}" if selection.reason else "")
    count = 0
    note = await _keep_safe(manager, chosen, f"before it was {reason}")
    now = manager.clock()
    async for id, tasks in _in_turns(chosen):
        job = manager.machine.jobs.get(id)
        if job is not None:
            wanted = tasks if tasks is not None else IntervalSet(job.row.ranges)
            if selection.unstarted:
                begun = (task for task, flight in job.flights.items() if flight.running_since is not None)
                wanted.difference_update(IntervalSet((task, task) for task in begun))
            count += manager.machine.on_cancel(job, wanted, reason, now)
    await saved(manager)
    return Counted(count=count, note=note)


async def _keep_safe(manager: Manager, chosen: list[Chosen], why: str) -> str:
    """Before so much is cancelled, of however many jobs, that somebody may want it back."""
    left = {id: _left(manager, id, tasks) for id, tasks in chosen}
    if sum(left.values()) <= SAFE_TASKS:
        return ""
    return await manager.safety_snapshot((id for id, tasks in left.items() if tasks), why)


def _left(manager: Manager, id: int, tasks: IntervalSet | None) -> int:
    """How many of the chosen tasks have not ended."""
    job = manager.machine.jobs.get(id)
    if job is None:
        return 0
    if tasks is None:
        return job.task_count - job.ended_count
    return len(tasks) - sum(len(tasks.intersection(job.ended_in(state))) for state in TERMINAL)


async def retry(manager: Manager, who: Identity, asked: Retry) -> int:
    """How many of the chosen tasks will run again. What was skipped because of them waits again as well."""
    chosen = await resolve(manager, who, asked)
    wish = Revision(select=[], mem_bytes=asked.mem_bytes, time_limit_s=asked.time_limit_s)
    _revised(JobSpec(), wish)  # whatever is chosen: what no job may ask for is refused
    count = 0
    retried: list[int] = []
    async with manager.reopening:
        async for id, tasks in _in_turns(sorted(chosen, key=lambda one: one[0])):
            row = await standing(manager, who, id, "select")
            if id not in manager.machine.jobs and tasks is None and row.failed == 0 and not asked.all:
                continue
            async with _reopened(manager, id) as job:
                if tasks is not None:
                    wanted = tasks
                else:
                    wanted = IntervalSet(job.row.ranges) if asked.all else job.failed.copy()
                more = manager.machine.on_retry(
                    job, wanted, manager.clock(), asked.all, by(who, asked.reason)
                )
                if more:
                    retried.append(id)
                    count += more
                    _revise(manager, job, _revised(job.row.spec, wish), who, asked.reason)
        await _revive(manager, retried)
    await saved(manager)
    return count


async def _revive(manager: Manager, retried: Iterable[int]) -> None:
    """Jobs that have ended because what they needed failed: they wait again. The others the machine finds itself.

    One that needs several may be met before the last of those waits again: it is looked at once more after that.
    """
    todo, seen = deque(retried), set(retried)
    while todo:
        for id in await asyncio.to_thread(manager.store.dependents, todo.popleft()):
            more = 0
            if id not in manager.machine.jobs:
                async with _reopened(manager, id) as job:
                    more = manager.machine.on_retry(job, job.skipped.copy(), manager.clock())
            if more or id not in seen:
                seen.add(id)
                todo.append(id)


async def hold(manager: Manager, who: Identity, selection: Selection) -> int:
    """How many tasks are held by this."""
    count = 0
    async for id, tasks in _in_turns(await resolve(manager, who, selection)):
        if (job := manager.machine.jobs.get(id)) is not None:
            wanted = tasks if tasks is not None else IntervalSet(job.row.ranges)
            count += manager.machine.on_hold(job, wanted, manager.clock(), by(who, selection.reason))
    await saved(manager)
    return count


async def release(manager: Manager, who: Identity, selection: Selection) -> int:
    """How many tasks were held."""
    count = 0
    async for id, tasks in _in_turns(await resolve(manager, who, selection)):
        if (job := manager.machine.jobs.get(id)) is not None:
            wanted = tasks if tasks is not None else IntervalSet(job.row.ranges)
            count += manager.machine.on_release(job, wanted, manager.clock(), by(who, selection.reason))
    await saved(manager)
    return count


async def revise(manager: Manager, who: Identity, wish: Revision) -> int:
    """How many unfinished jobs are changed by this."""
    if wish.block_on is not None:
        check_rules(wish.block_on)
        rules = await blocking.settled(manager.examiners, who, tuple(wish.block_on))
        wish = msgspec.structs.replace(wish, block_on=list(rules))
    _revised(JobSpec(), wish)
    chosen = await resolve(manager, who, wish)
    jobs = [job for id, _ in chosen if (job := manager.machine.jobs.get(id)) is not None]
    if any(tasks is not None for _, tasks in chosen):
        raise UsageError("priority and needs are those of a whole job: write 37, not 37.4", "select")
    revised = [(job, _revised(job.row.spec, wish)) for job in jobs]
    count = 0
    for job, spec in revised:
        count += _revise(manager, job, spec, who, wish.reason)
    await saved(manager)
    return count


def _told(value: object) -> str:
    """As people write it."""
    if isinstance(value, tuple) and all(isinstance(one, BlockRule) for one in value):
        return " and ".join(repr(rule_text(rule)) for rule in value) or "none"
    return repr(value)


def _revise(manager: Manager, job: Job, spec: JobSpec, who: Identity, reason: str) -> bool:
    """Whether it asks for anything else now. What, is told in its tasks' history."""
    before = job.row.spec
    changed = [name for name in _REVISABLE if getattr(spec, name) != getattr(before, name)]
    if changed:
        what = ", ".join(
            f"{name} {_told(getattr(before, name))} -> {_told(getattr(spec, name))}" for name in changed
        )
        manager.machine.revise(job, spec, manager.clock(), f"{by(who, reason)}: {what}"[:MAX_NOTE])
    return bool(changed)


def by(who: Identity, reason: str) -> str:
    """For the history of tasks."""
    return f"by {who.user}: {reason}" if reason else f"by {who.user}"


def _revised(spec: JobSpec, wish: Revision) -> JobSpec:
    """Raises UsageError for what no job may ask for."""
    fields = {name: value for name in _REVISABLE if (value := getattr(wish, name)) is not None}
    if not fields:
        return spec
    if "requires" in fields:
        fields["requires"] = tuple(dict.fromkeys(fields["requires"]))
    if "block_on" in fields:
        fields["block_on"] = tuple(fields["block_on"])
    spec = msgspec.structs.replace(spec, **fields)
    check_numbers(spec)
    return spec


async def _in_turns(chosen: list[Chosen]) -> AsyncIterator[Chosen]:
    """One after the other; others get their turn between."""
    for number, one in enumerate(chosen, 1):
        yield one
        if number % JOBS_AT_ONCE == 0:
            await asyncio.sleep(0)


def check_reason(reason: str, field: str = "reason") -> None:
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise UsageError(f"a reason has at most {MAX_REASON} printable characters", field)


async def saved(manager: Manager) -> None:
    manager.wake()
    await manager.settled()
    if manager.trouble:
        raise PassingFault(f"this is done as soon as it can be saved, which it cannot now: {manager.trouble}")


@asynccontextmanager
async def _reopened(manager: Manager, id: int) -> AsyncIterator[Job]:
    """A job, also one that has ended, as the machine knows it. Nothing of that is kept if nothing is retried.

    What it once waited for is known as well: whether that has ended as it should decides what may run again.
    """
    if (job := manager.machine.jobs.get(id)) is None:
        live = await ended(manager, id)
        async with pinned(manager, needed_by(live)):
            if (job := manager.machine.jobs.get(id)) is None:
                job = manager.machine.restore(live)
                manager.machine.set_inputs(job, restored(job, manager.store))
                manager.files_read.look(job)
            yield job
    else:
        yield job


async def drain(manager: Manager, worker: str) -> int:
    known = manager.machine.workers.get(worker)
    if known is None or not known.online:
        raise NotFound(f"no worker {worker[:128]!r} is connected: see `tercel pool`", "worker")
    manager.machine.on_drain(worker, manager.clock())
    manager.wake()
    return 1


# -- which jobs -------------------------------------------------------------------------------------------


async def resolve(manager: Manager, who: Identity, selection: Selection) -> list[Chosen]:
    """Jobs (and tasks of them) that the caller named and may change; each once, however often it is named."""
    if not selection.select:
        raise UsageError("nothing is selected: name a job (37), tasks (37.0-9), last or all", "select")
    if len(selection.select) > MAX_SELECTORS:
        raise UsageError(f"at most {MAX_SELECTORS} selectors at a time", "select")
    check_reason(selection.reason)
    manager.check_saving()
    whole: dict[int, None] = {}
    some: dict[int, IntervalSet] = {}
    for text in dict.fromkeys(selection.select):
        for id, tasks in await __resolve_one(manager, who, parse_selector(text), text):
            if tasks is None:
                whole[id] = None
            else:
                some.setdefault(id, IntervalSet()).update(tasks)
    return [*((id, None) for id in whole), *some.items()]


async def __resolve_one(manager: Manager, who: Identity, selector: Selector, text: str) -> list[Chosen]:
    if selector.word == "all":
        return [(job.id, None) for job in list(manager.machine.jobs.values()) if who.may_see(job.row)]
    if selector.first == selector.last:
        row = _newest(manager, who) if selector.word else find_job(manager, who, selector.first, "select")
        if selector.tasks is None:
            return [(row.id, None)]
        known = IntervalSet(selector.tasks).intersection(IntervalSet(row.ranges))
        if not known:
            raise NotFound(f"job {row.id} has no task {text.partition('.')[2][:80]}", "select")
        return [(row.id, known)]
    ids = await asyncio.to_thread(_ids_between, manager, who, selector.first, selector.last)
    if not ids:
        raise NotFound(f"there is no job among {text[:80]}", "select")
    return [(id, None) for id in ids]


def _newest(manager: Manager, who: Identity) -> JobRow:
    rows = manager.store.jobs(owner=who.sees_only, before=None, limit=1)
    if not rows:
        raise NotFound("there is no job yet", "select")
    return rows[0]


def _ids_between(manager: Manager, who: Identity, first: int, last: int) -> list[int]:
    """Costs the jobs that are there and visible, however wide the range."""
    found: list[int] = []
    before = last + 1
    while True:
        page = manager.store.jobs(owner=who.sees_only, before=before, limit=JOBS_AT_ONCE)
        found += [row.id for row in page if row.id >= first]
        if len(page) < JOBS_AT_ONCE or page[-1].id <= first:
            return found
        before = page[-1].id
