"""URLs as jobs name them: taken apart, put together, and shown without secrets.

file:///data/x · /data/x                            this node's own disks
http://… · https://…                                a query is a part of the name; blanks are quoted
sftp://[user@]host[:port]/path · …/~/path           below the user's home
s3://bucket/key, and all that fsspec knows          as fsspec reads them: nothing is unquoted
tercel:blake3:…                                     content that the manager keeps
"""

import hashlib
import re
from urllib.parse import quote, unquote

import msgspec

from tercel.core.files import KEPT, Trouble
from tercel.data.contract import TransferFailed

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<netloc>[^/]*)(?P<path>/.*)?", re.DOTALL)
_NETLOC = re.compile(
    r"(?:(?P<user>[^@:]*)(?P<password>:[^@]*)?@)?(?P<host>\[[^\]]*\]|[^:@]*)(?::(?P<port>[0-9]{1,5}))?"
)
_SECRETS = re.compile(r"(?<=://)[^/\s@]*@|(?<=\?)[^\s'\"]+")
_NAME_MOST_BYTES = 255
"""Of one part of a path, on nearly every file system."""
NOTE_MOST = 300


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """One that was taken apart. Its path is as it was written: who unquotes does so."""

    text: str
    scheme: str
    user: str = ""
    host: str = ""
    port: int = 0
    """0: the usual one."""
    path: str = ""


def parse(text: str) -> Url:
    """TransferFailed (REFUSED) if it is no URL, has a password in it, or leads astray."""
    if text.startswith("/"):
        return _sound(Url(text=text, scheme="file", path=text), text)
    if text.startswith(KEPT):
        return Url(text=text, scheme="tercel", path=text.removeprefix(KEPT))
    match = _URL.fullmatch(text)
    place = _NETLOC.fullmatch(match["netloc"]) if match is not None else None
    if match is None or place is None:
        raise _refused(
            text, "is no URL; write one as https://store.lab/x, s3://bucket/x, or an absolute path"
        )
    if place["password"] is not None:
        raise _refused(
            text,
            "has a password in it, which everybody who sees the job would see; name it to the worker: in "
            "~/.netrc, ~/.aws, the environment or an agent of SSH",
        )
    scheme = match["scheme"].lower()
    path = unquote(match["path"] or "") if scheme in ("file", "sftp", "ssh") else match["path"] or ""
    parsed = Url(
        text=text,
        scheme=scheme,
        user=place["user"] or "",
        host=place["host"].strip("[]"),
        port=int(place["port"] or 0),
        path=path,
    )
    return _sound(parsed, text)


def _sound(url: Url, text: str) -> Url:
    if ".." in re.split(r"[/\\]", url.path.partition("?")[0]):
        raise _refused(text, "has .. in its path, which may lead anywhere")
    if "\0" in url.path:
        raise _refused(text, "has a zero byte in its path, which no storage takes")
    return url


def _refused(text: str, why: str) -> TransferFailed:
    return TransferFailed(Trouble.REFUSED, shown(text), note_of(f"{shown(text)} {why}"))


def shown(text: str) -> str:
    """Without what may be a secret: who asks, and whatever stands after the `?`."""
    return _printable(_SECRETS.sub(_hidden, text))


def note_of(text: str) -> str:
    """One short line that tells no secret and does nothing to anybody's terminal."""
    line = shown(text)
    return line if len(line) <= NOTE_MOST else line[: NOTE_MOST - 1] + "…"


def _hidden(match: re.Match[str]) -> str:
    if not match[0].endswith("@"):
        return "…"
    user, colon, _ = match[0].partition(":")
    return "" if colon else user  # a user's name alone is no secret


def _printable(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text[:4000]).split())


def below(directory: str, name: str, unquotes: bool) -> str:
    """The URL of a file of that name in a directory, which ends with `/`."""
    is_path = directory.startswith("/") or not unquotes
    return directory + (name if is_path else quote(name))


def temporary(url: str, tag: str, unquotes: bool) -> str:
    """Beside it, and no other try's: `.name.tag.part`."""
    directory, _, name = url.rpartition("/")
    is_path = url.startswith("/") or not unquotes
    made = f".{name if is_path else unquote(name)}.{tag}.part"
    if len(made.encode(errors="surrogateescape")) > _NAME_MOST_BYTES:
        # A long name leaves no room for more: what tells it from others is put in its place.
        digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:32]
        made = f".{digest}.{tag}.part"
    return f"{directory}/{made if is_path else quote(made)}"
