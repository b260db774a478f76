"""Client: the same methods, made from the async ones."""

import asyncio
import inspect
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import pytest

from tercel.core.errors import NotFound
from tercel.sdk import AsyncClient, Client
from tercel.wire import api
from tests.cli.fake_manager import STATUS, FakeManager, events, problem, stream

DONE = api.Event(job=37, counts=api.Counts(finished=1), done=True)


def test_every_method_of_the_async_client_has_its_sync_twin() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(AsyncClient) - {"aclose"} == public(Client) - {"call_soon", "close", "wait_for"}


def test_docs_are_those_of_the_async_method() -> None:
    for name, method in inspect.getmembers(AsyncClient):
        if inspect.iscoroutinefunction(method) and not name.startswith("_") and name != "aclose":
            assert vars(Client)[name].__doc__ == method.__doc__


def test_calls_block_and_return(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", STATUS)
    with Client() as client:
        assert client.status() == STATUS
        assert client.status() == STATUS
        assert client.url == manager.url
    assert {request.connection for request in manager.requests} == {1}


def test_errors_are_raised_in_the_caller(manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/9", problem(404, "there is no job 9"))
    with Client() as client, pytest.raises(NotFound, match="no job 9"):
        client.job(9)


def test_streams_are_plain_iterators(manager: FakeManager) -> None:
    manager.says("GET", "/v1/events", events(DONE))
    manager.says("GET", "/v1/jobs/37/tasks/0/logs", stream(b"a", b"b"))
    with Client() as client:
        assert list(client.watch([37])) == [DONE]
        assert b"".join(client.logs(37, 0)) == b"ab"


def test_a_stream_may_be_left_early(manager: FakeManager) -> None:
    release = threading.Event()
    manager.says("GET", "/v1/jobs/37/tasks/0/logs", stream(b"a", lambda: release.wait(20), b"b"))
    with Client() as client:
        for chunk in client.logs(37, 0, follow=True):
            assert chunk == b"a"
            break
    release.set()


async def test_it_works_where_a_loop_already_runs(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", STATUS)
    with Client() as client:
        assert client.status() == STATUS
    assert asyncio.get_running_loop().is_running()


def test_several_threads_share_a_client(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", STATUS)
    found: list[api.Status] = []
    with Client() as client:
        threads = [threading.Thread(target=lambda: found.append(client.status())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [STATUS] * 8


def test_closing_ends_the_thread_and_a_call_starts_it_again(manager: FakeManager) -> None:
    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "tercel-client"]

    manager.says("GET", "/v1/status", STATUS)
    client = Client()
    assert ours() == []
    client.status()
    assert len(ours()) == 1
    client.close()
    client.close()
    assert ours() == []
    client.status()
    client.close()


def test_a_call_that_meets_another_threads_close_ends_one_way_or_the_other(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is closed between choosing the loop and giving it the call."""
    manager.says("GET", "/v1/status", STATUS)
    client = Client()
    client.status()
    closing = threading.Thread(target=client.close)
    hand_over = asyncio.run_coroutine_threadsafe

    def close_first(coroutine: Any, loop: Any) -> Any:
        if closing.ident is None:
            closing.start()
            closing.join(0.2)  # it must not get through; a thread that waits for a lock gives no sign
        return hand_over(coroutine, loop)

    monkeypatch.setattr("tercel.sdk.sync.asyncio.run_coroutine_threadsafe", close_first)
    with suppress(CancelledError):
        assert client.status() == STATUS
    closing.join()
    client.close()
