"""Times of day, with a clock of the test's own."""

from datetime import datetime

import pytest

from tercel.testers.contract import Surroundings
from tercel.testers.times import TimeTester

pytestmark = pytest.mark.T(8)


@pytest.mark.parametrize(
    ("text", "now", "cleared", "not_before_s"),
    [
        ("22:00-06:00", "2026-11-16T21:59:00", False, 60),
        ("22:00-06:00", "2026-11-16T22:00:00", True, 0),
        ("22:00-06:00", "2026-11-17T05:59:59", True, 0),
        ("22:00-06:00", "2026-11-17T06:00:00", False, 15 * 3600),
        ("Mon-Fri 09:00-17:00", "2026-11-16T09:00:00", True, 0),
        ("Mon-Fri 09:00-17:00", "2026-11-15T12:00:00", False, 20 * 3600),
        ("Fri 22:00-06:00", "2026-11-21T03:00:00", True, 0),
        ("Fri 22:00-06:00", "2026-11-20T03:00:00", False, 18 * 3600),
        ("20:00-24:00", "2026-11-20T23:59:30", True, 0),
        ("2026-12-24T18:00", "2026-12-24T17:59:00", False, 60),
        ("2026-12-24T18:00", "2026-12-24T18:00:00", True, 0),
        ("2026-12-24T18:00", "2031-01-01T00:00:00", True, 0),
    ],
)
async def test_a_window_belongs_to_the_day_on_which_it_begins(
    text: str, now: str, cleared: bool, not_before_s: float
) -> None:
    tester = TimeTester(clock=lambda: datetime.fromisoformat(now).timestamp())
    verdict = await tester.test(tester.normalise(text), Surroundings())
    assert (verdict.cleared, verdict.not_before_s) == (cleared, not_before_s)
    assert verdict.note
