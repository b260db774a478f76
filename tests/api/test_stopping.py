"""However a manager is left, it lets go of what it holds."""

import threading
from pathlib import Path

import pytest

from tercel.wire.api import Counts
from tests.api.house import open_house


async def test_a_manager_that_is_left_by_an_error_ends_its_thread_and_lets_its_directory_go(
    home: Path,
) -> None:
    with pytest.raises(ExceptionGroup, match="unhandled"):
        async with open_house(home / "data") as house:
            await house.submit()
            raise KeyError("a mistake of whoever uses it")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("tercel-commit")]
    async with open_house(home / "data") as house:
        assert (await house.job(1)).counts == Counts(ready=1)
