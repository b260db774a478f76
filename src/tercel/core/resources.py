"""What a worker has beside cores and memory: how much of it is taken, and which pieces.

A resource is countable (two licences) or indexed (GPUs 0 and 1: each piece has a name). Amounts are in thousandths. Of an
indexed resource a task gets whole pieces of its own, or a part of one piece that it shares with others which also asked
for a part; a part goes where it leaves the least behind, so that whole pieces stay whole for as long as they can.

Manager and worker both keep a Stock of the same worker. The worker's says which pieces a task has; the manager's says how
much room there is, and may have packed parts differently: then a task waits at the worker until it fits.
"""

from collections.abc import Mapping

from tercel.core.model import Needs

WHOLE = 1000
"""One piece, or one of anything."""

Amounts = tuple[tuple[str, int], ...]
Taken = tuple[tuple[str, int, tuple[str, ...]], ...]
"""(resource, how much, and of which pieces, if it has any) of each that was taken."""


class Stock:
    __slots__ = ("_free", "_pieces", "_total")

    def __init__(self, capacity: Needs, indices: Mapping[str, tuple[str, ...]]) -> None:
        self._pieces = {name: dict.fromkeys(pieces, WHOLE) for name, pieces in indices.items()}
        """How much of each piece is free."""
        self._total = dict(capacity.resources)
        self._free = dict(self._total)

    def set_total(self, capacity: Needs) -> None:
        """There is more or less of what can be counted. Pieces stay as they are."""
        for name, amount in capacity.resources:
            if name not in self._pieces:
                self._free[name] = self._free.get(name, 0) + amount - self._total.get(name, 0)
                self._total[name] = amount

    def slots(self, amounts: Amounts) -> int:
        """How many tasks that need so much could run side by side if nothing else did."""
        if not amounts:
            return 1
        return min(_times(self._total.get(name, 0), amount, name in self._pieces) for name, amount in amounts)

    def room(self, amounts: Amounts) -> int:
        """How many more of them can run beside what is taken."""
        return min((self._room(name, amount) for name, amount in amounts), default=1)

    def _room(self, name: str, amount: int) -> int:
        pieces = self._pieces.get(name)
        if pieces is None:
            return max(0, self._free.get(name, 0)) // amount
        if amount < WHOLE:
            return sum(free // amount for free in pieces.values())
        return sum(1 for free in pieces.values() if free == WHOLE) // _pieces_for(amount)

    def take(self, amounts: Amounts) -> Taken:
        """Of pieces that are not there (more was given to a worker than it has) none is taken."""
        return tuple((name, amount, self._take(name, amount)) for name, amount in amounts)

    def _take(self, name: str, amount: int) -> tuple[str, ...]:
        pieces = self._pieces.get(name)
        if pieces is None:
            self._free[name] = self._free.get(name, 0) - amount
            return ()
        if amount < WHOLE:
            fitting = [(free, piece) for piece, free in pieces.items() if free >= amount]
            chosen = [min(fitting, key=lambda entry: entry[0])[1]] if fitting else []
        else:
            chosen = [piece for piece, free in pieces.items() if free == WHOLE][: _pieces_for(amount)]
            if len(chosen) < _pieces_for(amount):
                chosen = []
        for piece in chosen:
            pieces[piece] -= min(amount, WHOLE)
        return tuple(chosen)

    def give_back(self, taken: Taken) -> None:
        for name, amount, chosen in taken:
            pieces = self._pieces.get(name)
            if pieces is None:
                self._free[name] = self._free.get(name, 0) + amount
            else:
                for piece in chosen:
                    pieces[piece] += min(amount, WHOLE)


def _pieces_for(amount: int) -> int:
    return -(-amount // WHOLE)


def _times(total: int, amount: int, indexed: bool) -> int:
    """How often an amount goes into a total; parts of different pieces do not add up to one."""
    if not indexed:
        return total // amount
    whole = total // WHOLE
    return whole * (WHOLE // amount) if amount < WHOLE else whole // _pieces_for(amount)
