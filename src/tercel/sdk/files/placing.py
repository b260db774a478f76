"""Keys that say where and how tasks run: part of the table in `keys`."""

from tercel.core.errors import UsageError
from tercel.core.model import Keep
from tercel.core.placement import (
    ISOLATIONS,
    MAX_AMOUNT,
    MAX_GROWTH,
    MAX_PIDS,
    RESOURCE,
    TAG,
    check_resource_name,
    check_tags,
    parse_warning,
)
from tercel.sdk.files.key import SIZE, TIME, Key, number, size_of, time_of, whole
from tercel.sdk.files.kinds import AnyOf, ListOf, Number, TableOf, Text


def _resource(text: str) -> dict[str, float]:
    """An empty text names none."""
    if not text.strip():
        return {}
    name, equals, amount = text.partition("=")
    check_resource_name(name, "")
    return {name: number(amount) if equals else 1.0}


def _tags(value: str | list[str]) -> tuple[str, ...]:
    every = value if isinstance(value, list) else split_tags(value)
    return tuple(dict.fromkeys(every))


def split_tags(text: str) -> list[str]:
    """`STAR,Python3.11`; an empty text names none."""
    tags = [tag.strip() for tag in text.split(",")] if text.strip() else []
    check_tags(tags, "")
    return tags


def _check_tag(tag: str) -> None:
    check_tags([tag], "")


def _check_warning(text: str) -> None:
    parse_warning(text.upper())


def _check_image(text: str) -> None:
    if not text.strip():
        raise UsageError("the name of an image is needed")


_TAGS = AnyOf((Text(rf"\s*|\s*{TAG}(\s*,\s*{TAG})*\s*", split_tags), ListOf(Text(TAG, _check_tag))))

PLACING = (
    Key(
        "gpus",
        Number(0, MAX_AMOUNT),
        "GPUs per task, each its own; 0.5: half of one that others share.",
        "gpus",
        flags=("--gpus",),
        metavar="N",
        from_text=number,
        default="0",
    ),
    Key(
        "resources",
        TableOf(Number(0, MAX_AMOUNT), names=RESOURCE),
        "Other things of workers per task: licence.matlab=1; repeatable.",
        "resources",
        flags=("--resource",),
        metavar="NAME[=N]",
        from_text=_resource,
        repeatable=True,
    ),
    Key(
        "requires",
        _TAGS,
        "Tags that a worker must have: STAR,Python3.11; repeatable.",
        "requires",
        _tags,
        flags=("--requires",),
        metavar="TAGS",
        from_text=split_tags,
        repeatable=True,
    ),
    Key(
        "where",
        Text(),
        "Only on workers for which this is true: 'worker.mem_free >= 8*GB && worker.os == \"linux\"'.",
        "where",
        flags=("--where",),
        metavar="EXPR",
    ),
    Key(
        "rank",
        Text(),
        "Among those, where this number is highest: 'worker.speed'.",
        "rank",
        flags=("--rank",),
        metavar="EXPR",
    ),
    Key(
        "mem_growth",
        Number(0, MAX_GROWTH),
        "Run tasks that used more than --mem again with so many times as much (1.5; above 1), instead of failing.",
        "mem_growth",
        flags=("--mem-growth",),
        metavar="FACTOR",
        from_text=number,
    ),
    Key(
        "pids",
        Number(0, MAX_PIDS, whole=True),
        "Limit of processes and threads per task.",
        "pids",
        flags=("--pids",),
        metavar="N",
        from_text=whole,
    ),
    Key(
        "disk",
        SIZE,
        "Limit of what a task writes into its sandbox, and of each file that it writes anywhere: 1G.",
        "disk_bytes",
        size_of("disk"),
        flags=("--disk",),
        metavar="SIZE",
    ),
    Key(
        "warn_signal",
        Text(r"\s*(SIG)?[A-Za-z0-9]+@\d{1,9}(\.\d{1,3})?\s*", _check_warning),
        "Sent before a task is ended for want of time, so many seconds ahead: USR1@120.",
        "warn_signal",
        str.upper,
        flags=("--warn-signal",),
        metavar="NAME@SECONDS",
    ),
)
"""What a task needs and may use; stands behind cpus, mem and time."""

CLEARING = (
    Key(
        "isolate",
        Text(enum=ISOLATIONS),
        "Keep tasks from changing the system and from seeing others: bwrap.",
        "isolate",
        flags=("--isolate",),
        metavar="bwrap",
    ),
    Key(
        "container",
        Text(r"[^\s\-]\S*", _check_image),
        "Run tasks in this image, by the engine that the worker has.",
        "container",
        flags=("--container",),
        metavar="IMAGE",
    ),
    Key(
        "sandbox",
        Text(enum=tuple(Keep)),
        "What becomes of the empty directory that each attempt has for itself.",
        "sandbox",
        Keep,
        flags=("--sandbox",),
        metavar="remove|keep|keep-on-failure",
        default="remove",
    ),
    Key(
        "cleanup",
        Text(r"|[\s\S]*\S[\s\S]*"),
        "Run by the worker after each task, before it takes another; the task has ended by then.",
        "cleanup",
        flags=("--cleanup",),
        metavar="COMMAND",
    ),
    Key(
        "cleanup_limit",
        TIME,
        "A cleanup that takes longer is killed.",
        "cleanup_limit_s",
        time_of("cleanup_limit"),
        flags=("--cleanup-limit",),
        metavar="TIME",
        default="10m",
    ),
)
"""What surrounds a task, and what is done after it; stands behind cwd and env."""
