"""tercel queue: a group"""

import click

from tercel.cli.lazy import Entry, LazyGroup

_HERE = "tercel.cli.commands"


@click.group(
    cls=LazyGroup,
    entries=(
        Entry("list", f"{_HERE}.queue_list", "The queues and how they share."),
        Entry("create", f"{_HERE}.queue_create", "Make a queue."),
        Entry("set", f"{_HERE}.queue_set", "Change a queue's weight and caps."),
        Entry("pause", f"{_HERE}.queue_pause", "Start nothing more of a queue."),
        Entry("resume", f"{_HERE}.queue_resume", "Let a paused queue go on."),
        Entry("remove", f"{_HERE}.queue_remove", "Remove an empty queue."),
    ),
    default="list",
)
def command() -> None:
    """Queues share the pool by their weights; within one, urgent jobs come first, and users take turns.

    Every user has a queue of their own name, of weight 1, which needs no making. Caps are soft: what exceeds them
    waits, and `tercel explain` says so.
    """
