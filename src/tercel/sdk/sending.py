"""What goes to the manager, through what passes: submissions, and values, each of them once."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tercel.core.errors import PassingFault
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Stored, Submission, Submitted

log = logging.getLogger("tercel.sdk")

RETRY_FIRST_S, RETRY_MOST_S = 0.2, 5.0
UPLOADED_S = 6 * 3600.0
"""So long it is taken for granted that the manager still has what was uploaded."""

R = TypeVar("R")


class Sender:
    """Belongs to the client's event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self.fault: BaseException | None = None
        """Why trying again is of no use."""
        self._client = client
        self._uploaded: dict[str, float] = {}
        """When: a manager forgets values that no job refers to, after a day."""
        self._uploading: dict[str, asyncio.Task[Stored]] = {}

    def has(self, key: str) -> bool:
        """Whether the manager has this value by now; may be asked in any thread."""
        return time.monotonic() < self._uploaded.get(key, -math.inf) + UPLOADED_S

    async def submit(self, submission: Submission) -> Submitted:
        return await self._insist(lambda: self._client.submit(submission))

    async def upload(self, key: str, data: bytes) -> None:
        """Once, however many batches need it."""
        if self.has(key):
            return
        under_way = self._uploading.get(key)
        if under_way is None:
            under_way = asyncio.create_task(self._insist(lambda: self._client.upload(key, data)))
            self._uploading[key] = under_way
            under_way.add_done_callback(lambda done: self._note(key, done))
        await asyncio.shield(under_way)

    def _note(self, key: str, done: asyncio.Task[Stored]) -> None:
        """In one step: between two, another batch could find it neither under way nor there."""
        del self._uploading[key]
        if not done.cancelled() and done.exception() is None:
            self._uploaded[key] = time.monotonic()

    async def _insist(self, ask: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Through a restart of the manager, say; not if there never was one."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return await ask()
            except PassingFault as fault:
                if not self._client.answered or self.fault is not None:
                    raise
                log.warning("%s; it is tried again", fault)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MOST_S)
