"""The files of a call: put into its sandbox before it is made, gathered when it has ended or its interpreter has died.

Nothing else goes on in an interpreter meanwhile: its lane sees on the board that the call's time stands still.
"""

from time import monotonic

from tercel.runners import files
from tercel.runners.board import Board
from tercel.runners.files import COPY, MOVE, Fault
from tercel.runners.run import FilesRow, HitchRow
from tercel.runners.surroundings import Misplaced


class CallFiles:
    """Of one call that an interpreter makes."""

    def __init__(self, row: FilesRow, board: Board, node: str) -> None:
        self._row = row
        self._board = board
        self._node = node
        self.apart_s = 0.0
        """How long it took, which is no time of the call's."""
        self.gathered: list[tuple[str, int]] = []
        self.hitch: HitchRow | None = None

    def put(self, sandbox: bytes) -> None:
        """Before the call. Raises Misplaced."""
        began = monotonic()
        self._board.pause()
        try:
            files.put(self._row[0], sandbox, self._node, _go_on)
        except Fault as fault:
            self.hitch = fault.hitch
            raise _misplaced(fault) from fault
        now = monotonic()
        self.apart_s = now - began
        self._board.go_on(now)

    def gather(self, well: bool, sandbox: bytes, cwd: bytes) -> str:
        """After it: more of a note, if something is not there and that changes nothing. Raises Misplaced if it does."""
        began = monotonic()
        self._board.pause()
        try:
            end = "finished" if well else "failed"
            self.gathered = gather(self._row, end, sandbox, cwd, self._node)
        except Fault as fault:
            if fault.end == "unstaged" and not well:
                return f"; {fault.note}"
            self.hitch = fault.hitch
            raise _misplaced(fault) from fault
        finally:
            self.apart_s += monotonic() - began
        return ""


def gather(row: FilesRow, end: str, sandbox: bytes, cwd: bytes, node: str) -> list[tuple[str, int]]:
    """After such an end: `finished`, `failed` or `cancelled`. Raises Fault."""
    _, gathers, to = row
    if not (patterns := files.asked_for(gathers, end)):
        return []
    return files.gather(patterns, cwd or sandbox, COPY if cwd else MOVE, not cwd, to, node, _go_on) or []


def _go_on() -> bool:
    return True


def _misplaced(fault: Fault) -> Misplaced:
    error = Misplaced(fault.end, fault.note)
    error.errno = fault.errno
    return error
