"""What every tester does.

A tester is written `KIND:TEXT` (`tcp:licence.lab:27000`). Its kind judges the text once, when a job is submitted, and is asked
from then on, as often as a condition's policy says, by whoever is at the right place.
"""

from typing import Protocol

import msgspec

from tercel.core.conditions import Place, Verdict


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a test finds around it."""

    cwd: str = ""
    """The directory of the job that it is for; empty: none in particular."""
    env: dict[str, str] = {}
    """What that job adds to the environment."""
    limit_s: float = 10.0
    """A test that takes longer is ended, and has not cleared."""


class Asks(Protocol):
    """Who knows all testers."""

    async def ask(self, tester: str, surroundings: Surroundings, /) -> Verdict:
        """Ask one of them, as it is written (`tcp:licence.lab:27000`). Never raises; takes not much longer than the limit."""


class Tester(Protocol):
    kind: str
    """What stands before the colon: lower-case letters, digits, `-`."""
    place: Place
    """Where it makes sense to ask, unless somebody says otherwise."""
    summary: str
    """One line for people, with an example."""

    def normalise(self, text: str) -> str:
        """The one way in which this is written: who means the same shares a condition. UsageError if it means nothing."""

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        """Whether it is there again. `text` is normalised. May raise, hang or lie: that harms its own condition only."""
