"""Tercel runs very many tasks on whatever machines a group can reach, and never loses one.

Layers, top to bottom (a layer imports only what stands below it; import-linter checks):

    cli                         what people see
    sdk                         the one door the faces use
    wiring                      the one place that chooses adapters
    manager   worker            services: move messages, commit, perform effects
    stores    links    runners  adapters: one family per kind of outside thing
    wire                        the messages between processes, versioned
    core                        the rules: pure
"""

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = (
    False  # what type checkers take for true; importing the real one would cost every command 5 ms
)
if TYPE_CHECKING:
    from tercel.sdk import AsyncClient as AsyncClient
    from tercel.sdk import Client as Client
    from tercel.sdk import DependencyFailed as DependencyFailed
    from tercel.sdk import Executor as Executor
    from tercel.sdk import TaskFailed as TaskFailed
    from tercel.sdk import task as task

_PUBLIC = frozenset({"AsyncClient", "Client", "DependencyFailed", "Executor", "TaskFailed", "task"})


def __getattr__(name: str) -> object:
    # Late, so that everything else (the command line above all) does not pay for it.
    if name in _PUBLIC:
        return getattr(import_module("tercel.sdk"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_PUBLIC | {"__version__"})
