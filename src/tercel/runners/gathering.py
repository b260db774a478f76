"""Takes what an attempt has left out of its directory: finds what patterns name, then moves or copies it.

    its directory --find: regular files only--> paths --rename, link or copy--> gather_dir/<path>

No link is followed on the way to a file. One that is itself met by a pattern stands for the file it leads to, if that is in
the same directory and regular; any other is passed over, as is all that is neither file nor directory.
"""

# ruff: noqa: PTH103, PTH115
# (Descriptors, and pathlib would double a spawner's start-up time.)

import errno
import os
import stat
from collections.abc import Iterable, Iterator

from tercel.runners.below import DIRECTORY, Below, enter, make
from tercel.runners.copying import NO_LINK, copy
from tercel.runners.globs import Part, parts_of
from tercel.runners.linking import Unfit
from tercel.runners.sandbox import open_own

FILES_MOST = 100_000
LOOKED_AT_MOST = 5_000_000
_LINKS_MOST = 8
"""From one to the next."""
_PATH_MOST_BYTES = 4095
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors of looking for a file where there is none, or none any more, or only by way of a link."""
_EVERYTHING = -1
"""In the place of a part's number: all files below."""

MOVE, LINK, COPY = "move", "link", "copy"
"""What becomes of the files: nobody needs them where they are; somebody may look at them; somebody may write to them."""


class _Found:
    """A file: where it is, and whether it has other names."""

    __slots__ = ("alone", "path")

    def __init__(self, path: str, status: os.stat_result) -> None:
        self.path = path
        self.alone = status.st_nlink == 1


class Gathering:
    """Of one attempt. `close` it, however it ends."""

    def __init__(self, directory: bytes, how: str, own: bool, to: bytes) -> None:
        """`own`: the directory is a sandbox, in which nothing may stay out of reach. Raises OSError if it is not there."""
        if own:
            root = open_own(None, directory)
        else:
            root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._path = os.readlink(b"/proc/self/fd/%d" % root)
        self._source = Below(root, open_own if own else enter)
        self._how = how
        self._to = to
        self._target: Below | None = None
        self._found: dict[str, _Found] = {}
        """By the path that it is to have."""
        self._looked_at = 0
        self.taking = ""
        """The path of what is being taken."""
        self.gathered: list[tuple[str, int]] = []
        """Paths and sizes of what was taken."""

    def close(self) -> None:
        self._source.close()
        if self._target is not None:
            self._target.close()

    def work(self, patterns: Iterable[str]) -> Iterator[None]:
        """Piece by piece. Raises Unfit, and OSError."""
        for pattern in dict.fromkeys(patterns):
            parts = parts_of(pattern)
            if parts is None:
                raise Unfit(
                    "it must be a path or a pattern below the task's directory, without .. in it", pattern
                )
            yield from self._find(parts)
        if not self._found:
            return
        os.makedirs(self._to, 0o700, exist_ok=True)
        self._target = Below(os.open(self._to, DIRECTORY), make)
        # What goes by the name of a link first: its file may be among the others, and is then no longer in its place.
        for path, found in sorted(self._found.items(), key=lambda item: item[0] == item[1].path):
            yield from self._take(path, found, self._target)
            yield

    # -- finding ------------------------------------------------------------------------------------------

    def _find(self, parts: tuple[Part, ...]) -> Iterator[None]:
        """From directory to directory, each with the part that names in it must match."""
        todo = [("", 0)]
        seen = set(todo)
        while todo:
            directory, at = todo.pop()
            for step in self._below(directory, at, parts):
                if step is not None and step not in seen:  # `**/**` leads to most of them more than once
                    seen.add(step)
                    todo.append(step)
                yield
            yield

    def _below(self, directory: str, at: int, parts: tuple[Part, ...]) -> Iterator[tuple[str, int] | None]:
        """Note each file; returns each directory that is to be looked at, and for which part."""
        part = parts[at] if at != _EVERYTHING else None
        is_last = part is None or at + 1 == len(parts)
        inside = at + 1 if not is_last else None
        if part is None or (part.is_plain and is_last):
            inside = _EVERYTHING
        elif part.any_depth:
            inside = at
            if not is_last:
                yield directory, at + 1
        for name, is_directory in self._entries(directory, part):
            path = f"{directory}/{name}" if directory else name
            if is_directory:
                if inside is not None:
                    yield path, inside
            elif is_last:
                self._add(path)
                yield None

    def _entries(self, directory: str, part: Part | None) -> list[tuple[str, bool]]:
        """That match: their names, and whether they are directories."""
        try:
            fd = self._source.at(_encoded(directory))
            if part is not None and part.is_plain:
                mode = os.stat(_encoded(part.text), dir_fd=fd, follow_symlinks=False).st_mode
                return [(part.text, stat.S_ISDIR(mode))]
            with os.scandir(fd) as entries:
                found = [(_decoded(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            return []
        self._looked_at += len(found)
        if self._looked_at > LOOKED_AT_MOST:
            raise Unfit(f"more than {LOOKED_AT_MOST:,} files and directories would have to be looked at")
        return [entry for entry in found if part is None or part.matches(entry[0])]

    def _add(self, path: str) -> None:
        found = self._resolved(path)
        if found is None:
            return
        if not _is_unicode(path):
            raise Unfit("its name is no Unicode", _encoded(path).decode(errors="backslashreplace"))
        if len(self._to) + 1 + len(path.encode()) > _PATH_MOST_BYTES:
            raise Unfit("its path is too long", path)
        self._found[path] = found
        if len(self._found) > FILES_MOST:
            raise Unfit(f"more than {FILES_MOST:,} files match what is to be delivered: pack them into one")

    def _resolved(self, path: str) -> _Found | None:
        """The regular file there, or where a link there leads to, if that is in the directory."""
        for _ in range(_LINKS_MOST):
            directory, _, name = _encoded(path).rpartition(b"/")
            try:
                fd = self._source.at(directory)
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    return _Found(path, status)
                if not stat.S_ISLNK(status.st_mode):
                    return None
                target = os.readlink(name, dir_fd=fd)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                return None
            if (inside := self._inside(directory, target)) is None:
                return None
            path = _decoded(inside)
        return None

    def _inside(self, directory: bytes, target: bytes) -> bytes | None:
        """What a link in that directory leads to, seen from the root; None: it leads out of that."""
        if target.startswith(b"/"):
            if not target.startswith(self._path + b"/"):
                return None
            directory, target = b"", target[len(self._path) + 1 :]
        parts = directory.split(b"/") if directory else []
        for part in target.split(b"/"):
            if part == b"..":
                if not parts:
                    return None
                parts.pop()
            elif part not in (b"", b"."):
                parts.append(part)
        return b"/".join(parts) or None

    # -- taking -------------------------------------------------------------------------------------------

    def _take(self, path: str, found: _Found, target: Below) -> Iterator[None]:
        self.taking = path
        from_directory, _, from_name = _encoded(found.path).rpartition(b"/")
        to_directory, _, to_name = path.encode().rpartition(b"/")
        from_fd, to_fd = self._source.at(from_directory), target.at(to_directory)
        try:
            if not self._taken_whole(from_fd, from_name, to_fd, to_name, found.alone, path == found.path):
                yield from self._copy(from_fd, from_name, to_fd, to_name)
            status = os.stat(to_name, dir_fd=to_fd, follow_symlinks=False)
        except FileNotFoundError:
            return  # somebody has removed it meanwhile
        if not stat.S_ISREG(status.st_mode):  # somebody has put it there meanwhile
            os.unlink(to_name, dir_fd=to_fd)
            return
        if not status.st_mode & stat.S_IRUSR:
            os.chmod(to_name, stat.S_IMODE(status.st_mode) | stat.S_IRUSR, dir_fd=to_fd)
        self.gathered.append((path, status.st_size))

    def _taken_whole(
        self, from_fd: int, from_name: bytes, to_fd: int, to_name: bytes, alone: bool, by_own_name: bool
    ) -> bool:
        """Without a copy, if that can be. A file with other names may be one of the cache: nobody else may get at that."""
        if self._how == COPY or not alone:
            return False
        try:
            if self._how == MOVE and by_own_name:
                os.rename(from_name, to_name, src_dir_fd=from_fd, dst_dir_fd=to_fd)
            else:
                _make_room(to_fd, to_name)
                os.link(from_name, to_name, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            return False
        return True

    def _copy(self, from_fd: int, from_name: bytes, to_fd: int, to_name: bytes) -> Iterator[None]:
        _make_room(to_fd, to_name)
        if not (yield from copy(from_name, from_fd, to_name, to_fd, None)):
            raise FileNotFoundError


def _make_room(directory: int, name: bytes) -> None:
    """For an attempt whose gathering was cut short, and that is gone on with."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass


def _decoded(name: str | bytes) -> str:
    """As UTF-8, whatever the system's own encoding is."""
    return os.fsencode(name).decode(errors="surrogateescape")


def _encoded(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
