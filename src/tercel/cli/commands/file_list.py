"""tercel file list"""

import click

from tercel.cli.completing import file_name
from tercel.cli.filing import HEADERS, PAGE, file_row
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import table
from tercel.sdk.client import AsyncClient
from tercel.wire.api_files import FileEntry


@click.command(cls=Command)
@click.argument("prefix", metavar="[PREFIX]", default="", shell_complete=file_name)
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many files."
)
@click.option("--after", default="", metavar="NAME", help="Only names behind this one.")
@click.pass_obj
def command(screen: Screen, prefix: str, limit: int, after: str) -> None:
    """Files whose names begin with PREFIX, or match it if it has a * ('lfn:calib/*.tar'), in order."""

    async def ask(client: AsyncClient) -> None:
        found, more = await _found(client, prefix, after, limit)
        screen.emit({"files": found, "more": more})
        if found:
            screen.tell(table(HEADERS, map(file_row, found)))
        else:
            screen.note(
                f"no file begins with {prefix}" if prefix else "no files yet: see `tercel file add --help`"
            )
        if more:
            screen.note(f"there are more: --after '{found[-1].name}', or a larger --limit")

    talk(screen, ask)


async def _found(client: AsyncClient, prefix: str, after: str, limit: int) -> tuple[list[FileEntry], bool]:
    pattern = prefix if "*" in prefix else ""
    begins = prefix.partition("*")[0].partition("?")[0].partition("[")[0] if pattern else prefix
    found: list[FileEntry] = []
    while True:
        page = await client.files(begins, pattern=pattern, after=after, limit=min(limit - len(found), PAGE))
        found += page.files
        if not page.more or len(found) >= limit:
            return found, page.more
        after = found[-1].name
