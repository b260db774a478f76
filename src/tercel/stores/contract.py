"""What every store does.

Writing is two steps, so that a service can go on taking messages while the disk works:

    write(changes)   hand a batch over; CPU work only. Called on the service's own thread.
    commit()         make it durable; may block. Called on another thread, never while `write` runs.

If either raises, all that was written since the last commit is undone and may be handed over again; applying a
batch twice is the same as once. A full disk raises StoreFull, any other trouble of the medium PassingFault.
Questions see what is committed; they may be asked from any thread, at any time, also while a commit is under way.

What is old is removed by `remove_jobs`, `clean` and `compact_history`. Each is durable when it returns, and is called where
`commit` is, never between a `write` and its commit. If one raises, it has removed nothing and may be called again.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import translate
from typing import Protocol

import msgspec

from tercel.core.changes import Change, LiveJob, Loaded, Noted, SpanConcluded
from tercel.core.conditions import ConditionRow
from tercel.core.files import FileRow, ReplicaRow
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import Call, JobRow
from tercel.core.reports import End, Outcome, Report
from tercel.core.states import TaskState
from tercel.stores.snapshot.contract import SnapshotStore
from tercel.wire.api import ValueRow


class Cleaned(msgspec.Struct, frozen=True):
    """What a slice of cleaning removed."""

    records: int = 0
    """Of tasks: how they ended, and earlier attempts; a span of any size is one."""
    segments: int = 0
    """Pieces of output."""
    values: int = 0
    """Pieces of uploaded values."""
    conditions: int = 0
    notes: int = 0
    files: int = 0
    """Of the catalogue."""
    freed_bytes: int = 0
    """By which the file becomes shorter."""
    more: bool = False
    """Whether there is more to do."""

    def __add__(self, later: "Cleaned") -> "Cleaned":
        return Cleaned(
            self.records + later.records,
            self.segments + later.segments,
            self.values + later.values,
            self.conditions + later.conditions,
            self.notes + later.notes,
            self.files + later.files,
            self.freed_bytes + later.freed_bytes,
            later.more,
        )


class Compacted(msgspec.Struct, frozen=True):
    """What a slice of compacting removed."""

    attempts: int
    segments: int
    after: tuple[int, int] | None
    """Where to go on; None: all was looked at."""


class Old(msgspec.Struct, frozen=True):
    """What would go by its age."""

    conditions: int
    notes: int
    attempts: int
    """In the middle of long histories."""


class Catalogued(msgspec.Struct, frozen=True):
    """A file, and where its bytes are."""

    file: FileRow
    replicas: tuple[ReplicaRow, ...]
    """By URL."""


class Store(SnapshotStore, Protocol):
    def load(self) -> Loaded:
        """Start a new epoch, durably, and return all that is unfinished."""

    def write(self, changes: Sequence[Change]) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...

    def removable(self, *, ended_before: float, owner: str | None, limit: int) -> list[int]:
        """Jobs that ended before then and are needed by no other that is here, those that ended first at first.

        A question. With such a job gone, others that only it needed become removable.
        """

    def remove_jobs(self, jobs: Sequence[int], *, ended_before: float) -> list[int]:
        """From now on nobody finds these jobs; what they leave behind goes with `clean`.

        Those that are not removable (any more) stay; returned are the others. No number is used again.
        """

    def clean(
        self,
        *,
        before: float,
        keep_values: Collection[str] = (),
        unnamed_before: float = 0.0,
        limit: int = 1000,
    ) -> Cleaned:
        """Remove about `limit` rows of removed jobs, of closed conditions and of notes older than `before`.

        An uploaded value goes with the last job that refers to it, unless it was put down as unnamed since `unnamed_before`:
        somebody was told that it is there, and has still to name it. Without a job it goes if it was put down before then.
        None of `keep_values` does.

        Of the catalogue, what people named stays, with the number of the job that made it. What a client uploaded goes with the
        last job that reads any file of that upload; without a job, if it was registered before `unnamed_before`. What is registered
        under its URL alone goes with the job that made it.
        """

    def unnamed_values(self) -> list[str]:
        """Keys of uploaded values, or of what came of them, that no job refers to and that are not put down as such."""

    def put_unnamed(self, keys: Sequence[str], now: float) -> None:
        """Durably: from now on it counts how long no job refers to these values. Those that are put down, or uploaded again, begin anew."""

    def compact_history(
        self,
        *,
        ended_before: float,
        keep: int,
        after: tuple[int, int] = (0, -1),
        limit: int = 1000,
    ) -> Compacted:
        """Of each task's earlier attempts, remove those between the first and the last `keep`.

        Looks at about `limit` tasks that come after (job, task). Attempts that count against retries stay, and those
        that ended later. How many went is noted of the task (see `note_left_out`), for as long as its job is there.
        """

    def old(self, *, before: float, keep: int, removed: Collection[int]) -> Old:
        """What `clean` and `compact_history` would remove that is older, if these jobs were removed before. A question."""

    def job(self, job: int) -> JobRow | None: ...

    def live(self, job: int) -> LiveJob | None:
        """A job with all that is known of its tasks, ended or not."""

    def dependents(self, job: int) -> list[int]:
        """The jobs that were submitted to wait for this one (or tasks of it), ascending."""

    def job_by_key(self, owner: str, key: str) -> JobRow | None:
        """The job this owner submitted under this (non-empty) key."""

    def jobs(self, *, owner: str | None, before: int | None, limit: int) -> list[JobRow]:
        """Newest first; of all owners if None; with ids below `before`."""

    def lines(self, job: int, ranges: Sequence[Range]) -> list[str]:
        """The command lines of some tasks of a job that has them, as they are asked for."""

    def calls(self, job: int, ranges: Sequence[Range]) -> list[Call]:
        """The arguments of some tasks of a function's job."""

    def outcomes(
        self, job: int, *, ranges: Sequence[Range], states: Sequence[TaskState] = (), limit: int
    ) -> list[Outcome]:
        """Terminal records in order of task number; of any state if `states` is empty.

        A task that ended without an attempt (cancelled while ready) has one too, made from its span, with
        attempt 0, no worker, and the span's reason as its report's note.
        """

    def history(self, job: int, task: int) -> list[Outcome]:
        """Earlier attempts that were superseded by a retry, oldest first."""

    def tried(self, job: int, task: int) -> list[tuple[int, str]]:
        """All attempts of a task that have ended, and the workers that had them, oldest first.

        However often it was tried, this takes little: no outputs are read.
        """

    def notes(self, job: int, task: int) -> list[Noted]:
        """What befell a task beside its attempts, oldest first; of the same time as it was written.

        If it ended without an attempt (see SpanConcluded), now or before it was reopened, that is told, too.
        Each names this task alone. Two with the same time, word and text are one.
        """

    def job_notes(self, job: int, *, since: float = 0.0, skip: int = 0, limit: int) -> list[Noted]:
        """As `notes`, of all its tasks: what was written of several with the same time, word and text is one.

        Of then or later, without the first `skip` of those: a page costs what is in it, and what it skips.
        """

    def half_done(self, job: int, ranges: Sequence[Range]) -> list[tuple[int, int]]:
        """Attempts at these tasks that left pieces of output which no record tells of, and how many each. See OutputsDropped."""

    def condition(self, id: int) -> ConditionRow | None: ...

    def conditions(self, *, open_only: bool, before: int | None, limit: int) -> list[ConditionRow]:
        """Newest first; with ids below `before`; also those that are closed, unless `open_only`."""

    def ended(self, job: int, state: TaskState) -> list[Range]:
        """The tasks of a job that ended in `state`, as ranges, ascending and maximal."""

    def ended_since(self, job: int, at: float) -> list[Range]:
        """The tasks of a job that ended then or later, as ranges, ascending and maximal."""

    def kept_bytes(self, job: int) -> int:
        """About how much room the output of its tasks takes."""

    def output_segments(
        self, attempt: int, stream: str, *, first: int = 0, last: int | None = None
    ) -> list[bytes]:
        """The compressed pieces numbered first..last (to the end if None), in order."""

    def values(self, job: int, *, ranges: Sequence[Range], limit: int, most_bytes: int) -> list[ValueRow]:
        """How tasks ended and what their functions returned, in order of task number.

        At most `limit` of them; fewer where values are so large that more would be far above `most_bytes`, but at least
        one if there is any.
        """

    def value_piece_count(self, key: str) -> int:
        """Of how many pieces an uploaded value consists; 0 if it is not there, or not wholly."""

    def value_pieces(self, key: str, first: int, last: int) -> list[bytes]:
        """The compressed pieces numbered first..last of an uploaded value, in order."""

    # --- the catalogue

    def files(self, names: Iterable[str]) -> list[Catalogued]:
        """Those of these that are there, in this order, each once."""

    def files_from(
        self, *, prefix: str = "", pattern: str = "", after: str = "", limit: int
    ) -> list[FileRow]:
        """By name, behind `after`: those whose names begin so and match the pattern (`lfn:calib/*.tar`), if there is one."""

    def made_by(
        self, job: int, ranges: Sequence[Range], *, after: tuple[int, str] = (-1, ""), limit: int
    ) -> list[FileRow]:
        """What these tasks of a job made that is there, by task and name, behind (task, name). The job may be gone."""

    def names_at(self, urls: Iterable[str]) -> dict[str, list[str]]:
        """By URL: the files that have a replica there. Of those that nothing refers to, nothing."""

    def readers(self, name: str, *, limit: int) -> list[int]:
        """Jobs whose tasks read this file, or may, by a source with holes: the newest first."""

    def left_overs(self, job: int, ranges: Sequence[Range]) -> dict[int, list[str]]:
        """By task of these, ended or not: what MadeUndone noted and LeftRemoved did not take back."""


def unattempted(span: SpanConcluded, task: int) -> Outcome:
    """The terminal record of a task that ended without an attempt: every store tells it alike."""
    return Outcome(
        state=span.state,
        worker="",
        ended_at=span.at,
        report=Report(
            job=span.job,
            task=task,
            attempt=0,
            end=span.end,
            code=0,
            started_at=span.at,
            wall_s=0.0,
            cpu_s=0.0,
            max_rss_bytes=0,
            note=span.reason,
        ),
    )


SPAN_WORDS = {End.SKIPPED: "skipped", End.BLOCKED: "given up", End.CANCELLED: "cancelled"}


def noted_span(span: SpanConcluded, first: int, last: int) -> Noted:
    """What a part of a span is in the history of its tasks, also after they are reopened."""
    return Noted(span.job, ((first, last),), span.at, SPAN_WORDS[span.end], span.reason)


LEFT_OUT = "left out"
"""A note of this word does not go by its age: what it speaks of is gone for good."""
_LEFT_OUT = re.compile(r"([0-9]{1,15}) of its attempts", re.ASCII)


def note_left_out(job: int, task: int, count: int, at: float, earlier: Sequence[Noted]) -> Noted:
    """What is noted of a task from whose history so many went, in the place of earlier ones of that."""
    count += count_left_out(earlier)
    at = max(at, *(note.at for note in earlier)) if earlier else at
    return Noted(job, ((task, task),), at, LEFT_OUT, f"{count} of its attempts")


def count_left_out(notes: Iterable[Noted]) -> int:
    """By these notes of a task. What others wrote into a snapshot under that word counts for nothing."""
    told = (_LEFT_OUT.match(note.note) for note in notes if note.what == LEFT_OUT)
    return sum(int(match[1]) for match in told if match is not None)


def values_named(row: JobRow, calls: Iterable[Call]) -> set[str]:
    """The keys of the uploaded values that a job refers to."""
    keys = {key for call in calls for key in call.values if key.startswith("b")}
    if row.spec.function is not None and row.spec.function.value:
        keys.add(row.spec.function.value)
    return keys


def needed_by(live: LiveJob) -> set[int]:
    """Which other jobs it was submitted to wait for."""
    needed = {after.job for after in live.job.spec.after} | {edge[1] for edge in live.edges}
    needed.discard(live.job.id)
    return needed


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name matches a pattern of the shell's kind, all of it, whatever is in it; an empty one is matched by all."""
    if not pattern:
        return lambda _: True
    match = re.compile(translate(pattern)).match
    return lambda name: match(name) is not None


def unfinished_only(left: dict[int, list[str]], *ended: Sequence[Range]) -> dict[int, list[str]]:
    """What is left of tasks that have not ended (see LiveJob.left)."""
    if not left:
        return left
    over = IntervalSet(one for ranges in ended for one in ranges)
    return {task: urls for task, urls in left.items() if task not in over}
