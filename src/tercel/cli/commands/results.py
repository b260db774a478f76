"""tercel results"""

import asyncio
from pathlib import Path

import click

from tercel.cli.completing import any_job
from tercel.cli.lazy import Command
from tercel.cli.rows import Table
from tercel.cli.screen import Screen, Unwritable, write_stdout
from tercel.cli.selecting import each_task, existing, resolve_one
from tercel.cli.tables import write_csv, write_parquet
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.sdk.client import AsyncClient

PAGE = 500


@click.command(cls=Command)
@click.argument("select", metavar="SELECT", shell_complete=any_job)
@click.option(
    "--csv", "csv_file", default="", metavar="FILE", help="Write CSV there ('-': stdout, the default)."
)
@click.option("--parquet", "parquet_file", default="", metavar="FILE", help="Write Parquet there.")
@click.pass_obj
def command(screen: Screen, select: str, csv_file: str, parquet_file: str) -> None:
    """Print a table of a job's tasks: the point of each, its state, exit code and seconds, and what it found out.

    What a task found out is the last line of its stdout that is a JSON object: each key is a column (with out_ before
    it, if a parameter is called so). Tasks that have not ended are rows too.

    \b
    tercel results last > results.csv
    tercel results 37 --parquet results.parquet
    tercel results 37 --json | jq 'select(.exit != 0)'
    """

    async def ask(client: AsyncClient) -> None:
        choice = await resolve_one(client, select)
        job = await client.job(choice.job)
        tasks = existing(job, choice.tasks) if choice.tasks is not None else None
        with Table() as table:
            async for view in each_task(client, choice.job, tasks, page=PAGE, outputs=True):
                table.add(view)
            await asyncio.to_thread(_write, screen, table, csv_file, parquet_file)

    talk(screen, ask)


def _write(screen: Screen, table: Table, csv_file: str, parquet_file: str) -> None:
    if parquet_file:
        try:
            write_parquet(table, parquet_file)
        except OSError as error:
            raise Unwritable(f"cannot write to {parquet_file}: {error.strerror or error}") from None
        _say(screen, table, parquet_file)
    if csv_file not in ("", "-"):
        try:
            with Path(csv_file).open("wb") as file:
                write_csv(table, file.write)
        except OSError as error:
            raise Unwritable(f"cannot write to {csv_file}: {error.strerror}") from None
        _say(screen, table, csv_file)
    if csv_file == "-" or not (csv_file or parquet_file):
        if screen.json:
            for row in table.rows():
                screen.emit(row)
        else:
            write_csv(table, write_stdout)


def _say(screen: Screen, table: Table, file: str) -> None:
    screen.emit({"file": file, "rows": table.count, "columns": table.columns})
    screen.note(f"{count(table.count, 'row')} in {file}")
