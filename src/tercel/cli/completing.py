"""What a shell completes by asking the manager: numbers of jobs, ids of conditions and of workers, names of files. Files it knows itself.

Whoever presses TAB waits. So a manager is asked once, for a moment; where none answers, or it does not let us in, there is
nothing to choose from, and nothing is said.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from threading import Thread
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from tercel.cli.screen import Screen
from tercel.cli.words import count, short, size, states
from tercel.core.errors import TercelError
from tercel.core.files import LFN
from tercel.links.access import find_server
from tercel.sdk.client import AsyncClient

PATIENCE_S = 0.7
NEWEST = 100
"""So many are offered."""
WIDTH = 60
_PLAIN = re.compile(r"[A-Za-z0-9._@][A-Za-z0-9._@-]*")
"""What a shell takes as it stands. Workers choose their names, and a shell puts what is offered on the line unquoted."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._@:/+=-]+")

Question = Callable[[AsyncClient], Awaitable[list[CompletionItem]]]


def any_job(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _jobs(context, incomplete, ended=True)


def unfinished_job(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _jobs(context, incomplete, ended=False)


def condition(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """C3, also for c3."""

    async def ask(client: AsyncClient) -> list[CompletionItem]:
        found = (await client.conditions(limit=NEWEST)).conditions
        return [
            CompletionItem(f"C{one.id}", help=short(f"{one.tester} ({count(one.tasks, 'task')})", WIDTH))
            for one in found
            if f"C{one.id}".startswith(incomplete.upper())
        ]

    return _asked(context, ask)


def worker(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Those that are there: one that is gone can be named, but not offered."""

    async def ask(client: AsyncClient) -> list[CompletionItem]:
        here = (one for one in (await client.pool()).workers if one.state != "offline")
        found = [one for one in here if one.id.startswith(incomplete) and _PLAIN.fullmatch(one.id)]
        return [
            CompletionItem(one.id, help=short(f"{one.state} on {one.node}", WIDTH)) for one in found[:NEWEST]
        ]

    return _asked(context, ask)


def snapshot_file(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell knows the files; @3 is none."""
    return [] if incomplete.startswith("@") else [CompletionItem(incomplete, type="file")]


def file_name(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the catalogue; those that a shell would take apart are left out."""

    async def ask(client: AsyncClient) -> list[CompletionItem]:
        found = (await client.files(incomplete or LFN, limit=NEWEST)).files
        return [
            CompletionItem(file.name, help=short(f"{size(file.size_bytes)}, of {file.owner}", WIDTH))
            for file in found
            if _PLAIN_NAME.fullmatch(file.name)
        ]

    return _asked(context, ask)


def _jobs(context: click.Context, incomplete: str, *, ended: bool) -> list[CompletionItem]:
    if incomplete and not incomplete.isdecimal():
        return []  # tasks of one, a range, `last`

    async def ask(client: AsyncClient) -> list[CompletionItem]:
        found = (await client.jobs(limit=NEWEST, all=ended)).jobs
        return [
            CompletionItem(str(job.id), help=short(f"{job.name or job.command}: {states(job.counts)}", WIDTH))
            for job in found
            if str(job.id).startswith(incomplete)
        ]

    return _asked(context, ask)


def _asked(context: click.Context, question: Question) -> list[CompletionItem]:
    """In a thread that is left behind if need be: nothing else ends the lookup of a name."""
    screen = context.find_object(Screen)
    server = None if screen is None else screen.server
    found: list[CompletionItem] = []
    asking = Thread(target=_ask, args=(server, question, found), daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    return list(found)


def _ask(server: str | None, question: Question, found: list[CompletionItem]) -> None:
    try:
        url = urlsplit(find_server(server, None)[0])
        # asyncio looks names up in threads that the process would wait for at its end: this one knows the answer then.
        socket.getaddrinfo(url.hostname, url.port)
        found += asyncio.run(_answered(server, question))
    except (TercelError, OSError, ValueError):
        return  # nobody there, too slow, or not an address: the command itself will say so


async def _answered(server: str | None, question: Question) -> list[CompletionItem]:
    async with asyncio.timeout(PATIENCE_S), AsyncClient(server) as client:
        return await question(client)
