"""The table of routes: serves both routing and the OpenAPI document."""

from tercel.core.commands import MAX_VALUE_BYTES
from tercel.core.states import TaskState
from tercel.manager import handlers
from tercel.manager.calls import MSGPACK
from tercel.manager.openapi import MAX_NUMBER, TASKS, Operation, Parameter
from tercel.manager.routes_files import FILE_ROUTES
from tercel.manager.routes_forks import FORK_ROUTES
from tercel.manager.routes_history import HISTORY_ROUTES
from tercel.manager.routes_looking import LOOKING_ROUTES
from tercel.manager.routes_pool import POOL_ROUTES
from tercel.manager.routes_recovery import RECOVERY_ROUTES
from tercel.manager.routes_snapshots import SNAPSHOT_ROUTES
from tercel.manager.routing import ASKED, CHANGED, FOUND, SENT, USERS, Route, change, look
from tercel.wire.api import (
    Explanation,
    Flow,
    FlowSubmitted,
    Health,
    JobList,
    JobView,
    Retry,
    Revision,
    Selection,
    Stored,
    Submission,
    Submitted,
    TaskList,
    TaskView,
)

MAX_SUBMISSION_BYTES = 256 * 2**20
"""A file of a few million command lines."""

_JOB = Parameter("job", "integer", "path", "the job's id", least=0, most=MAX_NUMBER)
_TASK = Parameter("task", "integer", "path", "the task's number", least=0, most=MAX_NUMBER)
_LIMIT = Parameter("limit", "integer", summary="page size", least=1, most=handlers.MAX_PAGE)
_KEY = Parameter(
    "key",
    where="path",
    summary="b and a SHA-256 in hex, or t37.4",
    pattern=r"^(b[0-9a-f]{64}|t\d{1,16}\.\d{1,10})$",
)
_FLAG = ("true", "false")

_ROUTES: list[Route] = [
    (
        Operation(
            method="POST",
            path="/v1/jobs",
            roles=USERS,
            summary="Submit a job; answered when it is durable",
            body=Submission,
            packed=True,
            most_bytes=MAX_SUBMISSION_BYTES,
            answer=Submitted,
            status=201,
            again=True,
            problems=CHANGED,
        ),
        handlers.post_job,
    ),
    (
        Operation(
            method="POST",
            path="/v1/flows",
            roles=USERS,
            summary="Submit jobs that may wait for one another: all or none",
            body=Flow,
            most_bytes=MAX_SUBMISSION_BYTES,
            answer=FlowSubmitted,
            status=201,
            again=True,
            problems=CHANGED,
        ),
        handlers.post_flow,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs",
            roles=USERS,
            summary="Jobs that the caller may see, newest first; unfinished ones unless asked for all",
            parameters=(
                Parameter("before", "integer", summary="only ids below this", least=0, most=MAX_NUMBER),
                _LIMIT,
                Parameter("all", summary="ended ones too", values=_FLAG),
            ),
            answer=JobList,
            problems=ASKED,
        ),
        handlers.get_jobs,
    ),
    look("/v1/jobs/{job}", "One job", JobView, handlers.get_job, (_JOB,)),
    look(
        "/v1/jobs/{job}/submission", "A job as it was handed in", Submission, handlers.get_submission, (_JOB,)
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/tasks",
            roles=USERS,
            summary="A page of a job's tasks, in order of number",
            parameters=(
                _JOB,
                Parameter("tasks", summary="0-9,12", pattern=TASKS),
                Parameter("state", summary="only in these states", many=True, values=tuple(TaskState)),
                Parameter("after", "integer", summary="only numbers above this", least=-1, most=MAX_NUMBER),
                _LIMIT,
                Parameter("outputs", summary="with stdout and stderr", values=_FLAG),
            ),
            answer=TaskList,
            problems=FOUND,
        ),
        handlers.get_tasks,
    ),
    look(
        "/v1/jobs/{job}/tasks/{task}",
        "One task with every attempt",
        TaskView,
        handlers.get_task,
        (_JOB, _TASK),
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/tasks/{task}/logs",
            roles=USERS,
            summary="A task's output, live while it runs",
            parameters=(
                _JOB,
                _TASK,
                Parameter("stream", values=("out", "err")),
                Parameter("follow", summary="until the task has ended", values=_FLAG),
            ),
            media="application/octet-stream",
            problems=FOUND,
        ),
        handlers.get_logs,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/values",
            roles=USERS,
            summary="How tasks of a function ended and what they returned, in bulk",
            parameters=(_JOB, Parameter("tasks", summary="0-9,12", pattern=TASKS)),
            media=MSGPACK,
            problems=FOUND,
        ),
        handlers.get_job_values,
    ),
    (
        Operation(
            method="PUT",
            path="/v1/values/{key}",
            roles=USERS,
            summary="Upload a value that calls refer to; its key is b and the SHA-256 of its content",
            parameters=(_KEY,),
            raw=True,
            most_bytes=MAX_VALUE_BYTES,
            answer=Stored,
            status=201,
            again=True,
            problems=SENT,
        ),
        handlers.put_value,
    ),
    (
        Operation(
            method="GET",
            path="/v1/values/{key}",
            roles=USERS,
            summary="An uploaded value, or what a task of a function returned or raised",
            parameters=(_KEY,),
            media="application/octet-stream",
            problems=FOUND,
        ),
        handlers.get_value,
    ),
    change("/v1/cancel", "End tasks", Selection, handlers.post_cancel),
    change("/v1/retry", "Run ended tasks again, under their numbers", Retry, handlers.post_retry),
    change(
        "/v1/hold", "Start nothing more of these tasks until they are released", Selection, handlers.post_hold
    ),
    change("/v1/release", "Let go what is held", Selection, handlers.post_release),
    change(
        "/v1/revise", "Change the priority or the needs of unfinished jobs", Revision, handlers.post_revise
    ),
    (
        Operation(
            method="GET",
            path="/v1/explain",
            roles=USERS,
            summary="Why a task, or the tasks of a job, are not running",
            parameters=(
                Parameter("task", summary="37 or 37.5", required=True, pattern=r"^\d{1,16}(\.\d{1,16})?$"),
            ),
            answer=Explanation,
            problems=FOUND,
        ),
        handlers.get_explain,
    ),
    (
        Operation(
            method="GET",
            path="/v1/events",
            roles=USERS,
            summary="Server-sent events: what changes in jobs, until they have ended",
            parameters=(
                Parameter("job", "integer", required=True, many=True, least=0, most=MAX_NUMBER),
                Parameter("tasks", summary="tell which tasks ended", values=_FLAG),
            ),
            media="text/event-stream",
            problems=FOUND,
        ),
        handlers.get_events,
    ),
    *HISTORY_ROUTES,
    *RECOVERY_ROUTES,
    *POOL_ROUTES,
    *LOOKING_ROUTES,
    *SNAPSHOT_ROUTES,
    *FORK_ROUTES,
    *FILE_ROUTES,
]

PUBLIC = [
    Operation(
        method="GET", path="/v1/health", summary="Whether the manager is well", roles=(), answer=Health
    ),
    Operation(method="GET", path="/v1/openapi.json", summary="This document", roles=()),
]
OPERATIONS = [operation for operation, _ in _ROUTES]
HANDLERS = {(operation.method, operation.path): handler for operation, handler in _ROUTES}
