"""Tells a listener what followed calls write, from the files that take it and in the end from their reports."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from tercel.core.reports import Output, Report
from tercel.runners.contract import Listener
from tercel.runners.outputs import STREAMS
from tercel.runners.pipes import READ_BYTES

REST_MOST_BYTES = 2**20
"""Told at the end of a call that wrote more than could be told while it ran."""

Read = Callable[[int, str], Iterable[bytes]]
"""The compressed pieces of a large output."""


class Writes(Protocol):
    def written(self, stream: int, offset: int, most: int) -> bytes: ...


class Follower:
    def __init__(self, listener: Listener, read: Read) -> None:
        self._listener = listener
        self._read = read
        self._told: dict[int, list[int]] = {}
        """How much of each stream, by attempt."""

    def follow(self, attempt: int, on: bool) -> None:
        if on:
            self._told[attempt] = [0, 0]
        else:
            self._told.pop(attempt, None)

    def follows(self, attempt: int) -> bool:
        return attempt in self._told

    def tell(self, attempt: int, process: Writes, still: Callable[[], bool]) -> None:
        """What it has written meanwhile. What was read counts only if it is `still` that attempt which runs."""
        told = self._told.get(attempt)
        if told is None:
            return
        for stream, name in enumerate(STREAMS):
            data = process.written(stream, told[stream], READ_BYTES)
            if data and still():
                self._listener.tail(attempt, name, told[stream], data)
                told[stream] += len(data)

    def on_ended(self, reports: list[Report]) -> None:
        """Tell the rest."""
        if not self._told:
            return
        for report in reports:
            if (told := self._told.pop(report.attempt, None)) is not None:
                for name, output, from_offset in zip(STREAMS, (report.out, report.err), told, strict=True):
                    if output is not None:
                        self._tell_rest(report.attempt, name, output, from_offset)

    def _tell_rest(self, attempt: int, name: str, output: Output, told: int) -> None:
        offset = output.total_bytes - output.kept_bytes
        most = told + REST_MOST_BYTES
        for data in self._pieces(attempt, name, output):
            if offset + len(data) > told:
                new = data[max(0, told - offset) :]
                self._listener.tail(attempt, name, offset + len(data) - len(new), new)
            offset += len(data)
            if offset >= most:
                return

    def _pieces(self, attempt: int, name: str, output: Output) -> Iterator[bytes]:
        if not output.segments:
            return iter([output.inline])
        return map(zlib.decompress, self._read(attempt, name))
