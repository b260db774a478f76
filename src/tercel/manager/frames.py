"""What goes to a worker in one frame. Links take frames of MAX_FRAME_BYTES and close at a larger one; sent again at
every new link, it would keep the worker away for ever. So messages are made and gathered to stay far below. Pure.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tercel.core.model import Lease
from tercel.wire.messages import MAX_FRAME_BYTES, Ack, Brief, Cancel, FromManager, Offer, TakeBack, Welcome

FRAME_BYTES = MAX_FRAME_BYTES // 4
OFFER_BYTES = MAX_FRAME_BYTES // 16

_ID_BYTES = 9
"""An attempt's id at most."""
_CHARACTER_BYTES = 4
_SMALL_BYTES = 64

_encode = msgspec.msgpack.Encoder().encode


def offers(lease: Lease, lines: Sequence[str] | None) -> Iterator[Offer]:
    """The tasks of a lease, with their lines if the job has any, in pieces of a size that can be sent."""
    if lines is None:
        yield Offer(lease.job, lease.first, lease.last, lease.id)
        return
    begin = size = 0
    for at, line in enumerate(lines):
        if at > begin and size + len(line) * _CHARACTER_BYTES > OFFER_BYTES:
            yield _offer(lease, begin, lines[begin:at])
            begin, size = at, 0
        size += len(line) * _CHARACTER_BYTES
    yield _offer(lease, begin, lines[begin:])


def _offer(lease: Lease, begin: int, lines: Sequence[str]) -> Offer:
    first = lease.first + begin
    return Offer(lease.job, first, first + len(lines) - 1, lease.id + begin, list(lines))


def frames(messages: list[FromManager]) -> Iterator[list[FromManager]]:
    """The messages, in order, as few frames as are small enough."""
    frame: list[FromManager] = []
    size = 0
    for message in messages:
        more = _size(message)
        if frame and size + more > FRAME_BYTES:
            yield frame
            frame, size = [], 0
        frame.append(message)
        size += more
    if frame:
        yield frame


def _size(message: FromManager) -> int:
    """At most; what it really takes is known only when it is encoded."""
    match message:
        case Ack(attempts) | Cancel(attempts) | TakeBack(attempts):
            return _SMALL_BYTES + len(attempts) * _ID_BYTES
        case Welcome(drop=drop):
            return _SMALL_BYTES + len(drop) * _ID_BYTES
        case Offer(lines=list(lines)):
            return _SMALL_BYTES + sum(map(len, lines)) * _CHARACTER_BYTES
        case Brief():
            # There are few; most have a hundred bytes, but a sweep's has all the values that it lists.
            return len(_encode(message))
    return _SMALL_BYTES
