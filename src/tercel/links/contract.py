"""What both ends of a link do.

`send` returns when the messages are handed to the transport and waits while the peer is too slow to take more:
whoever sends is the one who waits, so a slow peer never makes memory grow. `receive` returns the messages of
one frame, at least one. Either raises LinkClosed once the link is gone, and PeerError (after which the link must
be closed) if the peer broke the protocol.
"""

from typing import Protocol

from tercel.core.errors import PassingFault
from tercel.wire.messages import FromManager, FromWorker


class LinkClosed(PassingFault):
    """The link is gone; dialling again may help. The message says how it ended."""


class WorkerEnd(Protocol):
    """The worker's end."""

    async def send(self, messages: list[FromWorker]) -> None: ...

    async def receive(self) -> list[FromManager]: ...

    async def close(self) -> None: ...


class ManagerEnd(Protocol):
    """The manager's end."""

    async def send(self, messages: list[FromManager]) -> None: ...

    async def receive(self) -> list[FromWorker]: ...

    async def close(self) -> None: ...


class Dialer(Protocol):
    """How a worker reaches a manager."""

    async def dial(self) -> WorkerEnd:
        """Raises Unreachable if nobody answers, Forbidden if the manager does not accept the token."""
