"""The route of forks, and what it does."""

from aiohttp import web

from tercel.manager import forking
from tercel.manager.calls import Call, answer
from tercel.manager.openapi import Operation
from tercel.manager.routing import CHANGED, USERS, Route
from tercel.wire.api_forks import Fork, Forked

MAX_FORK_BYTES = 256 * 2**20
"""As much as a submission: lines may be among what is changed."""


async def post_fork(call: Call) -> web.Response:
    return answer(await forking.fork(call.manager, call.who, await call.body(Fork)))


FORK_ROUTES: list[Route] = [
    (
        Operation(
            method="POST",
            path="/v1/fork",
            roles=USERS,
            summary="Copy jobs as they stood at a moment, with some things changed; what is affected runs again",
            body=Fork,
            most_bytes=MAX_FORK_BYTES,
            answer=Forked,
            problems=CHANGED,
        ),
        post_fork,
    ),
]
