"""The one door to a manager, for programs and for the command line.

    http     one HTTP/1.1 connection and the pool of them: bytes, deadlines, retries
    sse      server-sent events out of a stream of bytes
    client   AsyncClient: one typed method per path of the API
    sync     Client: the same methods for programs without an event loop, made from the async ones

No names of the adapters or services are known here: everything goes over the wire.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tercel.sdk.client import AsyncClient as AsyncClient
    from tercel.sdk.sync import Client as Client

_WHERE = {"AsyncClient": "tercel.sdk.client", "Client": "tercel.sdk.sync"}


def __getattr__(name: str) -> object:
    # Late, because a command line that only parses its options must not pay for asyncio.
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_WHERE)
