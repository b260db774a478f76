"""The directory that tasks run in, as the user knows it."""

import os
from pathlib import Path

from tercel.core.errors import UsageError

SANDBOX = "sandbox"


def directory(text: str) -> str:
    """An absolute path, or nothing for a sandbox; relative ones begin where the user is. Raises UsageError."""
    if text == SANDBOX:
        return ""
    if text.startswith("/"):
        return os.path.normpath(text)
    try:
        here = Path.cwd()
    except OSError as error:
        why = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be used ({error.strerror})"
        )
        raise UsageError(f"the current directory {why}: give one with --cwd", "cwd") from None
    return os.path.normpath(_as_the_shell_calls_it(here) / text)


def _as_the_shell_calls_it(here: Path) -> Path:
    """With the symbolic links that people (and automounters) go by."""
    shell = Path(os.environ.get("PWD", ""))
    try:
        return shell if shell.is_absolute() and shell.samefile(here) else here
    except OSError:  # it is gone, or another user's: sudo passes it on
        return here
