import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.sdk.sse import MAX_EVENT_BYTES, SseParser


def parsed(*chunks: bytes) -> list[bytes]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_data_up_to_an_empty_line_is_one_event() -> None:
    assert parsed(b"data: one\n\ndata: two\n\n") == [b"one", b"two"]


def test_several_data_lines_are_joined() -> None:
    assert parsed(b"data: a\ndata:b\n\n") == [b"a\nb"]


def test_comments_and_other_fields_are_skipped() -> None:
    assert parsed(b": still here\n\nevent: x\nid: 3\ndata: a\nretry: 5\n\n") == [b"a"]


def test_an_unfinished_event_is_not_given_out() -> None:
    assert parsed(b"data: a\n") == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@given(data=st.data())
def test_it_does_not_matter_where_the_network_cuts(end: bytes, data: st.DataObject) -> None:
    whole = end.join(
        [b"data: one", b"", b": comment", b"data: two", b"data: more", b"", b"data: 3", b"", b"x"]
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    edges = [0, *cuts, len(whole)]
    chunks = [whole[a:b] for a, b in itertools.pairwise(edges)]
    assert parsed(*chunks) == [b"one", b"two\nmore", b"3"]


def test_an_endless_line_is_refused() -> None:
    parser = SseParser()
    with pytest.raises(ValueError, match="larger than"):
        for _ in range(MAX_EVENT_BYTES // 2**20 + 1):
            parser.feed(b"x" * 2**20)
