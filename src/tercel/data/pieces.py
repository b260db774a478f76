"""The rest of a large file, in pieces that several connections fetch at once.

    threads   |--3--|  |--4--|  |--5--|     each writes its piece where it belongs
    caller    ..1..2                        hashes them in order, as soon as each is there

A distant server gives each connection so much and no more; several together fill the line.
"""

import threading
from collections.abc import Iterator

from tercel.core.files import Trouble
from tercel.data.contract import Scheme, TransferFailed
from tercel.data.faults import told
from tercel.data.parts import Part
from tercel.data.urls import note_of, shown
from tercel.data.watches import Watch


class Pieces:
    def __init__(
        self, scheme: Scheme, url: str, part: Part, watch: Watch, piece_bytes: int, at_once: int
    ) -> None:
        self._scheme, self._url, self._part, self._watch = scheme, url, part, watch
        size_bytes = part.seen.size_bytes
        self._pieces = [
            (begin, min(begin + piece_bytes, size_bytes))
            for begin in range(part.upto, size_bytes, piece_bytes)
        ]
        self._at_once = at_once
        self._todo: Iterator[int] = iter(range(len(self._pieces)))
        self._there = [threading.Event() for _ in self._pieces]
        self._failure: BaseException | None = None
        self._lock = threading.Lock()

    def fetch(self) -> None:
        threads = [
            threading.Thread(target=self._work, name=f"{threading.current_thread().name}/{n}", daemon=True)
            for n in range(self._at_once)
        ]
        for thread in threads:
            thread.start()
        try:
            for (_, end), there in zip(self._pieces, self._there, strict=True):
                there.wait()
                if self._failure is not None:
                    raise self._failure
                self._part.hash(end, self._watch)
        finally:
            if self._failure is None:
                self._failure = TransferFailed(Trouble.DOWN, shown(self._url), "was ended")
            for thread in threads:
                thread.join()

    def _next(self) -> int | None:
        with self._lock:
            return next(self._todo, None) if self._failure is None else None

    def _work(self) -> None:
        while (number := self._next()) is not None:
            try:
                with told(self._url, self._watch):
                    self._bring(*self._pieces[number])
            except BaseException as error:
                with self._lock:
                    self._failure = self._failure or error
                for there in self._there:
                    there.set()  # nobody waits for what does not come
                return
            self._there[number].set()

    def _bring(self, begin: int, end: int) -> None:
        seen, at = self._part.seen, begin
        with self._scheme.read(self._url, self._watch, begin, end, same_as=seen.validator) as reading:
            if reading.begin != begin or reading.seen != seen:
                note = f"{shown(self._url)} changed while it was fetched"
                raise TransferFailed(Trouble.CORRUPT, shown(self._url), note_of(note))
            for chunk in reading.chunks:
                if at + len(chunk) > end:
                    break
                self._part.write_at(at, chunk)
                at += len(chunk)
                self._watch.step(len(chunk))
                if self._failure is not None:
                    return
        if at != end:
            note = f"{shown(self._url)}: gave another part than was asked for, at {begin:,}"
            raise TransferFailed(Trouble.CORRUPT, shown(self._url), note_of(note))
