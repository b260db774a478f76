"""What meets real sockets here runs on both loops that are used in production. A module that says ONE_LOOP is not about loops."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]


@pytest.hookimpl(optionalhook=True)  # pytest-asyncio before 1.4 does not know it
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.SelectorEventLoop}
    if uvloop is not None and not getattr(getattr(item, "module", None), "ONE_LOOP", False):
        loops["uvloop"] = uvloop.new_event_loop
    return loops
