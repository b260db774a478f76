"""tercel revise"""

from typing import Any

import click

from tercel.cli.completing import unfinished_job
from tercel.cli.jobflags import given_words, some_options
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import split
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient
from tercel.sdk.files.drafts import field_of


@click.command(cls=Command)
@click.argument("select", metavar="SELECT...", nargs=-1, required=True, shell_complete=unfinished_job)
@some_options("priority", "cpus", "mem", "time", "gpus", "resources", "requires", "where", "rank", "block_on")
@click.pass_obj
def command(screen: Screen, /, select: tuple[str, ...], **flags: Any) -> None:
    """Change what unfinished jobs ask for; what is not named stays as it is. Tasks that run go on as they began.

    SELECT is 37, 1-5, last or all: whole jobs. An empty text takes a requirement away.

    \b
    tercel revise 37 --mem 8G --where '' --requires STAR
    """
    chosen = split(select)
    words = given_words(flags)
    if not words:
        raise UsageError("nothing is to change: see `tercel revise --help`")
    fields: dict[str, Any] = {
        field: value for name, given in words.items() for field, value in field_of(name, given).items()
    }

    async def ask(client: AsyncClient) -> None:
        done = await client.revise(chosen, **fields)
        screen.emit({"revised": done.count, **fields})
        screen.tell(f"{count(done.count, 'job')} revised")
        if not done.count:
            screen.note("no chosen job is unfinished and asked for anything else")

    talk(screen, ask)
