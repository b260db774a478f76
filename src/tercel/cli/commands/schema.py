"""tercel schema"""

from importlib.resources import files

import click
import msgspec

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen

KINDS = ("job", "flow")


@click.command(cls=Command)
@click.argument("kind", type=click.Choice(KINDS), default="job")
@click.pass_obj
def command(screen: Screen, kind: str) -> None:
    """Print the JSON schema of job files, or of flow files, for editors.

    Editors that know TOML (Taplo, Even Better TOML) complete and check a file whose first line names the schema:

    \b
    tercel schema job > ~/.config/tercel-job.schema.json
    #:schema /home/you/.config/tercel-job.schema.json
    """
    text = (files("tercel") / "schemas" / f"{kind}.schema.json").read_text()
    screen.emit({"kind": kind, "document": msgspec.json.decode(text)})
    screen.tell(text.rstrip("\n"))
