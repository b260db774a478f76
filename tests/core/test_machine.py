"""The machine: stories (scenarios/*.txt), and what no story tells."""

import os
from pathlib import Path

import pytest

from .transcript import rewritten

STORIES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"), key=lambda path: path.name)


@pytest.mark.must("b", "c", "f")
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_machine_tells_the_story_as_it_is_written(path: Path) -> None:
    told = rewritten(path)
    if os.environ.get("TERCEL_REWRITE"):
        path.write_text(told)
    assert told == path.read_text()
