"""The options of `run`, `submit` and `sweep` that describe a job, and the drafts that they, or a file, make.

The options are those of the table of keys in `tercel.sdk.files.keys`. Everything is checked by the same rules as in the
manager, so that a mistake starts nothing and says so at once.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.core.commands import plain_argv
from tercel.core.errors import UsageError
from tercel.sdk.files import Draft, is_job_file, read_file
from tercel.sdk.files.drafts import make_draft
from tercel.sdk.files.key import Key
from tercel.sdk.files.keys import BY_NAME, KEYS
from tercel.sdk.files.kinds import Flag
from tercel.sdk.files.options import Option, add_option
from tercel.sdk.files.sources import Given, OptionSource, Words

F = TypeVar("F", bound=Callable[..., object])


def _option(key: Key, *, anew: bool = True) -> Callable[[F], F]:
    """Values are read like those of #TERCEL lines; None, () and False: not given. `anew`: it has a default then."""
    help_text = f"{key.help}  [default: {key.default}]" if key.default and anew else key.help
    if isinstance(key.kind, Flag):
        return click.option(*key.flags, key.name, is_flag=True, help=help_text)
    return click.option(
        *key.flags,
        key.name,
        type=click.Path() if key.is_file else None,  # for shells, which complete it
        metavar=key.metavar,
        multiple=key.repeatable,
        default=None,
        help=help_text,
    )


def job_options(function: F) -> F:
    for key in reversed(KEYS):
        if key.flags:
            function = _option(key)(function)
    return function


def some_options(*names: str) -> Callable[[F], F]:
    """Those of these keys, of a job that is there."""

    def add(function: F) -> F:
        for name in reversed(names):
            function = _option(BY_NAME[name], anew=False)(function)
        return function

    return add


def shared_options(function: F) -> F:
    """Those that do not say where the commands come from."""
    for key in reversed(KEYS):
        if key.flags and key.name not in ("lines_file", "items_file"):
            function = _option(key)(function)
    return function


class JobCommand(Command):
    """A command that takes a job's command, or a job file with options on either side of it.

    Options end where a command begins; but a job file is not a command, and what follows it are options that count
    more than what it says, and (after --) a script's arguments.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            args = self._file_last(ctx, args)
        return super().parse_args(ctx, args)

    def _file_last(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = self._words(ctx, args)
        before = args[: len(args) - len(words)]
        if len(words) < 2 or "--" in before[-1:] or not is_job_file(words[0]):
            return args
        after = words[1:]
        arguments = self._words(ctx, after)
        options = after[: len(after) - len(arguments)]
        return [*before, *(options[:-1] if "--" in options[-1:] else options), "--", words[0], *arguments]

    def _words(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What follows the options."""
        options, _, _ = self.make_parser(ctx).parse_args(list(args))
        words = options.get("words")  # without any it is None, or a mark of click's
        return list(words) if isinstance(words, list | tuple) else []


def read_drafts(words: Sequence[str], flags: Mapping[str, Any]) -> list[Draft]:
    """What the options and the command's words (or the file they name) ask for: one job, or those of a flow.

    Raises UsageError without having done anything.
    """
    above = given_words(flags)
    if words and is_job_file(words[0]):
        return read_file(words[0], words[1:], above)
    return [read_draft(words, above)]


def read_draft(words: Sequence[str], above: Words) -> Draft:
    """The job of a command and options."""
    source = OptionSource()
    if "lines_file" in above and any(words):
        raise UsageError("--each-line brings its own commands: leave the other command out", "each_line")
    if "lines_file" in above and "items_file" in above:
        raise UsageError(
            "--each-line and --from-json are two sources of tasks: give one of them", "from_json"
        )
    if "lines_file" not in above and not any(words):
        items = "items_file" in above
        hint = "a command with {names} after --" if items else "a command after --, or --each-line FILE"
        raise UsageError(f"nothing to run: give {hint}", "argv")
    if words:
        above = {**above, "command": Given(program(words), source, ())}
    return make_draft(above, source)


def given_words(flags: Mapping[str, Any]) -> Words:
    """What was given on the command line. Raises UsageError."""
    found: Words = {}
    source = OptionSource()
    for key in KEYS:
        value = flags.get(key.name)
        flag = next((flag for flag in key.flags if flag.startswith("--")), "")
        if value is None or value is False:
            continue
        if value is True:
            add_option(found, key, Option(flag, None), source)
            continue
        for text in value if key.repeatable else [value]:
            add_option(found, key, Option(flag, text), source)
    return found


def say_remarks(screen: Screen, drafts: Sequence[Draft]) -> None:
    for draft in drafts:
        for remark in draft.remarks:
            screen.note(remark)


def program(words: Sequence[str]) -> str | list[str]:
    """One word with blanks or shell syntax is a line for the shell, unless a file has that name."""
    if len(words) == 1 and plain_argv(words[0]) != [words[0]] and not _is_file(words[0]):
        return words[0]
    return list(words)


def _is_file(word: str) -> bool:
    try:
        return "/" in word and Path(word).is_file()
    except (OSError, ValueError):
        return False
