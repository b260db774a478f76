"""Bringing the files that jobs read to the manager, and saying how far that is if it takes long."""

import asyncio
from collections.abc import Iterable
from threading import Event

from tercel.cli.lazy import late
from tercel.cli.progress import LINE_EVERY_S
from tercel.cli.screen import Screen
from tercel.cli.words import count, size
from tercel.sdk.client import AsyncClient
from tercel.sdk.uploading import Sent, has_local
from tercel.wire.api import Submission


async def upload(client: AsyncClient, screen: Screen, jobs: Iterable[Submission]) -> list[Submission]:
    """The same jobs, reading from the manager what was only here."""
    every = list(jobs)
    if not any(map(has_local, every)):
        return every
    latest: list[Sent] = []

    def heard(sent: Sent) -> None:
        latest[:] = [sent]

    async def tick() -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            if latest:
                screen.note(_told(latest[0]))

    ticker = asyncio.create_task(tick())
    try:
        return await client.upload_inputs(every, heard=heard)
    finally:
        ticker.cancel()
        await asyncio.gather(ticker, return_exceptions=True)


async def to_upload(jobs: Iterable[Submission]) -> str:
    """How much it would be; empty: nothing. Raises UsageError for what is not there."""
    local = [job for job in jobs if has_local(job)]
    if not local:
        return ""
    find = late("tercel.sdk.gathering", "find")
    found = [await asyncio.to_thread(find, job, Event()) for job in local]
    files = sum(len(one.files) for one in found)
    return f"{count(files, 'file')} ({size(sum(one.size_bytes for one in found))})" if files else ""


def _told(sent: Sent) -> str:
    whole = f"{count(sent.of_files, 'input file')} ({size(sent.of_bytes)})"
    if not sent.sent_bytes:
        return f"reading {whole}: {size(sent.read_bytes)} so far"
    return f"uploading {whole}: {sent.files:,} of them, {size(sent.sent_bytes)} so far"
