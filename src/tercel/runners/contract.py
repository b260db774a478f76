"""What every runner does.

A *lane* is a place where one attempt runs at a time. Several launches given to one lane run one after the other
without a round trip between them (what is given to it while it runs commands are commands, and calls while it makes
calls); lanes run side by side. The runner tells its listener what happens, in order
per attempt, on the event loop it was started on. Every launch ends in exactly one `ended`, whatever happens to
the process, its children, or the runner's own helpers.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from tercel.core.model import Call, Program
from tercel.core.reports import Report


class Launch(msgspec.Struct, frozen=True, array_like=True):
    """One attempt to run in a lane.

    After an attempt of a program with a cleanup, that may be launched in the same lane under the number of the attempt: it
    finds the attempt's sandbox as that was left. Any other launch finds an empty one.
    """

    lane: int
    job: int
    task: int
    attempt: int
    program: Program
    line: str = ""
    """The task's own command line; overrides the program's argv and line unless empty.

    Of a program with a template and no grid: the task's item, which fills the template.
    """
    call: Call | None = None
    """Of a job that is a function."""
    inputs: dict[str, bytes | str] = {}
    """The values that `call` and the function name, by key: the bytes themselves, or the path of a file with them."""
    env: dict[str, str] = {}
    """Variables of its lane, as long as that is open: which GPUs are its own, say."""
    links: list[tuple[str, str]] = []
    """Files that it finds in its sandbox, read-only: (path of a file in the cache, its name there).

    If one is gone from the cache, the attempt ends as INTERRUPTED (ENOENT); names that cannot be end it as UNSTAGED.
    """
    gathers: list[tuple[str, str]] = []
    """What is taken out of its directory when it has ended: (pattern, after which end: `finished`, `failed`, `always`).

    A path or a pattern as of runners.globs, in the program's cwd if it has one (then it is copied), else in the sandbox. What
    is told in the report, and nothing else, is in `gather_dir` and is whole. A pattern that meets nothing is no fault here.
    """
    gather_dir: str = ""
    """Where to: a directory on the sandbox's file system, which is made if anything is found. It is the caller's, to remove too:
    also if the attempt did not end well, or its worker died.
    """


class Listener(Protocol):
    """Called from the event loop, never from inside a call of the runner's own methods."""

    def started(self, attempts: list[int]) -> None:
        """These have been running for a moment. Attempts that end at once may never be announced."""

    def ended(self, reports: list[Report]) -> None:
        """Outputs and values beyond the inline limit wait in the runner: see `Runner.segments`."""

    def tail(self, attempt: int, stream: str, offset: int, data: bytes) -> None:
        """Live output, in order, of an attempt that is followed."""


class Runner(Protocol):
    async def start(self, listener: Listener) -> None: ...

    def launch(self, launches: list[Launch]) -> None: ...

    def kill(self, attempts: list[int]) -> None:
        """End them: TERM to the whole tree, KILL after the grace. What has not started does not start."""

    def withdraw(self, attempts: list[int]) -> None:
        """Do not start those that have not begun: they end as INTERRUPTED, started at 0. The others go on."""

    def warn(self, attempts: list[int]) -> None:
        """Their end is near: send the job's signal for that (if it has one) to those of their processes that mind it."""

    def follow(self, attempt: int, on: bool) -> None:
        """Begin or stop telling the listener this attempt's output, from its beginning or what is kept of it."""

    def directories(self) -> dict[int, Path]:
        """By attempt, of those that have run for a moment and have not ended: the directory with its sandbox in it."""

    def segments(self, attempt: int, stream: str) -> Iterable[bytes]:
        """The compressed pieces (zlib) of a large output (out, err) or value of an ended attempt, read as they are asked for.

        Fewer than the report says, or none, if they are no longer there.
        """

    def kept(self) -> set[int]:
        """Attempts whose large outputs are here, those of an earlier process included."""

    def forget(self, attempts: list[int]) -> None:
        """Their outputs are no longer needed."""

    async def stop(self) -> None:
        """End all that runs (reported as interrupted) and every helper process."""
