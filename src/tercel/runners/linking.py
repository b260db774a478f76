"""Puts files of the cache into a sandbox: as hard links, or as copies where there can be no links.

Names were checked when the job was submitted, and are checked again here: whoever gave them, none leads out of the sandbox.
"""

import errno
import os
from collections.abc import Iterator

from tercel.runners.below import DIRECTORY, Below, make
from tercel.runners.copying import NO_LINK, copy

READ_ONLY = 0o555
_NAMES_OWN = frozenset(
    {errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL}
)
"""Errors that come of the names, wherever it is tried."""


class Unfit(Exception):
    """Files cannot be had or left under such names, wherever that is tried: why, and which."""

    def __init__(self, note: str, name: str = "") -> None:
        super().__init__(note)
        self.note = note
        self.name = name


class Gone(Exception):
    """A file is no longer in the cache."""

    def __init__(self, path: str, name: str) -> None:
        super().__init__(f"{name}: its file in the cache is gone: {path}")


def checked(name: str) -> bytes:
    """As the system takes it. Raises Unfit unless it is a path that stays where it begins."""
    try:
        path = name.encode()
    except UnicodeEncodeError:
        raise Unfit("its name is no Unicode", name) from None
    parts = path.split(b"/")
    if b"" in parts or b"." in parts or b".." in parts or b"\0" in path:
        raise Unfit("it must be a path below the task's directory, without . and .. in it", name)
    return path


def link_all(links: list[tuple[str, str]], sandbox: bytes) -> Iterator[None]:
    """(path, name): a piece of work each. Raises Unfit, Gone, or OSError if there is no room."""
    below = Below(os.open(sandbox, DIRECTORY), make)
    try:
        for path, name in links:
            directory, _, last = checked(name).rpartition(b"/")
            try:
                yield from _link(os.fsencode(path), last, below.at(directory))
            except FileNotFoundError:
                raise Gone(path, name) from None
            except OSError as error:
                if error.errno not in _NAMES_OWN:
                    raise
                why = "something is there already" if error.errno == errno.EEXIST else error.strerror
                raise Unfit(f"it cannot be in the task's directory: {why}", name) from error
            yield
    finally:
        below.close()


def _link(path: bytes, name: bytes, directory: int) -> Iterator[None]:
    try:
        os.link(path, name, dst_dir_fd=directory)
        return
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
    if not (yield from copy(path, None, name, directory, READ_ONLY)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
