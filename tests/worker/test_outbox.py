"""What is said, in which order, in frames of which size."""

from collections.abc import Iterable, Iterator

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.conditions import Verdict
from tercel.core.files import Made
from tercel.core.model import Needs
from tercel.core.presence import WorkerState
from tercel.core.reports import Output, Report
from tercel.wire.messages import (
    MAX_FRAME_BYTES,
    SEGMENT_BYTES,
    Bye,
    Cached,
    FromWorker,
    Locate,
    Presence,
    Probed,
    Reports,
    Returned,
    Segment,
    Started,
    TailData,
)
from tercel.wire.session import WorkerSession
from tercel.worker.outbox import FRAME_BYTES, Outbox
from tests.worker.stage import report

PIECE = b"p" * SEGMENT_BYTES


def _outbox() -> Outbox:
    def pieces(attempt: int, stream: str) -> Iterable[bytes]:
        return [PIECE] * (attempt % 5)

    return Outbox(pieces)


def _frames(outbox: Outbox) -> Iterator[list[FromWorker]]:
    while messages := outbox.take():
        yield messages


def test_an_empty_outbox_says_nothing() -> None:
    assert _outbox().take() == []


def test_small_things_go_together_and_bye_goes_last() -> None:
    outbox = _outbox()
    outbox.set_bye(Bye("done"))
    outbox.add_reports([report(104, out=Output(1, 1, b"", 4)), report(1)])
    outbox.add_started([5])
    outbox.add_returned([6])
    outbox.set_presence(Presence(WorkerState.BUSY, Needs()))
    frames = list(_frames(outbox))
    assert [type(m) for m in frames[0]] == [Presence, Started, Returned, Reports, Segment]
    assert frames[-1] == [Bye("done")]
    assert sum(isinstance(m, Bye) for frame in frames for m in frame) == 1
    assert outbox.take() == []


def test_what_is_added_while_segments_are_sent_does_not_wait_for_their_end() -> None:
    outbox = _outbox()
    outbox.add_reports([report(104, out=Output(1, 1, b"", 4))])
    assert [type(m) for m in outbox.take()] == [Segment]
    outbox.add_reports([report(1)])
    assert [type(m) for m in outbox.take()] == [Reports, Segment]


def test_however_many_values_are_kept_they_are_told_in_frames_that_pass() -> None:
    outbox = _outbox()
    kept = [(f"b{number:064x}", number) for number in range(20_000)]
    gone = [f"b{number:064x}" for number in range(30_000, 30_700)]
    outbox.add_cached(kept, gone)
    told: list[tuple[str, int]] = []
    went: list[str] = []
    for frame in _frames(outbox):
        assert len(WorkerSession().encode(frame)) < FRAME_BYTES
        for message in frame:
            assert isinstance(message, Cached)
            told += message.kept
            went += message.gone
    assert (told, went) == (kept, gone)


outputs = st.one_of(
    st.none(),
    st.integers(0, 16_384).map(lambda size: Output(size, size, bytes(size))),
    st.just(Output(10**6, 10**6, b"", 3)),
)
reports = st.lists(
    st.builds(
        lambda attempt, out, err: report(attempt * 5 + 3, out=out, err=err),
        st.integers(0, 10**9),
        outputs,
        outputs,
    ),
    max_size=60,
    unique_by=lambda r: r.attempt,
)


@given(reports, st.lists(st.binary(max_size=65_536), max_size=30))
def test_frames_are_bounded_and_every_report_follows_its_segments(
    owed: list[Report], tails: list[bytes]
) -> None:
    outbox = _outbox()
    outbox.add_reports(owed)
    for number, data in enumerate(tails):
        outbox.add_tail(TailData(1, "out", number, data))
    session = WorkerSession()
    segments: dict[tuple[int, str], int] = {}
    said = []
    for messages in _frames(outbox):
        largest = max(FRAME_BYTES, sum(len(m.data) for m in messages if isinstance(m, TailData)))
        assert len(session.encode(messages)) < largest + 2 * SEGMENT_BYTES < MAX_FRAME_BYTES
        for message in messages:
            if isinstance(message, Segment):
                assert message.number == segments.get((message.attempt, message.stream), 0)
                segments[message.attempt, message.stream] = message.number + 1
            elif isinstance(message, Reports):
                for one in message.reports:
                    said.append(one)
                    for stream, output in (("out", one.out), ("err", one.err)):
                        assert segments.get((one.attempt, stream), 0) == (output.segments if output else 0)
    assert sorted(r.attempt for r in said) == sorted(r.attempt for r in owed)
    assert {r.attempt: r for r in said} == {r.attempt: r for r in owed}


def test_any_number_of_verdicts_goes_in_frames_of_bounded_size_and_in_order() -> None:
    outbox = _outbox()
    for number in range(20_000):
        outbox.add_probed(Probed(number, Verdict(False, note="\U0001f985" * 500)))
    outbox.set_bye(Bye("done"))
    session = WorkerSession()
    frames = list(_frames(outbox))
    assert all(len(session.encode(frame)) < MAX_FRAME_BYTES // 16 for frame in frames)
    assert [m.number for frame in frames[:-1] for m in frame if isinstance(m, Probed)] == list(range(20_000))
    assert frames[-1] == [Bye("done")]


def test_reports_of_many_files_and_questions_of_many_names_go_in_frames_that_pass() -> None:
    outbox = _outbox()
    made = Made("results/part.root", "sftp://store.lab/results/part.root", 1, f"blake3:{'0' * 64}")
    for number in range(60):
        outbox.add(Locate(number, [f"lfn:{'n' * 996}"] * 1000))
        outbox.add_reports([msgspec.structs.replace(report(number), files=(made,) * 10_000)])
    frames = list(_frames(outbox))
    session = WorkerSession()
    assert all(len(session.encode(frame)) < MAX_FRAME_BYTES // 2 for frame in frames)
    said = [message for frame in frames for message in frame]
    assert [m.number for m in said if isinstance(m, Locate)] == list(range(60))
    told = [one.attempt for m in said if isinstance(m, Reports) for one in m.reports]
    assert told == list(range(60))
