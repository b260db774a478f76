"""What jobs look for in the outputs of attempts that failed: patterns by which they know that something outside is broken.

    expect (it is launched) -> take (it ended, not well) -> line of its job -> looked at in a thread -> told

Jobs take turns, each with a few attempts at a time, so that one whose patterns or outputs are large keeps no other waiting for
long. An attempt's report waits meanwhile, as if the attempt itself had taken so much longer.

RE2 takes time in proportion to text and pattern, whatever either is. It cannot be interrupted, so it is given the text in
windows, the last one first, as long as there is time. Windows overlap by as much as a match may be long.
"""

import asyncio
import codecs
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import msgspec

from tercel.core.blocking import KNOWN
from tercel.core.errors import UsageError
from tercel.core.patterns import Searches, compiled
from tercel.core.reports import End, Output, Report
from tercel.runners.contract import Launch
from tercel.wire.messages import SEGMENT_BYTES

log = logging.getLogger("tercel.runners")

SEARCHED_MOST_BYTES = 10 * 2**20
"""Of each stream: the last ones that were kept."""
WINDOW_BYTES = 256 * 1024
MATCH_MOST_BYTES = 64 * 1024
"""What matches and is longer may not be found."""
PATIENCE_S = 5.0
"""Of a processor's time, for one attempt."""
STOP_S = 5.0
TURN_MOST = 32
TURN_S = 0.5
"""Attempts of one job that are looked at in a turn: so many, or until so much of a processor's time has passed."""
_SEGMENTS_MOST = SEARCHED_MOST_BYTES // SEGMENT_BYTES + 1
_FAILED = frozenset({End.EXITED, End.SIGNALLED, End.TIMED_OUT, End.EXCEEDED})
NOWHERE = -1
LAST_WORDS_BYTES = 4000
SAID_BYTES = 1000
"""Of an output, from what was found on: what must be there again is in it."""
SEEN_BEFORE_BYTES = 100
SEEN_BYTES = 300
"""Of a line, before what was found and from there on."""
NOT_ALL = "its output was not searched to the end for what its job looks for: that takes too long"

Sought = tuple[tuple[str, str, str], ...]
"""As of core.model.Program.patterns."""
Read = Callable[[int, str], Iterable[bytes]]
"""The compressed pieces of a large output."""
_Found = tuple[tuple[str, str, Searches], ...]


class Seeking:
    """`on_done` takes the reports that were looked at, on the event loop."""

    def __init__(self, read: Read, on_done: Callable[[list[Report]], None]) -> None:
        self.expected: dict[int, Sought] = {}
        """By attempt. Empty as long as nobody looks for anything: then nothing here is ever called."""
        self._read = read
        self._on_done = on_done
        self._lines: dict[int, deque[tuple[Report, Sought]]] = {}
        """By job; the one whose turn is next comes first."""
        self._threads: ThreadPoolExecutor | None = None
        self._work: asyncio.Task[None] | None = None
        self._hurry = threading.Event()
        """There is no more time for anybody."""

    def expect(self, launch: Launch) -> None:
        self.expected[launch.attempt] = launch.program.patterns

    def take(self, reports: list[Report]) -> list[Report]:
        """Returns those in which nothing is looked for; the others are told later."""
        rest = []
        for report in reports:
            sought = self.expected.pop(report.attempt, None)
            if sought is None or not _is_searched(report, sought):
                rest.append(report)
            else:
                self._lines.setdefault(report.job, deque()).append((report, sought))
        if self._lines and self._work is None:
            self._work = asyncio.ensure_future(self._work_off())
        return rest

    async def stop(self) -> None:
        """When all that wait have been told, which takes not much longer than STOP_S."""
        if (work := self._work) is not None:
            await asyncio.wait([work], timeout=STOP_S)
            self._hurry.set()
            await asyncio.wait([work])
        if self._threads is not None:
            self._threads.shutdown()

    async def _work_off(self) -> None:
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "tercel-seeking")
        while self._lines:
            job, turn = self._next_turn()
            try:
                done = await loop.run_in_executor(self._threads, self._look, turn)
            except Exception:  # an error of ours, or want of memory: the reports are told all the same
                log.exception("Cannot search the outputs of attempts.")
                done = [report for report, _ in turn]
            if rest := turn[len(done) :]:
                self._lines.setdefault(job, deque()).extendleft(reversed(rest))
            self._on_done(done)
        self._work = None

    def _next_turn(self) -> tuple[int, list[tuple[Report, Sought]]]:
        job, line = next(iter(self._lines.items()))
        turn = [line.popleft() for _ in range(min(TURN_MOST, len(line)))]
        del self._lines[job]
        if line:
            self._lines[job] = line  # behind the others
        return job, turn

    # -- in a thread --------------------------------------------------------------------------------------

    def _look(self, turn: list[tuple[Report, Sought]]) -> list[Report]:
        """The first of these at least, the others as long as there is time."""
        until = time.thread_time() + TURN_S
        done: list[Report] = []
        for report, sought in turn:
            if done and time.thread_time() >= until:
                break
            done.append(self._with_matches(report, sought))
        return done

    def _with_matches(self, report: Report, sought: Sought) -> Report:
        streams = {stream for _, stream, _ in sought}
        outputs = {stream: output for stream in streams if (output := _output(report, stream)) is not None}
        texts = {stream: self._text(report.attempt, stream, output) for stream, output in outputs.items()}
        stop_at = time.thread_time() + PATIENCE_S
        found: dict[str, str] = {}
        note, said = report.note, ""
        for on, stream, pattern in _compiled(sought):
            if not texts.get(stream) or on in found:
                continue
            text = texts[stream]
            if on == KNOWN:  # what was printed long before its end was survived
                text = text[-LAST_WORDS_BYTES:]
            at = self._search(pattern, text, stop_at)
            if at is None:
                note = f"{report.note}; {NOT_ALL}" if report.note else NOT_ALL
            elif at != NOWHERE:
                found[on] = "" if on == KNOWN else _line(text, at)
                if on == KNOWN:
                    said = _piece(text, at, SAID_BYTES).decode(errors="replace")
        matched = tuple(sorted(found))
        seen = tuple(found[on] for on in matched)
        return msgspec.structs.replace(report, matched=matched, note=note, said=said, seen=seen)

    def _search(self, pattern: Searches, text: bytes, stop_at: float) -> int | None:
        """Where it is, or NOWHERE. None: there was no time to look everywhere."""
        end = len(text)
        while not self._hurry.is_set() and time.thread_time() < stop_at:
            begin = max(0, end - WINDOW_BYTES)
            if (found := pattern.search(text, begin, end)) is not None:
                return found.start()
            if begin == 0:
                return NOWHERE
            end = begin + MATCH_MOST_BYTES
        return None

    def _text(self, attempt: int, stream: str, output: Output) -> bytes:
        if not output.segments:
            return _as_utf8([output.inline])
        pieces: deque[bytes] = deque(maxlen=_SEGMENTS_MOST)
        try:
            pieces += self._read(attempt, stream)
            data = b"".join(map(zlib.decompress, pieces))
        except (OSError, zlib.error) as error:  # what cannot be read cannot be looked for
            log.warning("Cannot search std%s of attempt %d: %s.", stream, attempt, error)
            return b""
        data = data[-SEARCHED_MOST_BYTES:]
        return _as_utf8(data[at : at + SEGMENT_BYTES] for at in range(0, len(data), SEGMENT_BYTES))


def _is_searched(report: Report, sought: Sought) -> bool:
    failed = report.end in _FAILED and not (report.end is End.EXITED and report.code == 0)
    return failed and any(_output(report, stream) is not None for _, stream, _ in sought)


def _output(report: Report, stream: str) -> Output | None:
    return report.out if stream == "out" else report.err


def _piece(text: bytes, at: int, most: int) -> bytes:
    """Without a word that would be cut: half a URL may look like another, and a secret in it is not known as one."""
    piece = text[at : at + most]
    return piece if at + most >= len(text) else piece[: max(piece.rfind(b" "), piece.rfind(b"\n"), 0)]


def _line(text: bytes, at: int) -> str:
    """That in which something was found, as far as it is near."""
    ahead = text[at : at + SEEN_BYTES]
    at += len(ahead) - len(ahead.lstrip())  # what was found may begin with a line's end
    before = text[max(0, at - SEEN_BEFORE_BYTES) : at].rpartition(b"\n")[2]
    if len(before) == SEEN_BEFORE_BYTES:
        before = before.partition(b" ")[2]
    return (before + _piece(text, at, SEEN_BYTES).partition(b"\n")[0]).decode(errors="ignore")


@lru_cache(maxsize=8)
def _compiled(sought: Sought) -> _Found:
    """Once per program, for as many as are likely to fail at a time."""
    found = []
    for on, stream, pattern in sought:
        try:
            found.append((on, stream, compiled(pattern)))
        except UsageError as error:  # the manager, which checked it, has another release of RE2
            log.warning("Cannot look for what a job looks for: %s.", error)
    return tuple(found)


def _as_utf8(pieces: Iterable[bytes]) -> bytes:
    """With U+FFFD in place of whatever is not, so that `.` matches any byte. In pieces: others need the interpreter too."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    text = [decode(piece).encode() for piece in pieces]
    return b"".join([*text, decode(b"", True).encode()])
