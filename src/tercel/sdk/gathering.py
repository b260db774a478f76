"""Files of the submitter that a job's tasks read: which they are, and what is in them. Blocking: done in a thread.

    Input data/run{task}.root  --each task's values-->  data/run0.root …  --looked at-->  --read-->  blake3:…

All of them are found before any is read, and read before anything is sent.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import BinaryIO

import blake3
import msgspec
from msgspec.structs import replace

from tercel.core.commands import check_spec
from tercel.core.declared import JOB, Declared
from tercel.core.errors import UsageError
from tercel.core.files import UPLOADED, Input
from tercel.core.intervals import Range
from tercel.core.locating import Form, canonical, form_of
from tercel.core.templates import word_template
from tercel.wire.api import Submission

MAX_FILES = 100_000
MAX_TASKS = 10_000_000
"""Of a job whose tasks have files of their own here: each one's are looked for."""
PIECE_BYTES = 2**20
_ID_DIGITS = 20

Heard = Callable[[int], None]
"""Told of so many more bytes."""


class Interrupted(Exception):
    """Whoever wanted it does not wait any more."""


class LocalFile(msgspec.Struct, frozen=True):
    path: str
    size_bytes: int
    digest: str = ""
    """Once it was read."""


class Found(msgspec.Struct):
    """The files of one job."""

    submission: Submission
    local: frozenset[int]
    """Which of its inputs are files here."""
    files: dict[str, LocalFile]
    """By what each is called behind `up:…/`."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    def names(self) -> dict[str, LocalFile]:
        """By their names in the catalogue: the same files again have the same ones."""
        start = self._start()
        return {start + name: file for name, file in self.files.items()}

    def uploaded(self) -> Submission:
        """The job that reads them by those names."""
        start = self._start()
        return replace(
            self.submission,
            inputs=tuple(
                replace(one, source=start + _as_name(one.source)) if at in self.local else one
                for at, one in enumerate(self.submission.inputs)
            ),
        )

    def _start(self) -> str:
        listed = "\n".join(f"{name}\0{file.digest}" for name, file in sorted(self.files.items()))
        return f"{UPLOADED}{blake3.blake3(listed.encode()).hexdigest()[:_ID_DIGITS]}/"


def find(submission: Submission, stop: Event) -> Found:
    """Raises UsageError for what is no file, or cannot be read, without having read any."""
    ranges, _ = check_spec(submission, submission.lines, items=submission.items, uploads=True)
    places = {at: one for at, one in enumerate(submission.inputs) if form_of(one.source) is Form.LOCAL}
    found = Found(submission, frozenset(), {})
    if not places:
        return found
    forms: dict[int, Form] = {}
    seen: set[str] = set()
    for task, sources in _sources(submission, ranges, list(places.values())):
        if stop.is_set():
            raise Interrupted
        for (at, one), source in zip(places.items(), sources, strict=True):
            if forms.setdefault(at, form_of(source)) is not form_of(source):
                raise UsageError(
                    f"{one.source!r} is a file here for some tasks and elsewhere for others: declare two inputs",
                    "inputs",
                )
            if forms[at] is Form.LOCAL and source not in seen:
                _add(found.files, one, source, task)
            seen.add(source)
    found.local = frozenset(at for at, form in forms.items() if form is Form.LOCAL)
    return found


def _sources(
    submission: Submission, ranges: Sequence[Range], inputs: Sequence[Input]
) -> Iterator[tuple[int, list[str]]]:
    """(task, its sources), of as many tasks as have different ones."""
    declared = Declared(replace(submission, inputs=tuple(inputs), outputs=()), uploads=True)
    tasks = sum(last - first + 1 for first, last in ranges)
    if tasks > MAX_TASKS and not declared.same:
        raise UsageError(
            f"{tasks:,} tasks, each with files here of its own; at most {MAX_TASKS:,}: put them where workers find them",
            "inputs",
        )
    for first, last in ranges:
        for task in range(first, last + 1):
            item = submission.items[task] if submission.items is not None else ""
            yield task, [wanted.source for wanted in declared.inputs_of(0, task, item)]
            if declared.same:
                return


def _add(files: dict[str, LocalFile], one: Input, path: str, task: int) -> None:
    holes = word_template(one.source).holes
    if any(hole.name == JOB for hole in holes):
        raise UsageError(
            f"{one.source!r} is uploaded before the job has a number: leave {{job}} out", "inputs"
        )
    if holes and ".." in _as_name(one.source).split("/"):
        raise UsageError(f"{one.source!r} has .. behind a part that differs: write where it leads", "inputs")
    name = canonical(f"{UPLOADED}x/{path}").removeprefix(f"{UPLOADED}x/")
    file = LocalFile(path, _size_of(path, task))
    if name in files and not Path(path).samefile(files[name].path):
        raise UsageError(
            f"{files[name].path!r} and {path!r} would have one name when they are uploaded: write absolute paths",
            "inputs",
        )
    files[name] = file
    if len(files) > MAX_FILES:
        raise UsageError(
            f"more than {MAX_FILES:,} files would be uploaded: put them where workers find them, and give URLs",
            "inputs",
        )


def _as_name(source: str) -> str:
    """What stands behind `up:…/` for a path with holes: with its values it must make what the path makes with them."""
    if "{" not in source.replace("{{", ""):
        return canonical(f"{UPLOADED}x/{source}").removeprefix(f"{UPLOADED}x/")
    return re.sub(r"/(?:\.?/)+", "/", re.sub(r"\A(?:\.{0,2}/)+", "", source))


def _size_of(path: str, task: int) -> int:
    try:
        status = Path(path).stat()
        readable = os.access(path, os.R_OK)
    except OSError as error:
        raise UsageError(f"input {path!r} (of task {task}): {_why(error)}", "inputs") from None
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"input {path!r} is a directory: name its files one by one, or pack it", "inputs")
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"input {path!r} is no regular file", "inputs")
    if not readable:
        raise UsageError(f"input {path!r} cannot be read: permission denied", "inputs")
    return status.st_size


def _why(error: OSError) -> str:
    return "there is no such file here" if isinstance(error, FileNotFoundError) else str(error.strerror)


def read(found: Found, stop: Event, heard: Heard) -> None:
    """Adds the digests. Raises Interrupted when `stop` is set meanwhile."""
    for name, file in found.files.items():
        found.files[name] = _digested(file, stop, heard)


def _digested(file: LocalFile, stop: Event, heard: Heard) -> LocalFile:
    hasher = blake3.blake3(max_threads=blake3.blake3.AUTO)
    try:
        with open_file(file) as opened:
            while piece := opened.read(PIECE_BYTES):
                if stop.is_set():
                    raise Interrupted
                hasher.update(piece)
                heard(len(piece))
            size = opened.tell()
    except OSError as error:
        raise UsageError(f"input {file.path!r} cannot be read: {_why(error)}", "inputs") from None
    return LocalFile(file.path, size, f"blake3:{hasher.hexdigest()}")


def open_file(file: LocalFile) -> BinaryIO:
    return Path(file.path).open("rb", buffering=0)
