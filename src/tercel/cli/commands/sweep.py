"""tercel sweep"""

from typing import Any

import click

from tercel.cli.commands.submit import hand_in
from tercel.cli.jobflags import shared_options
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.sweeping import read_sweep, unused_names

_AFTER = "tercel.sweep.argv"


class SweepCommand(Command):
    """What stands after -- is the command, word by word; options may stand anywhere before."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[_AFTER] = args[:at], args[at + 1 :]
        return super().parse_args(ctx, args)


@click.command(cls=SweepCommand)
@shared_options
@click.option(
    "--zip", "zipped", is_flag=True, help="The first of each, the second of each, ...; not every combination."
)
@click.option("--wait", is_flag=True, help="Return when all tasks have ended: exit code 1 if one failed.")
@click.option("--dry-run", is_flag=True, help="Show the first commands and their number, and do nothing.")
@click.argument("words", metavar="TEMPLATE NAME=VALUES... | NAME=VALUES... -- COMMAND... | FILE", nargs=-1)
@click.pass_obj
@click.pass_context
def command(
    context: click.Context,
    screen: Screen,
    /,
    words: tuple[str, ...],
    zipped: bool,
    wait: bool,
    dry_run: bool,
    **flags: Any,
) -> int:
    """Run a command once for every combination of values.

    {name} in the command is replaced by a value, quoted as its place needs; {{ and }} are braces, {name:raw} is not
    quoted, {task} is the task's number. Every task also finds its point, as JSON, in TERCEL_POINT.

    \b
    tercel sweep 'svm-train -C {C} -gamma {g} data' C=0.001,0.01,0.1,1,10,100 g=0:1:0.25
    tercel sweep C=0.001:100:log6 seed=@seeds.txt f='data/*.csv' -- ./fit.py {C} {seed} {f}
    tercel sweep grid.txt

    \b
    VALUES      a,b,c       these (a backslash before , : * ? @ or \\ keeps it)
                0:1:0.25    from 0 to 1 by 0.25; 1:1000 by 1
                1:1000:x10  each 10 times the one before
                1:10:log5   five, log-spaced; 0:1:lin5 five, evenly spaced
                @FILE       one per line
                data/*.csv  files with such names

    FILE is a command with [1] and [2] in it, followed by lines like [1] 0.001, 0.01. --array 0-9 takes only these points;
    --array %10 all, ten at a time.
    """
    draft = read_sweep(words, context.meta.get(_AFTER, []), zipped, flags)
    for name in unused_names(draft.submission):
        screen.note(f"{name} is not in the command; tasks find it in TERCEL_POINT only")
    return hand_in(screen, [draft], wait=wait, dry_run=dry_run)
