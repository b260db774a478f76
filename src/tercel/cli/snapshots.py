"""What the commands about snapshots have in common."""

import re
import time

_OWN = re.compile(r"@([0-9]{1,9})")


def own_number(text: str) -> int:
    """3 of @3, a snapshot that the manager took by itself; 0 if it is none."""
    match = _OWN.fullmatch(text)
    return int(match[1]) if match is not None else 0


def moment(at: float) -> str:
    """In the time of whoever looks."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
