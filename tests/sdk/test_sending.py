"""What goes to the manager, through what passes."""

import asyncio
import time
from collections.abc import Callable
from typing import cast

import pytest

from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient
from tercel.sdk.sending import UPLOADED_S, Sender


class Client:
    """Takes one value."""

    answered = True

    def __init__(self, before_answer: Callable[[], object], fault: Exception | None = None) -> None:
        self.uploads = 0
        self._before_answer = before_answer
        self._fault = fault

    async def upload(self, key: str, data: bytes) -> None:
        self.uploads += 1
        if self.uploads == 1:
            self._before_answer()
            if self._fault is not None:
                raise self._fault


def sender(client: Client) -> Sender:
    return Sender(cast(AsyncClient, client))


def test_a_value_that_just_arrived_is_not_sent_again() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()

        def ask_again() -> None:
            """When the upload is done, before the one who waits for it hears of that."""
            again = sending.upload("k", b"x")
            with pytest.raises(StopIteration):
                again.send(None)

        client = Client(lambda: loop.call_soon(loop.call_soon, ask_again))
        sending = sender(client)
        await sending.upload("k", b"x")
        await asyncio.sleep(0)
        assert sending.has("k")
        return client.uploads

    assert asyncio.run(main()) == 1


def test_a_value_that_was_refused_may_be_sent_again() -> None:
    async def main() -> int:
        client = Client(lambda: None, UsageError("no"))
        sending = sender(client)
        with pytest.raises(UsageError, match="no"):
            await sending.upload("k", b"x")
        assert not sending.has("k")
        await sending.upload("k", b"x")
        assert sending.has("k")
        return client.uploads

    assert asyncio.run(main()) == 2


def test_a_value_that_was_sent_long_ago_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager may have forgotten it, if no job refers to it any more."""
    client = Client(lambda: None)
    sending = sender(client)

    async def upload() -> None:
        await sending.upload("b1", b"x")

    asyncio.run(upload())
    asyncio.run(upload())
    assert client.uploads == 1
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + UPLOADED_S)
    assert not sending.has("b1")
    asyncio.run(upload())
    assert client.uploads == 2
