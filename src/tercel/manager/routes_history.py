"""The routes about what befell tasks, about undoing it, and about removing what is old; and what each does."""

from aiohttp import web

from tercel.core.errors import NotFound
from tercel.manager import cleaning, history, rollback, views
from tercel.manager.calls import Call, answer
from tercel.manager.openapi import MAX_NUMBER, Operation, Parameter
from tercel.manager.routing import ADMINS, CHANGED, MAX_REQUEST_BYTES, SENT, USERS, Route, look
from tercel.wire.api import Clean, Cleaned, History, Rollback, RolledBack

MAX_PAGE = 1000
_JOB = Parameter("job", "integer", "path", "the job's id", least=0, most=MAX_NUMBER)
_TASK = Parameter("task", "integer", "path", "the task's number", least=0, most=MAX_NUMBER)
_PAGE = (
    Parameter("skip", "integer", summary="as `next` of the page before", least=0, most=MAX_NUMBER),
    Parameter("limit", "integer", summary="page size", least=1, most=MAX_PAGE),
)


async def get_job_history(call: Call) -> web.Response:
    skip, limit = call.number("skip", 0) or 0, call.number("limit", 1, MAX_PAGE) or 100
    return answer(await history.of_job(call.manager, await call.job(), skip=skip, limit=limit))


async def get_task_history(call: Call) -> web.Response:
    skip, limit = call.number("skip", 0) or 0, call.number("limit", 1, MAX_PAGE) or 100
    task, row = call.task(), await call.job()
    if not views.has_task(row, task):
        raise NotFound(f"job {row.id} has no task {task}", "task")
    return answer(await history.of_task(call.manager, row, task, skip=skip, limit=limit))


async def post_rollback(call: Call) -> web.Response:
    return answer(await rollback.roll_back(call.manager, call.who, await call.body(Rollback)))


async def post_clean(call: Call) -> web.Response:
    return answer(await cleaning.clean(call.manager, call.who, await call.body(Clean)))


HISTORY_ROUTES: list[Route] = [
    look(
        "/v1/jobs/{job}/history", "What befell a job, oldest first", History, get_job_history, (_JOB, *_PAGE)
    ),
    look(
        "/v1/jobs/{job}/tasks/{task}/history",
        "What befell a task, oldest first",
        History,
        get_task_history,
        (_JOB, _TASK, *_PAGE),
    ),
    (
        Operation(
            method="POST",
            path="/v1/rollback",
            roles=USERS,
            summary="Return ended tasks to an earlier checkpoint, with what stands on them: all or nothing",
            body=Rollback,
            most_bytes=MAX_REQUEST_BYTES,
            answer=RolledBack,
            problems=CHANGED,
        ),
        post_rollback,
    ),
    (
        Operation(
            method="POST",
            path="/v1/clean",
            roles=ADMINS,
            summary="Remove jobs that ended long ago, and what else is as old",
            body=Clean,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Cleaned,
            problems=SENT,
        ),
        post_clean,
    ),
]
