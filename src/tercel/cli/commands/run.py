"""tercel run"""

import asyncio
from pathlib import Path
from typing import Any

import click

from tercel.cli.codes import OK
from tercel.cli.jobflags import JobCommand, job_options, read_drafts, say_remarks
from tercel.cli.running import run_drafts
from tercel.cli.screen import Screen
from tercel.cli.services import run_service
from tercel.cli.sharing import named_server
from tercel.cli.showing import show_drafts
from tercel.core.errors import Unreachable, UsageError
from tercel.links.access import find_server


@click.command(cls=JobCommand, context_settings={"allow_interspersed_args": False})
@job_options
@click.option("--label", is_flag=True, help="Begin each line of output with the task's id.")
@click.option("--dry-run", is_flag=True, help="Say what would be run, and do nothing.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def command(screen: Screen, /, words: tuple[str, ...], label: bool, dry_run: bool, **flags: Any) -> int:
    """Run commands, show their output as they end, and wait: exit code 1 if one failed.

    Uses the manager that runs here (or TERCEL_SERVER); where there is none, one runs inside this command, as durable
    as any: what an interrupted run left is finished by the next. Ctrl-C cancels the job, twice leaves at once.

    \b
    tercel run --each-line commands.txt
    tercel run --array 0-99 -- ./fit.sh
    tercel run 'gzip -c big.csv > big.csv.gz'
    """
    drafts = read_drafts(words, flags)
    say_remarks(screen, drafts)
    if dry_run:
        asyncio.run(show_drafts(screen, drafts))
        return OK
    if not _will_be_embedded(screen):
        return asyncio.run(run_drafts(screen, drafts, label=label))
    for cwd in {draft.submission.cwd for draft in drafts}:
        _check_directory(cwd)
    return run_service(run_drafts(screen, drafts, label=label))


def _check_directory(cwd: str) -> None:
    """It is on this machine, so a mistake can be told before anything runs."""
    try:
        there = not cwd or Path(cwd).is_dir()
    except OSError as error:
        raise UsageError(f"the directory {cwd} cannot be entered: {error.strerror}", "cwd") from None
    if not there:
        raise UsageError(f"there is no directory {cwd}", "cwd")


def _will_be_embedded(screen: Screen) -> bool:
    """A guess, made without asking anybody."""
    if named_server(screen):
        return False
    try:
        find_server(None, None)
    except Unreachable:
        return True
    return False
