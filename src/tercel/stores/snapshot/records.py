"""What is in a snapshot, in the order in which it stands there.

    Header
    ConditionPart …                                what blocked tasks wait for
    for each job, by number:
        JobPart
        LinesPart …  CallsPart …                   what each task has of its own
        HistoryPart …  OutcomesPart …              attempts; behind each part, the SegmentPart s of its outputs
        SpansPart …  BlockedPart …  NotesPart …
        FilesPart …                                what its tasks made, and what was uploaded for it
    ValuePart …                                    what calls refer to
    Trailer

Jobs, attempts and conditions have the numbers of the manager that wrote it. Rows are plain tuples, because there may be many
millions of them. Their numbers for states, ends and blames are those of `stores.codes`.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec

from tercel.core.changes import Edge
from tercel.core.conditions import ConditionRow
from tercel.core.model import Call, JobRow
from tercel.core.states import Stage

FORMAT = 2
"""Of the file. A reader refuses what is newer than itself. 2: with files of the catalogue."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Code = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]
Time = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
"""Also seconds. Nothing that is not a number passes."""
Text = Annotated[str, msgspec.Meta(max_length=100_000)]
Name = Annotated[str, msgspec.Meta(max_length=1000)]

OutcomeRow = tuple[
    Number,  # task
    Number,  # attempt
    Number,  # state
    Number,  # worker: see the part's `workers`
    Number,  # end
    Code,
    Time,  # started_at
    Time,  # ended_at
    Time,  # wall_s
    Time,  # cpu_s
    Number,  # max_rss_bytes
    Text | None,  # note
    Text | None,  # exceeded
    bytes | None,  # out: msgpack of Output
    bytes | None,  # err
    bytes | None,  # value
]
HistoryRow = tuple[
    Number,
    Number,
    Number,
    Number,
    Number,
    Code,
    Time,
    Time,
    Time,
    Time,
    Number,
    Text | None,
    Text | None,
    bytes | None,
    bytes | None,
    bytes | None,
    Number | None,  # blame
    Number,  # 1: it counts against the task's retries
]
SpanRow = tuple[Number, Number, Number, Time, Text, Number]
"""(first, last, state, at, reason, end)"""
BlockedRow = tuple[Number, Number, Number, Time]
"""(first, last, condition, since when)"""
NoteRow = tuple[Number, Number, Time, Name, Text]
"""(first, last, at, what, note)"""
FilePartRow = tuple[Text, Number, Name, Time, Number | None, tuple[Text, ...]]
"""(name, size in bytes, digest, when it was made, by which task, where it is); no task: it was uploaded for the job."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag=True):
    id: Name
    """Of this snapshot: nothing else has it."""
    saved_at: Time
    version: Name
    """Of the Tercel that wrote it."""
    why: Text
    """For people: by whom, or before what."""
    jobs: tuple[Number, ...]
    owners: tuple[Name, ...]
    """Of these jobs, each once, sorted."""
    tasks: Number
    ended: Number
    """Of these tasks."""


class ConditionPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    row: ConditionRow


class JobPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    row: JobRow
    edges: tuple[Edge, ...] = ()


class LinesPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    job: Number
    first: Number
    """The task of the first line; the others follow."""
    lines: list[str]


class CallsPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    job: Number
    first: Number
    calls: list[Call]


class HistoryPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    job: Number
    workers: dict[Number, Name]
    rows: list[HistoryRow]
    """By task, then attempt."""


class OutcomesPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    job: Number
    workers: dict[Number, Name]
    rows: list[OutcomeRow]
    """By task."""


class SegmentPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A compressed piece of the output of an attempt in the part before."""

    attempt: Number
    stream: Name
    number: Number
    data: bytes


class SpansPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    job: Number
    rows: list[SpanRow]


class BlockedPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    job: Number
    rows: list[BlockedRow]
    stage: Stage = Stage.RUN
    """In which they met it. Files from before stages were kept have none here, and older readers pass over it."""


class NotesPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    job: Number
    rows: list[NoteRow]


class FilesPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    job: Number
    rows: list[FilePartRow]


class ValuePart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A compressed piece of an uploaded value."""

    key: Name
    number: Number
    data: bytes
    last: bool


class Trailer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    parts: Number
    """Before this one."""
    digest: bytes
    """SHA-256 of the file up to this block."""


JobsPart = (
    LinesPart
    | CallsPart
    | HistoryPart
    | OutcomesPart
    | SegmentPart
    | SpansPart
    | BlockedPart
    | NotesPart
    | FilesPart
    | ValuePart
)
"""What a store gives and takes beside the rows of jobs and conditions."""
Part = Header | ConditionPart | JobPart | JobsPart | Trailer

encode = msgspec.msgpack.Encoder().encode
decode: Callable[[bytes], list[Part]] = msgspec.msgpack.Decoder(list[Part]).decode


class Restored(msgspec.Struct, frozen=True):
    """That a snapshot was restored, so that the same is not restored twice by mistake."""

    id: str
    at: float
    by: str
    jobs: tuple[tuple[int, int], ...]
    """(its number in the snapshot, its number here)"""
