"""tercel file: a group whose default is the list"""

import click

from tercel.cli.lazy import Entry, LazyGroup

_HERE = "tercel.cli.commands"


@click.group(
    cls=LazyGroup,
    entries=(
        Entry("add", f"{_HERE}.file_add", "Give a file, or what is at a URL, a name."),
        Entry("list", f"{_HERE}.file_list", "Files, by name (the default)."),
        Entry("where", f"{_HERE}.file_where", "Where a file is, who made it, and who reads it."),
        Entry("get", f"{_HERE}.file_get", "Bring a file here."),
        Entry("verify", f"{_HERE}.file_verify", "Read a file wherever it is, and compare."),
        Entry("rm", f"{_HERE}.file_rm", "Forget a file."),
    ),
    default="list",
)
def command() -> None:
    """Files by name. A file never changes: a name stands for the same bytes wherever they are.

    \b
    tercel file add lfn:calib/2026 ./calib.tar
    tercel submit --in lfn:calib/2026 -- ./fit.sh
    tercel file where lfn:calib/2026
    """
