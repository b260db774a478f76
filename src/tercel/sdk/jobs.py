"""A job that was submitted, as an object: AsyncJob, and Job for programs without an event loop (see sync)."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import msgspec

from tercel.core.commands import parse_size, parse_time
from tercel.core.declaring import read_input, read_output
from tercel.core.files import Input, Output
from tercel.core.model import DEFAULT_PRIORITY
from tercel.sdk.asks import Asks, asked_fields
from tercel.wire.api import Counted, JobView, Submission, TaskView

if TYPE_CHECKING:
    from tercel.sdk.client import AsyncClient


Incoming = str | Mapping[str, str] | Input
"""As after --in, or by the names of its parts: {"source": …, "name": …, "digest": …}."""
Outgoing = str | Mapping[str, object] | Output
"""As after --out, or by the names of its parts: {"name": …, "to": …, "optional": …, "when": …}."""


class AsyncJob:
    def __init__(self, client: "AsyncClient", id: int, tasks: int) -> None:
        self._client = client
        self.id = id
        self.tasks = tasks
        """How many it has."""

    async def view(self) -> JobView:
        """How it stands."""
        return await self._client.job(self.id)

    async def wait(self) -> JobView:
        """Until all its tasks have ended; through restarts of the manager."""
        async for _ in self._client.watch([self.id]):
            pass
        return await self.view()

    async def results(self) -> AsyncGenerator[TaskView, None]:
        """Its tasks in order of number, with what they wrote. Those that have not ended are as they stand."""
        after, more = -1, True
        while more:
            page = await self._client.tasks(self.id, after=after, outputs=True)
            for task in page.tasks:
                yield task
                after = task.task
            more = page.more

    async def cancel(self, reason: str = "") -> Counted:
        """End it. The count is of tasks that ended by this."""
        return await self._client.cancel([str(self.id)], reason=reason)


def command_submission(
    command: str | Sequence[str],
    *,
    name: str = "",
    cpus: float = 1.0,
    mem: str | int = 0,
    time_limit: str | float = 0.0,
    array: str = "",
    retries: int = 0,
    priority: int = DEFAULT_PRIORITY,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    inputs: Sequence[Incoming] = (),
    outputs: Sequence[Outgoing] = (),
    **asks: Unpack[Asks],
) -> Submission:
    submission = Submission(
        name=name,
        cpus=cpus,
        mem_bytes=parse_size(mem, "mem") if isinstance(mem, str) else mem,
        time_limit_s=parse_time(time_limit, "time_limit") if isinstance(time_limit, str) else time_limit,
        array=array,
        retries=retries,
        priority=priority,
        cwd=cwd,
        env=dict(env or {}),
        inputs=tuple(map(read_input, inputs)),
        outputs=tuple(map(read_output, outputs)),
        **asked_fields(asks),
    )
    if isinstance(command, str):
        return msgspec.structs.replace(submission, line=command)
    return msgspec.structs.replace(submission, argv=tuple(command))
