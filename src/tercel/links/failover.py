"""Several addresses of one manager: a worker that cannot reach it by one tries the others before it says so.

A laboratory's manager has a name inside and another outside, or a tunnel beside the direct way. What a worker has to report
is told by whichever answers.
"""

from collections.abc import Sequence

from tercel.core.errors import Forbidden, Unreachable
from tercel.links.contract import Dialer, WorkerEnd


class FailoverDialer:
    def __init__(self, ways: Sequence[tuple[str, str, Dialer]]) -> None:
        """Each with its address, and the token for it."""
        self._ways = list(ways)
        """The one that answered last comes first."""

    def way(self) -> tuple[str, str]:
        """The address that answered last, and the token for it."""
        url, token, _ = self._ways[0]
        return url, token

    async def dial(self) -> WorkerEnd:
        troubles: list[Unreachable | Forbidden] = []
        for way in list(self._ways):
            try:
                end = await way[2].dial()
            except (Unreachable, Forbidden) as trouble:
                troubles.append(trouble)
                continue
            self._ways.remove(way)
            self._ways.insert(0, way)
            return end
        # One that may be reached later is worth more haste than one that never lets it in.
        passing = [trouble for trouble in troubles if isinstance(trouble, Unreachable)]
        raise type((passing or troubles)[0])("; ".join(str(trouble) for trouble in troubles))
