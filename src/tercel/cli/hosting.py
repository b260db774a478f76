"""The processes that `up`, `manager`, `worker` and, where no manager runs, `run` become.

The only module here that imports wiring (and with it all of a manager); commands load it when they need it.
Signals: the first asks (what runs may end), the second insists. Either way nothing accepted is lost.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from tercel.cli.codes import OK
from tercel.cli.logbook import LogOptions, log_to_stderr
from tercel.cli.screen import Screen
from tercel.cli.services import Signals, first_of, hide_secrets
from tercel.cli.words import count, pairs
from tercel.links.access import is_loopback, write_secret
from tercel.links.places import data_dir
from tercel.manager.options import ManagerOptions
from tercel.wiring import Serving, serving, work
from tercel.worker.options import WorkerOptions
from tercel.worker.service import Worker

WORKER_TOKEN_FILE = "worker.token"  # noqa: S105 - a file's name


async def host(screen: Screen, options: ManagerOptions, worker: WorkerOptions | None, log: LogOptions) -> int:
    """A manager, and perhaps a worker beside it, until a signal ends it."""
    hide_secrets()
    here = _logging_to(log, worker) if worker is not None else None
    with log.kept(screen.quiet), Signals() as signals:
        async with serving(options, here) as served:
            _announce(screen, options, served)
            await signals.wait(1)
            if worker is not None:
                screen.note(
                    "running tasks may end now; Ctrl-C again stops at once (what runs will run again)"
                )
                await first_of(served.drain(), signals.wait(2))
    screen.note("the manager has stopped; nothing is lost, and all goes on when it starts again")
    return OK


async def join(
    screen: Screen, ways: Sequence[tuple[str, str]], options: WorkerOptions, log: LogOptions
) -> int:
    """A worker, until it is told to leave."""
    hide_secrets()
    workers: list[Worker] = []

    async def obey(signals: Signals) -> None:
        await signals.wait(1)
        screen.note("finishing what runs, then leaving; Ctrl-C again leaves at once")
        for worker in workers:
            worker.drain()
        await signals.wait(2)
        for worker in workers:
            worker.stop()
        await signals.wait(3)

    with log.kept(screen.quiet), Signals() as signals:

        def begun(worker: Worker) -> None:
            workers.append(worker)
            if signals.arrived:  # while it looked at its node
                worker.drain()

        url, *others = [url for url, _ in ways]
        screen.emit({"url": url, "dir": str(options.dir)})
        screen.note(f"joining {url}" + "".join(f", or {other}" for other in others))
        await first_of(work(ways, _logging_to(log, options), on_worker=begun), obey(signals))
    return OK


@asynccontextmanager
async def embedded_manager() -> AsyncIterator[Serving]:
    """A manager and a worker inside `tercel run`.

    It uses the default data directory: what it leaves unfinished goes on, and what it did can be looked at, with the
    next `tercel run` or `tercel up`.
    """
    log_to_stderr(logging.WARNING)
    hide_secrets()
    data = data_dir()
    options = ManagerOptions(data=data, port=0, embedded=True)
    async with serving(options, WorkerOptions(dir=data / "worker", floor_cpus=1.0)) as served:
        yield served


def _logging_to(log: LogOptions, worker: WorkerOptions) -> WorkerOptions:
    """It tells people where its process logs to."""
    return replace(worker, log=None if log.file is None else log.file.absolute())


def _announce(screen: Screen, options: ManagerOptions, served: Serving) -> None:
    """Say where it is and how to join. The worker's token goes into a file, never into a terminal or a log."""
    token_file = options.data / WORKER_TOKEN_FILE
    write_secret(token_file, f"{served.worker_token}\n".encode())
    url = served.url
    screen.emit(
        {
            "url": url,
            "data": str(options.data),
            "access": str(served.access),
            "worker_token_file": str(token_file),
            "resumed_tasks": served.resumed_tasks,
        }
    )
    resumed = f"{count(served.resumed_tasks, 'task')} from before" if served.resumed_tasks else ""
    facts = [("manager", url), ("data", str(options.data)), ("resumed", resumed)]
    screen.tell([*pairs(facts), *_how_to_join(url, token_file)])


def _how_to_join(url: str, token_file: Path) -> list[str]:
    join_line = f"    tercel worker {url} --token-file {token_file}"
    if is_loopback(url):
        return [
            "It listens on this machine only. Another worker on it joins with",
            join_line,
            "To let other machines in: tercel token create, then --host 0.0.0.0",
        ]
    return ["Any machine joins with (copy the token's file there, mode 0600)", join_line]
