"""tercel reserve: a group whose default is to reserve"""

import click

from tercel.cli.lazy import Entry, LazyGroup

_HERE = "tercel.cli.commands"


@click.group(
    cls=LazyGroup,
    entries=(
        Entry("create", f"{_HERE}.reserve_create", "Set workers aside (the default)."),
        Entry("list", f"{_HERE}.reserve_list", "The reservations, and the workers under them."),
        Entry("end", f"{_HERE}.reserve_end", "End a reservation before its time."),
    ),
    default="create",
    takes_anything=True,
)
def command() -> None:
    """Set workers aside for a queue or a user, for a time.

    \b
    tercel reserve --where 'worker.site == "lab1"' --queue vision --for 12h
    tercel reserve list
    """
