"""The one place that chooses adapters: which store, which links, which runner.

serving()         a manager, and with it, if wanted, a worker in the same process
work()            a worker that dials out to a manager
offline_tokens()  the tokens of a manager that is not running
"""

import asyncio
import gc
import getpass
import os
import random
import resource
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from tercel.core.changes import Loaded, TokenAdded, TokenRevoked
from tercel.core.errors import UsageError
from tercel.core.model import Role, Token
from tercel.links.access import FILE_NAME, Access, is_loopback_host, remove_access, write_access, write_secret
from tercel.links.contract import Dialer, ManagerEnd
from tercel.links.failover import FailoverDialer
from tercel.links.local import LocalDialer
from tercel.links.places import private_dir, shared_cache_dir
from tercel.links.websocket import WebSocketDialer
from tercel.manager.access import Tokens, digest, issue
from tercel.manager.cleaning import keep_sweeping
from tercel.manager.conversation import converse
from tercel.manager.http import application
from tercel.manager.options import ManagerOptions
from tercel.manager.respelling import respelled
from tercel.manager.server import Runner
from tercel.manager.service import Manager
from tercel.runners.pool import SpawnerPool
from tercel.stores.sqlite import SqliteStore
from tercel.testers.late import LateTesters
from tercel.wire.api import IssuedToken, TokenView
from tercel.worker.files import Way
from tercel.worker.meter import Meter
from tercel.worker.node import describe, usable_cores, usable_mem_bytes
from tercel.worker.options import WorkerOptions
from tercel.worker.pressure import pressure_for
from tercel.worker.service import Worker
from tercel.worker.watching import NodeSenses

try:
    import uvloop
except ImportError:  # no wheel for this platform: slower, otherwise the same
    uvloop = None  # type: ignore[assignment]

T = TypeVar("T")
STORE_FILE = "tercel.db"
LOOK_EVERY_S = 0.1
CONTAINER_ARGS = "TERCEL_CONTAINER_ARGS"
"""What else this node's container engine needs to be told, if anything."""


GARBAGE_THRESHOLDS = (10_000, 10, 10)
"""With thousands of links one full search for garbage takes 150 ms, in which nobody is served. Little of what is
made here needs to be searched for, so that is done 14 times less often than by default: up to a million objects
(about 100 MB) may wait for it."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run on the fastest loop there is, in a process that does nothing else."""
    gc.freeze()  # what was imported is there to stay, and need not be looked at again
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop is not None else None) as runner:
        return runner.run(main)


# -- a manager --------------------------------------------------------------------------------------------


class Serving:
    """A manager that runs."""

    def __init__(self, manager: Manager, keys: "_Keys", door: "_Door", access: Path) -> None:
        self.url = door.url
        self.token = keys.admin
        self.worker_token = keys.worker
        self.access = access
        jobs = manager.machine.jobs.values()
        self.resumed_jobs = [job.id for job in jobs]
        """Found unfinished in its directory when it started; and how many tasks that leaves to do."""
        self.resumed_tasks = sum(job.task_count - job.ended_count for job in jobs)
        self.worker: Worker | None = None
        """The one in this process, if any."""
        self._work: asyncio.Task[None] | None = None
        self._manager = manager
        self._door = door

    def has_worker(self, worker: Worker, work: "asyncio.Task[None]") -> None:
        self.worker, self._work = worker, work

    async def wait_idle(self) -> None:
        """Until no job is unfinished."""
        # One after the other: whichever is last, the wait is as long, and each event costs one job, not all.
        while (job := next(iter(self._manager.machine.jobs), None)) is not None:
            subscription = self._manager.hub.subscribe([job])
            try:
                await subscription.next()
            finally:
                self._manager.hub.unsubscribe(subscription)
        await self._manager.settled()

    async def wait_stuck(self, patience_s: float) -> None:
        """Until for so long no task was under way and nobody was connected: nothing here can run what is left."""
        stuck_since = time.monotonic()
        while time.monotonic() - stuck_since < patience_s:
            if self._door.connections or any(job.flights for job in self._manager.machine.jobs.values()):
                stuck_since = time.monotonic()
            await asyncio.sleep(LOOK_EVERY_S)

    async def wait_unused(self, patience_s: float) -> None:
        """Until nobody is connected, or so long: who waited for a job still wants to read what it left."""
        until = time.monotonic() + patience_s
        while self._door.connections and time.monotonic() < until:  # noqa: ASYNC110 - aiohttp does not tell
            await asyncio.sleep(0.005)

    async def drain(self) -> None:
        """Let what runs in this process end and be reported; the rest stays for the next start."""
        if self.worker is not None and self._work is not None:
            self.worker.drain()
            await asyncio.wait([self._work])


@asynccontextmanager
async def serving(
    options: ManagerOptions, local_worker: WorkerOptions | None = None
) -> AsyncIterator[Serving]:
    """Everything is released, in reverse order, however the block is left; nothing accepted is lost by it."""
    private_dir(options.data)
    _allow_many_files()
    with _opened(options.data) as (store, loaded):
        keys = _keys(options.data)
        tokens = Tokens(loaded.tokens)
        _check_exposure(options, tokens)
        for token in keys.tokens():
            tokens.add_own(token)
        async with (
            _testers() as testers,
            _managing(await _manager(options, store, loaded, testers)) as manager,
            _listening(options, manager, tokens) as door,
            _running(manager.run()),
            _running(manager.snapshots.keep_taking()),
            _running(keep_sweeping(manager)),
        ):
            access = Access(
                url=door.url,
                token=keys.admin,
                worker_token=keys.worker,
                pid=os.getpid(),
                data=str(options.data),
                embedded=options.embedded,
            )
            with _access_file(access, options.data / FILE_NAME if options.private else None) as path:
                served = Serving(manager, keys, door, path)
                if local_worker is None:
                    yield served
                else:
                    here = _worker_here(manager, local_worker, testers, lambda: (door.url, keys.worker))
                    async with here as (worker, work):
                        served.has_worker(worker, work)
                        yield served


@asynccontextmanager
async def _managing(manager: Manager) -> AsyncIterator[Manager]:
    with closing(manager):
        yield manager


@asynccontextmanager
async def _testers() -> AsyncIterator[LateTesters]:
    """What they have started is ended with them."""
    testers = LateTesters()
    try:
        yield testers
    finally:
        await testers.close()


def _allow_many_files() -> None:
    """Every worker and every client takes a descriptor; the usual 1024 would turn the next ones away."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # where it cannot be had, as many are served as there is room for
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _opened(data: Path) -> Iterator[tuple[SqliteStore, Loaded]]:
    """One manager per directory: the store is owned by one process at a time, and let go however that ends."""
    store = SqliteStore(data / STORE_FILE)
    try:
        with _no_search_for_garbage():
            loaded = store.load()
        yield store, loaded
    finally:
        store.close()


async def _manager(
    options: ManagerOptions, store: SqliteStore, loaded: Loaded, testers: LateTesters
) -> Manager:
    written_now = await respelled(testers, loaded)
    with _no_search_for_garbage():
        return Manager(options, store, written_now, testers)


@contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """While very much is made of which nothing is garbage: to search it again and again takes as long as to make it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _access_file(access: Access, place: Path | None) -> Iterator[Path]:
    path = write_access(access, place)
    try:
        yield path
    finally:
        remove_access(access, path)


class _Keys(msgspec.Struct, frozen=True):
    """The tokens of the manager's own user. They last, so that workers of this machine can come back."""

    admin: str
    worker: str
    made_at: float

    def tokens(self) -> list[Token]:
        user = getpass.getuser()
        return [
            Token(
                id=text.partition(".")[0],
                role=role,
                user=user,
                digest=digest(text.partition(".")[2]),
                created_at=self.made_at,
                note="of this machine: in the access file",
            )
            for role, text in ((Role.ADMIN, self.admin), (Role.WORKER, self.worker))
        ]


def _keys(data: Path) -> _Keys:
    path = data / "keys.json"
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=_Keys)
    texts = [f"{secrets.token_hex(4)}.{secrets.token_urlsafe(32)}" for _ in range(2)]
    keys = _Keys(admin=texts[0], worker=texts[1], made_at=time.time())
    write_secret(path, msgspec.json.encode(keys))
    return keys


def _check_exposure(options: ManagerOptions, tokens: Tokens) -> None:
    if not is_loopback_host(options.host) and len(tokens) == 0:
        raise UsageError(
            f"listening on {options.host} is refused while no token exists, for others could not use it and should "
            f"not guess: make one with `tercel token create --role worker --data {options.data}`",
            "host",
        )


class _Door:
    """Where a manager listens."""

    def __init__(self, url: str, runner: Runner) -> None:
        self.url = url
        self._runner = runner

    @property
    def connections(self) -> int:
        """Clients and workers that are connected at this moment."""
        return len(self._runner.server.connections) if self._runner.server is not None else 0


@asynccontextmanager
async def _listening(options: ManagerOptions, manager: Manager, tokens: Tokens) -> AsyncIterator[_Door]:
    runner = Runner(application(manager, tokens))
    await runner.setup()
    try:
        site = web.TCPSite(runner, options.host, options.port, backlog=4096)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                f"cannot listen on {options.host} port {options.port}: {error.strerror or error}", "port"
            ) from None
        host, port = runner.addresses[0][:2]
        yield _Door(f"http://{_shown(host)}:{port}", runner)
    finally:
        await runner.cleanup()


def _shown(host: str) -> str:
    """The address others use: a manager on all interfaces is reached by the machine's name."""
    if host in ("0.0.0.0", "::"):  # noqa: S104  # compared, not listened on
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


@asynccontextmanager
async def _running(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run beside the block. If it ends by a fault the block is cancelled and the fault raised: no silent stall."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(coroutine)
        try:
            yield task
        finally:
            task.cancel()


# -- a worker ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def _worker_here(
    manager: Manager, options: WorkerOptions, testers: LateTesters, way: Way
) -> AsyncIterator[tuple[Worker, "asyncio.Task[None]"]]:
    conversations: set[asyncio.Task[None]] = set()

    def accept(end: ManagerEnd) -> None:
        task = asyncio.get_running_loop().create_task(converse(manager, end))
        conversations.add(task)
        task.add_done_callback(conversations.discard)

    worker = await _worker(options, LocalDialer(accept), testers, way)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(worker.run())
        try:
            yield worker, task
        finally:
            worker.stop()


async def work(
    ways: Sequence[tuple[str, str]],
    options: WorkerOptions,
    *,
    on_worker: Callable[[Worker], None] = lambda _: None,
) -> None:
    """Until drained, stopped or refused. `ways`: the manager's addresses, each with a token for it."""
    private_dir(options.dir)
    dialer = FailoverDialer([(url, token, WebSocketDialer(url, token)) for url, token in ways])
    async with _testers() as testers:
        worker = await _worker(options, dialer, testers, dialer.way)
        on_worker(worker)
        await worker.run()


async def _worker(options: WorkerOptions, dialer: Dialer, testers: LateTesters, way: Way) -> Worker:
    """Raises UsageError if this node cannot give what the options say."""
    if options.cache_dir is None:
        shared = await asyncio.to_thread(shared_cache_dir, options.dir)
        options = msgspec.structs.replace(options, cache_dir=shared)
    info = await asyncio.to_thread(describe, options)
    if info.gpus:
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # tasks count GPUs as the worker does
    return Worker(
        options,
        info,
        dialer,
        SpawnerPool(options.dir, info.node, container_args=os.environ.get(CONTAINER_ARGS, "")),
        rng=random.Random(),  # noqa: S311
        senses=NodeSenses(options.dir, Meter(options.dir).read, options.health_check),
        pressure=pressure_for(options, info.capacity, usable_cores(), usable_mem_bytes()),
        testers=testers,
        way=way,
    )


# -- tokens of a manager that is not running --------------------------------------------------------------


class OfflineTokens:
    def __init__(self, store: SqliteStore, tokens: Tokens) -> None:
        self._store = store
        self._tokens = tokens

    def create(self, role: Role, user: str, note: str = "") -> IssuedToken:
        token, text = issue(role, user, note, time.time())
        self._store.write([TokenAdded(token)])
        self._store.commit()
        return IssuedToken(id=token.id, role=role, user=user, secret=text)

    def list(self) -> list[TokenView]:
        return [
            TokenView(id=t.id, role=t.role, user=t.user, created_at=t.created_at, note=t.note)
            for t in self._tokens.all()
        ]

    def revoke(self, id: str) -> bool:
        token = self._tokens.remove(id)
        self._store.write([TokenRevoked(token.id)])
        self._store.commit()
        return True


@contextmanager
def offline_tokens(data: Path) -> Iterator[OfflineTokens]:
    private_dir(data)
    with _opened(data) as (store, loaded):
        yield OfflineTokens(store, Tokens(loaded.tokens))
