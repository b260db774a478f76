"""What is asked about what befell tasks, about undoing it, and about removing what is old."""

from collections.abc import AsyncGenerator, Iterable

import msgspec

from tercel.core.states import Checkpoint, TaskState
from tercel.sdk.answers import Query, decode, target
from tercel.sdk.connection import Connection
from tercel.wire import api


class AsksHistory(Connection):
    async def history(
        self, job: int, task: int | None = None, *, skip: int = 0, limit: int = 100
    ) -> api.History:
        """A page of what befell a task, or a job, oldest first."""
        path = f"/jobs/{job}/history" if task is None else f"/jobs/{job}/tasks/{task}/history"
        query: Query = {"skip": skip or None, "limit": limit}
        return await self._ask("GET", path, api.History, query)

    async def each_event(self, job: int, task: int | None = None) -> AsyncGenerator[api.HistoryEvent, None]:
        """All of what `history` tells, page by page."""
        page = await self.history(job, task, limit=1000)
        while True:
            for event in page.events:
                yield event
            if not page.more:
                return
            page = await self.history(job, task, skip=page.next, limit=1000)

    async def rollback(
        self,
        select: Iterable[str],
        *,
        states: Iterable[TaskState] = (),
        since: float | None = None,
        to: Checkpoint = Checkpoint.ACCEPTED,
        only: bool = False,
        force: bool = False,
        dry_run: bool = False,
        reason: str = "",
    ) -> api.RolledBack:
        """Return ended tasks to an earlier checkpoint, and with them what finished using their results.

        With `dry_run` nothing is done, and told what would be.
        """
        asked = api.Rollback(
            select=list(select),
            states=list(states),
            since=since,
            to=to,
            only=only,
            force=force,
            dry_run=dry_run,
            reason=reason,
        )
        # Not repeatable: what has ended again in between would be undone a second time.
        return await self._ask("POST", "/rollback", api.RolledBack, body=asked, repeatable=dry_run)

    async def clean(self, older_s: float, *, dry_run: bool = False, snapshot: bool = True) -> api.Cleaned:
        """Remove jobs that ended so long ago, and what else is as old, after a snapshot of them. For admins."""
        data = msgspec.json.encode(api.Clean(older_s=older_s, dry_run=dry_run, snapshot=snapshot))
        answer = await self._upload(target("/clean", {}), len(data), [data])  # however long it takes
        return decode(answer.body, api.Cleaned)
