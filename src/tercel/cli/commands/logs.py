"""tercel logs"""

import asyncio
import codecs
from contextlib import aclosing

import click

from tercel.cli.completing import any_job
from tercel.cli.lazy import Command
from tercel.cli.outputs import labelled, written
from tercel.cli.screen import Screen, write_stdout
from tercel.cli.selecting import Chosen, each_task, existing, one_task, resolve
from tercel.cli.talking import talk
from tercel.cli.words import size
from tercel.core.errors import UsageError
from tercel.core.intervals import IntervalSet
from tercel.sdk.client import AsyncClient
from tercel.wire.api import TaskView

PAGE = 500


@click.command(cls=Command)
@click.argument("select", metavar="SELECT...", nargs=-1, required=True, shell_complete=any_job)
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has ended.")
@click.option("-e", "--stderr", is_flag=True, help="What it wrote to stderr instead of stdout.")
@click.option("--label", is_flag=True, help="Begin each line with the task's id.")
@click.pass_obj
def command(screen: Screen, select: tuple[str, ...], follow: bool, stderr: bool, label: bool) -> None:
    """Print what tasks wrote: of one task (37.99), some (37.0-9) or all of a job (37, last).

    Works from anywhere, also when the worker is gone. One task's output is printed byte by byte as it was written.
    """

    async def ask(client: AsyncClient) -> None:
        chosen = await resolve(client, select, ended=True)
        if follow or not label:
            chosen = [await _only_task(client, choice) for choice in chosen]
        if follow and (len(chosen) != 1 or one_task(chosen[0]) is None):
            raise UsageError("--follow works on one task: choose it, as in 37.99", "select")
        for choice in chosen:
            if follow or (one_task(choice) is not None and not label):
                await _one(client, screen, choice, stderr, follow)
            else:
                await _many(client, screen, choice, stderr, label)

    talk(screen, ask)


async def _only_task(client: AsyncClient, choice: Chosen) -> Chosen:
    """A job of one task means that task."""
    if choice.tasks is not None:
        return choice
    job = await client.job(choice.job)
    if job.tasks > 1:
        return choice
    page = await client.tasks(choice.job, limit=1)
    return (
        choice
        if not page.tasks
        else choice._replace(tasks=IntervalSet([(page.tasks[0].task, page.tasks[0].task)]))
    )


async def _one(client: AsyncClient, screen: Screen, choice: Chosen, stderr: bool, follow: bool) -> None:
    task = one_task(choice)
    assert task is not None
    stream = "err" if stderr else "out"
    seen = False
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may be cut by the end of a chunk
    async with aclosing(client.logs(choice.job, task, stream=stream, follow=follow)) as chunks:
        async for chunk in chunks:
            seen = True
            if not screen.json:
                await asyncio.to_thread(write_stdout, chunk)
            elif text := decoder.decode(chunk):
                screen.emit({"id": str(choice), "stream": f"std{stream}", "text": text})
    if rest := decoder.decode(b"", final=True):
        screen.emit({"id": str(choice), "stream": f"std{stream}", "text": rest})
    view = await client.task(choice.job, task)
    _say_about(screen, view, stderr, seen)


async def _many(client: AsyncClient, screen: Screen, choice: Chosen, stderr: bool, label: bool) -> None:
    tasks = choice.tasks
    if tasks is not None:
        tasks = existing(await client.job(choice.job), tasks)
    async for task in each_task(client, choice.job, tasks, page=PAGE, outputs=True):
        text = (task.stderr if stderr else task.stdout) or ""
        if text:
            screen.emit({"id": task.id, "stream": "stderr" if stderr else "stdout", "text": text})
            if not screen.json:
                data = await written(client, task, "err" if stderr else "out")
                await asyncio.to_thread(write_stdout, labelled(task.id, data) if label else data)


def _say_about(screen: Screen, view: TaskView, stderr: bool, seen: bool) -> None:
    """What the output alone does not tell."""
    if not view.attempts:
        if not seen:
            screen.note(
                f"{view.id} is {view.state} and has written nothing" + (f": {view.why}" if view.why else "")
            )
        return
    last = view.attempts[-1]
    total_bytes, cut = (last.err_bytes, last.err_cut) if stderr else (last.out_bytes, last.out_cut)
    other_bytes = last.out_bytes if stderr else last.err_bytes
    if cut:
        screen.note(f"{view.id} wrote {size(total_bytes)}; only the end was kept (see --output-limit)")
    elif not seen and other_bytes:
        other = "without --stderr" if stderr else "with --stderr"
        screen.note(f"nothing here; {size(other_bytes)} on the other stream ({other})")
