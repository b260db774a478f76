"""Groups that load a command's module only when it is used, and the options that every command takes.

The help of a group and shell completion work from the table alone: `tercel --help` imports no command. This module is
the only place where modules are imported late.
"""

import difflib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from tercel.cli.screen import Screen


class Entry(NamedTuple):
    """One command in a group's table."""

    name: str
    module: str
    """Where its `command` is."""
    help: str
    section: str = "Commands"


def late(module: str, name: str) -> Any:
    """An object of a module that only some uses of a command need."""
    return getattr(import_module(module), name)


def common_options() -> list[click.Parameter]:
    """Accepted before and after a command's name."""
    return [
        click.Option(
            ["--server"],
            metavar="URL",
            expose_value=False,
            callback=_remember("server"),
            help="The manager to speak to.  [default: TERCEL_SERVER, else the one on this machine]",
        ),
        click.Option(
            ["--json"], is_flag=True, expose_value=False, callback=_remember("json"), help="Print JSON."
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_remember("quiet"),
            help="No progress and no notes on stderr.",
        ),
    ]


def _remember(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        screen = context.find_object(Screen)
        if value and screen is not None:
            setattr(screen, field, value)

    return keep


class Command(click.Command):
    """A command that takes the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())


class LazyGroup(click.Group):
    """A group of commands known by a table.

    `default` runs where no command is named; with `takes_anything` also where the first word is not a command, so
    that `tercel worker http://host:7717` means `tercel worker start http://host:7717`.
    """

    def __init__(
        self,
        *args: Any,
        entries: Sequence[Entry] = (),
        default: str = "",
        takes_anything: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())
        self._entries = {entry.name: entry for entry in entries}
        self._default = default
        self._takes_anything = takes_anything

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        command = late(entry.module, "command")
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = _after_common_options(args)
        bare = at >= len(args)
        other = not bare and args[at] not in self._entries and args[at] not in ctx.help_option_names
        if self._default and not ctx.resilient_parsing and (bare or (self._takes_anything and other)):
            args = [*args[:at], self._default, *args[at:]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._entries and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], self._entries, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, self._entries))
        for section in dict.fromkeys(entry.section for entry in self._entries.values()):
            rows = [(e.name.ljust(width), e.help) for e in self._entries.values() if e.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(entry.name, help=entry.help)
            for entry in self._entries.values()
            if entry.name.startswith(incomplete)
        ]
        if not found and self._takes_anything and not incomplete.startswith("-"):
            found += self._of_default(ctx, incomplete)
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def _of_default(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What may stand where the default's name was left out."""
        default = self.get_command(ctx, self._default)
        assert default is not None
        arguments = [param for param in default.params if isinstance(param, click.Argument)]
        return [item for argument in arguments for item in argument.shell_complete(ctx, incomplete)]


def _after_common_options(args: Sequence[str]) -> int:
    at = 0
    while at < len(args) and (args[at] in ("--json", "-q", "--quiet") or args[at].startswith("--server")):
        at += 2 if args[at] == "--server" else 1
    return at
