"""AsyncClient: everything a manager does for its users, one typed method per path of `tercel.wire.api`.

    async with AsyncClient() as client:
        job = await client.submit(Submission(argv=("./fit.sh",), array="0-99"))
        async for event in client.watch([job.id]):
            ...

The address and the token are those of the arguments, else of the environment, else of the access file.
Errors are those of `tercel.core.errors`; a task's failure is a value, never an exception.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar, Unpack

from tercel.core.model import DEFAULT_PRIORITY
from tercel.sdk.asking_events import AsksEvents
from tercel.sdk.asking_files import AsksFiles
from tercel.sdk.asking_forks import AsksForks
from tercel.sdk.asking_history import AsksHistory
from tercel.sdk.asking_jobs import AsksJobs
from tercel.sdk.asking_pool import AsksPool
from tercel.sdk.asking_recovery import AsksRecovery
from tercel.sdk.asking_snapshots import AsksSnapshots
from tercel.sdk.asks import Asks
from tercel.sdk.jobs import AsyncJob, Incoming, Outgoing, command_submission

R = TypeVar("R")


class AsyncClient(
    AsksJobs, AsksEvents, AsksHistory, AsksRecovery, AsksPool, AsksSnapshots, AsksForks, AsksFiles
):
    """Speaks to one manager from one event loop. Calls may run at the same time."""

    async def submit_command(
        self,
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
    ) -> AsyncJob:
        """Hand in a command: a shell line, or a program with its arguments.

        `mem` in bytes, or as in 4G; `time_limit` in seconds, or as in 1h30m; `array` as in 0-99:2%10. `asks`: where and how
        its tasks run, as keys of job files: gpus=1, requires=["STAR"], where="worker.os == 'linux'", cleanup="./wipe.sh".
        `inputs` and `outputs` as after --in and --out ("data/run{task}.root", "hist_*.root -> s3://bucket/{job}/"), or as
        tables of job files have them; files here are uploaded first.
        """
        submission = command_submission(
            command,
            name=name,
            cpus=cpus,
            mem=mem,
            time_limit=time_limit,
            array=array,
            retries=retries,
            priority=priority,
            cwd=cwd,
            env=env,
            inputs=inputs,
            outputs=outputs,
            **asks,
        )
        submitted = await self.submit(submission)
        return AsyncJob(self, submitted.id, submitted.tasks)

    def map(
        self,
        function: Callable[[Any], R],
        items: Iterable[Any],
        *,
        chunksize: int | str = "auto",
        progress: bool | None = None,
        resources: Mapping[str, Any] | None = None,
        retries: int = 0,
        name: str = "",
        queue: str = "",
        cwd: str = "",
    ) -> AsyncGenerator[R, None]:
        """Results of the function for each item, in order; the first exception ends it, and cancels the rest.

        With `chunksize` auto, quick items go together, so that a task takes about half a second. `progress`: a bar on
        stderr; by default on a terminal.
        """
        mapping = import_module("tercel.sdk.mapping")  # late: a command line has no use for picklers
        options = import_module("tercel.sdk.options").CallOptions(
            retries=retries, name=name, queue=queue, cwd=cwd
        )
        results: AsyncGenerator[R, None] = mapping.mapped(
            self,
            function,
            items,
            chunksize=chunksize,
            progress=progress,
            resources=resources,
            options=options,
        )
        return results
