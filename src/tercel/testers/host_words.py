"""How a host and whoever started it talk: frames over a socket pair. A frame is its length (4 bytes) and one message.

    starter -> host     Begin                              once
                        Ask(number, text) · Judge(number, text) · Cancel(number)
    host -> starter     Ready | Unfit                      once, when the tester was imported
                        Answer(number, verdict) · Judged(number, text or what is wrong) · Beat, all the time

The board is a small file that both have mapped: in it stands the number of the question in whose code the host is at the moment,
so that the culprit is known if it never comes back.
"""

import asyncio
import mmap
import struct

import msgspec

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import PeerError
from tercel.testers.contract import Surroundings

BEAT_S = 0.5
BOARD_BYTES = mmap.PAGESIZE
QUESTION_MOST_BYTES = 4 * 2**20
ANSWER_MOST_BYTES = 64 * 1024
_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!Q")


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class Begin(_Message, frozen=True):
    kind: str
    target: str
    """Where the tester is, as an entry point says it: `module:Class`."""
    mem_bytes: int
    file_bytes: int
    """Of the largest file that it may write."""
    subreaper: bool = False
    """Whether all that it starts are programs of `running`."""
    sees: tuple[str, ...] = ()
    """How variables of this process's own begin that are meant for it."""


class Ask(_Message, frozen=True):
    number: int
    text: str
    surroundings: Surroundings


class Judge(_Message, frozen=True):
    number: int
    text: str


class Cancel(_Message, frozen=True):
    number: int


class Ready(_Message, frozen=True):
    place: Place
    summary: str


class Unfit(_Message, frozen=True):
    why: str


class Answer(_Message, frozen=True):
    number: int
    verdict: Verdict


class Judged(_Message, frozen=True):
    number: int
    text: str
    wrong: str = ""


class Beat(_Message, frozen=True):
    pass


class Spent(_Message, frozen=True):
    """Memory ran out while this was asked; the host ends."""

    number: int


Question = Begin | Ask | Judge | Cancel
Said = Ready | Unfit | Answer | Judged | Beat | Spent

_encode = msgspec.msgpack.Encoder().encode
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_said: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(Said)
decode_question = _questions.decode
decode_said = _said.decode


def frame(message: _Message) -> bytes:
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


def length_of(head: bytes, most: int) -> int:
    length: int = _LENGTH.unpack(head)[0]
    if length > most:
        raise PeerError(f"a frame of {length:,} bytes; at most {most:,} are taken")
    return length


async def read_frame(reader: asyncio.StreamReader, most: int) -> bytes:
    """IncompleteReadError at the end."""
    return await reader.readexactly(length_of(await reader.readexactly(_LENGTH.size), most))


class Board:
    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, BOARD_BYTES)

    def write(self, number: int) -> None:
        _NUMBER.pack_into(self._map, 0, number)

    def read(self) -> int:
        number: int = _NUMBER.unpack_from(self._map, 0)[0]
        return number

    def close(self) -> None:
        self._map.close()
