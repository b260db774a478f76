"""What all tests share: a lab of real processes, and how Hypothesis draws.

In the gate it draws the same examples every time and knows no deadline: a busy machine is no reason to fail, and what
was not found yesterday is not found in somebody else's change. `--hypothesis-profile explore` draws others.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.lab import Lab

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", UNHURRIED)
settings.register_profile("gate", UNHURRIED, derandomize=True)
settings.load_profile("gate")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    try:
        yield lab
    finally:
        print(lab.story())  # shown if the test failed
        lab.close()
