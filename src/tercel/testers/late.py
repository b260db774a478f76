"""All testers there are, known from the first question on: most managers and workers are never asked one, and importing
them takes as long as starting a worker.
"""

from typing import TYPE_CHECKING

from tercel.core.conditions import Place, Verdict
from tercel.core.testing import KINDS, normalise_here
from tercel.testers.contract import Surroundings

if TYPE_CHECKING:
    from tercel.testers.registry import Testers


class LateTesters:
    """Of one process, to be closed when nobody asks any more."""

    def __init__(self) -> None:
        self._known: Testers | None = None

    def _testers(self) -> "Testers":
        if self._known is None:
            from tercel.testers.registry import Testers  # noqa: PLC0415  # 50 ms: see the header

            self._known = Testers([BookTester(kind) for kind in KINDS])
        return self._known

    def is_own(self, kind: str) -> bool:
        """Whether such testers are Tercel's own, hence the same everywhere."""
        return self._testers().is_own(kind)

    async def judge(self, text: str) -> tuple[str, Place]:
        """As its kind writes it, and where it is asked. UsageError if it means nothing."""
        return await self._testers().judge(text)

    async def ask(self, text: str, surroundings: Surroundings) -> Verdict:
        """Whether it is there again. Never raises; takes not much longer than the limit."""
        return await self._testers().ask(text, surroundings)

    async def close(self) -> None:
        if self._known is not None:
            await self._known.close()


class BookTester:
    """A kind that the manager answers by its own books: judged like all others, asked elsewhere."""

    place = Place.HERE

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.summary = KINDS[kind]

    def normalise(self, text: str) -> str:
        return normalise_here(self.kind, text)

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        return Verdict(False, 0, f"{self.kind}:{text} is asked of the manager's books")
