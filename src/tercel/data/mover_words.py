"""How a worker and its mover talk: messages over a socket pair. A frame is its length (4 bytes) and one message.

    worker -> mover     Begin                                  once
                        Fetching, Delivering, Removing, Looking (number, what, manager) · Cancel(number)
    mover -> worker     Moved(number, bytes, total)            a few times a second
                        WasFetched, WasDelivered, WasRemoved, WasSeen (number, what came of it) | Failed(number, why)
                        Beat                                   all the time: it hangs if that is not heard

Secrets (the manager's token) go this way only: neither a command line nor an environment holds them.
"""

import struct

import msgspec

from tercel.core.errors import PeerError
from tercel.core.files import Trouble
from tercel.data.contract import Deliver, Delivered, Fetch, Fetched, TransferFailed

BEAT_S = 0.2
FRAME_MOST_BYTES = 16 << 20
_LENGTH = struct.Struct("!I")


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class Begin(_Message, frozen=True):
    at_once: int
    stall_s: float


class Fetching(_Message, frozen=True):
    number: int
    what: Fetch
    manager: tuple[str, str]


class Delivering(_Message, frozen=True):
    number: int
    what: Deliver
    manager: tuple[str, str]


class Removing(_Message, frozen=True):
    number: int
    url: str
    manager: tuple[str, str]


class Looking(_Message, frozen=True):
    number: int
    url: str
    manager: tuple[str, str]


class Cancel(_Message, frozen=True):
    number: int


class Moved(_Message, frozen=True):
    number: int
    moved: int
    total: int


class WasFetched(_Message, frozen=True):
    number: int
    fetched: Fetched


class WasDelivered(_Message, frozen=True):
    number: int
    delivered: Delivered


class WasRemoved(_Message, frozen=True):
    number: int


class WasSeen(_Message, frozen=True):
    number: int
    size_bytes: int
    validator: str


class Failed(_Message, frozen=True):
    number: int
    trouble: Trouble
    url: str
    note: str
    not_before_s: float
    errno: str
    bad: tuple[tuple[str, str], ...]


class Beat(_Message, frozen=True):
    pass


Asked = Fetching | Delivering | Removing | Looking
Told = Begin | Asked | Cancel
Done = WasFetched | WasDelivered | WasRemoved | WasSeen
Said = Moved | Done | Failed | Beat

_encode = msgspec.msgpack.Encoder().encode
_told: msgspec.msgpack.Decoder[Told] = msgspec.msgpack.Decoder(Told)
_said: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(Said)
decode_told = _told.decode
decode_said = _said.decode
HEAD_BYTES = _LENGTH.size


def url_of(asked: Asked) -> str:
    """Which place is to be told of, if nothing else is known."""
    match asked:
        case Fetching():
            return asked.what.urls[0] if asked.what.urls else ""
        case Delivering():
            return asked.what.url
        case Removing() | Looking():
            return asked.url


def frame(message: Told | Said) -> bytes:
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


def length_of(head: bytes) -> int:
    length: int = _LENGTH.unpack(head)[0]
    if length > FRAME_MOST_BYTES:
        raise PeerError(f"a frame of {length:,} bytes; at most {FRAME_MOST_BYTES:,} are taken")
    return length


def failed_of(number: int, failed: TransferFailed) -> Failed:
    return Failed(
        number, failed.trouble, failed.url, failed.note, failed.not_before_s, failed.errno, failed.bad
    )


def failure_in(said: Failed) -> TransferFailed:
    return TransferFailed(said.trouble, said.url, said.note, said.not_before_s, said.errno, said.bad)
