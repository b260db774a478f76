"""What routes are made of: roles, problems, limits, and the two most usual kinds."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from tercel.core.model import Role
from tercel.manager.calls import Call
from tercel.manager.openapi import Operation, Parameter
from tercel.wire.api import Counted

MAX_REQUEST_BYTES = 2**20

USERS, ADMINS = (Role.USER, Role.ADMIN), (Role.ADMIN,)
ASKED, FOUND = (400, 401, 403, 503), (400, 401, 403, 404, 503)
SENT = (400, 401, 403, 408, 413, 415, 503, 507)
CHANGED = (400, 401, 403, 404, 408, 413, 415, 503, 507)


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


def look(
    path: str,
    summary: str,
    answer: type,
    handler: Handler,
    parameters: tuple[Parameter, ...] = (),
    roles: tuple[Role, ...] = USERS,
) -> tuple[Operation, Handler]:
    """A question with one document as its answer."""
    operation = Operation(
        method="GET",
        path=path,
        roles=roles,
        summary=summary,
        parameters=parameters,
        answer=answer,
        problems=FOUND if "{" in path else ASKED,
    )
    return operation, handler


def change(path: str, summary: str, body: type, handler: Handler) -> tuple[Operation, Handler]:
    """What is done to jobs and tasks that the caller names."""
    operation = Operation(
        method="POST",
        path=path,
        roles=USERS,
        summary=summary,
        body=body,
        most_bytes=MAX_REQUEST_BYTES,
        answer=Counted,
        problems=CHANGED,
    )
    return operation, handler


Route = tuple[Operation, Handler]
