"""What travels between client and manager about queues, and about who may speak with it. See api."""

import msgspec

from tercel.core.model import Role


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to change about a queue (or be other than the defaults, of a new one); None stays as it is."""

    weight: float | None = None
    max_running: int | None = None
    max_queued: int | None = None
    user_max: int | None = None
    paused: bool | None = None
    reason: str = ""
    """Why it is paused."""


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    weight: float
    max_running: int
    max_queued: int
    user_max: int
    paused: str
    """By whom and why, if it is."""
    jobs: int
    """Unfinished ones."""
    ready: int
    waiting: int
    running: int
    """Under way: offered or running."""
    usage: float
    """Processor seconds it has had lately: what is long ago counts less."""
    share: float
    """Its part of what all queues have had lately, 0 to 1."""
    fair: float
    """The part it should have of what those with unfinished jobs get."""


class QueueList(msgspec.Struct, frozen=True, kw_only=True):
    queues: list[QueueView]


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Role
    user: str
    note: str = ""


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    role: Role
    user: str
    created_at: float
    note: str


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    role: Role
    user: str
    secret: str
    """Shown once, never kept."""


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[TokenView]
