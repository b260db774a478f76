"""No silent stall: calls that wait for what nobody has are told of on stderr, once, in the manager's words."""

import asyncio
import sys
from collections.abc import Callable, Sequence

from tercel.core.errors import TercelError
from tercel.sdk.client import AsyncClient

STALLED_S = 5.0
"""If nothing runs by then, it is said why. While no job is added, each later look takes twice as long to come."""
SELDOM_S = 60.0
MOST_LOOKED_AT = 5


async def say_why_nothing_runs(client: AsyncClient, jobs: Callable[[], Sequence[int]]) -> bool:
    """Until it was said (True), or none of the jobs is left. While one of them gets on, the others wait as they may."""
    pause_s, newest = STALLED_S, 0
    while left := jobs():
        pause_s = min(2 * pause_s, SELDOM_S) if left[-1] == newest else STALLED_S
        newest = left[-1]
        await asyncio.sleep(pause_s)
        try:
            told = await _why(client, jobs()[:MOST_LOOKED_AT])
        except TercelError:
            continue  # whoever follows the jobs says what is wrong with the manager
        if told:
            sys.stderr.write(f"tercel: {told}\n")
            return True
    return False


async def _why(client: AsyncClient, jobs: Sequence[int]) -> str:
    waiting = 0
    for job in jobs:
        counts = (await client.job(job)).counts
        if counts.running or counts.offered or counts.staging_in or counts.staging_out:
            return ""
        if (counts.ready or counts.blocked) and not waiting:
            waiting = job
    return f"job {waiting}: {(await client.explain(str(waiting))).summary}" if waiting else ""
