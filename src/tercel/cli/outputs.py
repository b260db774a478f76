"""What the tasks of a running job wrote, shown as they end.

Events say which tasks ended and spoke; those are fetched in batches, as many as have gathered meanwhile, so that
thousands of tasks a second cost few requests, and tasks that were silent cost none. Writing is done in a thread: a
reader that is slow (`| less`) must not hold up a manager that runs in this process.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing

from tercel.cli.progress import Progress
from tercel.cli.screen import Screen, write_stderr, write_stdout
from tercel.cli.selecting import MOST_RANGES
from tercel.cli.words import ranges, size
from tercel.core.errors import PassingFault, TercelError
from tercel.core.intervals import IntervalSet
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Event, TaskList, TaskView

BATCH_TASKS = 1000
RETRY_AFTER_S = 0.5
NOT_TEXT = "\N{REPLACEMENT CHARACTER}"
"""Stands in JSON for bytes that are not UTF-8."""


class Outputs:
    """Hears a job's events; `pump` runs beside and writes."""

    def __init__(
        self, client: AsyncClient, screen: Screen, progress: Progress, job: int, *, label: bool
    ) -> None:
        self._client = client
        self._screen = screen
        self._progress = progress
        self._job = job
        self._label = label
        self._waiting = IntervalSet()
        self._shown = IntervalSet()
        self._news = asyncio.Event()
        self._closed = False

    def heard(self, event: Event) -> None:
        # After a reconnection the first event repeats all that ended before.
        fresh = IntervalSet(event.spoke)
        fresh.difference_update(self._shown)
        self._waiting.update(fresh)
        self._news.set()

    def close(self) -> None:
        """No more events follow: `pump` ends when all is written."""
        self._closed = True
        self._news.set()

    async def pump(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._show_some()
            if self._closed:
                return

    async def _show_some(self) -> None:
        batch = _batch(self._waiting)
        try:
            page = await self._client.tasks(self._job, tasks=ranges(batch), limit=BATCH_TASKS, outputs=True)
            wrote = [] if self._screen.json else [await self._wrote(task) for task in page.tasks]
        except PassingFault:
            await asyncio.sleep(RETRY_AFTER_S)  # the manager restarts: what it keeps is not lost
            return
        if page.more and page.tasks:
            batch = batch.intersection(IntervalSet([(0, page.tasks[-1].task)]))
        self._waiting.difference_update(batch)
        self._shown.update(batch)
        if self._screen.json:
            await asyncio.to_thread(self._emit, page)
            return
        with self._progress.aside():
            await asyncio.to_thread(write_tasks, wrote)

    async def _wrote(self, task: TaskView) -> tuple[bytes, bytes]:
        out, err = await written(self._client, task, "out"), await written(self._client, task, "err")
        return (labelled(task.id, out), labelled(task.id, err)) if self._label else (out, err)

    def _emit(self, page: TaskList) -> None:
        for task in page.tasks:
            if task.stdout or task.stderr:
                self._screen.emit(task, event="output")


def write_tasks(wrote: Iterable[tuple[bytes, bytes]]) -> None:
    """Stdout of each to stdout, stderr to stderr; in runs, so that few writes are made."""
    out: list[bytes] = []
    for stdout, stderr in wrote:
        out.append(stdout)
        if stderr:
            write_stdout(b"".join(out))
            out.clear()
            write_stderr(stderr)
    write_stdout(b"".join(out))


async def written(client: AsyncClient, task: TaskView, stream: str) -> bytes:
    """What a task wrote to `out` or `err`. Bytes that are not text, which JSON cannot carry, are asked for anew."""
    text = (task.stdout if stream == "out" else task.stderr) or ""
    if NOT_TEXT not in text:
        return text.encode(errors="replace")
    async with aclosing(client.logs(task.job, task.task, stream=stream)) as chunks:
        return b"".join([chunk async for chunk in chunks])


def labelled(name: str, text: bytes) -> bytes:
    """Each line after the task's name; a last line without its end gets one."""
    if not text:
        return b""
    return b"".join(b"%b: %b\n" % (name.encode(), line) for line in text.removesuffix(b"\n").split(b"\n"))


def _batch(waiting: IntervalSet) -> IntervalSet:
    """The first of the waiting tasks, as many as one request may ask for."""
    return IntervalSet(IntervalSet(waiting.ranges()[:MOST_RANGES]).take_first(BATCH_TASKS))


class LiveTask:
    """The two streams of one task, written while it runs."""

    def __init__(self, client: AsyncClient, screen: Screen, job: int, task: int) -> None:
        self._client = client
        self._screen = screen
        self._job = job
        self._task = task
        self._seen = {"out": 0, "err": 0}
        self._whole: set[str] = set()
        """The streams that were followed to their end: of these nothing can be made up for."""

    async def follow(self) -> None:
        """Until the task has ended. Breaks are not raised: `complete` makes up for what was missed."""
        await asyncio.gather(self._follow("out", write_stdout), self._follow("err", write_stderr))

    async def complete(self) -> None:
        """Once the task has ended: write what `follow` did not see, and nothing twice."""
        task = await self._client.task(self._job, self._task)
        if not task.attempts:
            return
        last = task.attempts[-1]
        for stream, total_bytes, write in (
            ("out", last.out_bytes, write_stdout),
            ("err", last.err_bytes, write_stderr),
        ):
            if stream not in self._whole:
                # Run anew elsewhere, what was seen may be of an earlier attempt.
                seen = self._seen[stream] if len(task.attempts) == 1 else 0
                self._seen[stream] = seen + await self._write_end(stream, total_bytes - seen, write)
            if self._seen[stream] < total_bytes:
                self._screen.note(
                    f"{task.id} wrote {size(total_bytes)} to std{stream}; of that {size(self._seen[stream])} were "
                    "kept long enough to be shown (see --output-limit)"
                )

    async def _write_end(self, stream: str, missed: int, write: Callable[[bytes], None]) -> int:
        """The last bytes of what is kept. Returns how many those were."""
        if missed <= 0:
            return 0
        kept = b"".join([chunk async for chunk in self._client.logs(self._job, self._task, stream=stream)])
        await asyncio.to_thread(write, kept[-missed:])
        return min(missed, len(kept))

    async def _follow(self, stream: str, write: Callable[[bytes], None]) -> None:
        try:
            async with aclosing(
                self._client.logs(self._job, self._task, stream=stream, follow=True)
            ) as chunks:
                async for chunk in chunks:
                    self._seen[stream] += len(chunk)
                    await asyncio.to_thread(write, chunk)
            self._whole.add(stream)
        except TercelError:
            return
