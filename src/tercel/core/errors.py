"""Errors sorted by blame.

    TercelError
      +- UsageError        the caller's mistake: the same request fails again
      |    +- NotFound     names something that is not there
      |    +- Forbidden    is not the caller's to do
      |    +- Conflict     something else is there under that name
      +- PeerError         the other process broke the protocol
      +- PassingFault      retrying helps
           +- StoreFull    no room on the manager's disk
           +- Unreachable  nobody answers at the address

A task's failure is a value (an Outcome), never an exception.
"""


class TercelError(Exception):
    """Something Tercel cannot do; the message says what, to what, and what to do about it."""


class UsageError(TercelError):
    """The caller's mistake. `field` names the part of the request that is wrong, if one is."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class NotFound(UsageError):
    """The request names something that does not exist (or is not the caller's to see)."""


class Forbidden(UsageError):
    """The caller's token does not allow this."""


class Conflict(UsageError):
    """What the request would put somewhere is another thing than is there already."""


class PeerError(TercelError):
    """The process at the other end sent what the protocol does not allow."""


class PassingFault(TercelError):
    """Something outside is broken for now; the same request may succeed later."""


class StoreFull(PassingFault):
    """The manager's disk has no room: nothing new is accepted, nothing accepted is lost."""


class Unreachable(PassingFault):
    """No manager answers at the address."""
