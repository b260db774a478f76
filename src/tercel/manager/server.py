"""The HTTP server underneath the API: bounds on waiting, and errors as problems where no handler is reached.

What aiohttp leaves open, closed here:

    a connection that does not get a whole request out    is cut after IDLE_S
    bytes that are not HTTP                               get a problem, and one line in the log
    a handler that streams                                is told when its reader has gone
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest

from tercel.manager.problems import problem

log = logging.getLogger("tercel.manager")

IDLE_S = 60.0
"""How long a connection may take to say its next request, from the first byte to the last of its head."""
SHUTDOWN_S = 1.0


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = ("_at_loss",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._at_loss: Callable[[], object] | None = None

    def at_loss(self, call: Callable[[], object] | None) -> None:
        """What to call when the client has gone; None: nothing."""
        self._at_loss = call

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._at_loss is not None:
            self._at_loss()
            self._at_loss = None

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun when its handler failed")
        if status >= 500:
            log.error("a request from %s failed", request.remote, exc_info=exc)
            answer = problem(status, "our mistake", "the manager's log says more")
        else:
            reason = " ".join((message or str(exc) or "no reason is known").split())
            log.info("not HTTP from %s: %.200r", request.remote, reason)
            answer = problem(status, "not HTTP", f"the request cannot be read: {reason}", "head")
        answer.force_close()
        return answer


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return Connection(self, loop=asyncio.get_running_loop(), **self._kwargs)


class Runner(web.AppRunner):
    """Serves an application with connections of our kind."""

    def __init__(self, app: web.Application) -> None:
        super().__init__(
            app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S, keepalive_timeout=IDLE_S
        )

    # aiohttp has no public way to choose the class of its connections; tests/api would notice a change.
    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(made.request_handler, request_factory=made.request_factory, **made._kwargs)
