"""Intake -> core -> commit -> effects: one loop, in this order, for ever.

    events (from links, clients, the clock) move the machine as they arrive and wake the loop
    the loop:   round -> take changes and effects -> write -> commit (on a thread) -> perform effects

While the disk works, further events gather; so many events share one commit under load, and a lone one is
committed at once. Submissions wait outside the machine until they are durable: a full disk refuses them without
a trace. Everything else that could not be saved is kept and tried again, and nothing that depends on it is done
until it is.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from tercel.core.accounts import Settings
from tercel.core.changes import Change, JobAdded, Loaded
from tercel.core.conditions import Verdict
from tercel.core.effects import (
    Acknowledged,
    Drained,
    Effect,
    Ended,
    JobDone,
    Offered,
    Parked,
    Probe,
    Progressed,
    Recalled,
    Resumed,
    Revised,
    Welcomed,
)
from tercel.core.errors import PassingFault
from tercel.core.machine import Machine
from tercel.core.model import JobRow
from tercel.manager.catalogue import Catalogue
from tercel.manager.clock import WatchedClock
from tercel.manager.conversation import Conversation
from tercel.manager.declarations import Declarations
from tercel.manager.events import Hub
from tercel.manager.inputs import FilesRead, inputs_of, restored
from tercel.manager.options import ManagerOptions
from tercel.manager.probing import Examiners, Probing
from tercel.manager.snapshots import Snapshots
from tercel.manager.telling import Telling
from tercel.manager.values import Uploads
from tercel.manager.vault import Vault
from tercel.stores.contract import Store
from tercel.stores.snapshot.placing import new_ids
from tercel.wire.messages import Ack, Cancel, Drain, Park, Resume, TakeBack, Welcome

log = logging.getLogger("tercel.manager")
T = TypeVar("T")

SWAMPED_CHANGES = 20_000
"""With so many changes not yet durable, workers' reports are left in their links until the disk has caught up."""
RETRY_FIRST_S, RETRY_MOST_S = 0.1, 2.0
PACE_S = 0.02
"""Under a steady stream of small batches commits follow one another no faster: each costs more than its rows."""
SMALL_BATCH, FULL_BATCH = 4, 256
"""Changes: below the first nobody is waiting behind, from the second on a commit is worth its cost."""
IDLE_PART = 4
"""Nothing more gathers when one worker in so many has nothing left to do: what they did is to be saved first."""


JOBS_AT_ONCE = 1000
"""Of a large flow, before others get their turn."""


class _Arrival(msgspec.Struct):
    """A submission on its way to the disk."""

    added: list[JobAdded]
    accepted: asyncio.Future[None]


class Manager:
    def __init__(
        self,
        options: ManagerOptions,
        store: Store,
        loaded: Loaded,
        examiners: Examiners,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.options = options
        self.store = store
        self.clock = WatchedClock() if clock is None else clock
        self.started_at = self.clock()
        self.machine = Machine(
            Settings(grace_s=options.grace_s, rates=options.rates), loaded, self.started_at
        )
        if isinstance(self.clock, WatchedClock):
            self.clock.on_set = self._clock_set
        for job in list(self.machine.jobs.values()):
            self.machine.set_inputs(job, restored(job, store))
        self.hub = Hub()
        self.telling = Telling(self.machine, store)
        self.examiners = examiners
        self._probing = Probing(examiners, self.telling.send, self._tested)
        self.keys_under_way: dict[tuple[str, str], asyncio.Future[list[JobRow]]] = {}
        """Submissions (owner and key) that are on their way to the disk."""
        self.reopening = asyncio.Lock()
        """Held while an ended job is brought back from the store, so that nobody else brings it back as well."""
        self.removing: set[int] = set()
        """Ended jobs that are being removed: nobody may begin to need them."""
        self.leftovers = asyncio.Event()
        """Set when jobs that never came to be have left something in the store."""
        self.uploads = Uploads()
        self.vault = Vault(options.data)
        self.catalogue = self.machine.names = Catalogue(store, self.vault.holds)
        self.declarations = Declarations(self.machine, store)
        self.snapshots = Snapshots(self)
        self.files_read = FilesRead(self)
        self._next_job = loaded.next_job
        self._arrivals: list[_Arrival] = []
        self._awake = asyncio.Event()
        self._urgent = asyncio.Event()
        """Somebody waits for what is not durable yet."""
        self._idle: set[str] = set()
        """Workers that have run out of work since the last commit."""
        self._fault: PassingFault | None = None
        """What keeps changes from being saved."""
        self._unsaved: list[Change] = []
        self._undone: list[Effect] = []
        self._saved = asyncio.Condition()
        self._written = 0
        """How many batches were begun; `_durable`: how many are durable."""
        self._durable = 0
        self._turn = asyncio.Lock()
        """Whose turn it is to change the store: a batch with its commit, or a piece of work of the store's own."""
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="tercel-commit")

    # -- intake -------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something moved the machine."""
        self._awake.set()

    def _clock_set(self, by_s: float) -> None:
        self.machine.on_clock_set(by_s)
        self.wake()

    def ran_out(self, worker: str) -> None:
        """It has nothing left to do: there is more for it when what it did is durable."""
        self._idle.add(worker)
        if IDLE_PART * len(self._idle) >= self.telling.count:
            self._urgent.set()

    def take_job_id(self) -> int:
        """Ids of submissions that could not be saved are not used again."""
        id = self._next_job
        self._next_job += 1
        return id

    def take_job_ids(self, wanted: Collection[int]) -> dict[int, int]:
        """Numbers for jobs that have some already, elsewhere: the same, if none of them was ever given out here."""
        ids = new_ids(wanted, self._next_job)
        self._next_job = max(self._next_job, max(ids.values(), default=0) + 1)
        return ids

    async def add(self, added: list[JobAdded]) -> None:
        """Make jobs durable, then known, all or none. Raises StoreFull or PassingFault and leaves no trace if it cannot."""
        self.check_saving()
        arrival = _Arrival(added, asyncio.get_running_loop().create_future())
        self._arrivals.append(arrival)
        self._urgent.set()
        self.wake()
        await arrival.accepted

    @property
    def trouble(self) -> str:
        """What keeps changes from being saved, for people; empty when all is well."""
        return "" if self._fault is None else str(self._fault)

    def check_saving(self) -> None:
        """Raises what keeps changes from being saved, if anything does."""
        if self._fault is not None:
            raise type(self._fault)(str(self._fault))

    async def save(self, changes: list[Change]) -> None:
        """Make changes durable that are no business of the machine's (tokens, outputs)."""
        self.machine.changes += changes
        target = self._written + 1
        self._urgent.set()
        self.wake()
        async with self._saved:
            await self._saved.wait_for(lambda: self._durable >= target)

    async def settled(self) -> None:
        """Until all that has happened so far is durable, so that nobody is shown what a crash could undo.

        While nothing can be saved it returns at once: a stale answer is better than none.
        """
        target = self._written + (1 if self.machine.changes else 0)
        if self._durable < target and not self.trouble:
            self._urgent.set()
            self.wake()
            async with self._saved:
                await self._saved.wait_for(lambda: self._durable >= target or self.trouble)

    async def on_disk(self, work: Callable[[], T]) -> T:
        """Have the store do what it makes durable by itself, where commits are done and between two of them.

        Others wait for their commits meanwhile: it should be short. Once begun it is done, though nobody waits for it.
        """

        async def done() -> T:
            async with self._turn:
                return await asyncio.get_running_loop().run_in_executor(self._disk, work)

        return await asyncio.shield(asyncio.ensure_future(done()))

    async def safety_snapshot(self, jobs: Iterable[int], why: str) -> str:
        """Before something is done to jobs that cannot be undone. Returns what to tell of it: see `Snapshots.before`."""
        return await self.snapshots.before(jobs, why)

    async def not_swamped(self) -> None:
        """Waits while far more has happened than the disk has taken."""
        if len(self.machine.changes) + len(self._unsaved) > SWAMPED_CHANGES:
            async with self._saved:
                await self._saved.wait_for(
                    lambda: len(self.machine.changes) + len(self._unsaved) <= SWAMPED_CHANGES
                )

    # -- the loop -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = RETRY_FIRST_S
        for job in list(self.machine.jobs.values()):
            self.files_read.look(job)
        self.wake()
        while True:
            await self._next_event()
            now = self.clock()
            self.machine.tick(now)
            self.machine.round()
            saved = await self._save()
            if saved is not None:
                pause_s = RETRY_FIRST_S
                if SMALL_BATCH <= saved < FULL_BATCH:
                    await self._pace()
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(RETRY_MOST_S, pause_s * 2)
                self.wake()

    async def _pace(self) -> None:
        """Let more gather, unless somebody waits for the disk, or workers for work."""
        try:
            async with asyncio.timeout(PACE_S):
                await self._urgent.wait()
        except TimeoutError:
            pass  # nobody did

    async def _next_event(self) -> None:
        deadline = self.machine.next_deadline()
        if deadline is None:
            await self._awake.wait()
        else:
            try:
                async with asyncio.timeout(max(0.0, deadline - self.clock())):
                    await self._awake.wait()
            except TimeoutError:
                pass  # a worker's grace is over: tick
        self._awake.clear()

    async def _save(self) -> int | None:
        """One commit for all that happened since the last; then its effects.

        Returns how many changes were saved beside submissions, None if something must be tried again.
        """
        changes, effects = self.machine.take()
        self.catalogue.begin()
        self._unsaved += changes
        self._undone += effects
        arrivals, self._arrivals = self._arrivals, []
        self._urgent.clear()
        self._idle.clear()
        batch: list[Change] = [*(job for arrival in arrivals for job in arrival.added), *self._unsaved]
        if batch:
            self._written += 1
            try:
                async with self._turn:
                    self.store.write(batch)
                    await asyncio.get_running_loop().run_in_executor(self._disk, self.store.commit)
            except PassingFault as fault:
                await self._could_not_save(fault, arrivals)
                return None if self._unsaved else 0
            self._unsaved = []
            self.catalogue.durable()
            if self._fault is not None:
                log.warning("saving works again")
                self._fault = None
        for arrival in arrivals:
            for number, added in enumerate(arrival.added, 1):
                inputs = inputs_of(added.job, added.calls)
                self.files_read.look(self.machine.on_accepted(added.job, added.edges, self.clock(), inputs))
                if number % JOBS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            if not arrival.accepted.done():
                arrival.accepted.set_result(None)
            self.wake()
        async with self._saved:
            self._durable = self._written
            self._saved.notify_all()
        try:
            self._perform()
        except PassingFault as fault:
            log.warning("cannot read what is due to workers: %s; it is tried again", fault)
            return None
        return len(batch) - sum(len(arrival.added) for arrival in arrivals)

    async def _could_not_save(self, fault: PassingFault, arrivals: list[_Arrival]) -> None:
        if self._fault is None:
            log.error("cannot save: %s; nothing new is accepted until it works again", fault)
        self._fault = fault if self._unsaved else None
        for arrival in arrivals:
            if not arrival.accepted.done():
                arrival.accepted.set_exception(fault)
        async with self._saved:
            if not self._unsaved:
                self._durable = self._written
            self._saved.notify_all()

    def close(self) -> None:
        """After `run` was cancelled: what is not saved was not acknowledged either, and comes again."""
        self._probing.close()
        self.files_read.close()
        self._disk.shutdown(wait=True)
        self.store.close()

    # -- effects ------------------------------------------------------------------------------------------

    def _perform(self) -> None:
        """All that is due, in order. Where one cannot be done now, it and those behind it stay due."""
        done = 0
        try:
            for effect in self._undone:
                self._perform_one(effect)
                done += 1
        finally:
            del self._undone[:done]

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Acknowledged(worker, attempts):
                self.telling.send(worker, Ack(attempts))
            case Offered(leases):
                self.telling.offer(leases)
            case Progressed(job, ended, spoke):
                self.hub.progressed(job, ended, spoke)
            case JobDone(job, finished, failed, cancelled):
                self.hub.done(job, finished, failed, cancelled)
                self.telling.forget(job)
            case Parked(worker, attempts):
                self.telling.send(worker, Park(attempts))
            case Resumed(worker, attempts):
                self.telling.send(worker, Resume(attempts))
            case Ended(worker, attempts):
                self.telling.send(worker, Cancel(attempts))
            case Recalled(worker, attempts):
                self.telling.send(worker, TakeBack(attempts))
            case Welcomed(worker, drop, hello):
                throttled = bool(self.options.rates.transfers.most)
                welcome = Welcome(self.machine.epoch, self.options.heartbeat_s, drop, self.clock(), throttled)
                self.telling.welcome(worker, hello, welcome)
            case Drained(worker):
                self.telling.send(worker, Drain())
            case Revised(job):
                self.telling.brief_anew(job)
            case Probe():
                self._probing.perform(effect)

    def _tested(self, number: int, verdict: Verdict) -> None:
        self.machine.on_tested(number, verdict, self.clock())
        self.wake()

    # -- workers ------------------------------------------------------------------------------------------

    def parted(self, conversation: Conversation) -> None:
        """Its link is closed."""
        if self.telling.parted(conversation):
            if conversation.said_bye:
                self.machine.on_bye(conversation.worker, self.clock())
            else:
                self.machine.on_link_closed(conversation.worker, self.clock())
            self.wake()
