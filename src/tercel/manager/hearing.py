"""What a worker says, judged before it reaches the machine or the store. Pure functions.

A worker may be of another version, broken, or somebody's who means harm; its words must not end the manager. Three
answers, by what is wrong:

    who it says it is       refused, with the reason: trying again without a change is pointless
    impossible numbers      put right and noted: the work was done all the same, and a report that is turned away
                            would come again for ever
    the protocol itself     PeerError: the link is closed, its tasks are safe

Whether an attempt is the worker's to speak of is the machine's to know. What it says of its directory: see sightings.
"""

import re
from collections.abc import Collection

import msgspec

from tercel.core.blocking import RULES_MOST
from tercel.core.commands import (
    MAX_CPUS,
    MAX_OUTPUT_BYTES,
    MAX_SECONDS,
    MAX_VALUE_BYTES,
)
from tercel.core.conditions import Verdict
from tercel.core.errors import PeerError, UsageError
from tercel.core.filenames import is_place, is_registered_name
from tercel.core.files import LFN, Hitch, Made, Trouble, is_digest
from tercel.core.locating import MAX_URL_BYTES
from tercel.core.model import MAX_MEM_BYTES, Needs
from tercel.core.placement import MAX_TAGS, check_tags
from tercel.core.presence import Facts, WorkerInfo
from tercel.core.reports import End, Output, Report
from tercel.core.resources import WHOLE
from tercel.core.states import Stage
from tercel.testers.verdicts import sound
from tercel.wire.messages import (
    INLINE_OUTPUT_BYTES,
    PROTOCOL,
    SEGMENT_BYTES,
    Hello,
    Segment,
    TailData,
)

MAX_WORKER_NAME = 128
_PLAIN_NAME = re.compile(r"[\w.@-]+")
"""People paste names into shells. Every worker of ours has named itself so, ever since."""
MAX_WORD = 256
"""Characters in what a worker says about itself."""
MAX_PIECES = 1_000
MAX_AMOUNT = 10**12
"""Of a resource, in thousandths."""
MAX_CACHED = 100_000
"""Keys of data that one worker has kept, in the manager's memory."""
MAX_SPEED = 1e6
MAX_NOTE = 1000
"""Characters in what it says about an attempt."""
MAX_SAID = 1000
"""Characters of its output that say what must be there again."""
MAX_SEEN = 500
"""Characters of a line of its output in which something was found."""
MAX_FILES = 100_000
"""That one attempt left."""
MAX_CODE = 2**31 - 1
MAX_SIZE = 2**60
MAX_TIME = 1e11
"""Seconds since 1970: the year 5138. Some clocks are wrong by years."""
MAX_CPU_S = float(MAX_SECONDS * MAX_CPUS)
MAX_SEGMENTS = MAX_OUTPUT_BYTES // SEGMENT_BYTES + 1
MAX_VALUE_SEGMENTS = MAX_VALUE_BYTES // SEGMENT_BYTES + 1
MAX_PIECE_BYTES = SEGMENT_BYTES + SEGMENT_BYTES // 1000 + 64
"""What zlib makes of a segment that cannot be compressed."""
MAX_TAIL_BYTES = 2**20

STREAMS = ("out", "err")
VALUE = "value"
"""What a function returned comes in segments too."""


def refusal(hello: Hello, *, known: bool = False) -> str:
    """Why this worker is not let in; empty if it is. `known`: its name is on record, so it was let in before."""
    if hello.protocol != PROTOCOL:
        return (
            f"this manager speaks protocol {PROTOCOL}, the worker {hello.protocol}: install the same version"
        )
    if not 0 < len(hello.worker) <= MAX_WORKER_NAME or not hello.worker.isprintable():
        return f"a worker's name has 1 to {MAX_WORKER_NAME} printable characters"
    if not known and _PLAIN_NAME.fullmatch(hello.worker) is None:
        return "a worker's name has letters, digits and the characters . _ - @ only"
    for name, word in (("instance", hello.instance), *_words(hello.info)):
        if len(word) > MAX_WORD or not word.isprintable():
            return f"a worker's {name} has at most {MAX_WORD} printable characters"
    if not _possible(hello.info.capacity) or hello.info.capacity.millicpus < 1:
        return (
            "a worker gives at least some cpu, and no more cpus, memory and resources than a machine can have"
        )
    return _too_much(hello.info)


def _words(info: WorkerInfo) -> list[tuple[str, str]]:
    words = [(name, word) for name in info.__struct_fields__ if isinstance(word := getattr(info, name), str)]
    words += [("tags", tag) for tag in info.tags]
    words += [("containers", engine) for engine in info.containers]
    words += [("gpus", word) for gpu in info.gpus for word in (gpu.id, gpu.model)]
    words += [("resources", name) for name, _ in info.capacity.resources]
    return words + [("indices", word) for name, pieces in info.indices.items() for word in (name, *pieces)]


def _too_much(info: WorkerInfo) -> str:
    """What it says more of than anybody has."""
    counts = (
        ("tags", len(info.tags), MAX_TAGS),
        ("gpus", len(info.gpus), MAX_PIECES),
        ("containers", len(info.containers), MAX_PIECES),
        ("resources", len(info.capacity.resources), MAX_PIECES),
        ("indices", sum(map(len, info.indices.values())), MAX_PIECES),
    )
    for name, count, most in counts:
        if count > most:
            return f"a worker has at most {most:,} {name}"
    if not 0.0 <= info.speed <= MAX_SPEED or not 0 <= info.disk_bytes <= MAX_SIZE:
        return "a worker's speed and disk are numbers that a machine can have"
    if info.time_left_s is not None and not -MAX_TIME <= info.time_left_s <= MAX_TIME:
        return "a worker's time left is a number of seconds"
    if any(not 0 <= gpu.mem_bytes <= MAX_SIZE for gpu in info.gpus):
        return "a GPU's memory is a number that a machine can have"
    return _odd_pieces(info) or _odd_tags(info)


def _odd_pieces(info: WorkerInfo) -> str:
    """Of a resource whose pieces have names, there are as many as there are names."""
    amounts = dict(info.capacity.resources)
    if len(amounts) != len(info.capacity.resources):
        return "a worker names each of its resources once"
    for name, pieces in info.indices.items():
        if len(set(pieces)) != len(pieces):
            return f"the pieces of {name[:40]} have names of their own: two are the same"
        if amounts.get(name, 0) != WHOLE * len(pieces):
            told = f"{amounts.get(name, 0) / WHOLE:g}"
            return f"a worker names {len(pieces):,} pieces of {name[:40]} and gives {told}: give as many as there are"
    return ""


def _odd_tags(info: WorkerInfo) -> str:
    try:
        check_tags(info.tags, "tags")
    except UsageError as error:
        return str(error)
    return ""


def capacity(stated: Needs) -> Needs:
    if not _possible(stated):
        raise PeerError(f"no machine has {stated.millicpus} millicpus and {stated.mem_bytes} bytes of memory")
    return stated


def _possible(stated: Needs) -> bool:
    return (
        0 <= stated.millicpus <= MAX_CPUS * 1000
        and 0 <= stated.mem_bytes <= MAX_MEM_BYTES
        and all(0 <= amount <= MAX_AMOUNT for _, amount in stated.resources)
    )


def check_facts(facts: Facts) -> None:
    # Each comparison is also false of what is not a number.
    possible = (
        0 <= facts.millicpus_free <= MAX_CPUS * 1000
        and 0 <= facts.mem_free_bytes <= MAX_SIZE
        and 0 <= facts.disk_free_bytes <= MAX_SIZE
        and 0.0 <= facts.load <= MAX_CPUS * 1000
        and all(len(word) <= MAX_NOTE and word.isprintable() for word in (facts.unhealthy, facts.note))
    )
    if not possible:
        raise PeerError("measured what no machine has")


def is_awaited(worker: str, asked: str | None) -> bool:
    """Whether a verdict is the worker's to give. `asked`: who was to give it; None: it comes too late."""
    if asked is not None and asked != worker:
        raise PeerError("answers a test that somebody else was asked for")
    return asked is not None


def verdict(found: Verdict) -> Verdict:
    # The comparisons are also false of what is not a number.
    if not (0 <= found.room <= MAX_SIZE and 0.0 <= found.not_before_s <= MAX_SECONDS):
        raise PeerError("found room for an impossible number of tasks, or asks for an impossible pause")
    return sound(found)


def check_cached(kept: list[tuple[str, int]], gone: list[str], known: Collection[str]) -> None:
    """`known`: the keys that it has told of already; the manager remembers them all."""
    if any(not 0 < len(key) <= MAX_WORD or not 0 <= size <= MAX_SIZE for key, size in kept):
        raise PeerError("has kept data of impossible names or sizes")
    if len(gone) > MAX_CACHED or any(not 0 < len(key) <= MAX_WORD for key in gone):
        raise PeerError("has lost data of impossible names, or more than there is")
    if len(known) + len({key for key, _ in kept if key not in known}) > MAX_CACHED:
        raise PeerError(f"has kept more than {MAX_CACHED:,} pieces of data")


def check_segment(piece: Segment) -> None:
    if piece.stream not in STREAMS and piece.stream != VALUE:
        raise PeerError(f"a segment of stream {piece.stream[:40]!r}, which there is not")
    most = MAX_VALUE_SEGMENTS if piece.stream == VALUE else MAX_SEGMENTS
    if not 0 <= piece.number < most:
        raise PeerError(f"a segment numbered {piece.number}; they go from 0 to {most - 1}")
    if len(piece.data) > MAX_PIECE_BYTES:
        raise PeerError(f"a segment of {len(piece.data)} bytes; at most {MAX_PIECE_BYTES}")


def check_tail(piece: TailData) -> None:
    if piece.stream not in STREAMS or not 0 <= piece.offset <= MAX_SIZE or len(piece.data) > MAX_TAIL_BYTES:
        raise PeerError(
            f"live output of stream {piece.stream[:40]!r}, offset {piece.offset}, {len(piece.data)} bytes"
        )


# -- reports ----------------------------------------------------------------------------------------------


def believed(reports: list[Report], now: float) -> tuple[list[Report], bool]:
    """The reports with numbers that cannot be put right, and whether there were any."""
    if all(map(_credible, reports)):
        return reports, False
    return [report if _credible(report) else _corrected(report, now) for report in reports], True


def _credible(report: Report) -> bool:
    # Each comparison is also false of what is not a number.
    return (
        0 <= report.code <= MAX_CODE
        and 0.0 <= report.wall_s <= MAX_SECONDS
        and 0.0 <= report.cpu_s <= MAX_CPU_S
        and 0 <= report.max_rss_bytes <= MAX_SIZE
        and 0.0 <= report.started_at <= MAX_TIME
        and (not report.note or (len(report.note) <= MAX_NOTE and report.note.isprintable()))
        and len(report.said) <= MAX_SAID
        and (not report.seen or _possible_lines(report.seen))
        and (not report.files or possible_files(report.files))
        and (report.hitch is None or _possible_hitch(report.hitch))
        and not report.gathered
        and (report.out is None or _possible_output(report.out))
        and (report.err is None or _possible_output(report.err))
        and (report.value is None or _possible_output(report.value, MAX_VALUE_SEGMENTS))
    )


def _corrected(report: Report, now: float) -> Report:
    """Zero stands for what is not known; an exit code that cannot be is at least not success."""
    if not possible_files(report.files):  # it may have left others, or none: it is not finished by that
        hitch = Hitch(Stage.STAGE_OUT, Trouble.REFUSED, "", "its worker told of files that cannot be")
        report = msgspec.structs.replace(report, end=End.UNSTAGED, code=0, files=(), hitch=hitch)
    return msgspec.structs.replace(
        report,
        gathered=(),
        hitch=report.hitch and _corrected_hitch(report.hitch),
        code=report.code if 0 <= report.code <= MAX_CODE else 255,
        started_at=report.started_at if 0.0 <= report.started_at <= MAX_TIME else now,
        wall_s=report.wall_s if 0.0 <= report.wall_s <= MAX_SECONDS else 0.0,
        cpu_s=report.cpu_s if 0.0 <= report.cpu_s <= MAX_CPU_S else 0.0,
        max_rss_bytes=report.max_rss_bytes if 0 <= report.max_rss_bytes <= MAX_SIZE else 0,
        note=legible(report.note),
        said=report.said[:MAX_SAID],
        seen=report.seen if _possible_lines(report.seen) else (),
        out=report.out and _corrected_output(report.out),
        err=report.err and _corrected_output(report.err),
        value=report.value if report.value and _possible_output(report.value, MAX_VALUE_SEGMENTS) else None,
    )


def _possible_lines(lines: tuple[str, ...]) -> bool:
    return len(lines) <= RULES_MOST and all(len(line) <= MAX_SEEN for line in lines)


def possible_files(files: tuple[Made, ...]) -> bool:
    return len(files) <= MAX_FILES and all(
        0 <= made.size_bytes <= MAX_SIZE
        and is_digest(made.digest)
        and 0 < len(made.path) <= MAX_URL_BYTES
        and is_place(made.url)
        and (not made.name or (made.name.startswith(LFN) and is_registered_name(made.name)))
        for made in files
    )


def _possible_hitch(hitch: Hitch) -> bool:
    return (
        hitch.stage in (Stage.STAGE_IN, Stage.STAGE_OUT)
        and not (hitch.kept and hitch.stage is Stage.STAGE_IN)
        and 0.0 <= hitch.not_before_s <= MAX_SECONDS
        and len(hitch.url) <= MAX_URL_BYTES
        and hitch.url.isprintable()
        and len(hitch.note) <= MAX_NOTE
        and hitch.note.isprintable()
    )


def _corrected_hitch(hitch: Hitch) -> Hitch:
    stage = hitch.stage if hitch.stage in (Stage.STAGE_IN, Stage.STAGE_OUT) else Stage.STAGE_OUT
    not_before_s = hitch.not_before_s if 0.0 <= hitch.not_before_s <= MAX_SECONDS else 0.0
    url = legible(hitch.url)
    kept = hitch.kept and stage is Stage.STAGE_OUT
    return Hitch(stage, hitch.trouble, url, legible(hitch.note), not_before_s, kept)


def _possible_output(output: Output, most_segments: int = MAX_SEGMENTS) -> bool:
    return (
        0 <= output.kept_bytes <= output.total_bytes <= MAX_SIZE
        and 0 <= output.segments <= most_segments
        and len(output.inline) <= INLINE_OUTPUT_BYTES
    )


def _corrected_output(output: Output) -> Output:
    if _possible_output(output):
        return output
    segments = output.segments if 0 <= output.segments <= MAX_SEGMENTS else 0
    inline = b"" if segments else output.inline[-INLINE_OUTPUT_BYTES:]
    kept = max(0, min(output.kept_bytes, MAX_OUTPUT_BYTES)) if segments else len(inline)
    return Output(max(kept, min(output.total_bytes, MAX_SIZE)), kept, inline, segments)


def legible(note: str) -> str:
    note = note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 1] + "…"
    return "".join(c if c.isprintable() else " " for c in note)
