"""A tester's own judgement of what people write, made in a process that may hang or die over it."""

import signal
import socket
import subprocess
import tempfile
import time

import msgspec

from tercel.core.errors import PeerError
from tercel.testers.host_words import (
    ANSWER_MOST_BYTES,
    BOARD_BYTES,
    Beat,
    Begin,
    Judge,
    Judged,
    Ready,
    Said,
    Unfit,
    decode_said,
    frame,
    length_of,
)
from tercel.testers.hosting import HostFault, boot_words
from tercel.testers.running import descendants, own_environment, signal_all
from tercel.testers.verdicts import printable


def judge(begin: Begin, text: str, limit_s: float) -> tuple[Ready, Judged]:
    """Where its tester is asked by default, and what it says of the text. Blocks; HostFault if it says nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as board:
        board.truncate(BOARD_BYTES)
        process = subprocess.Popen(
            boot_words(theirs.fileno(), board.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), board.fileno()),
            env=own_environment(),
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        try:
            ours.settimeout(limit_s)
            ours.sendall(frame(begin) + frame(Judge(1, text)))
            return _answer(ours, time.monotonic() + limit_s)
        except TimeoutError:
            raise HostFault(f"did not answer within {limit_s:g} s") from None
        except (PeerError, OSError, msgspec.MsgspecError):
            raise HostFault("its process ended, or answered with what is no answer") from None
        finally:
            signal_all([process.pid], signal.SIGSTOP)
            signal_all([*descendants([process.pid]), process.pid], signal.SIGKILL)
            process.wait()


def _answer(ours: socket.socket, until: float) -> tuple[Ready, Judged]:
    ready: Ready | None = None
    while True:
        said = _hear(ours, until)
        if isinstance(said, Unfit):
            raise HostFault(f"cannot be imported: {printable(said.why)}")
        if isinstance(said, Judged) and ready is not None:
            return ready, said
        if isinstance(said, Ready):
            ready = said
        elif not isinstance(said, Beat):
            raise PeerError("an answer to what was not asked")


def _hear(ours: socket.socket, until: float) -> Said:
    length = length_of(_exactly(ours, 4, until), ANSWER_MOST_BYTES)
    return decode_said(_exactly(ours, length, until))


def _exactly(ours: socket.socket, count: int, until: float) -> bytes:
    data = b""
    while len(data) < count:
        ours.settimeout(max(0.001, until - time.monotonic()))
        more = ours.recv(count - len(data))
        if not more:
            raise PeerError("it ended")
        data += more
    return data
