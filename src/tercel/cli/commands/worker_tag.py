"""tercel worker tag"""

import click

from tercel.cli.completing import worker as worker_id
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.core.errors import UsageError
from tercel.core.placement import check_tags
from tercel.sdk.client import AsyncClient

_OPTIONS = ("-q", "-h")
"""Short ones that the command takes: tags of these names need --remove."""


class _TagCommand(Command):
    """`+gpu` is `--add gpu`, `-old` is `--remove old`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        for at, word in enumerate(args):
            if at and args[at - 1] in ("--add", "--remove", "--server"):
                words.append(word)
            elif word.startswith("+") and len(word) > 1:
                words += ["--add", word[1:]]
            elif word.startswith("-") and not word.startswith("--") and word not in (*_OPTIONS, "-"):
                words += ["--remove", word[1:]]
            else:
                words.append(word)
        return super().parse_args(ctx, words)


@click.command(cls=_TagCommand)
@click.argument("worker", metavar="ID", shell_complete=worker_id)
@click.argument("more", metavar="[+TAG | -TAG]...", nargs=-1)
@click.option("--add", multiple=True, metavar="TAG", help="As +TAG. Repeatable.")
@click.option("--remove", multiple=True, metavar="TAG", help="As -TAG. Repeatable.")
@click.pass_obj
def command(
    screen: Screen, worker: str, more: tuple[str, ...], add: tuple[str, ...], remove: tuple[str, ...]
) -> None:
    """Add tags to a worker, or take some from it, also such as it says itself.

    It is kept over restarts of the worker. Without any, its tags are shown.

    \b
    tercel worker tag w07 +gpu -old
    """
    if more:
        raise UsageError(f"{more[0]!r} is no change of tags: write +{more[0]} or -{more[0]}", "add")
    check_tags(add, "add")
    check_tags(remove, "remove")

    async def ask(client: AsyncClient) -> None:
        if add or remove:
            tags = (await client.tag(worker, add=add, remove=remove)).tags
        else:
            found = [one for one in (await client.pool()).workers if one.id == worker]
            if not found:
                raise UsageError(f"there is no worker {worker!r}: see `tercel pool --all`", "worker")
            tags = found[0].tags
        screen.emit({"worker": worker, "tags": tags})
        screen.tell(f"{worker}: {', '.join(tags) or 'no tags'}")

    talk(screen, ask)
