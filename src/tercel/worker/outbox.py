"""What is to be said to the manager over one link, made into frames of bounded size.

    started, returned,
    fetches, tail             in the next frame
    about files, cached,
    probed, seen              in the next frames, some at a time
    small reports             in the next frames, in order of ending
    reports with segments     one after the other: its segments in as many frames as it takes, then the report

Segments are read as they are sent, and small messages go along with them: a huge output takes neither memory nor
precedence. What was not sent when a link ends is dropped with it; the next link's Hello says it anew.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from tercel.core.reports import End, Output, Report
from tercel.wire.messages import (
    Bye,
    Cached,
    Fetch,
    FromWorker,
    Presence,
    Probed,
    Reports,
    Returned,
    Seen,
    Segment,
    Started,
    TailData,
)
from tercel.worker.parcels import files_bytes

log = logging.getLogger("tercel.worker")

FRAME_BYTES = 256 * 1024
"""About; small enough that even a slow line carries a frame well within a heartbeat."""
TAIL_BYTES = 1024 * 1024
"""Live output that waits; more is dropped, and the offsets show the gap to whoever follows."""
CACHED_MOST = 4
"""Of messages about kept values in one frame."""
CACHED_KEYS = 500
"""In one of them."""
PROBED_MOST = 100
"""Verdicts in one frame."""
_REPORT_BYTES = 128
"""Of a report beside its outputs and files, about."""

VALUE = "value"

_encode = msgspec.msgpack.Encoder().encode

ReadSegments = Callable[[int, str], Iterable[bytes]]


class Outbox:
    def __init__(self, read_segments: ReadSegments) -> None:
        self._read_segments = read_segments
        self._started: list[int] = []
        self._returned: list[int] = []
        self._fetches: list[Fetch] = []
        self._cached: list[Cached] = []
        self._probed: list[Probed] = []
        self._small: deque[FromWorker] = deque()
        self._seen: deque[Seen] = deque()
        self._tails: list[TailData] = []
        self._tail_bytes = 0
        self._reports: deque[Report] = deque()
        self._large: deque[Report] = deque()
        self._pieces: Iterator[Segment] | None = None
        self._lost: set[str] = set()
        self._presence: Presence | None = None
        self._bye: Bye | None = None

    # -- what is to be said -------------------------------------------------------------------------------

    def add_started(self, attempts: list[int]) -> None:
        self._started += attempts

    def add_returned(self, attempts: list[int]) -> None:
        self._returned += attempts

    def add_fetches(self, fetches: list[Fetch]) -> None:
        self._fetches += fetches

    def add_cached(self, kept: list[tuple[str, int]], gone: list[str]) -> None:
        last = self._cached[-1] if self._cached else None
        if last is not None and len(last.kept) + len(kept) + len(last.gone) + len(gone) <= CACHED_KEYS:
            again = {key for key, _ in kept}
            if again.isdisjoint(last.gone):  # what went before it came must be heard in that order
                last.kept.extend(kept)
                last.gone.extend(gone)
                return
        for at in range(0, max(len(kept), len(gone)), CACHED_KEYS):
            self._cached.append(Cached(kept[at : at + CACHED_KEYS], gone[at : at + CACHED_KEYS]))

    def add(self, message: FromWorker) -> None:
        """Small, and said once: about files."""
        self._small.append(message)

    def add_probed(self, probed: Probed) -> None:
        self._probed.append(probed)

    def add_seen(self, seen: Seen) -> None:
        self._seen.append(seen)

    def add_reports(self, reports: Iterable[Report]) -> None:
        for report in reports:
            out, err, value = report.out, report.err, report.value
            if (out and out.segments) or (err and err.segments) or (value and value.segments):
                self._large.append(report)
            else:
                self._reports.append(report)

    def set_reports(self, reports: Iterable[Report]) -> None:
        """Say these and no others so far: all that is owed, at the beginning of a link."""
        self._reports.clear()
        self._large.clear()
        self.add_reports(reports)

    def add_tail(self, tail: TailData) -> None:
        if self._tail_bytes < TAIL_BYTES:
            self._tails.append(tail)
            self._tail_bytes += len(tail.data)

    def set_presence(self, presence: Presence) -> None:
        self._presence = presence

    def set_bye(self, bye: Bye) -> None:
        """Said last, when all else is."""
        self._bye = bye

    @property
    def small_reports(self) -> int:
        """How many small reports wait."""
        return len(self._reports)

    # -- frames -------------------------------------------------------------------------------------------

    def take(self) -> list[FromWorker]:
        """The messages of the next frame; empty when all is said."""
        messages: list[FromWorker] = []
        if self._presence is not None:
            messages.append(self._presence)
            self._presence = None
        if self._started:
            messages.append(Started(self._started))
            self._started = []
        if self._returned:
            messages.append(Returned(self._returned))
            self._returned = []
        if self._fetches:
            messages += self._fetches
            self._fetches = []
        if self._cached:
            messages += self._cached[:CACHED_MOST]
            del self._cached[:CACHED_MOST]
        if self._small:
            self._take_small(messages)
        if self._probed:
            messages += self._probed[:PROBED_MOST]
            del self._probed[:PROBED_MOST]
        if self._seen:
            messages.append(self._seen.popleft())
        room = FRAME_BYTES
        if self._tails:
            room -= self._take_tails(messages)
        if self._reports:
            room -= self._take_reports(messages, room)
        if self._large and room > 0:
            self._take_large(messages, room)
        if not messages and self._bye is not None:
            messages.append(self._bye)
            self._bye = None
        return messages

    def _take_small(self, messages: list[FromWorker]) -> None:
        """Most have a hundred bytes, but one may ask for a thousand names."""
        size = 0
        while self._small and size < FRAME_BYTES:
            messages.append(self._small.popleft())
            size += len(_encode(messages[-1]))

    def _take_tails(self, messages: list[FromWorker]) -> int:
        messages += self._tails
        taken, self._tails, self._tail_bytes = self._tail_bytes, [], 0
        return taken

    def _take_reports(self, messages: list[FromWorker], room: int) -> int:
        reports: list[Report] = []
        size = 0
        while self._reports and (size < room or not reports):
            report = self._reports.popleft()
            size += _REPORT_BYTES + files_bytes(report)
            if report.out is not None:
                size += len(report.out.inline)
            if report.err is not None:
                size += len(report.err.inline)
            if report.value is not None:
                size += len(report.value.inline)
            reports.append(report)
        messages.append(Reports(reports))
        return size

    def _take_large(self, messages: list[FromWorker], room: int) -> None:
        report = self._large[0]
        if self._pieces is None:
            self._lost = set()
            self._pieces = self._segments(report)
        while room > 0:
            segment = next(self._pieces, None)
            if segment is None:
                messages.append(Reports([_without(report, self._lost)]))
                self._large.popleft()
                self._pieces = None
                return
            messages.append(segment)
            room -= len(segment.data)

    def _segments(self, report: Report) -> Iterator[Segment]:
        for stream, output in _streams(report):
            if output is None or not output.segments:
                continue
            count = 0
            try:
                for data in self._read_segments(report.attempt, stream):
                    yield Segment(report.attempt, stream, count, data)
                    count += 1
            except OSError as error:
                log.warning("Cannot read the output of attempt %d: %s.", report.attempt, error)
            if count != output.segments:
                self._lost.add(stream)


def _streams(report: Report) -> tuple[tuple[str, Output | None], ...]:
    return ("out", report.out), ("err", report.err), (VALUE, report.value)


def _without(report: Report, lost: set[str]) -> Report:
    """The report with those outputs left out whose segments were no longer there.

    Without its value a call might as well not have been made: any worker may make it again.
    """
    if not lost:
        return report
    if VALUE in lost:
        gone: dict[str, Any] = {"value": None, "end": End.INTERRUPTED, "code": 0}
        notes = [report.note, "its value was lost at the worker"]
    else:
        gone = {}
        notes = [report.note, f"std{' and std'.join(sorted(lost))} lost at the worker"]
    gone |= {name: Output(getattr(report, name).total_bytes, 0) for name in lost - {VALUE}}
    return msgspec.structs.replace(report, note="; ".join(filter(None, notes)), **gone)
