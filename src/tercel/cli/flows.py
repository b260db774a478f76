"""Handing in a flow, and telling of its jobs together."""

from collections.abc import Iterable, Sequence

from tercel.cli.codes import OK
from tercel.cli.screen import Screen
from tercel.cli.selecting import Chosen
from tercel.cli.uploading import upload
from tercel.cli.waiting import exit_code, say_failures, wait_for
from tercel.cli.words import count, ranges
from tercel.core.intervals import IntervalSet
from tercel.sdk.client import AsyncClient
from tercel.sdk.files import Draft
from tercel.wire.api import Counts, FlowSubmitted

MOST_FAILED_JOBS = 5


async def submit_flow(client: AsyncClient, screen: Screen, drafts: Sequence[Draft], wait: bool) -> int:
    uploaded = await upload(client, screen, (draft.submission for draft in drafts))
    submitted = await client.submit_flow(uploaded)
    jobs = [job.id for job in submitted.jobs]
    screen.emit({"jobs": submitted.jobs})
    screen.tell(selector_of(jobs))
    screen.note(flow_of(submitted))
    if not wait:
        return OK
    results = await wait_for(client, screen, [Chosen(job) for job in jobs])
    ended = [(choice.job, counts) for choice, counts in results]
    for job, counts in ended:
        screen.emit({"id": job, "counts": counts})
    await say_failures_of(client, screen, ended)
    return exit_code(counts for _, counts in ended)


def selector_of(jobs: Iterable[int]) -> str:
    """`37-40`, as other commands take it."""
    return ranges(IntervalSet((job, job) for job in jobs))


def flow_of(submitted: FlowSubmitted) -> str:
    """`4 jobs, 31 tasks`"""
    return f"{count(len(submitted.jobs), 'job')}, {count(sum(job.tasks for job in submitted.jobs), 'task')}"


async def say_failures_of(
    client: AsyncClient, screen: Screen, jobs: Iterable[tuple[int, Counts]], *, before: str = ""
) -> None:
    failed = [(job, counts.failed) for job, counts in jobs if counts.failed]
    for job, number in failed[:MOST_FAILED_JOBS]:
        await say_failures(client, screen, job, number, before=before)
    if len(failed) > MOST_FAILED_JOBS:
        screen.note(f"and tasks of {count(len(failed) - MOST_FAILED_JOBS, 'other job')} failed")
