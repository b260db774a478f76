"""The mover: a process in which transfers are made, a thread each, so that a library that hangs, leaks or crashes harms no worker.

main thread   hears what is asked, starts threads, so many at a time; ends all when its worker has ended
ticker        looks at every transfer: how far it is, whether it gets on; a thread that does not come back although its
              transfer was ended is given up, and with many of those the whole process: the next one begins clean

python -m tercel.data.mover FD
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from contextlib import suppress

import msgspec

from tercel.core.files import Trouble
from tercel.data.contract import TransferFailed
from tercel.data.delivering import deliver, remove, stat
from tercel.data.fetching import fetch
from tercel.data.mover_words import (
    BEAT_S,
    HEAD_BYTES,
    Asked,
    Beat,
    Begin,
    Cancel,
    Delivering,
    Done,
    Failed,
    Fetching,
    Looking,
    Moved,
    Removing,
    Said,
    WasDelivered,
    WasFetched,
    WasRemoved,
    WasSeen,
    decode_told,
    failed_of,
    frame,
    length_of,
    url_of,
)
from tercel.data.schemes import Schemes
from tercel.data.urls import note_of, shown
from tercel.data.watches import Cancelled, Watch

QUICK_AT_ONCE = 16
"""Looks and removals: none waits for hours of fetching."""
GRACE_S = 25.0
"""For a thread whose transfer was ended to come back: longer than it may take to remove what it wrote."""
LOST_MOST = 8
_PR_SET_PDEATHSIG = 1


class _Transfer:
    """One that is under way."""

    def __init__(self, asked: Asked, stall_s: float) -> None:
        self.asked = asked
        self.watch = Watch(stall_s)
        self.told = (0, -1)
        self.ended_at = 0.0
        self.is_answered = False


class Mover:
    def __init__(self, sock: socket.socket, begin: Begin) -> None:
        self._sock = sock
        self._stall_s = begin.stall_s
        self._schemes = Schemes()
        self._under_way: dict[int, _Transfer] = {}
        self._waiting: tuple[deque[Asked], deque[Asked]] = (deque(), deque())
        self._free = [begin.at_once, QUICK_AT_ONCE]
        self._lost = 0
        self._lock = threading.RLock()
        self._saying = threading.Lock()

    def say(self, message: Said) -> None:
        with self._saying, suppress(OSError):  # its worker has ended: this is noticed where it is heard
            self._sock.sendall(frame(message))

    def serve(self) -> None:
        """Until its worker has ended."""
        threading.Thread(target=self._tick, name="ticker", daemon=True).start()
        while (told := heard(self._sock)) is not None:
            match told:
                case Cancel(number):
                    self._cancel(number)
                case Fetching() | Delivering() | Removing() | Looking():
                    with self._lock:
                        self._waiting[_lane(told)].append(told)
                        self._start()

    def _cancel(self, number: int) -> None:
        with self._lock:
            waiting = [(lane, each) for lane in self._waiting for each in lane if each.number == number]
            for lane, asked in waiting:
                lane.remove(asked)
            transfer = self._under_way.get(number)
        if transfer is not None:
            transfer.watch.cancel()
        elif waiting:
            self.say(_cancelled(number))

    def _start(self) -> None:
        for lane, waiting in enumerate(self._waiting):
            while waiting and self._free[lane] > 0:
                self._free[lane] -= 1
                asked = waiting.popleft()
                transfer = _Transfer(asked, self._stall_s)
                self._under_way[asked.number] = transfer
                threading.Thread(
                    target=self._run, args=(transfer,), name=f"transfer {asked.number}", daemon=True
                ).start()

    def _run(self, transfer: _Transfer) -> None:
        number, url = transfer.asked.number, shown(url_of(transfer.asked))
        answer: Done | Failed
        try:
            answer = self._moved(transfer.asked, transfer.watch)
        except TransferFailed as failed:
            answer = failed_of(number, failed)
        except Cancelled:
            answer = _cancelled(number)
        except BaseException as error:  # a fault of ours, or no memory: this transfer's only
            note = note_of(f"the mover failed: {type(error).__name__}: {error}")
            answer = Failed(number, Trouble.DOWN, url, note, 0.0, "", ())
        self._end(transfer, answer)

    def _moved(self, asked: Asked, watch: Watch) -> Done:
        number, schemes, manager = asked.number, self._schemes, asked.manager
        match asked:
            case Fetching():
                return WasFetched(number, fetch(asked.what, schemes, watch, manager))
            case Delivering():
                return WasDelivered(number, deliver(asked.what, schemes, watch, manager))
            case Removing():
                remove(asked.url, schemes, watch, manager)
                return WasRemoved(number)
            case Looking():
                return WasSeen(number, *stat(asked.url, schemes, watch, manager))

    def _end(self, transfer: _Transfer, answer: Done | Failed, is_lost: bool = False) -> None:
        with self._lock:
            if transfer.is_answered:
                self._lost -= not is_lost  # it was given up, and has come back
                return
            self._lost += is_lost
            transfer.is_answered = True
            del self._under_way[transfer.asked.number]
            self._free[_lane(transfer.asked)] += 1
            self._start()
        self.say(answer)

    # -- looking after them ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        while True:
            now = time.monotonic()
            with self._lock:
                transfers = list(self._under_way.values())
            for transfer in transfers:
                self._look(transfer, now)
            self.say(Beat())
            if self._lost > LOST_MOST:
                end_all()
            time.sleep(BEAT_S)

    def _look(self, transfer: _Transfer, now: float) -> None:
        watch = transfer.watch
        if (told := (watch.moved, watch.total)) != transfer.told:
            transfer.told = told
            self.say(Moved(transfer.asked.number, *told))
        watch.look(now)
        if watch.why is None:
            transfer.ended_at = 0.0
        elif not transfer.ended_at:
            transfer.ended_at = now
        elif now - transfer.ended_at > GRACE_S:
            self._give_up(transfer)

    def _give_up(self, transfer: _Transfer) -> None:
        url = url_of(transfer.asked)
        note = note_of(f"{shown(url)}: no progress for {self._stall_s:g} s, and it cannot be ended")
        answer = Failed(transfer.asked.number, Trouble.DOWN, shown(url), note, 0.0, "", ())
        self._end(transfer, answer, is_lost=True)


def _cancelled(number: int) -> Failed:
    return Failed(number, Trouble.DOWN, "", "it was cancelled", 0.0, "", ())


def _lane(asked: Asked) -> int:
    return 0 if isinstance(asked, Fetching | Delivering) else 1


def heard(sock: socket.socket) -> object:
    """What comes next; None at the end."""
    head = _exactly(sock, HEAD_BYTES)
    data = _exactly(sock, length_of(head)) if head else b""
    return decode_told(data) if data else None


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        try:
            more = sock.recv(count - len(data))
        except ConnectionError:
            return b""
        if not more:
            return b""
        data += more
    return data


def end_all() -> None:
    """Itself, and the programs that it started: it leads a session of its own."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def main() -> None:
    # Should it hang at the moment at which its worker ends, it ends all the same. Other systems have the socket's end only.
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)
    sock = socket.socket(fileno=fd)
    try:
        begin = heard(sock)
        if isinstance(begin, Begin):
            Mover(sock, begin).serve()
    except msgspec.MsgspecError:
        pass  # of another version than its worker, or confused: it is started anew
    end_all()


if __name__ == "__main__":
    main()
