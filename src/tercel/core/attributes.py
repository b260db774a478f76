"""What `--where` and `--rank` may ask about: every attribute of workers and tasks, in one table.

The checker of expressions (`core.cel`), the reference page (docs/generate.py) and `explain` draw from it. A name that is
not in the table is a mistake, found at submission; a name that is in it may still be missing of a worker (no GPU, no
time limit), which is then never matched by a clause that asks about it.
"""

from enum import StrEnum

import msgspec


class Type(msgspec.Struct, frozen=True):
    """The type of an expression. Whole numbers and doubles mix freely: both are numbers."""

    kind: str
    element: "Type | None" = None
    """Of a list's elements, or of a map's values (its keys are text)."""

    @property
    def is_number(self) -> bool:
        return self.kind in ("int", "double")

    @property
    def a(self) -> str:
        """`a number`, `text`: as the end of a sentence."""
        return f"a {self}" if self.is_number or self.element is not None else str(self)

    def __str__(self) -> str:
        """In users' words."""
        if self.kind == "list":
            return f"list of {self.element}" if self.element != NOTHING else "list"
        if self.kind == "map":
            return f"map from text to {self.element}"
        return _WORDS[self.kind]


_WORDS = {
    "bool": "true/false",
    "int": "number",
    "double": "number",
    "text": "text",
    "null": "null",
    "nothing": "nothing",
}

BOOL = Type("bool")
INT = Type("int")
DOUBLE = Type("double")
TEXT = Type("text")
NULL = Type("null")
NOTHING = Type("nothing")
"""Of what is in an empty list."""
TEXTS = Type("list", TEXT)
COUNTS = Type("map", DOUBLE)

MAX_TEXT = 1000
"""Characters of an attribute, at most; what is let in is shorter."""


class Of(StrEnum):
    """What an attribute belongs to, and so how long its value holds."""

    FIXED = "fixed"
    """A worker, for its whole life."""
    LIVE = "live"
    """A worker, and it changes while the worker runs."""
    PAIR = "pair"
    """A task together with a worker."""
    JOB = "job"
    """A job: the same for all its tasks."""
    TASK = "task"
    """A single task."""


class Attribute(msgspec.Struct, frozen=True):
    name: str
    type: Type
    doc: str
    of: Of
    unit: str = ""
    """`bytes` or `s`, if the number has one."""
    longest: tuple[int, int] = (1, MAX_TEXT)
    """How many values it has at most, and how many characters each if they are text."""


_FIXED = [
    Attribute("worker.name", TEXT, "its name in the pool", Of.FIXED),
    Attribute("worker.node", TEXT, "the machine it runs on", Of.FIXED),
    Attribute("worker.site", TEXT, "the place it was started for: `tercel worker --site`", Of.FIXED),
    Attribute("worker.os", TEXT, 'operating system: `"linux"`, `"darwin"`, …', Of.FIXED),
    Attribute("worker.arch", TEXT, 'processor: `"x86_64"`, `"aarch64"`, …', Of.FIXED),
    Attribute("worker.kernel", TEXT, "version of the operating system's kernel", Of.FIXED),
    Attribute("worker.python", TEXT, "version of the Python it runs with", Of.FIXED),
    Attribute("worker.version", TEXT, "version of Tercel", Of.FIXED),
    Attribute("worker.containers", TEXTS, "the container engines it found", Of.FIXED, longest=(1000, 100)),
    Attribute("worker.disk", INT, "size of the disk it works on", Of.FIXED, "bytes"),
    Attribute("worker.speed", DOUBLE, "speed of a core; 1.0 is the reference core", Of.FIXED),
    Attribute("worker.gpus", INT, "how many GPUs it has; 0 if none", Of.FIXED),
    Attribute("worker.gpu.mem", INT, "memory of its largest GPU; missing if it has none", Of.FIXED, "bytes"),
    Attribute("worker.gpu.model", TEXT, "model of its largest GPU; missing if it has none", Of.FIXED),
]

_LIVE = [
    Attribute(
        "worker.tags",
        TEXTS,
        "its tags; some may be added or removed while it runs",
        Of.LIVE,
        longest=(10_000, 100),
    ),
    Attribute("worker.cpus", DOUBLE, "cores it gives to tasks in all", Of.LIVE),
    Attribute("worker.cpus_free", DOUBLE, "cores that are idle, as measured", Of.LIVE),
    Attribute("worker.mem", INT, "memory it gives to tasks in all", Of.LIVE, "bytes"),
    Attribute("worker.mem_free", INT, "memory that is free, as measured", Of.LIVE, "bytes"),
    Attribute("worker.disk_free", INT, "free space on the disk it works on", Of.LIVE, "bytes"),
    Attribute("worker.load", DOUBLE, "the node's load average", Of.LIVE),
    Attribute("worker.resource", COUNTS, "all its countable resources by name", Of.LIVE, longest=(1000, 1)),
    Attribute("worker.time_left", DOUBLE, "time until its limit; missing if it has none", Of.LIVE, "s"),
    Attribute("worker.tasks", INT, "how many tasks it holds", Of.LIVE),
]

_PAIR = [
    Attribute(
        "worker.cached_bytes",
        INT,
        "how much it already has of the data that the task takes (values of Python functions)",
        Of.PAIR,
        "bytes",
    ),
]

_TASK = [
    Attribute("task.id", INT, "the task's number in its job", Of.TASK),
]

_JOB = [
    Attribute("task.job", INT, "the job's number", Of.JOB),
    Attribute("task.name", TEXT, "the job's name", Of.JOB),
    Attribute("task.owner", TEXT, "who submitted the job", Of.JOB),
    Attribute("task.queue", TEXT, "the queue the job is in", Of.JOB),
    Attribute("task.cpus", DOUBLE, "cores a task needs", Of.JOB),
    Attribute("task.gpus", DOUBLE, "GPUs a task needs", Of.JOB),
    Attribute("task.mem", INT, "memory a task needs", Of.JOB, "bytes"),
    Attribute("task.priority", INT, "the job's priority", Of.JOB),
    Attribute("task.time_limit", DOUBLE, "a task's time limit; missing if it has none", Of.JOB, "s"),
]

ATTRIBUTES: dict[str, Attribute] = {
    attribute.name: attribute for attribute in [*_FIXED, *_LIVE, *_PAIR, *_JOB, *_TASK]
}

VERSIONS = {"worker.python": "3.11", "worker.kernel": "6.8", "worker.version": "0.4"}
"""Attributes that are texts of numbers and dots, each with how one may begin. As texts they have no order."""
