"""What goes to a worker in one frame. Links take frames of MAX_FRAME_BYTES and close at a larger one; sent again at
every new link, it would keep the worker away for ever. So messages are made and gathered to stay far below. Pure.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tercel.core.model import Call, Lease
from tercel.wire.messages import (
    MAX_FRAME_BYTES,
    Ack,
    Brief,
    Cancel,
    FromManager,
    Located,
    Look,
    Offer,
    Park,
    Piece,
    Probe,
    Refused,
    Resume,
    Scattered,
    TakeBack,
    Undo,
    Welcome,
)

FRAME_BYTES = MAX_FRAME_BYTES // 4
OFFER_BYTES = MAX_FRAME_BYTES // 16

_ID_BYTES = 9
"""An attempt's id at most."""
_CHARACTER_BYTES = 4
_SMALL_BYTES = 64

_encode = msgspec.msgpack.Encoder().encode


def offers(lease: Lease, lines: list[str] | None, calls: list[Call] | None = None) -> Iterator[Offer]:
    """The tasks of a lease, with their lines or calls if the job has any, in pieces of a size that can be sent."""
    if lines is None and calls is None:
        yield Offer(lease.job, lease.first, lease.last, lease.id)
        return
    for begin, end in _fitting(_sizes(lines, calls)):
        yield Offer(
            lease.job,
            lease.first + begin,
            lease.first + end - 1,
            lease.id + begin,
            lines and lines[begin:end],
            calls and calls[begin:end],
        )


def scattered(
    leases: Sequence[Lease], lines: list[str] | None, calls: list[Call] | None = None
) -> Iterator[Scattered]:
    """The tasks of leases that follow one another, as above."""
    tasks = [task for lease in leases for task in range(lease.first, lease.last + 1)]
    sizes = _sizes(lines, calls) or [_ID_BYTES] * len(tasks)
    for begin, end in _fitting(sizes):
        yield Scattered(
            leases[0].job,
            tasks[begin:end],
            leases[0].id + begin,
            lines and lines[begin:end],
            calls and calls[begin:end],
        )


def _sizes(lines: list[str] | None, calls: list[Call] | None) -> list[int]:
    """Of what each task has of its own, at most."""
    if lines is not None:
        return [_ID_BYTES + len(line) * _CHARACTER_BYTES for line in lines]
    return [_call_size(call) for call in calls or ()]


def _fitting(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Begins and ends of runs whose sizes add up to little enough, or are of one alone."""
    begin = total = 0
    for at, size in enumerate(sizes):
        if at > begin and total + size > OFFER_BYTES:
            yield begin, at
            begin, total = at, 0
        total += size
    yield begin, len(sizes)


def _call_size(call: Call) -> int:
    keys = sum(len(key) + _ID_BYTES for key in (*call.values, *call.names)) if call.values else 0
    return _SMALL_BYTES + len(call.arguments) + keys


def undos(job: int, task: int, urls: list[str], lost: list[int]) -> Iterator[Undo]:
    """What is to be undone before a task is run again, in pieces of a size that can be sent."""
    for begin, end in _fitting([_ID_BYTES + len(url) * _CHARACTER_BYTES for url in urls]):
        yield Undo(job, task, urls[begin:end], lost)


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
        case Ack(attempts) | Cancel(attempts) | TakeBack(attempts) | Park(attempts) | Resume(attempts):
            return _SMALL_BYTES + len(attempts) * _ID_BYTES
        case Welcome(drop=drop):
            return _SMALL_BYTES + len(drop) * _ID_BYTES
        case Offer(lines=lines, calls=calls):
            return _SMALL_BYTES + sum(_sizes(lines, calls))
        case Scattered(tasks=tasks, lines=lines, calls=calls):
            return _SMALL_BYTES + len(tasks) * _ID_BYTES + sum(_sizes(lines, calls))
        case Brief() | Probe() | Look() | Refused() | Located() | Undo():
            # There are few; most have a hundred bytes, but a sweep's brief has all the values that it lists, a command's
            # probe the variables of its job, a look the path that somebody asks for, and about files there are many names.
            return len(_encode(message))
        case Piece(key=key, data=data, gone=gone):
            return _SMALL_BYTES + (len(key) + len(gone)) * _CHARACTER_BYTES + len(data)
    return _SMALL_BYTES
