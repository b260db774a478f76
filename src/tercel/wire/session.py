"""Numbers frames and notices what got lost.

A link delivers frames in order while it lives. Should one go missing or arrive out of turn all the same (a
proxy, a bug, a simulation), both sides' books would differ silently. So every frame carries its number, a gap
ends the link, and the Hello of the next link brings the books together again. Each kind of trouble thereby has
one cure. A frame seen before is dropped.
"""

from typing import Protocol, TypeVar

import msgspec

from tercel.core.errors import PeerError
from tercel.wire.messages import FromManager, FromWorker, ManagerFrame, WorkerFrame

_encoder = msgspec.msgpack.Encoder()
_from_worker = msgspec.msgpack.Decoder(WorkerFrame)
_from_manager = msgspec.msgpack.Decoder(ManagerFrame)

_NO_MESSAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises at bytes that are no frame; text that is not UTF-8 is no DecodeError of its own."""


class FrameOrder:
    """The receiving side's count of frames on one link."""

    def __init__(self) -> None:
        self._expected = 0

    def accept(self, number: int) -> bool:
        """Whether to process this frame. False: a repetition. Raises PeerError at a gap."""
        if number < self._expected:
            return False
        if number > self._expected:
            raise PeerError(f"frames {self._expected} to {number - 1} are missing on the link")
        self._expected += 1
        return True


Sent = TypeVar("Sent")
Heard = TypeVar("Heard")


class Session(Protocol[Sent, Heard]):
    """Either end's."""

    def encode(self, messages: list[Sent]) -> bytes:
        """The next frame."""

    def decode(self, data: bytes) -> list[Heard]:
        """What a frame says; nothing if it was seen before. Raises PeerError."""


class _Session:
    def __init__(self) -> None:
        self._sent = 0
        self._order = FrameOrder()

    def _number(self) -> int:
        self._sent += 1
        return self._sent - 1


class WorkerSession(_Session):
    """The worker's end of one link."""

    def encode(self, messages: list[FromWorker]) -> bytes:
        return _encoder.encode(WorkerFrame(self._number(), messages))

    def decode(self, data: bytes) -> list[FromManager]:
        try:
            frame = _from_manager.decode(data)
        except _NO_MESSAGE as error:
            raise PeerError(f"the manager sent a frame that is no message: {error}") from error
        return frame.messages if self._order.accept(frame.number) else []


class ManagerSession(_Session):
    """The manager's end of one link."""

    def encode(self, messages: list[FromManager]) -> bytes:
        return _encoder.encode(ManagerFrame(self._number(), messages))

    def decode(self, data: bytes) -> list[FromWorker]:
        try:
            frame = _from_worker.decode(data)
        except _NO_MESSAGE as error:
            raise PeerError(f"the worker sent a frame that is no message: {error}") from error
        return frame.messages if self._order.accept(frame.number) else []
