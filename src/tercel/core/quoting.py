"""What a task printed when something outside was broken, as its history tells it: one short line.

The history is kept longer than outputs are, and goes into snapshots. So what is known to be a secret is left out: who logs in to a
URL, what is asked of a page, and what a traced command line (`sh -x`) gives its program beside URLs.
"""

QUOTED_MOST = 200
_LOOKED_AT = 2000
"""Characters, however many there are."""
_SECRET = ("password", "passwd", "pwd", "pass", "secret", "token", "key")
"""So end the names of variables and parameters that have one."""


def quoted(text: str) -> str:
    """Without what a terminal would obey."""
    words = [word for line in text[:_LOOKED_AT].splitlines() for word in _words(line)]
    line = " ".join("".join(c if c.isprintable() else " " for c in " ".join(words)).split())
    return line if len(line) <= QUOTED_MOST else line[: QUOTED_MOST - 1] + "…"


def _words(line: str) -> list[str]:
    words = line.split()
    if len(words) > 2 and not words[0].strip("+"):
        urls = [word.strip("'\"") for word in words[2:] if "://" in word]
        words = [*words[:2], "…", *urls]
    return [_without_secrets(word) for word in words]


def _without_secrets(word: str) -> str:
    name, is_set, _ = word.partition("=")
    if is_set and "/" not in name and name.lower().endswith(_SECRET):
        return f"{name}=…"
    scheme, is_url, rest = word.partition("://")
    if is_url:  # to the last @: there may be more in a password, and slashes
        word = f"{scheme}://{rest.rpartition('@')[2]}"
    for sign in "?#":
        page, _, asked = word.partition(sign)
        if "/" in page and asked.strip("'\"<>"):
            closing = asked[-1] if asked[-1] in "'\"<>" else ""
            word = f"{page}{sign}…{closing}"
    return word
