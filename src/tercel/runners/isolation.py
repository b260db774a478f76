"""Attempts that run inside something: what a spawner must know of it. Here also: bubblewrap.

refusal    why attempts cannot run so on this node, if they cannot
command    what is executed instead of the attempt's own command
terminate  how it is asked to end
conclude   what became of it, where the exit code of what was executed does not say it
"""

# ruff: noqa: PTH120, PTH208
# (A spawner imports this, and pathlib would double its start-up time.)

import os
import signal

from tercel.runners import trees
from tercel.runners.asking import ask
from tercel.runners.commands import Command, find_executable
from tercel.runners.guard import Excess

PROBE_S = 30.0
_NEVER_BOUND = (b"/", b"/dev", b"/tmp")
"""As a job's directory they would cover what an attempt has of its own, and make the whole system writable to it."""
_NEVER_BELOW = (b"/proc/", b"/sys/")
"""Nor is anything in these for tasks to write."""
_DEVICES = (b"nvidia", b"dri", b"kfd", b"infiniband")
"""Of accelerators and their networks, as their names in /dev begin."""


class Conclusion:
    """How an attempt ended, as an engine has it."""

    __slots__ = ("code", "end", "excess", "note")

    def __init__(self, end: str, code: int, note: str, excess: Excess | None = None) -> None:
        self.end = end
        self.code = code
        self.note = note
        self.excess = excess


class Isolation:
    """Of one job. What holds for all of them unless they say otherwise. (No Protocol: typing takes 5 ms to import.)"""

    holds: frozenset[str] | None = None
    """The controllers by which it holds attempts to their limits itself; None: they stay in the lane's own groups."""
    looks_up = False
    """Whether the command is one of this node's, to be found here."""
    helpers = 0
    """How many processes it adds, which are not held against the attempt."""

    def refusal(self) -> str:
        return ""

    def command(self, command: Command, sandbox: bytes, cwd: bytes, attempt: int) -> Command:
        raise NotImplementedError

    def terminate(self, pid: int) -> None:  # noqa: ARG002
        trees.terminate_descendants()

    def warn(self, number: int) -> bool:
        """Whether there is anybody to hear the signal."""
        return trees.warn(trees.descendants(os.getpid()), number)

    def conclude(self, code: int, killed: bool, said: str) -> Conclusion | None:  # noqa: ARG002
        """Of the attempt that was started last. `code`: what was executed ended with; `said`: the end of its stderr."""
        return None


class Bubblewrap(Isolation):
    """The system is read-only; the sandbox (and the job's directory) is not; /tmp and processes are its own.

    The worker's directory, with other attempts' sandboxes, is out of sight. The network is the node's, for licences.
    """

    looks_up = True
    helpers = 2

    def __init__(self, node: str, lane: bytes, environment: dict[bytes, bytes], cwd: bytes = b"") -> None:
        """`cwd` is the job's directory, if it has one."""
        self._node = node
        self._cwd = cwd
        self._real_cwd = b""
        self._hidden = os.path.dirname(os.path.dirname(lane))
        self._environment = environment
        self._path = b""
        self._refusal: str | None = None

    def refusal(self) -> str:
        if self._refusal is None:
            self._refusal = self._probe()
        return self._refusal or self._refusal_of_directory()

    def _refusal_of_directory(self) -> str:
        """Looked at before each attempt: what a link leads to may change."""
        self._real_cwd = os.path.realpath(self._cwd) if self._cwd else b""
        if self._real_cwd not in _NEVER_BOUND and not (self._real_cwd + b"/").startswith(_NEVER_BELOW):
            return ""
        shown = self._cwd.decode(errors="replace")
        return (
            f"with --isolate bwrap a task cannot have {shown} as its directory (--cwd) on {self._node}: what it is "
            "kept from would be open to it; name a directory of the job's own"
        )

    def _probe(self) -> str:
        try:
            self._path = find_executable(b"bwrap", self._environment.get(b"PATH", os.defpath.encode()))
        except OSError:
            return f"bwrap is not installed on {self._node}"
        answer = ask([*self._view(), b"--", b"/bin/true"], self._environment, PROBE_S)
        if answer.code:
            return (
                f"bwrap does not work on {self._node}: {answer.last_line or f'it ended with {answer.code}'}"
            )
        return ""

    def _view(self) -> list[bytes]:
        words = [self._path, *b"--ro-bind / / --dev /dev --proc /proc --tmpfs /tmp".split()]
        for name in sorted(os.listdir(b"/dev")):
            if name.startswith(_DEVICES):
                words += [b"--dev-bind", b"/dev/" + name, b"/dev/" + name]
        return [*words, *b"--unshare-pid --unshare-ipc --die-with-parent --setenv TMPDIR /tmp".split()]

    def command(self, command: Command, sandbox: bytes, cwd: bytes, attempt: int) -> Command:  # noqa: ARG002
        """In the directory that `refusal` has looked at."""
        words, cwd = self._view(), self._real_cwd
        # In this order: a job's directory above the worker's must not show that again, nor be hidden if it is below.
        if cwd and not cwd.startswith(self._hidden + b"/"):
            words += [b"--bind", cwd, cwd]
        words += [b"--tmpfs", self._hidden, b"--bind", sandbox, sandbox]
        if cwd.startswith(self._hidden + b"/"):
            words += [b"--bind", cwd, cwd]
        inside = Command([*words, b"--chdir", cwd or sandbox, b"--", command.path, *command.words[1:]])
        inside.path = self._path
        return inside

    def terminate(self, pid: int) -> None:  # noqa: ARG002
        """Not bwrap itself: all would be killed with it, without any grace."""
        pids = [each for each in trees.descendants(os.getpid()) if trees.name_of(each) != b"bwrap"]
        trees.signal_all(pids, signal.SIGTERM)
        trees.signal_all(pids, signal.SIGCONT)
