"""tercel worker: a group whose default is to start one"""

import click

from tercel.cli.lazy import Entry, LazyGroup

_HERE = "tercel.cli.commands"


@click.group(
    cls=LazyGroup,
    entries=(
        Entry("start", f"{_HERE}.worker_start", "Join a manager and run its tasks (the default)."),
        Entry("list", f"{_HERE}.pool", "The workers and what they do."),
        Entry("look", f"{_HERE}.worker_look", "See what is in a worker's directory, and its log."),
        Entry("drain", f"{_HERE}.worker_drain", "Let workers finish what they run, and leave."),
        Entry("quarantine", f"{_HERE}.worker_quarantine", "Give workers no more tasks."),
        Entry("release", f"{_HERE}.worker_release", "Let workers out of quarantine."),
        Entry("tag", f"{_HERE}.worker_tag", "Add tags to a worker, or take some from it."),
    ),
    default="start",
    takes_anything=True,
)
def command() -> None:
    """Join a manager as a worker: it dials out, nothing has to be opened.

    \b
    tercel worker http://host:7717 --token-file worker.token
    """
