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
    NewReservation,
    NewToken,
    Pool,
    Quarantine,
    QueueList,
    QueueSettings,
    QueueView,
    ReservationList,
    ReservationView,
    Retry,
    Revision,
    Selection,
    Status,
    Stored,
    Submission,
    Submitted,
    TagChange,
    Tags,
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
_WORKER = Parameter("worker", where="path", summary="its id, as in the pool")
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


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


def _look(
    path: str,
    summary: str,
    answer: type,
    handler: Handler,
    parameters: tuple[Parameter, ...] = (),
    roles: tuple[Role, ...] = _USERS,
) -> tuple[Operation, Handler]:
    """A question with one document as its answer."""
    operation = Operation(
        method="GET",
        path=path,
        roles=roles,
        summary=summary,
        parameters=parameters,
        answer=answer,
        problems=_FOUND if "{" in path else _ASKED,
    )
    return operation, handler


def _change(path: str, summary: str, body: type, handler: Handler) -> tuple[Operation, Handler]:
    """What is done to jobs and tasks that the caller names."""
    operation = Operation(
        method="POST",
        path=path,
        roles=_USERS,
        summary=summary,
        body=body,
        most_bytes=MAX_REQUEST_BYTES,
        answer=Counted,
        problems=_CHANGED,
    )
    return operation, handler


_ROUTES: list[tuple[Operation, Handler]] = [
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
    _look("/v1/jobs/{job}", "One job", JobView, handlers.get_job, (_JOB,)),
    _look(
        "/v1/jobs/{job}/submission", "A job as it was handed in", Submission, handlers.get_submission, (_JOB,)
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
    _look(
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
    _change("/v1/cancel", "End tasks", Selection, handlers.post_cancel),
    _change("/v1/retry", "Run ended tasks again, under their numbers", Retry, handlers.post_retry),
    _change(
        "/v1/hold", "Start nothing more of these tasks until they are released", Selection, handlers.post_hold
    ),
    _change("/v1/release", "Let go what is held", Selection, handlers.post_release),
    _change(
        "/v1/revise", "Change the priority or the needs of unfinished jobs", Revision, handlers.post_revise
    ),
    _look("/v1/queues", "The queues and how they share", QueueList, handlers.get_queues),
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
    _look("/v1/status", "How things stand", Status, handlers.get_status),
    _look("/v1/pool", "The workers", Pool, handlers.get_pool),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/drain",
            roles=_ADMINS,
            summary="Let a worker finish and leave",
            parameters=(_WORKER,),
            answer=Counted,
            problems=_FOUND,
        ),
        handlers.post_drain,
    ),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/quarantine",
            roles=_ADMINS,
            summary="Give a worker no more tasks until it is released",
            parameters=(_WORKER,),
            body=Quarantine,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.post_quarantine,
    ),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/release",
            roles=_ADMINS,
            summary="End a worker's quarantine",
            parameters=(_WORKER,),
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.post_worker_release,
    ),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/tags",
            roles=_ADMINS,
            summary="Add tags to a worker, or take some from it",
            parameters=(_WORKER,),
            body=TagChange,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Tags,
            problems=_CHANGED,
        ),
        handlers.post_tags,
    ),
    _look("/v1/reservations", "For whom workers are set aside", ReservationList, handlers.get_reservations),
    (
        Operation(
            method="POST",
            path="/v1/reservations",
            roles=_ADMINS,
            summary="Set workers aside for a queue or a user, for a time",
            body=NewReservation,
            most_bytes=MAX_REQUEST_BYTES,
            answer=ReservationView,
            status=201,
            problems=_SENT,
        ),
        handlers.post_reservation,
    ),
    (
        Operation(
            method="DELETE",
            path="/v1/reservations/{reservation}",
            roles=_ADMINS,
            summary="End a reservation",
            parameters=(Parameter("reservation", "integer", "path", "its id", least=0, most=MAX_NUMBER),),
            answer=Counted,
            problems=_CHANGED,
        ),
        handlers.delete_reservation,
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
    _look("/v1/tokens", "The tokens", TokenList, handlers.get_tokens, roles=_ADMINS),
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
