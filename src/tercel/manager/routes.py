"""The table of routes: serves both routing and the OpenAPI document."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from tercel.core.commands import MAX_VALUE_BYTES
from tercel.core.model import Role
from tercel.core.states import TaskState
from tercel.manager import handlers
from tercel.manager.calls import MSGPACK, Call
from tercel.manager.openapi import MAX_NUMBER, TASKS, Operation, Parameter
from tercel.wire.api import (
    Counted,
    Explanation,
    Flow,
    FlowSubmitted,
    Health,
    IssuedToken,
    JobList,
    JobView,
    NewToken,
    Pool,
    QueueList,
    QueueSettings,
    QueueView,
    Retry,
    Revision,
    Selection,
    Status,
    Stored,
    Submission,
    Submitted,
    TaskList,
    TaskView,
    TokenList,
)

MAX_SUBMISSION_BYTES = 256 * 2**20
"""A file of a few million command lines."""
MAX_REQUEST_BYTES = 2**20

_JOB = Parameter("job", "integer", "path", "the job's id", least=0, most=MAX_NUMBER)
_TASK = Parameter("task", "integer", "path", "the task's number", least=0, most=MAX_NUMBER)
_QUEUE = Parameter("queue", where="path", summary="the queue's name")
_LIMIT = Parameter("limit", "integer", summary="page size", least=1, most=handlers.MAX_PAGE)
_KEY = Parameter(
    "key",
    where="path",
    summary="b and a SHA-256 in hex, or t37.4",
    pattern=r"^(b[0-9a-f]{64}|t\d{1,16}\.\d{1,10})$",
)
_FLAG = ("true", "false")

_USERS, _ADMINS = (Role.USER, Role.ADMIN), (Role.ADMIN,)
_ASKED, _FOUND = (400, 401, 403, 503), (400, 401, 403, 404, 503)
_SENT = (400, 401, 403, 408, 413, 415, 503, 507)
_CHANGED = (400, 401, 403, 404, 408, 413, 415, 503, 507)


_ROUTES: list[tuple[Operation, Callable[[Call], Awaitable[web.StreamResponse]]]] = [
    (
        Operation(
            method="POST",
            path="/v1/jobs",
            roles=_USERS,
            summary="Submit a job; answered when it is durable",
            body=Submission,
            packed=True,
            most_bytes=MAX_SUBMISSION_BYTES,
            answer=Submitted,
            status=201,
            again=True,
            problems=_CHANGED,
        ),
        handlers.post_job,
    ),
    (
        Operation(
            method="POST",
            path="/v1/flows",
            roles=_USERS,
            summary="Submit jobs that may wait for one another: all or none",
            body=Flow,
            most_bytes=MAX_SUBMISSION_BYTES,
            answer=FlowSubmitted,
            status=201,
            again=True,
            problems=_CHANGED,
        ),
        handlers.post_flow,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs",
            roles=_USERS,
            summary="Jobs that the caller may see, newest first; unfinished ones unless asked for all",
            parameters=(
                Parameter("before", "integer", summary="only ids below this", least=0, most=MAX_NUMBER),
                _LIMIT,
                Parameter("all", summary="ended ones too", values=_FLAG),
            ),
            answer=JobList,
            problems=_ASKED,
        ),
        handlers.get_jobs,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}",
            roles=_USERS,
            summary="One job",
            parameters=(_JOB,),
            answer=JobView,
            problems=_FOUND,
        ),
        handlers.get_job,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/submission",
            roles=_USERS,
            summary="A job as it was handed in",
            parameters=(_JOB,),
            answer=Submission,
            problems=_FOUND,
        ),
        handlers.get_submission,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/tasks",
            roles=_USERS,
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
            problems=_FOUND,
        ),
        handlers.get_tasks,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/tasks/{task}",
            roles=_USERS,
            summary="One task with every attempt",
            parameters=(_JOB, _TASK),
            answer=TaskView,
            problems=_FOUND,
        ),
        handlers.get_task,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/tasks/{task}/logs",
            roles=_USERS,
            summary="A task's output, live while it runs",
            parameters=(
                _JOB,
                _TASK,
                Parameter("stream", values=("out", "err")),
                Parameter("follow", summary="until the task has ended", values=_FLAG),
            ),
            media="application/octet-stream",
            problems=_FOUND,
        ),
        handlers.get_logs,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/values",
            roles=_USERS,
            summary="How tasks of a function ended and what they returned, in bulk",
            parameters=(_JOB, Parameter("tasks", summary="0-9,12", pattern=TASKS)),
            media=MSGPACK,
            problems=_FOUND,
        ),
        handlers.get_job_values,
    ),
    (
        Operation(
            method="PUT",
            path="/v1/values/{key}",
            roles=_USERS,
            summary="Upload a value that calls refer to; its key is b and the SHA-256 of its content",
            parameters=(_KEY,),
            raw=True,
            most_bytes=MAX_VALUE_BYTES,
            answer=Stored,
            status=201,
            again=True,
            problems=_SENT,
        ),
        handlers.put_value,
    ),
    (
        Operation(
            method="GET",
            path="/v1/values/{key}",
            roles=_USERS,
            summary="An uploaded value, or what a task of a function returned or raised",
            parameters=(_KEY,),
            media="application/octet-stream",
            problems=_FOUND,
        ),
        handlers.get_value,
    ),
    (
        Operation(
            method="POST",
            path="/v1/cancel",
            roles=_USERS,
            summary="End tasks",
            body=Selection,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.post_cancel,
    ),
    (
        Operation(
            method="POST",
            path="/v1/retry",
            roles=_USERS,
            summary="Run ended tasks again, under their numbers",
            body=Retry,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.post_retry,
    ),
    (
        Operation(
            method="POST",
            path="/v1/hold",
            roles=_USERS,
            summary="Start nothing more of these tasks until they are released",
            body=Selection,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.post_hold,
    ),
    (
        Operation(
            method="POST",
            path="/v1/release",
            roles=_USERS,
            summary="Let go what is held",
            body=Selection,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.post_release,
    ),
    (
        Operation(
            method="POST",
            path="/v1/revise",
            roles=_USERS,
            summary="Change the priority or the needs of unfinished jobs",
            body=Revision,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.post_revise,
    ),
    (
        Operation(
            method="GET",
            path="/v1/queues",
            roles=_USERS,
            summary="The queues and how they share",
            answer=QueueList,
            problems=_ASKED,
        ),
        handlers.get_queues,
    ),
    (
        Operation(
            method="PUT",
            path="/v1/queues/{queue}",
            roles=_USERS,
            summary="Make or change a queue",
            parameters=(_QUEUE,),
            body=QueueSettings,
            most_bytes=MAX_REQUEST_BYTES,
            answer=QueueView,
            problems=_CHANGED,
        ),
        handlers.put_queue,
    ),
    (
        Operation(
            method="DELETE",
            path="/v1/queues/{queue}",
            roles=_ADMINS,
            summary="Remove a queue that is empty",
            parameters=(_QUEUE,),
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.delete_queue,
    ),
    (
        Operation(
            method="GET",
            path="/v1/explain",
            roles=_USERS,
            summary="Why a task, or the tasks of a job, are not running",
            parameters=(
                Parameter("task", summary="37 or 37.5", required=True, pattern=r"^\d{1,16}(\.\d{1,16})?$"),
            ),
            answer=Explanation,
            problems=_FOUND,
        ),
        handlers.get_explain,
    ),
    (
        Operation(
            method="GET",
            path="/v1/status",
            roles=_USERS,
            summary="How things stand",
            answer=Status,
            problems=_ASKED,
        ),
        handlers.get_status,
    ),
    (
        Operation(
            method="GET", path="/v1/pool", roles=_USERS, summary="The workers", answer=Pool, problems=_ASKED
        ),
        handlers.get_pool,
    ),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/drain",
            roles=_ADMINS,
            summary="Let a worker finish and leave",
            parameters=(Parameter("worker", where="path"),),
            answer=Counted,
            problems=_FOUND,
        ),
        handlers.post_drain,
    ),
    (
        Operation(
            method="GET",
            path="/v1/events",
            roles=_USERS,
            summary="Server-sent events: what changes in jobs, until they have ended",
            parameters=(
                Parameter("job", "integer", required=True, many=True, least=0, most=MAX_NUMBER),
                Parameter("tasks", summary="tell which tasks ended", values=_FLAG),
            ),
            media="text/event-stream",
            problems=_FOUND,
        ),
        handlers.get_events,
    ),
    (
        Operation(
            method="GET",
            path="/v1/tokens",
            roles=_ADMINS,
            summary="The tokens",
            answer=TokenList,
            problems=_ASKED,
        ),
        handlers.get_tokens,
    ),
    (
        Operation(
            method="POST",
            path="/v1/tokens",
            roles=_ADMINS,
            summary="Issue a token; its text is shown once",
            body=NewToken,
            most_bytes=MAX_REQUEST_BYTES,
            answer=IssuedToken,
            status=201,
            problems=_SENT,
        ),
        handlers.post_token,
    ),
    (
        Operation(
            method="DELETE",
            path="/v1/tokens/{token}",
            roles=_ADMINS,
            summary="Revoke a token",
            parameters=(Parameter("token", where="path"),),
            answer=Counted,
            problems=_FOUND,
        ),
        handlers.delete_token,
    ),
]

PUBLIC = [
    Operation(
        method="GET", path="/v1/health", summary="Whether the manager is well", roles=(), answer=Health
    ),
    Operation(method="GET", path="/v1/openapi.json", summary="This document", roles=()),
]
OPERATIONS = [operation for operation, _ in _ROUTES]
HANDLERS = {(operation.method, operation.path): handler for operation, handler in _ROUTES}
