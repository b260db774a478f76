"""The API over HTTP: routing by the table, who may do what, and errors as problem details.

What the table says of a route (roles, names of parameters, size of the body) is checked here, for all alike.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec
from aiohttp import web

from tercel import __version__
from tercel.core.errors import TercelError, UsageError
from tercel.core.model import Role
from tercel.links.websocket import WebSocketManagerEnd, new_socket
from tercel.manager.access import Identity, Tokens, Visits
from tercel.manager.calls import Bodies, Call
from tercel.manager.conversation import converse
from tercel.manager.openapi import Operation, document
from tercel.manager.problems import Refusal, problem, problem_of
from tercel.manager.routes import HANDLERS, OPERATIONS, PUBLIC
from tercel.manager.service import Manager
from tercel.wire.api import Health

log = logging.getLogger("tercel.manager")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_encode = msgspec.json.Encoder().encode


def application(manager: Manager, tokens: Tokens) -> web.Application:
    api = _Api(manager, tokens)
    app = web.Application(middlewares=[api.guard])
    routes: list[tuple[str, str, Handler]] = [
        ("GET", "/v1/health", api.health),
        ("GET", "/v1/openapi.json", api.openapi),
        ("GET", "/v1/link", api.link),
        *((o.method, o.path, api.bind(o)) for o in OPERATIONS),
    ]
    for method, path, handler in routes:
        app.router.add_route(method, path, handler, expect_handler=_expect)
    app.on_shutdown.append(api.hang_up)
    return app


class _Api:
    def __init__(self, manager: Manager, tokens: Tokens) -> None:
        self._manager = manager
        self._tokens = tokens
        self._visits = Visits()
        self._bodies = Bodies()
        self._document = _encode(document(PUBLIC + OPERATIONS))

    def bind(self, operation: Operation) -> Handler:
        handler = HANDLERS[operation.method, operation.path]

        async def bound(request: web.Request) -> web.StreamResponse:
            who = self._identify(request)
            who.require(*operation.roles)
            for name in request.query:
                if name not in operation.names:
                    raise UsageError(f"there is no parameter {name[:40]!r} here", name[:40])
            async with AsyncExitStack() as ending:
                return await handler(
                    Call(
                        operation,
                        request,
                        who,
                        self._manager,
                        self._tokens,
                        self._visits,
                        self._bodies,
                        ending,
                    )
                )

        return bound

    def _identify(self, request: web.Request) -> Identity:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        identity = self._tokens.identify(text.strip()) if scheme.lower() == "bearer" else None
        if identity is None:
            raise Refusal(401, "who are you?", "a valid token is needed: Authorization: Bearer <token>")
        return identity

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every error becomes a problem document; the manager goes on."""
        try:
            return await handler(request)
        except Exception as error:
            if request.writer.output_size > 0:
                # Part of the answer is out: only cutting it off tells the client that it is not whole.
                ours = None if isinstance(error, TercelError | ConnectionError) else error
                log.warning("%s %.200r was cut off: %s", request.method, request.path, error, exc_info=ours)
                raise ConnectionResetError("the answer cannot be completed") from error
            return self._problem(request, error)

    def _problem(self, request: web.Request, error: Exception) -> web.Response:
        match error:
            case Refusal():
                return error.answer()
            case TercelError():
                return problem_of(error)
            case web.HTTPException():
                asked = f"{request.method} {request.path[:200]!r}"
                allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
                return problem(error.status, error.reason, f"{asked}: {error.reason}", headers=allowed)
            case ConnectionError():
                return problem(400, "gone", "the client did not wait for its answer")  # nobody to tell
        log.error("%s %.200r failed", request.method, request.path, exc_info=error)
        return problem(500, "our mistake", "the manager's log says more")

    async def health(self, _request: web.Request) -> web.Response:
        return web.json_response(body=_encode(Health(ok=not self._manager.trouble, version=__version__)))

    async def openapi(self, _request: web.Request) -> web.Response:
        return web.json_response(body=self._document)

    async def link(self, request: web.Request) -> web.StreamResponse:
        who = self._identify(request)
        who.require(Role.WORKER, Role.ADMIN)
        socket = new_socket()
        await socket.prepare(request)
        with self._visits.visit(who.token):
            await converse(self._manager, WebSocketManagerEnd(socket))
        return socket

    async def hang_up(self, _app: web.Application) -> None:
        """At shutdown links and streams are cut at once: workers go on by themselves, clients come back."""
        self._visits.end_all()


async def _expect(request: web.Request) -> web.StreamResponse | None:
    if request.headers.get("Expect", "").lower() != "100-continue":
        return problem(417, "not understood", "only 100-continue can be expected", "Expect")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # as in aiohttp: this was not yet the answer
    return None
