"""Runs a small command and takes its answer, in a spawner: between attempts, or about one that is over."""

import os
import signal
import time
from collections.abc import Mapping

_READ_BYTES = 64 * 1024
_WAIT_S = 0.005


class Answer:
    __slots__ = ("code", "text")

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        """Its exit code; negative: a signal's number, 9 if it took too long. 126 if it could not be started."""
        self.text = text

    @property
    def last_line(self) -> str:
        lines = [line for line in self.text.splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""


def ask(words: list[bytes], environment: Mapping[bytes, bytes], most_s: float) -> Answer:
    """What the command says on either output. It is killed if it takes longer than that."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_DUP2, writer, 2),
    ]
    try:
        pid = os.posix_spawn(
            words[0], words, environment, file_actions=actions, setsigmask=[], setsigdef=[signal.SIGTERM]
        )
    except OSError as error:
        os.close(reader)
        return Answer(126, os.strerror(error.errno or 0))
    finally:
        os.close(writer)
    try:
        return _answer(pid, reader, time.monotonic() + most_s)
    finally:
        os.close(reader)


def _answer(pid: int, reader: int, give_up_at: float) -> Answer:
    """Until it has ended: something that it left running may hold its output open for ever."""
    said = bytearray()
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        _take(reader, said)
        if ended:
            return Answer(os.waitstatus_to_exitcode(status), said.decode(errors="replace"))
        if time.monotonic() > give_up_at:
            os.kill(pid, signal.SIGKILL)
        time.sleep(_WAIT_S)


def _take(reader: int, said: bytearray) -> None:
    try:
        while data := os.read(reader, _READ_BYTES):
            said += data
    except BlockingIOError:
        pass
