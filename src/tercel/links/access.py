"""How processes of one user on one machine find a manager and prove who they are: the access file.

A manager writes it when it listens and removes it when it stops; clients read it, so that nobody types a token.
It has mode 0600; a file that others could read, or that somebody else wrote, is refused. What is given by option
or by environment comes first:

    address   --server, TERCEL_SERVER, access file
    token     argument, TERCEL_TOKEN, TERCEL_TOKEN_FILE, access file (if it is of that address)
"""

import os
import stat
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tercel.core.errors import Unreachable, UsageError
from tercel.links.places import data_dir, runtime_dir

FILE_NAME = "access.json"
DEFAULT_PORT = 7717
_MOST_BYTES = 64 * 1024


class NoToken(UsageError):
    """A manager is named, and nothing tells a token for it."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"there is no token for {url}: put it into a file of mode 0600 and set TERCEL_TOKEN_FILE "
            "(an admin makes one with: tercel token create)"
        )
        self.url = url


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What the access file says."""

    url: str
    token: str
    """Of the manager's own user, as admin."""
    worker_token: str
    pid: int
    """Of the manager."""
    data: str
    """The manager's directory."""
    embedded: bool = False
    """Inside a `tercel run`, and gone with it."""


def write_access(access: Access, path: Path | None = None) -> Path:
    """Atomically: a reader finds the old file or the new one, never half of one."""
    path = path or runtime_dir() / FILE_NAME
    write_secret(path, msgspec.json.encode(access))
    return path


def read_access(path: Path) -> Access | None:
    """None if there is no such file; UsageError if it cannot be trusted or understood."""
    try:
        content = _read_private(path, whose="access file")
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=Access)
    except msgspec.MsgspecError:
        raise UsageError(f"access file {path} is damaged: remove it and start the manager again") from None


def remove_access(access: Access, path: Path) -> None:
    """Remove the file unless it is by now another manager's."""
    try:
        if read_access(path) == access:
            path.unlink(missing_ok=True)
    except (UsageError, OSError):
        pass  # it is not ours, so not ours to remove


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def read_token(path: Path) -> str:
    """The token in a file: its first line. Like ssh, refuses one's own file if others can read it."""
    try:
        content = _read_private(path, whose="token file", of_others=True)
    except FileNotFoundError:
        raise UsageError(f"token file {path} does not exist") from None
    token = content.decode(errors="replace").strip().partition("\n")[0].strip()
    if not token:
        raise UsageError(f"token file {path} is empty")
    return token


def find_server(server: str | None, token: str | None, *, worker: bool = False) -> tuple[str, str]:
    """(address, token) of the manager to speak to. `worker` asks for the token that workers use.

    Raises Unreachable if no manager is named and none runs here, NoToken if one is named without.
    """
    token = token or _token_from_environment()
    server = server or os.environ.get("TERCEL_SERVER")
    access = None if server and token else current_access()
    if server:
        url = normal_url(server)
        if token:
            return url, token
        if access is not None and access.url == url:
            return url, access.worker_token if worker else access.token
        raise NoToken(url)
    if access is None:
        raise Unreachable(
            "no manager runs here: start one with `tercel up`, or name one with --server URL or TERCEL_SERVER"
        )
    if not _alive(access):
        raise Unreachable(
            f"the manager of {access.data} (pid {access.pid}) is gone: start it again with `tercel up`, "
            "or name another with --server URL"
        )
    return access.url, token or (access.worker_token if worker else access.token)


def current_access() -> Access | None:
    """A manager without a runtime directory (started by cron, say) wrote its file into the data directory."""
    files = [read_access(directory / FILE_NAME) for directory in dict.fromkeys((runtime_dir(), data_dir()))]
    found = [access for access in files if access is not None]
    return next(filter(_alive, found), found[0] if found else None)


def normal_url(text: str) -> str:
    """`host`, `host:7717`, `http://host:7717/` -> `http://host:7717`."""
    wrong = UsageError(f"{text!r} is not a manager's address: write http://host:{DEFAULT_PORT}", "server")
    if "://" not in text:
        parts = urlsplit(f"http://{text}")
        try:
            text = f"http://{text}" if parts.port else f"http://{text.rstrip('/')}:{DEFAULT_PORT}"
        except ValueError:
            raise wrong from None
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        raise wrong from None
    if not valid or parts.query or parts.fragment or parts.username or not text.isprintable() or " " in text:
        raise wrong
    return text.rstrip("/")


def is_loopback(url: str) -> bool:
    return is_loopback_host(urlsplit(url).hostname or "")


def is_loopback_host(host: str) -> bool:
    """Whether this name or number is of this very machine, and of no other."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _alive(access: Access) -> bool:
    """Whether a token may be sent to the address of an access file.

    On this machine a port whose manager is gone may by now be another user's, so its process must be there and
    be ours. A manager elsewhere (the file lies in a home directory that several machines share) is simply tried.
    """
    if not is_loopback(access.url):
        return True
    try:
        os.kill(access.pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def _token_from_environment() -> str | None:
    if token := os.environ.get("TERCEL_TOKEN"):
        return token
    path = os.environ.get("TERCEL_TOKEN_FILE")
    return read_token(Path(path)) if path else None


def _read_private(path: Path, *, whose: str, of_others: bool = False) -> bytes:
    """Checks the open file, not the name, so that nothing can be swapped in between."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            state = os.fstat(handle)
            mine = state.st_uid == os.getuid()
            if not stat.S_ISREG(state.st_mode) and not (of_others and stat.S_ISFIFO(state.st_mode)):
                raise UsageError(f"{whose} {path} is not a regular file")
            if not mine and not of_others:
                raise UsageError(f"{whose} {path} belongs to somebody else: remove it or set XDG_RUNTIME_DIR")
            if mine and state.st_mode & 0o077:
                raise UsageError(f"{whose} {path} can be read by others: chmod 600 {path}")
            return file.read(_MOST_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {whose} {path}: {error.strerror}") from None
