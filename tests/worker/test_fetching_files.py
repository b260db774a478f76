"""Files of the catalogue, when none of their places is any good."""

from pathlib import Path

import pytest

from tercel.core.faults import fault_of_hitch
from tercel.core.files import Hitch, Trouble
from tercel.core.model import Needs
from tercel.core.presence import WorkerInfo
from tercel.core.states import Stage
from tercel.data.cache import Cache
from tercel.data.contract import TransferFailed
from tercel.data.moving import Mover
from tercel.wire.messages import FromWorker, Marked
from tercel.worker.asking import Asking
from tercel.worker.fetching_files import Fetches, Source

NOTHING = f"blake3:{'0' * 64}"


@pytest.mark.parametrize(("content", "trouble"), [(None, Trouble.MISSING), (b"other", Trouble.CORRUPT)])
async def test_a_file_that_is_nowhere_is_waited_for_by_its_name(
    tmp_path: Path, content: bytes | None, trouble: Trouble
) -> None:
    """Its places are marked: it is no fault of the task that was the first to find out."""
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    url, said = f"file://{tmp_path}/x", list[FromWorker]()
    mover, cache = Mover(), Cache(tmp_path / "cache", 2**20, "w")
    cache.open()
    try:
        fetches = Fetches(cache, mover, Asking(said.append), said.append)
        with pytest.raises(TransferFailed) as caught:
            await fetches.have(Source("lfn:x", (url,), NOTHING, 5), "1")
    finally:
        cache.close()
        await mover.close()
    failed = caught.value
    assert [(one.name, one.url) for one in said if isinstance(one, Marked)] == [("lfn:x", url)]
    hitch = Hitch(Stage.STAGE_IN, failed.trouble, failed.url, failed.note)
    fault = fault_of_hitch(hitch, "w", WorkerInfo(node="n", capacity=Needs()))
    assert (failed.trouble, fault and fault.tester) == (trouble, "made:lfn:x")
