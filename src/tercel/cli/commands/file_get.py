"""tercel file get"""

from pathlib import Path

import click

from tercel.cli.completing import file_name
from tercel.cli.lazy import Command
from tercel.cli.passing import BytesPassing
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import size
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("name", metavar="NAME", shell_complete=file_name)
@click.argument("path", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="In the place of a file that is there.")
@click.pass_obj
def command(screen: Screen, name: str, path: Path | None, force: bool) -> None:
    """Bring a file to PATH (a file, or a directory to put it into; here, if there is none).

    It has that name when it is whole and checked. It is read from the manager, from http: or from this machine's own disks.
    """
    place = _place(name, path)
    if place.exists() and not force:
        raise UsageError(f"{place} exists; --force puts the file in its place", "path")

    async def ask(client: AsyncClient) -> None:
        total_bytes = (await client.file(name)).size_bytes
        async with BytesPassing(screen, name, total_bytes) as passing:
            found = await client.get_file(name, place, passing.heard)
        screen.emit(
            {"name": name, "path": str(place), "size_bytes": found.size_bytes, "digest": found.digest}
        )
        screen.tell(f"{place}: {size(found.size_bytes)}, {found.digest}")

    talk(screen, ask)


def _place(name: str, path: Path | None) -> Path:
    last = name.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    if path is None:
        return Path(last)
    return path / last if path.is_dir() else path
