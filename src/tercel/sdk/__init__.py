"""The one door to a manager, for programs and for the command line.

    http     one HTTP/1.1 connection and the pool of them: bytes, deadlines, retries
    sse      server-sent events out of a stream of bytes
    client   AsyncClient: one typed method per path of the API, which are in asking_jobs, asking_pool and asking_events
             connection: how all of them ask; answers: what comes back
    sync     Client: the same methods for programs without an event loop, made from the async ones

    executor    Executor: concurrent.futures; decorator: @task
    calling     calls -> jobs -> results; batches: calls that become one job; sending: how they get to the manager;
                following: what ended; telling: the thread in which futures are told
    mapping     a function over many items; jobs: a submitted command as an object
    futures     TaskFuture; failures: what it raises if the function did not
    pickling    functions and arguments, and what does not travel in them; chunks: many calls as one
    options     what can be said about calls
    embedded    a pool of one's own; embedded_main: its process

But for the pool of an executor, no names of the adapters or services are known here: everything goes over the wire.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tercel.sdk.client import AsyncClient as AsyncClient
    from tercel.sdk.decorator import task as task
    from tercel.sdk.executor import Executor as Executor
    from tercel.sdk.failures import DependencyFailed as DependencyFailed
    from tercel.sdk.failures import TaskFailed as TaskFailed
    from tercel.sdk.futures import TaskFuture as TaskFuture
    from tercel.sdk.sync import Client as Client

_WHERE = {
    "AsyncClient": "tercel.sdk.client",
    "Client": "tercel.sdk.sync",
    "DependencyFailed": "tercel.sdk.failures",
    "Executor": "tercel.sdk.executor",
    "TaskFailed": "tercel.sdk.failures",
    "TaskFuture": "tercel.sdk.futures",
    "task": "tercel.sdk.decorator",
}


def __getattr__(name: str) -> object:
    # Late, because a command line that only parses its options must not pay for asyncio.
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_WHERE)
