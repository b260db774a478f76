"""tercel file where"""

import click

from tercel.cli.asking import clock
from tercel.cli.completing import file_name
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count, pairs, plain, table
from tercel.core.files import KEPT
from tercel.core.selectors import task_name
from tercel.sdk.client import AsyncClient
from tercel.wire.api_files import FileStanding

HEADERS = ("WHERE", "CHECKED", "")
READERS_SHOWN = 20


@click.command(cls=Command)
@click.argument("name", metavar="NAME", shell_complete=file_name)
@click.pass_obj
def command(screen: Screen, name: str) -> None:
    """Where the bytes of a file are, when they were last checked, which task made it, and which jobs read it."""

    async def ask(client: AsyncClient) -> None:
        found = await client.file(name)
        screen.emit(found)
        _tell(screen, found)

    talk(screen, ask)


def _tell(screen: Screen, file: FileStanding) -> None:
    maker = f"task {task_name(file.job, file.task)}" if file.job else "somebody added it"
    facts = [
        ("file", plain(file.name)),
        ("size", f"{file.size_bytes:,} bytes"),
        ("digest", file.digest),
        ("owner", file.owner),
        ("made", f"{clock(file.made_at)}, {maker}"),
        ("read by", _readers(file.readers)),
    ]
    screen.tell(pairs(facts))
    if file.replicas:
        rows = [
            (
                _place(replica.url),
                clock(replica.verified_at) if replica.verified_at else "",
                plain(replica.bad),
            )
            for replica in file.replicas
        ]
        screen.tell(["", *table(HEADERS, rows)])
    else:
        screen.note("no replica of it is known: its bytes are nowhere")


def _place(url: str) -> str:
    return "the manager" if url.startswith(KEPT) else plain(url)


def _readers(jobs: list[int]) -> str:
    if not jobs:
        return ""
    some = ", ".join(map(str, jobs[:READERS_SHOWN]))
    more = f" and {count(len(jobs) - READERS_SHOWN, 'more', 'more')}" if len(jobs) > READERS_SHOWN else ""
    return f"job {some}" if len(jobs) == 1 else f"jobs {some}{more}"
