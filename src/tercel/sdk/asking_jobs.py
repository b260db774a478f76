"""What is asked about jobs, their tasks and the values of functions: handing in, looking, ending, running again."""

import os
from collections.abc import AsyncGenerator, Iterable, Mapping

import msgspec

from tercel.core.model import BlockRule
from tercel.core.states import TaskState
from tercel.sdk.answers import Query, decode, target, unpack
from tercel.sdk.http import ANSWER_TIMEOUT_S
from tercel.sdk.uploading import Uploads
from tercel.wire import api


class AsksJobs(Uploads):
    async def submit(self, submission: api.Submission) -> api.Submitted:
        """Hand in a job; when this returns, it is durable.

        A submission without a key is given one, so that repeating it after a broken connection is safe. Inputs that are
        files here are uploaded first.
        """
        if submission.inputs:
            [submission] = await self.upload_inputs([submission])
        if not submission.key:
            submission = msgspec.structs.replace(submission, key=os.urandom(16).hex())
        packed = submission.calls is not None  # in JSON, bytes would be a third larger, and slow
        return await self._ask("POST", "/jobs", api.Submitted, body=submission, packed=packed)

    async def submit_flow(self, jobs: Iterable[api.Submission], *, key: str = "") -> api.FlowSubmitted:
        """Hand in jobs that may wait for one another (After -1 is the first of them), all or none."""
        flow = api.Flow(jobs=await self.upload_inputs(jobs), key=key or os.urandom(16).hex())
        return await self._ask("POST", "/flows", api.FlowSubmitted, body=flow)

    async def jobs(self, *, before: int | None = None, limit: int = 100, all: bool = False) -> api.JobList:
        """Jobs, newest first: unfinished ones, or with `all` ended ones too."""
        query: Query = {"before": before, "limit": limit, "all": all or None}
        return await self._ask("GET", "/jobs", api.JobList, query)

    async def job(self, job: int) -> api.JobView:
        return await self._ask("GET", f"/jobs/{job}", api.JobView)

    async def submission(self, job: int) -> api.Submission:
        """The job as it was handed in: to be submitted again, perhaps changed."""
        return await self._ask("GET", f"/jobs/{job}/submission", api.Submission)

    async def tasks(
        self,
        job: int,
        *,
        tasks: str = "",
        state: TaskState | None = None,
        after: int | None = None,
        limit: int = 1000,
        outputs: bool = False,
    ) -> api.TaskList:
        """Tasks of a job by number; `tasks` (0-9,12) and `state` choose among them."""
        query: Query = {"tasks": tasks or None, "state": state, "after": after, "limit": limit}
        return await self._ask(
            "GET", f"/jobs/{job}/tasks", api.TaskList, query | {"outputs": outputs or None}
        )

    async def task(self, job: int, task: int) -> api.TaskView:
        """One task with every attempt at it."""
        return await self._ask("GET", f"/jobs/{job}/tasks/{task}", api.TaskView)

    async def logs(
        self, job: int, task: int, *, stream: str = "out", follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """What a task wrote to `out` or `err`; with `follow`, until it has ended."""
        query: Query = {"stream": stream, "follow": follow or None}
        with await self._stream(target(f"/jobs/{job}/tasks/{task}/logs", query), None) as chunks:
            async for chunk in chunks:
                yield chunk

    async def cancel(
        self, select: Iterable[str], *, reason: str = "", unstarted: bool = False
    ) -> api.Counted:
        """End tasks; with `unstarted` only such as have not begun. The count is of those that ended by this."""
        selection = api.Selection(select=list(select), reason=reason, unstarted=unstarted)
        return await self._ask("POST", "/cancel", api.Counted, body=selection)

    async def retry(
        self,
        select: Iterable[str],
        *,
        reason: str = "",
        all: bool = False,
        mem_bytes: int | None = None,
        time_limit_s: float | None = None,
    ) -> api.Counted:
        """Run tasks again that failed or (if they are named) were cancelled; with `all`, finished ones too.

        The count is of those that will. From then on the job's tasks ask for as much memory and time as is said.
        """
        asked = api.Retry(
            select=list(select), reason=reason, all=all, mem_bytes=mem_bytes, time_limit_s=time_limit_s
        )
        # Not repeatable: a task that failed again in between would be run a third time.
        return await self._ask("POST", "/retry", api.Counted, body=asked, repeatable=False)

    async def hold(self, select: Iterable[str]) -> api.Counted:
        """Start nothing more of these until they are released; what runs goes on."""
        return await self._ask("POST", "/hold", api.Counted, body=api.Selection(select=list(select)))

    async def release(self, select: Iterable[str]) -> api.Counted:
        return await self._ask("POST", "/release", api.Counted, body=api.Selection(select=list(select)))

    async def revise(
        self,
        select: Iterable[str],
        *,
        priority: int | None = None,
        cpus: float | None = None,
        mem_bytes: int | None = None,
        time_limit_s: float | None = None,
        gpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        requires: Iterable[str] | None = None,
        where: str | None = None,
        rank: str | None = None,
        block_on: Iterable[BlockRule] | None = None,
    ) -> api.Counted:
        """Change what unfinished jobs ask for; None stays as it is. The count is of jobs."""
        wish = api.Revision(
            select=list(select),
            priority=priority,
            cpus=cpus,
            mem_bytes=mem_bytes,
            time_limit_s=time_limit_s,
            gpus=gpus,
            resources=None if resources is None else dict(resources),
            requires=None if requires is None else list(requires),
            where=where,
            rank=rank,
            block_on=None if block_on is None else list(block_on),
        )
        return await self._ask("POST", "/revise", api.Counted, body=wish)

    async def explain(self, task: str) -> api.Explanation:
        """Why a task (37.5) or the tasks of a job (37) are where they are."""
        return await self._ask("GET", "/explain", api.Explanation, {"task": task})

    # -- values -------------------------------------------------------------------------------------------

    async def values(self, job: int, tasks: str = "") -> list[api.ValueRow]:
        """How those of a function's tasks (0-9,12) that ended did, in order; of a large number the first part."""
        answer = await self._fetch("GET", target(f"/jobs/{job}/values", {"tasks": tasks or None}))
        return unpack(answer.body, list[api.ValueRow])

    async def upload(self, key: str, content: bytes) -> api.Stored:
        """Keep a value that calls refer to; its key is `b` and the SHA-256 of the content, in hex."""
        answer = await self._fetch(
            "PUT", target(f"/values/{key}", {}), content, media="application/octet-stream"
        )
        return decode(answer.body, api.Stored)

    async def value(self, key: str) -> AsyncGenerator[bytes, None]:
        """What was uploaded under a key, or what a task (t37.4) returned, pickled, as it arrives."""
        with await self._stream(target(f"/values/{key}", {}), ANSWER_TIMEOUT_S) as chunks:
            async for chunk in chunks:
                yield chunk
