"""The files of an attempt of a spawner: how it fares if they cannot be put into its sandbox, or not be gathered."""

from collections.abc import Callable

from tercel.runners import files
from tercel.runners.files import COPY, LINK, MOVE, Fault
from tercel.runners.run import Run

Told = tuple[str, int, str, str]
"""end, code, note, errno, as `Reports.add` takes them."""


def put(run: Run, sandbox: bytes, node: str, meanwhile: Callable[[], None]) -> Told | None:
    """What is to be reported if it cannot begin."""
    assert run.launch.files is not None

    def goes_on() -> bool:
        meanwhile()
        return not run.ending

    try:
        if not files.put(run.launch.files[0], sandbox, node, goes_on):
            return run.ending, 0, "cancelled before it started", ""
    except Fault as fault:
        run.hitch = fault.hitch
        return fault.end, 0, fault.note, fault.errno
    return None


def gather(run: Run, sandbox: bytes, node: str, meanwhile: Callable[[], None]) -> Told | None:
    """What is to be reported if what it leaves could not be saved: it has to be run again, or cannot be had so at all."""
    assert run.launch.files is not None
    _, gathers, to = run.launch.files
    end, ending = _end(run), run.ending
    if not end or not (patterns := files.asked_for(gathers, end)):
        return None

    def goes_on() -> bool:
        meanwhile()
        return run.ending == ending

    cwd = run.launch.program.cwd
    try:
        run.gathered = files.gather(patterns, cwd or sandbox, _how(run), not cwd, to, node, goes_on)
    except Fault as fault:
        if end == "cancelled" or (fault.end == "unstaged" and end != "finished"):
            run.ungathered = fault.note
            return None
        run.hitch, run.excess = fault.hitch, None
        return fault.end, 0, fault.note, fault.errno
    return None


def _end(run: Run) -> str:
    """`finished`, `failed`, or `cancelled`; empty: it did not come to an end of its own, and is run again."""
    if run.ending:
        return "cancelled" if run.ending == "cancelled" else "failed"
    if run.conclusion is None:
        return "finished" if run.status == 0 else "failed"
    if run.conclusion.end in ("interrupted", "refused"):
        return ""
    return "finished" if (run.conclusion.end, run.conclusion.code) == ("exited", 0) else "failed"


def _how(run: Run) -> str:
    program = run.launch.program
    if program.cwd or program.cleans:  # others may write there; its cleanup is to find it as it was left
        return COPY
    return LINK if program.keep != "remove" and run.is_kept() else MOVE
