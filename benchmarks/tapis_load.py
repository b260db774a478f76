"""Tapis' load test: 10,000 jobs at once, 50 slots, sleeps of 15 to 90 s divided by 60. Tapis reached 0.29 of the ideal, and 1 failed.

Real processes. Then the same with an outage: 29 % of the jobs need a service that is out from the beginning. Each of them ends with exit
code 75 when it meets that, and waits for the service. It comes back when the last of them has met the outage: then exactly 29 % were
blocked, each once. Most of the other work is done by then; so this lasts about two minutes, two hours of Tapis' time. Were it longer, slots
would be idle because nothing is left to do. The ideal is the same as without an outage.

All times are divided by 60. Tapis tests after 10 s twice, 20 s ten times, 60 s ten times, 120 s a hundred times, then every 300 s, for two
days: divided, and where that is less, every second, which is the shortest that Tercel allows.

--seed-mode: the same cores do it by Tapis' rules: at most 10 starts in 2 s, 8 on one node, both divided by 60; batches of ten are let go, one
after the other (see tapis_manager). A number: so many jobs.
"""

import asyncio
import random
import sys
import time
from pathlib import Path

import msgspec

from harness import HERE, claim, manager, place, run
from tercel.core.model import BlockRule
from tercel.sdk import AsyncClient
from tercel.wire.api import Submission

SEED_MODE = "--seed-mode" in sys.argv
JOBS = next((int(word) for word in sys.argv[1:] if word.isdigit()), 10_000)
SLOTS = 50
BLOCKED = 0.29
POLICY = "every 1s x22, 2s x100, then 5s for 48m"
THROTTLES = ("--throttle", "starts=10/0.0333s", "--throttle", "launches=8/0.0333s")


class Load(msgspec.Struct):
    jobs: list[Submission]
    ideal_s: float
    """If no slot is ever idle."""
    service: Path
    """It is there if this file is."""
    met: Path
    """A line for each attempt that met the outage."""
    needing: int
    """How many jobs need the service."""


def load(root: Path, share: float) -> Load:
    chance = random.Random(1)
    sleeps = [chance.uniform(15, 90) / 60 for _ in range(JOBS)]
    service, met = root / "service", root / "met"
    rule = BlockRule(on="exit:75", tester=f"file:{service}", policy=POLICY)
    jobs = []
    for number, sleep_s in enumerate(sleeps):
        if chance.random() < share:
            line = f"[ -e {service} ] && exec sleep {sleep_s:.3f}; echo {number} >> {met}; exit 75"
            jobs.append(Submission(line=line, block_on=(rule,)))
        else:
            jobs.append(Submission(argv=("sleep", f"{sleep_s:.3f}")))
    return Load(jobs, sum(sleeps) / SLOTS, service, met, sum(bool(job.block_on) for job in jobs))


async def submit_all(client: AsyncClient, jobs: list[Submission]) -> None:
    few = asyncio.Semaphore(64)

    async def submit(job: Submission) -> None:
        async with few:
            await client.submit(job)

    await asyncio.gather(*(submit(job) for job in jobs))


async def mended(client: AsyncClient, load: Load) -> None:
    """The service is back as soon as all that need it have met the outage."""
    while (await client.status()).counts.blocked < load.needing:
        await asyncio.sleep(0.25)
    load.service.touch()


async def all_ended(client: AsyncClient) -> None:
    while (await client.status()).jobs:
        await asyncio.sleep(0.1)


async def finished_count(client: AsyncClient) -> int:
    count, before = 0, None
    while True:
        page = await client.jobs(before=before, limit=1000, all=True)
        count += sum(job.counts.finished for job in page.jobs)
        if not page.more:
            return count
        before = page.jobs[-1].id


async def measure(share: float) -> float:
    """How near to the ideal."""
    with place() as at:
        if SEED_MODE:
            at.program = (str(HERE / "tapis_manager.py"),)
        words = ("up", "--cpus", str(SLOTS), *(THROTTLES if SEED_MODE else ()))
        with manager(at, *words) as managed:
            given = load(at.root, share)
            async with managed.client() as client:
                began = time.perf_counter()
                await submit_all(client, given.jobs)
                await mended(client, given)
                outage_s = time.perf_counter() - began
                await all_ended(client)
                took_s = time.perf_counter() - began
                assert await finished_count(client) == JOBS
        met = given.met.read_text().split() if given.needing else []
    assert len(met) == len(set(met)) == given.needing, (len(met), len(set(met)), given.needing)
    told = f"{len(met):,} blocked once, by an outage of {outage_s:.0f} s" if met else "none blocked"
    print(f"{JOBS:,} jobs, {told}: {took_s:.1f} s, ideal {given.ideal_s:.1f} s, none failed")
    return given.ideal_s / took_s


async def main() -> None:
    how, bars = (" in seed mode", (0.29, 0.29)) if SEED_MODE else ("", (0.95, 0.90))
    claim(f"{JOBS:,} jobs at once on {SLOTS} slots{how} / ideal", await measure(0.0), bars[0], " x")
    claim(f"the same with 29 % blocked once by an outage{how} / ideal", await measure(BLOCKED), bars[1], " x")


run(main())
