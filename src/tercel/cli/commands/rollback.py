"""tercel rollback"""

import click

from tercel.cli.asking import clock, is_sure, moment
from tercel.cli.completing import any_job
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import split
from tercel.cli.talking import talk
from tercel.cli.words import count, plain, short
from tercel.core.errors import UsageError
from tercel.core.states import Checkpoint, TaskState
from tercel.sdk.client import AsyncClient
from tercel.wire.api import RollbackPart, RolledBack


@click.command(cls=Command)
@click.argument("select", metavar="SELECT...", nargs=-1, required=True, shell_complete=any_job)
@click.option("--failed", is_flag=True, help="Tasks that failed.  [default for whole jobs]")
@click.option("--cancelled", is_flag=True, help="Tasks that were cancelled or skipped.")
@click.option("--finished", is_flag=True, help="Tasks that finished.")
@click.option("--all", "every", is_flag=True, help="All that has ended.")
@click.option(
    "--since", metavar="WHEN", help="Only what ended then or later: 14:05, 2026-11-16T14:05, '2h ago'."
)
@click.option(
    "--to",
    type=click.Choice([str(point) for point in Checkpoint]),
    default=str(Checkpoint.ACCEPTED),
    show_default=True,
    help="The checkpoint; the last healthy one not after it is taken.",
)
@click.option("--only", is_flag=True, help="Leave alone what finished using their results.")
@click.option("--force", is_flag=True, help="Cancel what is under way and in the way.")
@click.option("--reason", default="", help="Why, for the history of the tasks.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be undone.")
@click.option("--yes", is_flag=True, help="Do not ask. Scripts need this.")
@click.pass_obj
def command(
    screen: Screen,
    select: tuple[str, ...],
    failed: bool,
    cancelled: bool,
    finished: bool,
    every: bool,
    since: str | None,
    to: str,
    only: bool,
    force: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Return ended tasks to an earlier checkpoint, from where they run again under the same ids.

    What their attempts left half done is dropped, their retries are whole again, what was skipped because of them waits
    again, and what finished using their results is rolled back too, for its inputs are undone. All of it, or nothing.

    SELECT is 37, 37.99, 37.0-9, 1-5 or last. Of whole jobs the failed tasks are taken; of named tasks, or with --since, all
    that ended; the flags choose otherwise.
    """
    if every and (failed or cancelled or finished):
        raise UsageError("--all is all of them: leave the others out", "all")
    flags = ((failed, TaskState.FAILED), (cancelled, TaskState.CANCELLED), (finished, TaskState.FINISHED))
    states = [state for given, state in flags if given or every]
    chosen = split(select)
    at = None if since is None else moment(since, "since")
    then = "" if at is None else f"since {clock(at)}"

    async def ask(client: AsyncClient) -> None:
        async def roll(dry: bool) -> RolledBack:
            return await client.rollback(
                chosen,
                states=states,
                since=at,
                to=Checkpoint(to),
                only=only,
                force=force,
                reason=reason,
                dry_run=dry,
            )

        found = await roll(True)
        if found.count and found.to != to:
            screen.note(f"nothing is {to} yet, so: {found.to}")
        if dry_run or not (found.count or found.under_way):
            screen.emit(found)
            if found.count or not found.under_way:
                screen.tell(listed(found, "would go back", then))
            _more(screen, found, force)
            if not found.count and not found.under_way:
                _hint(screen, chosen, by_default=not states and at is None)
            return
        if not yes:
            screen.warn("\n".join(listed(found, "will go back", then)))
            _more(screen, found, force)
        if found.under_way and not force:
            raise UsageError(
                f"{short(', '.join(found.under_way), 80)} under way: cancel that first, or add --force"
            )
        if not is_sure("Roll this back?", yes):
            screen.note("nothing was changed")
            return
        done = await roll(False)
        screen.emit(done)
        screen.tell(listed(done, "went back", then))
        if done.note:
            screen.note(done.note)

    talk(screen, ask)


SHOWN = 5
"""Files of a job; --json has more."""


def _hint(screen: Screen, chosen: list[str], by_default: bool) -> None:
    """Nothing is undone: perhaps because other tasks were chosen than was thought."""
    if "all" in chosen:
        screen.note("`all` is the jobs that have not ended: name those that have, as in `tercel rollback 37`")
    elif by_default and all("." in one for one in chosen):
        screen.note("none of them has ended: what waits, is blocked or held is left alone")
    elif by_default:
        screen.note(
            "of whole jobs only failed tasks are taken: --cancelled, --finished or --all chooses others"
        )


def listed(found: RolledBack, verb: str, since: str) -> list[str]:
    if not found.count:
        return [f"nothing to roll back {since}".rstrip()]
    chosen = f" ({since})" if since else ""
    lines = [f"{count(found.count, 'task')} {verb} to {found.to}{chosen}:"]
    for part in found.parts:
        lines.append(f"  {_part(part)}")
        lines += [f"    {plain(name)} removed" for name in part.names[:SHOWN]]
        if part.files > SHOWN:
            lines.append(f"    … and {count(part.files - SHOWN, 'file')} more")
    return lines


def _part(part: RollbackPart) -> str:
    kinds = (
        (part.failed, "failed"),
        (part.cancelled, "cancelled"),
        (part.finished, "finished"),
        (part.used, "finished using what is undone"),
        (part.skipped, "skipped, to wait again"),
    )
    told = ", ".join(f"{number:,} {what}" for number, what in kinds if number)
    outputs = f"; {count(part.outputs, 'piece')} of output dropped" if part.outputs else ""
    name = f" {plain(part.name)}" if part.name else ""
    files = f"; {count(part.files, 'file')} undone" if part.files else ""
    return f"{part.job}.{short(part.tasks, 40)}{name}: {told}{outputs}{files}"


def _more(screen: Screen, found: RolledBack, force: bool) -> None:
    if found.under_way:
        what = "would be cancelled, and go back" if force else "in the way (--force cancels it)"
        screen.note(f"under way and {what}: {short(', '.join(found.under_way), 80)}")
    if found.hopeless:
        screen.note(f"{count(found.hopeless, 'task')} stay, for what they need has not ended as it should")
