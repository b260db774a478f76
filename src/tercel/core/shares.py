"""Who has had how much: the accounts that fair share goes by, and the caps on what is under way.

Stride scheduling over a decayed usage. A queue's *pass* is the processor time it has had lately, divided by its weight;
the queue with the lowest pass is next. Old usage fades by half every HALF_LIFE_S, so a queue that was idle comes first
for a while, but cannot save up more than that; and none is ever owed by one that is idle. Within a queue, tasks of equal
priority go by their users' passes, all of weight 1.

What fades is never touched: instead, what is charged later counts more (`Clock.worth`), which orders alike.

What is under way is charged a little in advance, so that not everything goes to one: as long as the job's tasks take,
up to ADVANCE_MOST_S; a second, if that is not known. Of what takes longer, or may, time is charged as it goes by. When it
has ended, what it really took counts instead.

Why not all of it in advance: what is not used yet would count as if it were, and the more so the longer tasks take. A
queue of long tasks would have less than its share: by the half of a task's length, in proportion to the time over which
usage is remembered (HALF_LIFE_S / ln 2). With a little in advance for all, that is a fraction of a percent.
"""

import math

from tercel.core.model import QueueRow

HALF_LIFE_S = 1800.0
FLEETING_S = 0.1
"""Within so short a time nothing fades."""
UNKNOWN_S = 1.0
"""What a task is charged in advance whose job has no record yet."""
ADVANCE_MOST_S = 5.0
"""What any task is charged in advance at most."""
_WORTH_MOST = 2.0**60
"""Beyond that, all accounts are brought down before numbers lose their precision."""


class Clock:
    """What a second of processor time is worth, the more the later it is."""

    __slots__ = ("_origin", "half_life_s", "memory_s", "now", "worth")

    def __init__(self, now: float, half_life_s: float = HALF_LIFE_S) -> None:
        self.half_life_s = half_life_s
        self.memory_s = half_life_s / math.log(2.0)
        """All the time there ever was, as far as it is remembered."""
        self.now = now
        self._origin = now
        self.worth = 1.0

    def worth_of(self, seconds: float) -> float:
        """Of so many seconds until now, the first of which have faded a little."""
        if seconds < FLEETING_S:
            return seconds * self.worth
        return self.memory_s * self.worth * -math.expm1(-seconds / self.memory_s)

    def move(self, by_s: float) -> None:
        """It was set: no time has passed."""
        self.now += by_s
        self._origin += by_s

    def advance(self, now: float) -> float:
        """Returns by what all accounts must be multiplied: 1, mostly."""
        if now > self.now:
            self.now = now
        self.worth = 2.0 ** min((self.now - self._origin) / self.half_life_s, 1000.0)
        if self.worth < _WORTH_MOST:
            return 1.0
        factor = 1.0 / self.worth
        self._origin, self.worth = self.now, 1.0
        return factor


class Account:
    """A queue's, or a user's within a queue."""

    __slots__ = ("mean_wall_s", "open_cpus", "open_worth", "under_way", "usage", "weight")

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self.usage = 0.0
        """Processor seconds, each worth what it was when it was charged."""
        self.open_cpus = 0.0
        """Of what is under way and is charged as time goes by ..."""
        self.open_worth = 0.0
        """... and the sum of cpus times what a second was worth when it was issued."""
        self.under_way = 0
        self.mean_wall_s: float | None = None
        """How long tasks of its last job took: what to expect of the next, as long as nothing better is known."""

    def passed(self, clock: Clock) -> float:
        """The lower, the sooner it is its turn."""
        going_on = self.open_cpus * clock.worth - self.open_worth
        return (self.usage + clock.memory_s * max(0.0, going_on)) / self.weight

    def charge(self, amount: float, clock: Clock) -> None:
        self.usage += amount * clock.worth

    def open(self, cpus: float, worth: float) -> None:
        """From when a second was worth so much."""
        self.open_cpus += cpus
        self.open_worth += cpus * worth

    def close(self, cpus: float, worth: float) -> None:
        self.open_cpus -= cpus
        self.open_worth -= cpus * worth

    def scale(self, factor: float) -> None:
        self.usage *= factor
        self.open_worth *= factor


class Queue:
    """A named line of jobs: its settings, its account and its users' accounts."""

    __slots__ = ("account", "backlog", "row", "standing_back", "users")

    def __init__(self, row: QueueRow) -> None:
        self.row = row
        self.account = Account(row.weight)
        self.users: dict[str, Account] = {}
        self.backlog = 0
        """Tasks that are ready or under way, of the jobs that are admitted."""
        self.standing_back: list[tuple[int, int]] = []
        """A heap of those that are not: priority and id."""

    @property
    def name(self) -> str:
        return self.row.name

    def set(self, row: QueueRow) -> None:
        self.row = row
        self.account.weight = row.weight

    def user(self, name: str) -> Account:
        account = self.users.get(name)
        if account is None:
            account = self.users[name] = Account()
        return account

    def room(self, user: Account) -> int:
        """How many more tasks of this user may be under way, as far as the queue is concerned."""
        row = self.row
        if row.paused:
            return 0
        room = UNLIMITED
        if row.max_running:
            room = row.max_running - self.account.under_way
        if row.user_max:
            room = min(room, row.user_max - user.under_way)
        return room

    @property
    def has_caps(self) -> bool:
        """On what is under way."""
        return bool(self.row.max_running or self.row.user_max)

    @property
    def admits(self) -> bool:
        """Whether one more job may join those that wait for workers."""
        return not self.row.max_queued or self.backlog < self.row.max_queued

    def scale(self, factor: float) -> None:
        for account in (self.account, *self.users.values()):
            account.scale(factor)


UNLIMITED = 2**60
