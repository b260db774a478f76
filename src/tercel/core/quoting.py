"""What a task printed when something outside was broken, as its history tells it: one short line.

The history is kept longer than outputs are, and goes into snapshots. So what is known to be a secret in a URL is left out: who logs in,
and what is asked of a page.
"""

import re

QUOTED_MOST = 200
_LOOKED_AT = 2000
"""Characters, however many there are."""
_LOGIN = re.compile(r"(?<=://)[^\s/@'\"]*@")
_QUERY = re.compile(r"(?<=://)([^\s?'\"<>]*\?)[^\s'\"<>]+")


def quoted(text: str) -> str:
    """Without what a terminal would obey."""
    text = _QUERY.sub(r"\1…", _LOGIN.sub("", text[:_LOOKED_AT]))
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= QUOTED_MOST else line[: QUOTED_MOST - 1] + "…"
