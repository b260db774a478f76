"""tercel snapshot: a group"""

import click

from tercel.cli.lazy import Entry, LazyGroup

_HERE = "tercel.cli.commands"


@click.group(
    cls=LazyGroup,
    entries=(
        Entry("save", f"{_HERE}.snapshot_save", "Save jobs into a file."),
        Entry("inspect", f"{_HERE}.snapshot_inspect", "Check a file, and tell what is in it."),
        Entry("restore", f"{_HERE}.snapshot_restore", "Restore a file: its jobs go on."),
        Entry("list", f"{_HERE}.snapshot_list", "Snapshots that the manager took by itself."),
    ),
    default="list",
)
def command() -> None:
    """Save jobs with all their state; restore them, here or at another manager.

    \b
    tercel snapshot save campaign.tercel 37 41     these jobs, and those that they need
    tercel snapshot restore campaign.tercel --into http://big.lab:7717
    tercel snapshot restore @3                     one that the manager took by itself
    """
