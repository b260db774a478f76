"""What an agent holds: jobs it was briefed on, lanes that are in use, attempts on their way through them."""

from tercel.core.declared import Declared, Leaving, Wanted
from tercel.core.model import Call, Needs, Program
from tercel.core.resources import Taken
from tercel.wire.messages import Brief

LANE_AHEAD_S = 0.05
"""How much work, by the job's mean, may wait inside a lane."""
LANE_AHEAD_MOST = 64
CALLS_AHEAD_MOST = 512
"""Of a function: an interpreter makes several of the shortest in the time that a refill takes."""


class Job:
    """What attempts of one job have in common, kept while any is held or the manager may offer more."""

    __slots__ = ("brought", "declared", "ended", "held", "id", "mean_wall_s", "needs", "program", "singly")

    def __init__(self, brief: Brief) -> None:
        self.id = brief.job
        self.program: Program = brief.program
        self.needs: Needs = brief.needs
        self.mean_wall_s: float | None = None
        self.brought: dict[str, str] = {}
        """Digests of what was brought for its tasks from URLs that did not say: the others get the same, if it is still here."""
        self.declared: Declared | None = None
        """What its tasks read and leave, once that is asked for."""
        self.held = 0
        self.ended = False
        self.singly = False
        """One in a lane at a time: a lane was lost, and the next time it must be clear under which of them."""

    def depth(self) -> int:
        """How many attempts a lane may contain, the running one included."""
        if self.mean_wall_s is None or self.program.cleanup or self.singly:
            return 1
        most = LANE_AHEAD_MOST if self.program.function is None else CALLS_AHEAD_MOST
        return 1 + min(most, int(LANE_AHEAD_S / max(self.mean_wall_s, 1e-6)))

    def inputs(self, task: int, line: str) -> list[Wanted]:
        """The files that a task of it reads. Raises UsageError."""
        return self._declared().inputs_of(self.id, task, line)

    def leavings(self, task: int, line: str) -> list[Leaving]:
        """What a task of it leaves. Raises UsageError."""
        return self._declared().outputs_of(self.id, task, line)

    def gathers(self, task: int, line: str) -> list[tuple[str, str]]:
        """The same, as a runner takes it."""
        return [(leaving.pattern, str(leaving.when)) for leaving in self.leavings(task, line)]

    def _declared(self) -> Declared:
        if self.declared is None:
            self.declared = Declared(self.program)
        return self.declared

    def values(self, call: Call | None) -> tuple[str, ...]:
        """The keys of all that this call of it takes."""
        if call is None:
            return ()
        function = self.program.function
        if function is not None and function.value:
            return tuple(dict.fromkeys((*call.values, function.value)))
        return tuple(dict.fromkeys(call.values)) if call.values else ()


class Lane:
    __slots__ = ("attempts", "env", "job", "lasting", "needs", "number", "taken")

    def __init__(self, number: int, job: Job) -> None:
        self.number = number
        self.job = job
        self.needs = job.needs
        self.taken: Taken = ()
        self.env: dict[str, str] = {}
        """What tells its attempts which pieces are theirs."""
        self.attempts: dict[int, Attempt] = {}
        self.lasting = -1
        """The attempt that was announced as running, if one was: nothing is put behind it."""


class Attempt:
    """Waiting for values, in the queue, or in a lane."""

    __slots__ = (
        "attempt",
        "call",
        "gathers",
        "job",
        "keys",
        "lane",
        "line",
        "links",
        "lost",
        "recalled",
        "task",
        "undo",
        "wanted",
        "withdrawn",
    )

    def __init__(self, job: Job, task: int, attempt: int, line: str, call: Call | None) -> None:
        self.job = job
        self.task = task
        self.attempt = attempt
        self.line = line
        self.call = call
        self.keys = job.values(call)
        self.links: list[tuple[str, str]] = []
        """Files that it reads, once they are here: (path in the cache, name in its sandbox)."""
        self.gathers: list[tuple[str, str]] = []
        """What is taken out of its sandbox when it has ended: (pattern, after which end)."""
        self.undo: list[str] = []
        """What earlier attempts had delivered, to be removed before this one is begun."""
        self.lost: list[int] = []
        """Attempts of its task that were lost, perhaps while they delivered."""
        self.lane: Lane | None = None
        self.wanted = True
        """False: the manager dropped it; its report goes nowhere."""
        self.recalled = False
        """The manager has another use for it, or wants its end: should it leave its lane unbegun, it is not kept."""
        self.withdrawn = False
        """The runner was asked not to begin it."""
