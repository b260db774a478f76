"""Errors as clients see them: problem details (RFC 9457), whatever went wrong and wherever."""

import msgspec
from aiohttp import web

from tercel.core.errors import Conflict, Forbidden, NotFound, PassingFault, StoreFull, TercelError, UsageError
from tercel.wire.api import Problem

MAX_DETAIL = 2000
"""Characters. Details quote what the client sent, which may be as long as it likes."""

_encode = msgspec.json.Encoder().encode


class Refusal(Exception):
    """A request that is refused for reasons of HTTP alone."""

    def __init__(self, status: int, title: str, detail: str, field: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.field = field

    def answer(self) -> web.Response:
        return problem(self.status, self.title, str(self), self.field)


def problem(
    status: int, title: str, detail: str, field: str = "", headers: dict[str, str] | None = None
) -> web.Response:
    told = Problem(title=title, status=status, detail=_cut(detail, MAX_DETAIL), field=_cut(field, 200))
    if status == 401:
        headers = {**(headers or {}), "WWW-Authenticate": "Bearer"}
    return web.Response(
        status=status, body=_encode(told), content_type="application/problem+json", headers=headers
    )


def problem_of(error: TercelError) -> web.Response:
    """Sorted by blame."""
    match error:
        case NotFound():
            return problem(404, "not found", str(error), error.field)
        case Forbidden():
            return problem(403, "not allowed", str(error), error.field)
        case Conflict():
            return problem(409, "taken", str(error), error.field)
        case UsageError():
            return problem(400, "wrong request", str(error), error.field)
        case StoreFull():
            return problem(507, "no room", f"{error}; nothing was changed: try again when there is room")
        case PassingFault():
            return problem(503, "not now", str(error))
    return problem(500, "our mistake", str(error))


def _cut(text: str, most: int) -> str:
    text = text if len(text) <= most else text[: most - 1] + "…"
    # What came in a header or an address need not be text.
    return text.encode("utf-8", "replace").decode()
