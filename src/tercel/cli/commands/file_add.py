"""tercel file add"""

from pathlib import Path

import click

from tercel.cli.lazy import Command
from tercel.cli.passing import BytesPassing
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import size
from tercel.core.filenames import check_name
from tercel.core.files import KEPT
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.argument("source", metavar="PATH|URL", type=click.Path())
@click.option(
    "--digest", default="", metavar="DIGEST", help="What is at the URL: blake3:…, sha256:… or md5:…."
)
@click.option(
    "--size", "size_bytes", type=click.IntRange(min=0), default=None, metavar="BYTES", help="Likewise."
)
@click.pass_obj
def command(screen: Screen, name: str, source: str, digest: str, size_bytes: int | None) -> None:
    """Give what is at PATH or URL a NAME, as in lfn:calib/2026.

    The content of a PATH is uploaded, once however many names it has, and kept by the manager. A URL stays where it is: it is
    read once, to know what is in it; of s3:, sftp: and the like say that with --digest and --size.
    """
    check_name(name)

    async def ask(client: AsyncClient) -> None:
        async with BytesPassing(screen, source, _total(source)) as passing:
            added = await client.add_file(
                name,
                source,
                digest=digest,
                size_bytes=-1 if size_bytes is None else size_bytes,
                heard=passing.heard,
            )
        screen.emit(added)
        kept = any(replica.url.startswith(KEPT) for replica in added.replicas)
        where = "kept by the manager" if kept else f"at {source}"
        screen.tell(f"{added.name}: {size(added.size_bytes)}, {added.digest}, {where}")

    talk(screen, ask)


def _total(source: str) -> int | None:
    try:
        return Path(source).stat().st_size
    except OSError:  # a URL; or a path that is not there, which is told when it is read
        return None
