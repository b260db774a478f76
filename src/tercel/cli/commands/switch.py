"""tercel switch: a group whose default is the list"""

import click

from tercel.cli.lazy import Entry, LazyGroup

_HERE = "tercel.cli.commands"


@click.group(
    cls=LazyGroup,
    entries=(
        Entry("list", f"{_HERE}.switch_list", "What is off (the default)."),
        Entry("off", f"{_HERE}.switch_off", "Turn a system or an application off."),
        Entry("on", f"{_HERE}.switch_on", "Turn it on again."),
    ),
    default="list",
)
def command() -> None:
    """Systems and applications that people turn off and on.

    Tasks that ask about one (--block-on 'start -> enabled:app=matlab') wait while it is off.

    \b
    tercel switch off app=matlab --why 'upgrade until noon'
    tercel switch on app=matlab
    """
