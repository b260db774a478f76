"""The files of an attempt, on either kind of lane: put into its sandbox before it begins, gathered when it has ended.

Imported by the first attempt that has any: the others must not pay for it.

    Fault    end          whose doing it was
             interrupted  this node's: no room, a file of the cache is gone; any worker may try again
             unstaged     the names': it will not go otherwise anywhere
"""

import os
from collections.abc import Callable

from tercel.runners.commands import errno_name
from tercel.runners.gathering import COPY, LINK, MOVE, Gathering
from tercel.runners.linking import Gone, Unfit, link_all

Meanwhile = Callable[[], bool]
"""Called after each piece of work; whether to go on."""

__all__ = ["COPY", "LINK", "MOVE", "Fault", "asked_for", "gather", "put"]


class Fault(Exception):
    def __init__(
        self, end: str, note: str, errno: str = "", hitch: tuple[str, str, str, str] | None = None
    ) -> None:
        super().__init__(note)
        self.end = end
        self.note = note
        self.errno = errno
        self.hitch = hitch
        """What core.files.Hitch is made of."""


def put(links: list[tuple[str, str]], sandbox: bytes, node: str, meanwhile: Meanwhile) -> bool:
    """Whether all are there. Raises Fault."""
    try:
        for _ in link_all(links, sandbox):
            if not meanwhile():
                return False
    except Gone as error:
        raise Fault("interrupted", f"{node}: {error}", "ENOENT") from error
    except OSError as error:
        note = f"its files cannot be put into its sandbox on {node}: {error.strerror}"
        raise Fault("interrupted", note, errno_name(error)) from error
    except Unfit as error:
        raise _unfit("stage-in", error) from error
    return True


def gather(
    patterns: list[str], directory: bytes, how: str, own: bool, to: str, node: str, meanwhile: Meanwhile
) -> list[tuple[str, int]] | None:
    """Paths and sizes; None: it was not to go on. `how` and `own` as of Gathering. Raises Fault."""
    gathering: Gathering | None = None
    try:
        try:
            gathering = Gathering(directory, how, own, os.fsencode(to))
        except (FileNotFoundError, NotADirectoryError):
            return []  # it has removed its own directory
        for _ in gathering.work(patterns):
            if not meanwhile():
                return None
        return gathering.gathered
    except OSError as error:
        what = gathering.taking if gathering is not None and gathering.taking else "what it left"
        note = f"{what} cannot be saved on {node}: {error.strerror}"
        raise Fault("interrupted", note, errno_name(error)) from error
    except Unfit as error:
        raise _unfit("stage-out", error) from error
    finally:
        if gathering is not None:
            gathering.close()


def _unfit(stage: str, error: Unfit) -> Fault:
    name = error.name.encode(errors="backslashreplace").decode()  # fit for any message
    note = f"{name}: {error.note}" if name else error.note
    return Fault("unstaged", note, "", (stage, "refused", name, note))


def asked_for(gathers: list[tuple[str, str]], end: str) -> list[str]:
    """Patterns of what is wanted after such an end: `finished`, `failed`, or another."""
    return [pattern for pattern, when in gathers if when in ("always", end)]
