"""tercel token create"""

import getpass
from pathlib import Path

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.tokens import ask_manager_or_data, data_option
from tercel.core.errors import UsageError
from tercel.core.model import Role
from tercel.links.access import write_secret


@click.command(cls=Command)
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), default=Role.USER.value, show_default=True
)
@click.option("--user", default="", metavar="NAME", help="Whose token it is.  [default: yours]")
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write it to this file, with mode 0600.")
@data_option
@click.pass_obj
def command(screen: Screen, role: str, user: str, note: str, out: Path | None, data: Path | None) -> None:
    """Make a token and print it. It is shown this once: Tercel keeps only a hash.

    Works without a running manager too, on its data directory; a manager that shall listen elsewhere than on this
    machine needs a token to begin with.

    \b
    tercel token create --role worker -o worker.token
    tercel token create --role user --user ada -o ada.token
    """
    user = user or getpass.getuser()
    if out is not None:
        _check_file(out)
    issued = ask_manager_or_data(
        screen,
        data,
        lambda client: client.create_token(Role(role), user, note=note),
        lambda tokens: tokens.create(Role(role), user, note),
    )
    if out is not None:
        write_secret(out, f"{issued.secret}\n".encode())
        screen.emit({"id": issued.id, "role": issued.role, "user": issued.user, "file": str(out.absolute())})
        screen.note(f"token {issued.id} of {user} ({role}) is in {out}")
        return
    screen.emit(issued)
    screen.tell(issued.secret)
    screen.note(f"this is token {issued.id} of {user} ({role}); keep it in a file of mode 0600")


def _check_file(out: Path) -> None:
    """Before the token is made: nobody could use one that cannot be written down."""
    try:
        taken, place = out.exists(), out.parent.is_dir()
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}", "out") from None
    if taken:
        raise UsageError(f"{out} exists already: choose another file or remove it", "out")
    if not place:
        raise UsageError(f"there is no directory {out.parent} to write {out.name} into", "out")
