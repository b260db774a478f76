"""What a worker says is judged by pure functions, before the machine or the store hears it."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.commands import MAX_SECONDS
from tercel.core.conditions import Verdict
from tercel.core.errors import PeerError
from tercel.core.model import Needs
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Output, Report
from tercel.manager import hearing
from tercel.testers.verdicts import NOT_BEFORE_MOST_S, NOTE_MOST, ROOM_MOST
from tercel.wire.messages import INLINE_OUTPUT_BYTES, PROTOCOL, SEGMENT_BYTES, Hello, Segment, TailData
from tests.api.house import done, inline

pytestmark = pytest.mark.must("f")

NOW = 1e9
# What msgpack can carry: any 64 bits, any float.
whole = st.integers(-(2**63), 2**64 - 1)
real = st.floats() | whole.map(float)
outputs = st.none() | st.builds(
    Output,
    whole | st.integers(0, 100),
    whole | st.integers(0, 100),
    st.binary(max_size=100),
    whole | st.just(0),
)
reports = st.builds(
    Report,
    job=whole,
    task=whole,
    attempt=whole,
    end=st.sampled_from(End),
    code=whole | st.integers(0, 255),
    started_at=real,
    wall_s=real,
    cpu_s=real,
    max_rss_bytes=whole,
    note=st.text(max_size=50),
    out=outputs,
    err=outputs,
)


@given(reports)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_whatever_is_reported_comes_out_as_something_that_can_be(report: Report) -> None:
    (heard,), _ = hearing.believed([report], NOW)
    assert (heard.job, heard.task, heard.attempt, heard.end) == (
        report.job,
        report.task,
        report.attempt,
        report.end,
    )
    assert (heard.code == 0) == (report.code == 0), "success stays success, and nothing becomes one"
    for number in (heard.wall_s, heard.cpu_s, heard.started_at):
        assert math.isfinite(number) and number >= 0
    for number in (heard.code, heard.max_rss_bytes):
        assert 0 <= number < 2**62
    assert heard.note.isprintable()
    for output in (heard.out, heard.err):
        if output is not None:
            assert 0 <= output.kept_bytes <= output.total_bytes < 2**62
            assert 0 <= output.segments <= hearing.MAX_SEGMENTS
    assert hearing.believed([heard], NOW) == ([heard], False), "once is enough"
    assert msgspec.json.encode(heard)


HONEST = [
    {},
    {"code": 255},
    {"end": End.SIGNALLED, "code": 9, "note": "killed by SIGKILL"},
    {"wall_s": 0.0, "cpu_s": 0.0, "max_rss_bytes": 0},
    {"wall_s": float(MAX_SECONDS), "started_at": 4e9},
    {"out": inline(b"hello\xff\x00")},
    {"out": inline(bytes(INLINE_OUTPUT_BYTES)), "err": Output(10, 0)},
    {"out": Output(2**30, 10 * 2**20, b"", 40)},
    {"note": "Verzeichnis fehlt: ≥ 1"},
]


@pytest.mark.parametrize("fields", HONEST, ids=range(len(HONEST)))
def test_an_honest_report_is_heard_as_it_is(fields: dict[str, Any]) -> None:
    reports = [done(1, 0, 5, **fields)]
    heard, corrected = hearing.believed(reports, NOW)
    assert heard is reports
    assert not corrected


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ({"wall_s": math.nan}, {"wall_s": 0.0}),
        ({"wall_s": math.inf}, {"wall_s": 0.0}),
        ({"wall_s": -1.0}, {"wall_s": 0.0}),
        ({"wall_s": 1e308}, {"wall_s": 0.0}),
        ({"cpu_s": math.nan}, {"cpu_s": 0.0}),
        ({"started_at": math.nan}, {"started_at": NOW}),
        ({"started_at": -1e308}, {"started_at": NOW}),
        ({"max_rss_bytes": 2**64 - 1}, {"max_rss_bytes": 0}),
        ({"max_rss_bytes": -1}, {"max_rss_bytes": 0}),
        ({"code": 2**63}, {"code": 255}),
        ({"code": -1}, {"code": 255}),
        ({"note": "a\x1b[2Jb\n"}, {"note": "a [2Jb "}),
        ({"note": "x" * 5000}, {"note": "x" * 999 + "…"}),
        ({"said": "x" * 5000}, {"said": "x" * 1000}),
        ({"seen": ("x" * 5000,)}, {"seen": ()}),
        ({"seen": ("x",) * 51}, {"seen": ()}),
        ({"out": Output(-1, -1)}, {"out": Output(0, 0)}),
        ({"out": Output(5, 9, b"12345")}, {"out": Output(5, 5, b"12345")}),
        ({"out": Output(2**63, 5, b"12345")}, {"out": Output(2**60, 5, b"12345")}),
        ({"out": Output(5, 5, b"12345", -1)}, {"out": Output(5, 5, b"12345")}),
        ({"out": Output(5, 5, b"12345", 2**63)}, {"out": Output(5, 5, b"12345")}),
        (
            {"err": inline(b"a" + bytes(INLINE_OUTPUT_BYTES))},
            {"err": Output(INLINE_OUTPUT_BYTES + 1, INLINE_OUTPUT_BYTES, bytes(INLINE_OUTPUT_BYTES))},
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_numbers_that_cannot_be_are_put_right_and_that_is_told(
    said: dict[str, Any], heard: dict[str, Any]
) -> None:
    report, good = done(1, 0, 5), done(1, 1, 6)
    assert hearing.believed([good, msgspec.structs.replace(report, **said)], NOW) == (
        [good, msgspec.structs.replace(report, **heard)],
        True,
    )


def _hello(**fields: Any) -> Hello:
    info = {
        name: fields.pop(name)
        for name in list(fields)
        if name in WorkerInfo.__struct_fields__ and name != "worker"
    }
    described = WorkerInfo(**({"node": "n", "capacity": Needs(1000, 2**30)} | info))
    return Hello(
        **({"protocol": PROTOCOL, "worker": "w", "instance": "i", "info": described, "held": []} | fields)
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"capacity": Needs(1, 0)}, ""),
        ({"worker": "w" * 128, "node": "n" * 256}, ""),
        ({"protocol": PROTOCOL + 1}, "protocol"),
        ({"protocol": -1}, "protocol"),
        ({"worker": ""}, "name"),
        ({"worker": "w" * 129}, "name"),
        ({"worker": "a\nb"}, "name"),
        ({"worker": "\x1b[31m"}, "name"),
        ({"worker": "lab-größe_7.x@site-0a1b2c"}, ""),
        ({"worker": "-none--0a1b2c"}, ""),
        ({"worker": "w;id"}, "letters"),
        ({"worker": "w 1"}, "letters"),
        ({"instance": "i" * 257}, "instance"),
        ({"node": "n" * 257}, "node"),
        ({"node": "\x1b]0;owned\x07"}, "node"),
        ({"version": "v" * 10**6}, "version"),
        ({"os": "\0"}, "os"),
        ({"capacity": Needs(0, 0)}, "cpu"),
        ({"capacity": Needs(-1, 0)}, "cpu"),
        ({"capacity": Needs(1000, -1)}, "memory"),
        ({"capacity": Needs(2**63, 0)}, "cpu"),
        ({"capacity": Needs(1000, 2**63)}, "memory"),
        ({"capacity": Needs(1000, 0, resources=(("gpus", 2000),)), "indices": {"gpus": ("0", "1")}}, ""),
        (
            {"capacity": Needs(1000, 0, resources=(("gpus", 2000),)), "indices": {"gpus": ("0", "0")}},
            "the same",
        ),
        (
            {"capacity": Needs(1000, 0, resources=(("gpus", 9000),)), "indices": {"gpus": ("0", "1")}},
            "2 pieces",
        ),
        ({"indices": {"gpus": ("0",)}}, "gives 0"),
        ({"capacity": Needs(1000, 0, resources=(("a", 1), ("a", 2)))}, "once"),
        ({"tags": ("ssd", "größe")}, ""),
        ({"tags": ("",)}, "no tag"),
        ({"tags": ("a b",)}, "no tag"),
        ({"tags": ("a,b",)}, "no tag"),
        ({"tags": ("x" * 101,)}, "no tag"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_worker_is_let_in_or_told_why_not(fields: dict[str, Any], reason: str) -> None:
    refusal = hearing.refusal(_hello(**fields))
    assert reason in refusal
    assert bool(refusal) == bool(reason)
    assert len(refusal) < 200


def test_a_worker_whose_odd_name_is_on_record_is_let_in_as_ever() -> None:
    assert hearing.refusal(_hello(worker="w 1"), known=True) == ""
    assert "printable" in hearing.refusal(_hello(worker="a\nb"), known=True)


@pytest.mark.parametrize(
    ("kept", "gone", "fits"),
    [
        ([("k", 1)], ["old"], True),
        ([(f"old{n}", 1) for n in range(10)], [], True),
        ([(f"new{n}", 1) for n in range(10)], [], True),
        ([(f"new{n}", 1) for n in range(11)], [], False),
        ([("k" * 257, 1)], [], False),
        ([("", 1)], [], False),
        ([("k", -1)], [], False),
        ([], ["k" * 257], False),
        ([], [""], False),
        ([], ["k"] * (hearing.MAX_CACHED + 1), False),
    ],
    ids=range(10),
)
def test_a_worker_cannot_fill_the_managers_memory_with_what_it_has_kept(
    kept: list[tuple[str, int]], gone: list[str], fits: bool
) -> None:
    known = {f"old{number}": 1 for number in range(hearing.MAX_CACHED - 10)}
    if fits:
        hearing.check_cached(kept, gone, known)
    else:
        with pytest.raises(PeerError):
            hearing.check_cached(kept, gone, known)


@given(st.builds(Needs, whole, whole))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_capacity_is_possible_or_ends_the_link(stated: Needs) -> None:
    try:
        assert hearing.capacity(stated) is stated
    except PeerError:
        assert not (0 <= stated.millicpus <= 10**9 and 0 <= stated.mem_bytes <= 2**60)


@pytest.mark.parametrize(
    ("piece", "fits"),
    [
        (Segment(1, "out", 0, b""), True),
        (Segment(1, "err", hearing.MAX_SEGMENTS - 1, bytes(SEGMENT_BYTES)), True),
        (Segment(1, "in", 0, b""), False),
        (Segment(1, "", 0, b""), False),
        (Segment(1, "out", -1, b""), False),
        (Segment(1, "out", hearing.MAX_SEGMENTS, b""), False),
        (Segment(1, "out", 2**64 - 1, b""), False),
        (Segment(1, "out", 0, bytes(2 * SEGMENT_BYTES)), False),
    ],
    ids=range(8),
)
def test_a_segment_fits_or_ends_the_link(piece: Segment, fits: bool) -> None:
    if fits:
        hearing.check_segment(piece)
    else:
        with pytest.raises(PeerError):
            hearing.check_segment(piece)


@pytest.mark.parametrize(
    ("piece", "fits"),
    [
        (TailData(1, "out", 0, b"x"), True),
        (TailData(1, "log", 0, b"x"), False),
        (TailData(1, "out", -1, b"x"), False),
        (TailData(1, "out", 2**63, b"x"), False),
        (TailData(1, "out", 0, bytes(2**21)), False),
    ],
    ids=range(5),
)
def test_live_output_fits_or_ends_the_link(piece: TailData, fits: bool) -> None:
    if fits:
        hearing.check_tail(piece)
    else:
        with pytest.raises(PeerError):
            hearing.check_tail(piece)


def test_what_a_worker_found_out_is_bounded_as_what_the_managers_own_testers_find_out() -> None:
    told = hearing.verdict(Verdict(False, ROOM_MOST + 1, "a\n\x1b[2Jb" + "x" * 9999, float(MAX_SECONDS)))
    assert (told.room, told.not_before_s) == (ROOM_MOST, NOT_BEFORE_MOST_S)
    assert told.note.startswith("a [2Jbxxx")
    assert len(told.note) == NOTE_MOST
