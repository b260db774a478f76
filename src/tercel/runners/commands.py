"""What one attempt executes, and where that is found."""

# ruff: noqa: PTH113
# (A spawner imports this, and pathlib would double its start-up time.)

import errno
import os

from tercel.runners.posix_spawn import Strings

SHELL = b"/bin/sh"
_NOT_FOUND = frozenset({errno.ENOENT, errno.ENOTDIR})
_NOT_RUNNABLE = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
        errno.E2BIG,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ETXTBSY,
        errno.ELIBBAD,
        errno.EINVAL,
    }
)
NOT_A_DIRECTORY = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}
)
"""Errors of entering a directory that another try here will meet again."""


class Command:
    """What one attempt executes."""

    __slots__ = ("arguments", "path", "words")

    def __init__(self, words: list[bytes]) -> None:
        """Raises ValueError for words that cannot be handed to a process."""
        self.words = words
        self.arguments = Strings(words)
        self.path = b""
        """Where its executable is, once looked up."""

    @property
    def name(self) -> str:
        return self.words[0].decode(errors="replace")

    def by_shell(self) -> "Command":
        """For a script without #!: shells run such a thing themselves, and so do we."""
        command = Command([SHELL, self.path, *self.words[1:]])
        command.path = SHELL
        return command


def find_executable(name: bytes, search: bytes) -> bytes:
    seen = False
    for directory in search.split(b":"):
        path = (directory or b".") + b"/" + name
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            seen = True
    raise OSError(errno.EACCES if seen else errno.ENOENT, "")


def why_not_started(error: OSError, command: Command) -> tuple[int, str, str]:
    """The exit code a shell would give, or 0 if it is this node's doing and not the command's; the reason; its name."""
    name = errno_name(error)
    if error.errno in _NOT_FOUND:
        if command.path and os.path.isfile(command.path):
            return 126, f"{command.name}: its interpreter (after #!) or loader is not there", name
        return 127, f"{command.name}: not found", name
    reason = os.strerror(error.errno or 0)
    if error.errno in _NOT_RUNNABLE:
        return 126, f"{command.name}: {reason}", name
    return 0, f"cannot start a process: {reason}", name


def errno_name(error: OSError) -> str:
    """`ENOSPC`; empty if the system has not said why."""
    return errno.errorcode.get(error.errno or 0, "")
