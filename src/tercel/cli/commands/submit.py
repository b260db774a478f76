"""tercel submit"""

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from tercel.cli.codes import OK
from tercel.cli.flows import submit_flow
from tercel.cli.jobflags import JobCommand, job_options, read_drafts, say_remarks
from tercel.cli.screen import Screen
from tercel.cli.selecting import Chosen
from tercel.cli.showing import show_drafts
from tercel.cli.talking import talk
from tercel.cli.uploading import upload
from tercel.cli.waiting import exit_code, say_failures, wait_for
from tercel.cli.words import count, states
from tercel.sdk.client import AsyncClient
from tercel.sdk.files import Draft


@click.command(cls=JobCommand, context_settings={"allow_interspersed_args": False})
@job_options
@click.option("--wait", is_flag=True, help="Return when all tasks have ended: exit code 1 if one failed.")
@click.option("--dry-run", is_flag=True, help="Say what would be submitted, and do nothing.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def command(screen: Screen, /, words: tuple[str, ...], wait: bool, dry_run: bool, **flags: Any) -> int:
    """Hand in a job and print its id.

    Several words are a program and its arguments. One quoted word with blanks or shell syntax is a line for the
    shell. Tasks find their number in TERCEL_TASK_ID.

    \b
    tercel submit -J fit -c 1 --mem 500M -t 1h --array 0-9999 -- ./fit.sh
    tercel submit 'sort big.txt | uniq -c > counts.txt'
    tercel submit --each-line commands.txt --wait
    tercel submit --from-json items.jsonl -- ./go.sh {name} {size}
    tercel submit job.toml --mem 8G · flow.toml · job.sh -- ARGUMENTS

    A file instead of a command: job.toml or flow.toml, a script with #TERCEL or #SBATCH lines, or Kestrel's [job].
    Options on either side of it count more than what it says.
    """
    drafts = read_drafts(words, flags)
    say_remarks(screen, drafts)
    return hand_in(screen, drafts, wait=wait, dry_run=dry_run)


def hand_in(screen: Screen, drafts: Sequence[Draft], *, wait: bool, dry_run: bool) -> int:
    """Returns the exit code."""
    if dry_run:
        asyncio.run(show_drafts(screen, drafts))
        return OK

    async def ask(client: AsyncClient) -> int:
        if drafts[0].step:
            return await submit_flow(client, screen, drafts, wait)
        return await _submit(client, screen, drafts[0], wait)

    return talk(screen, ask)


async def _submit(client: AsyncClient, screen: Screen, draft: Draft, wait: bool) -> int:
    [job] = await upload(client, screen, [draft.submission])
    submitted = await client.submit(job)
    screen.emit({"id": submitted.id, "tasks": submitted.tasks, "name": submitted.name})
    screen.tell(str(submitted.id))
    if submitted.tasks > 1:
        screen.note(f"job {submitted.id}: {count(submitted.tasks, 'task')}")
    if not wait:
        return OK
    [(_, counts)] = await wait_for(client, screen, [Chosen(submitted.id)])
    screen.emit({"id": submitted.id, "counts": counts})
    screen.note(f"job {submitted.id}: {states(counts)}")
    if counts.failed:
        await say_failures(client, screen, submitted.id, counts.failed)
    return exit_code([counts])
