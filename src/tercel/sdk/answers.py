"""Addresses of requests, and what the manager's answers mean."""

from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from tercel.core.errors import (
    Conflict,
    Forbidden,
    NotFound,
    PassingFault,
    PeerError,
    StoreFull,
    TercelError,
    UsageError,
)
from tercel.sdk.http import Answer
from tercel.wire import api

T = TypeVar("T")
Query = dict[str, str | int | bool | None]


def target(path: str, query: Query) -> str:
    given = {name: _text(value) for name, value in query.items() if value is not None}
    return f"/v1{path}?{urlencode(given)}" if given else f"/v1{path}"


def _text(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise PeerError(
            f"the manager's answer is not understood ({error}): are client and manager of the same version?"
        ) from None


def unpack(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise PeerError(f"the manager's answer is not understood ({error})") from None


def problem(answer: Answer) -> TercelError:
    """The error that an answer tells of, sorted by blame."""
    try:
        problem = msgspec.json.decode(answer.body, type=api.Problem)
        text = problem.detail or problem.title
        field = problem.field
    except msgspec.MsgspecError:
        text, field = f"the manager answered with HTTP status {answer.status} and no explanation", ""
    match answer.status:
        case 404:
            return NotFound(text, field)
        case 401 | 403:
            return Forbidden(text, field)
        case 409:
            return Conflict(text, field)
        case 507:
            return StoreFull(text)
        case 429 | 502 | 503 | 504:
            return PassingFault(text)
        case status if 400 <= status < 500:
            return UsageError(text, field)
        case _:
            return PeerError(f"the manager failed to answer: {text}")
