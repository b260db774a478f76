"""The routes about what is in the directories of workers."""

from aiohttp import web

from tercel.manager import looking
from tercel.manager.calls import Call, answer
from tercel.manager.openapi import MAX_NUMBER, Parameter
from tercel.manager.routing import ADMINS, Route, look
from tercel.wire.api_looking import DirectoryView, FileTail, SandboxView

_WORKER = Parameter("worker", where="path", summary="its id, as in the pool")
_JOB = Parameter("job", "integer", "path", "the job's id", least=0, most=MAX_NUMBER)
_TASK = Parameter("task", "integer", "path", "the task's number", least=0, most=MAX_NUMBER)
_ATTEMPT = Parameter(
    "attempt",
    "integer",
    summary="of which; else the one that runs, or the last that was kept",
    least=1,
    most=MAX_NUMBER,
)
_OF_TASK = "/v1/workers/{worker}/jobs/{job}/tasks/{task}"


async def get_directory(call: Call) -> web.Response:
    with call.visit():
        return answer(await looking.directory(call.manager, _worker(call)))


async def get_log(call: Call) -> web.Response:
    with call.visit():
        return answer(await looking.log_tail(call.manager, _worker(call)))


async def get_files(call: Call) -> web.Response:
    task, attempt, row = call.task(), call.number("attempt", 1), await call.job()
    with call.visit():
        return answer(await looking.files(call.manager, row, task, _worker(call), attempt))


async def get_file(call: Call) -> web.Response:
    task, attempt, row = call.task(), call.number("attempt", 1), await call.job()
    path = call.text("path") or ""
    with call.visit():
        return answer(await looking.file(call.manager, row, task, _worker(call), path, attempt))


def _worker(call: Call) -> str:
    return call.request.match_info["worker"]


LOOKING_ROUTES: list[Route] = [
    look(
        "/v1/workers/{worker}/directory",
        "What is in a worker's directory, and what is worth a look",
        DirectoryView,
        get_directory,
        (_WORKER,),
        ADMINS,
    ),
    look("/v1/workers/{worker}/log", "The end of a worker's log file", FileTail, get_log, (_WORKER,), ADMINS),
    look(
        f"{_OF_TASK}/files",
        "The files of a task whose sandbox a worker has kept, or that runs there",
        SandboxView,
        get_files,
        (_WORKER, _JOB, _TASK, _ATTEMPT),
    ),
    look(
        f"{_OF_TASK}/file",
        "The end of one of them",
        FileTail,
        get_file,
        (_WORKER, _JOB, _TASK, Parameter("path", required=True, summary="below its sandbox"), _ATTEMPT),
    ),
]
