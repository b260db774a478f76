"""tercel file verify"""

import click

from tercel.cli.codes import OK, TASK_FAILED
from tercel.cli.completing import file_name
from tercel.cli.lazy import Command
from tercel.cli.passing import BytesPassing
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import plain, table
from tercel.sdk.client import AsyncClient

HEADERS = ("WHERE", "FOUND")


@click.command(cls=Command)
@click.argument("name", metavar="NAME", shell_complete=file_name)
@click.pass_obj
def command(screen: Screen, name: str) -> int:
    """Read a file from every place that can be reached from here, and compare its size and digest.

    What is found of your own files is put down: tasks do not read what is bad. Exit code 1 if anything is, or if no place could be
    reached.
    """
    good = bad = 0

    async def ask(client: AsyncClient) -> None:
        nonlocal good, bad
        total_bytes = (await client.file(name)).size_bytes
        async with BytesPassing(screen, name, total_bytes) as passing:
            found = await client.verify_file(name, passing.heard)
        rows = [{"url": url, "wrong": wrong, "recorded": recorded} for url, wrong, recorded in found]
        screen.emit({"name": name, "replicas": rows})
        screen.tell(
            table(HEADERS, [(plain(url), plain(wrong) or "as it should be") for url, wrong, _ in found])
        )
        good = sum(1 for _, wrong, _ in found if not wrong)
        bad = sum(1 for _, wrong, recorded in found if wrong and recorded)

    talk(screen, ask)
    return OK if good and not bad else TASK_FAILED
