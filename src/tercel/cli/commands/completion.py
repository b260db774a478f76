"""tercel completion"""

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.core.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def command(context: click.Context, shell: str | None) -> None:
    """Print the completion script of a shell (of yours, if none is named).

    Besides commands and options it knows jobs, conditions and workers, if a manager answers at once, and files of snapshots. A worker
    whose name a shell would not take as it stands is not offered.

    \b
    bash   tercel completion bash > ~/.local/share/bash-completion/completions/tercel
    zsh    tercel completion zsh > ~/.zfunc/_tercel
    fish   tercel completion fish > ~/.config/fish/completions/tercel.fish
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None:
        raise UsageError(f"name the shell: {', '.join(SHELLS)}", "shell")
    script = kind(context.find_root().command, {}, "tercel", "_TERCEL_COMPLETE").source()
    screen = context.find_object(Screen)
    assert screen is not None
    screen.emit({"shell": shell, "script": script})
    screen.tell(script)
