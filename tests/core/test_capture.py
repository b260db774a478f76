"""What is kept of a stream, compared with keeping all of it."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.runners import capture
from tercel.runners.capture import Capture

CHUNKS = st.lists(st.binary(max_size=60), max_size=20)


@given(chunks=CHUNKS, limit=st.integers(0, 200), memory=st.integers(1, 64), most=st.integers(1, 50))
def test_capture_keeps_exactly_the_tail(chunks: list[bytes], limit: int, memory: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(capture, "MEMORY_BYTES", memory)
        kept = Capture(limit, directory.encode())
        whole = b""
        for chunk in chunks:
            if len(chunk) > memory:  # no chunk is larger than what is held in memory
                chunk = chunk[:memory]
            kept.add(chunk)
            whole += chunk
            assert kept.total == len(whole)
            assert kept.begin == max(0, len(whole) - limit)
        tail = b""
        while kept.begin + len(tail) < kept.total:
            tail += kept.read(kept.begin + len(tail), most)
        assert tail == whole[kept.begin :]
        assert list(Path(directory).iterdir()) == []
        kept.close()


@given(chunks=CHUNKS, limit=st.integers(0, 200))
def test_without_room_on_disk_the_tail_that_fits_into_memory_is_kept(chunks: list[bytes], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture, "MEMORY_BYTES", 64)
        kept = Capture(limit, b"/no/such/directory")
        for chunk in chunks:
            kept.add(chunk)
        whole = b"".join(chunks)
        assert kept.total == len(whole)
        assert kept.read(kept.begin, 1000) == whole[kept.begin :]
        if len(whole) <= 64 or limit <= 64:
            assert kept.total - kept.begin == min(limit, len(whole))
            assert kept.fault == ""
        else:
            assert kept.total - kept.begin == 64
            assert "No such file" in kept.fault
