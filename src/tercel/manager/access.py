"""Tokens and what they allow.

    admin    everything
    user     submit; see and change its own jobs; see the pool
    worker   connect as a worker, nothing else

A token is `<id>.<secret>`. Only the SHA-256 of the secret is kept: it has 256 bits of chance in it, so a slow hash
would protect nothing. A token that is revoked lets nobody in any more, and whoever is in by it is shown out.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tercel.core.errors import Forbidden, NotFound, UsageError
from tercel.core.model import JobRow, Role, Token

MAX_USER = 64
MAX_NOTE = 200


class Identity:
    """Who asks, and by which token."""

    __slots__ = ("role", "token", "user")

    def __init__(self, user: str, role: Role, token: str) -> None:
        self.user = user
        self.role = role
        self.token = token

    def may_see(self, row: JobRow) -> bool:
        return self.role is Role.ADMIN or (self.role is Role.USER and row.owner == self.user)

    @property
    def sees_only(self) -> str | None:
        """The one owner whose jobs it sees; None: all."""
        return None if self.role is Role.ADMIN else self.user

    def require(self, *roles: Role) -> None:
        if self.role not in roles:
            wanted = " or ".join(roles)
            raise Forbidden(f"this needs a token of role {wanted}; yours is of role {self.role}")


class Tokens:
    def __init__(self, tokens: Iterable[Token]) -> None:
        self._by_id = {token.id: token for token in tokens}
        self._own: set[str] = set()
        self._recognised: dict[str, Identity] = {}
        """Tokens seen and found good, so that a busy client costs one hash, not one per request."""

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> list[Token]:
        return sorted(self._by_id.values(), key=lambda token: token.created_at)

    def add(self, token: Token) -> None:
        self._by_id[token.id] = token

    def add_own(self, token: Token) -> None:
        """One of the manager's own user: not in the store but in a file of the data directory."""
        self.add(token)
        self._own.add(token.id)

    def remove(self, id: str) -> Token:
        if id in self._own:
            raise Forbidden(
                f"token {id} is the manager's own and would be back at its next start: to replace it, stop the "
                "manager, remove keys.json from its data directory and start it again",
                "token",
            )
        token = self._by_id.pop(id, None)
        if token is None:
            raise NotFound(f"there is no token {id[:40]!r}: see `tercel token list`", "token")
        self._recognised.clear()
        return token

    def identify(self, text: str) -> Identity | None:
        known = self._recognised.get(text)
        if known is not None:
            return known
        id, _, secret = text.partition(".")
        token = self._by_id.get(id)
        if token is None or not hmac.compare_digest(digest(secret), token.digest):
            return None
        identity = Identity(token.user, token.role, token.id)
        if len(self._recognised) < 10_000:
            self._recognised[text] = identity
        return identity


class Visits:
    """What is open for long in the name of each token: links, streams of events, outputs that are followed."""

    def __init__(self) -> None:
        self._open: dict[str, set[asyncio.Task[object]]] = {}

    @contextmanager
    def visit(self, token: str) -> Iterator[asyncio.Task[object]]:
        """The calling task may be cancelled at any time within."""
        task = asyncio.current_task()
        assert task is not None
        self._open.setdefault(token, set()).add(task)
        try:
            yield task
        finally:
            visitors = self._open[token]
            visitors.discard(task)
            if not visitors:
                del self._open[token]

    def end(self, token: str) -> None:
        for task in list(self._open.get(token, ())):
            task.cancel()

    def end_all(self) -> None:
        for token in list(self._open):
            self.end(token)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def issue(role: Role, user: str, note: str, now: float) -> tuple[Token, str]:
    """A new token and its text, which is shown once and not kept."""
    if not 0 < len(user) <= MAX_USER or not user.isprintable() or user != user.strip():
        raise UsageError(f"a token's user has 1 to {MAX_USER} printable characters, no blanks around", "user")
    if len(note) > MAX_NOTE or not note.isprintable():
        raise UsageError(f"a token's note has at most {MAX_NOTE} printable characters", "note")
    id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    token = Token(id=id, role=role, user=user, digest=digest(secret), created_at=now, note=note)
    return token, f"{id}.{secret}"
