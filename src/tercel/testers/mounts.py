"""Where file systems are mounted, from the kernel's own list: to read it touches none of them."""

import posixpath
import re
from pathlib import Path

_MOUNTINFO = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def mount_points() -> set[str]:
    """Empty where the kernel does not tell."""
    try:
        lines = _MOUNTINFO.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()
    return {_ESCAPED.sub(lambda match: chr(int(match[1], 8)), line.split()[4]) for line in lines}


def mount_of(path: str) -> str:
    """The file system that a path is on, as far as its text says: a link may lead elsewhere."""
    points = mount_points()
    while path not in points and path != "/":
        path = posixpath.dirname(path)
    return f"the file system at {path}"
