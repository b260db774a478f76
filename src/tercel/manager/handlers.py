"""One small function per route: decode and check, call, encode. Roles and names of parameters are checked before."""

import asyncio
import contextlib
import heapq
from collections.abc import AsyncGenerator

import msgspec
from aiohttp import web

from tercel.core.changes import TokenAdded, TokenRevoked
from tercel.core.commands import parse_key
from tercel.core.errors import NotFound, PassingFault, UsageError
from tercel.core.selectors import Selector, parse_selector, parse_tasks
from tercel.core.states import TaskState
from tercel.manager import (
    explaining,
    finding,
    logs,
    overview,
    queues,
    requests,
    standing,
    streams,
    submissions,
    values,
    views,
)
from tercel.manager.access import issue
from tercel.manager.calls import MSGPACK, Call, answer, whole_number
from tercel.wire.api import (
    Counted,
    Flow,
    IssuedToken,
    JobList,
    NewReservation,
    NewToken,
    Quarantine,
    QueueSettings,
    Retry,
    Revision,
    Selection,
    Stored,
    Submission,
    TagChange,
    Tags,
    TaskList,
    TokenList,
    TokenView,
)

MAX_PAGE = 1000
MAX_STREAMED_JOBS = 1000
MAX_VALUES = 10_000
"""Rows in one answer."""
VALUES_BYTES = 8 * 2**20
"""Of values in one answer, about."""


# -- jobs -------------------------------------------------------------------------------------------------


async def post_job(call: Call) -> web.Response:
    submitted = await submissions.submit(call.manager, call.who, await call.body(Submission))
    return answer(submitted, 200 if submitted.repeated else 201)


async def post_flow(call: Call) -> web.Response:
    submitted = await submissions.submit_flow(call.manager, call.who, await call.body(Flow))
    return answer(submitted, 200 if submitted.jobs[0].repeated else 201)


async def get_jobs(call: Call) -> web.Response:
    limit = call.number("limit", 1, MAX_PAGE) or 50
    before = call.number("before", 0)
    ended_too = call.flag("all")
    await call.manager.settled()
    if ended_too:
        rows = await asyncio.to_thread(
            call.manager.store.jobs, owner=call.who.sees_only, before=before, limit=limit + 1
        )
    else:
        open_jobs = [job.row for job in call.manager.machine.jobs.values() if call.who.may_see(job.row)]
        wanted = [row for row in open_jobs if before is None or row.id < before]
        rows = heapq.nlargest(limit + 1, wanted, key=lambda row: row.id)
    shown = [await finding.standing(call.manager, call.who, row.id) for row in rows[:limit]]
    found = [views.job_view(call.manager, row, listed=True) for row in shown]
    return answer(JobList(jobs=found, more=len(rows) > limit))


async def get_job(call: Call) -> web.Response:
    row = await call.job()
    forked = await asyncio.to_thread(views.forked, call.manager.store, row)
    return answer(msgspec.structs.replace(views.job_view(call.manager, row), forked=forked))


async def get_submission(call: Call) -> web.Response:
    return answer(await asyncio.to_thread(views.submission, call.manager.store, await call.job()))


async def get_tasks(call: Call) -> web.Response:
    states = []
    for text in call.texts("state"):
        if text not in TaskState.__members__.values():
            raise UsageError(f"state {text[:40]!r} is none of {', '.join(TaskState)}", "state")
        states.append(TaskState(text))
    tasks = call.text("tasks")
    wanted = None if tasks is None else parse_tasks(tasks)
    after, limit = call.number("after", -1), call.number("limit", 1, MAX_PAGE)
    outputs = call.flag("outputs")
    found, more = await views.task_views(
        call.manager,
        await call.job(),
        tasks=wanted,
        states=states,
        after=-1 if after is None else after,
        limit=limit or 100,
        outputs=outputs,
    )
    return answer(TaskList(tasks=found, more=more))


async def get_task(call: Call) -> web.Response:
    task, row = call.task(), await call.job()
    view = await views.task_view(call.manager, row, task)
    if view is None:
        raise NotFound(f"job {row.id} has no task {task}", "task")
    return answer(view)


async def get_logs(call: Call) -> web.StreamResponse:
    task, row = call.task(), await call.job()
    stream = call.text("stream") or "out"
    if stream not in ("out", "err"):
        raise UsageError(f"stream is out or err, not {stream[:40]!r}", "stream")
    follow = call.flag("follow")
    if not views.has_task(row, task):
        raise NotFound(f"job {row.id} has no task {task}", "task")
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    with call.visit(), contextlib.suppress(ConnectionError):  # the reader went away: nobody to tell
        await response.prepare(call.request)
        async with contextlib.aclosing(logs.read(call.manager, row, task, stream, follow)) as pieces:
            async for piece in pieces:
                await response.write(piece)
        await response.write_eof()
    return response


async def get_job_values(call: Call) -> web.Response:
    """Not settled first: who asks was told that these tasks ended, so that is durable."""
    id = whole_number(call.request.match_info["job"], "job", 0)
    row = await finding.standing(call.manager, call.who, id)
    tasks = call.text("tasks")
    wanted = list(row.ranges) if tasks is None else parse_tasks(tasks)
    rows = await asyncio.to_thread(
        call.manager.store.values, id, ranges=wanted, limit=MAX_VALUES, most_bytes=VALUES_BYTES
    )
    return web.Response(body=msgspec.msgpack.encode(rows), content_type=MSGPACK)


# -- values -----------------------------------------------------------------------------------------------


async def put_value(call: Call) -> web.Response:
    key = call.request.match_info["key"]
    repeated = await values.keep(call.manager, key, call.content())
    return answer(Stored(key=key, repeated=repeated), 200 if repeated else 201)


async def get_value(call: Call) -> web.StreamResponse:
    key = call.request.match_info["key"]
    task = parse_key(key)
    pieces = values.uploaded(call.manager, key) if task is None else await _returned(call, *task)
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    with call.visit(), contextlib.suppress(ConnectionError):  # the reader went away: nobody to tell
        async with contextlib.aclosing(pieces):
            first = await anext(pieces, b"")  # raises what is wrong with the key before the answer begins
            await response.prepare(call.request)
            await response.write(first)
            async for piece in pieces:
                await response.write(piece)
        await response.write_eof()
    return response


async def _returned(call: Call, job: int, task: int) -> AsyncGenerator[bytes, None]:
    row = await finding.standing(call.manager, call.who, job, "key")
    outcome = await logs.outcome_of(call.manager, row.id, task)
    if outcome is None or outcome.report.value is None:
        raise NotFound(f"task {job}.{task} has returned no value", "key")
    return logs.kept(call.manager, outcome.report.attempt, "value", outcome.report.value)


# -- changes ----------------------------------------------------------------------------------------------


async def post_cancel(call: Call) -> web.Response:
    return answer(await requests.cancel(call.manager, call.who, await call.body(Selection)))


async def post_retry(call: Call) -> web.Response:
    return answer(Counted(count=await requests.retry(call.manager, call.who, await call.body(Retry))))


async def post_hold(call: Call) -> web.Response:
    return answer(Counted(count=await requests.hold(call.manager, call.who, await call.body(Selection))))


async def post_release(call: Call) -> web.Response:
    return answer(Counted(count=await requests.release(call.manager, call.who, await call.body(Selection))))


async def post_revise(call: Call) -> web.Response:
    return answer(Counted(count=await requests.revise(call.manager, call.who, await call.body(Revision))))


async def get_explain(call: Call) -> web.Response:
    job, task = _one_thing(call.text("task") or "")
    await call.manager.settled()
    row = await finding.standing(call.manager, call.who, job, "task")
    if task is None:
        return answer(await explaining.explain_job(call.manager, row))
    explanation = await explaining.explain_task(call.manager, row, task)
    if explanation is None:
        raise NotFound(f"job {row.id} has no task {task}", "task")
    return answer(explanation)


def _one_thing(text: str) -> tuple[int, int | None]:
    """A job, and perhaps a task of it."""
    try:
        selector = parse_selector(text)
    except UsageError:
        selector = Selector(word="nothing")
    tasks = selector.tasks or ((0, 0),)
    if selector.word or selector.first != selector.last or len(tasks) > 1 or tasks[0][0] != tasks[0][1]:
        raise UsageError(f"explain one job (37) or one task (37.5), not {text[:40]!r}", "task")
    return selector.first, None if selector.tasks is None else tasks[0][0]


# -- the pool ---------------------------------------------------------------------------------------------


async def get_status(call: Call) -> web.Response:
    await call.manager.settled()
    return answer(overview.status(call.manager, call.who))


async def get_pool(call: Call) -> web.Response:
    return answer(overview.pool(call.manager))


async def post_drain(call: Call) -> web.Response:
    return answer(Counted(count=await requests.drain(call.manager, call.request.match_info["worker"])))


async def post_quarantine(call: Call) -> web.Response:
    asked = await call.body(Quarantine)
    await standing.quarantine(call.manager, call.who, call.request.match_info["worker"], asked.reason)
    return answer(Counted(count=1))


async def post_worker_release(call: Call) -> web.Response:
    return answer(Counted(count=await standing.release(call.manager, call.request.match_info["worker"])))


async def post_tags(call: Call) -> web.Response:
    change = await call.body(TagChange)
    return answer(Tags(tags=await standing.tag(call.manager, call.request.match_info["worker"], change)))


async def get_reservations(call: Call) -> web.Response:
    return answer(standing.reservations(call.manager))


async def post_reservation(call: Call) -> web.Response:
    new = await call.body(NewReservation)
    return answer(await standing.reserve(call.manager, call.tokens, call.who, new), 201)


async def delete_reservation(call: Call) -> web.Response:
    await standing.unreserve(
        call.manager, whole_number(call.request.match_info["reservation"], "reservation", 0)
    )
    return answer(Counted(count=1))


# -- queues -----------------------------------------------------------------------------------------------


async def get_queues(call: Call) -> web.Response:
    return answer(queues.listed(call.manager))


async def put_queue(call: Call) -> web.Response:
    name, settings = call.request.match_info["queue"], await call.body(QueueSettings)
    return answer(await queues.change(call.manager, call.who, name, settings))


async def delete_queue(call: Call) -> web.Response:
    await queues.remove(call.manager, call.who, call.request.match_info["queue"])
    return answer(Counted(count=1))


# -- tokens -----------------------------------------------------------------------------------------------


async def get_tokens(call: Call) -> web.Response:
    shown = [
        TokenView(id=t.id, role=t.role, user=t.user, created_at=t.created_at, note=t.note)
        for t in call.tokens.all()
    ]
    return answer(TokenList(tokens=shown))


async def post_token(call: Call) -> web.Response:
    new, manager = await call.body(NewToken), call.manager
    token, text = issue(new.role, new.user, new.note, manager.clock())
    manager.check_saving()
    manager.machine.changes.append(TokenAdded(token))
    await manager.settled()
    if manager.trouble:
        manager.machine.changes.append(TokenRevoked(token.id))  # nobody will ever have been told of it
        manager.check_saving()
    call.tokens.add(token)
    return answer(IssuedToken(id=token.id, role=token.role, user=token.user, secret=text), 201)


async def delete_token(call: Call) -> web.Response:
    """It is of no use from this moment on, whatever the disk says."""
    manager = call.manager
    token = call.tokens.remove(call.request.match_info["token"])
    call.visits.end(token.id)
    manager.machine.changes.append(TokenRevoked(token.id))
    await manager.settled()
    if manager.trouble:
        raise PassingFault(
            f"token {token.id} is refused from now on, but that is not saved yet, so do not restart the "
            f"manager before it can be: {manager.trouble}"
        )
    return answer(Counted(count=1))


# -- events -----------------------------------------------------------------------------------------------


async def get_events(call: Call) -> web.StreamResponse:
    ids = [whole_number(text, "job", 0) for text in call.texts("job")]
    if not ids or len(ids) > MAX_STREAMED_JOBS:
        raise UsageError(f"name 1 to {MAX_STREAMED_JOBS} jobs: ?job=37", "job")
    tasks = call.flag("tasks")
    for id in ids:
        finding.find_job(call.manager, call.who, id)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    subscription = call.manager.hub.subscribe(ids)
    try:
        with call.visit(), contextlib.suppress(ConnectionError):  # the reader went away: nobody to tell
            first = await streams.standing(call.manager, call.who, subscription.jobs, tasks=tasks)
            await response.prepare(call.request)
            await streams.tell(call.manager, response, subscription, first, tasks=tasks)
            await response.write_eof()
    finally:
        call.manager.hub.unsubscribe(subscription)
    return response
