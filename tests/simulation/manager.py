"""The manager's service as architecture.md tells it, around the real Machine: events -> round -> take -> write ->
commit -> effects. It can be killed between any two of these.
"""

import random
from typing import TYPE_CHECKING

import msgspec

from tercel.core import effects as probing
from tercel.core.accounts import Settings
from tercel.core.changes import Change, FileRegistered, FileRemoved, JobAdded
from tercel.core.conditions import Verdict
from tercel.core.effects import (
    Acknowledged,
    Drained,
    Effect,
    Ended,
    JobDone,
    Offered,
    Parked,
    Recalled,
    Resumed,
    Revised,
    Welcomed,
)
from tercel.core.files import FileRow
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.machine import Machine
from tercel.core.model import JobRow, Lease, QueueRow
from tercel.core.presence import Reservation, WorkerRow
from tercel.manager import frames
from tercel.manager.catalogue import Catalogue
from tercel.stores.contract import needed_by
from tercel.wire.messages import (
    Ack,
    Brief,
    Bye,
    Cancel,
    Drain,
    Forget,
    FromManager,
    FromWorker,
    Hello,
    Park,
    Presence,
    Probe,
    Probed,
    Removed,
    Reports,
    Resume,
    Returned,
    Stages,
    Started,
    TakeBack,
    Undo,
    Welcome,
)

from .network import HEARTBEAT_S, Link

if TYPE_CHECKING:
    from .world import Intent, World

CRASH_POINTS = ("before write", "written", "committed", "amid effects")
OTHERS = f"blake3:{'f' * 64}"
"""The digest of files that no task made."""


class SimManager:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.alive = True
        loaded = world.store.load()
        self.machine = Machine(Settings(grace_s=world.grace_s), loaded, world.now)
        self.catalogue = self.machine.names = Catalogue(world.store)
        self.links: dict[str, Link] = {}
        self.away_since: dict[str, float] = {lease.worker: world.now for lease in loaded.leases}
        """When this manager noticed that a worker was gone (or began, not knowing)."""
        self._next_job = loaded.next_job
        self._arrivals: list[Intent] = []
        self._keys: set[str] = set()
        self._reviving = False
        """What was skipped because of retried tasks is being brought back."""
        self._reopened_needs: list[int] = []
        """Pinned while a job is brought back."""
        self._unsaved: list[Change] = []
        self._undone: list[Effect] = []
        self._committing = False
        self._awake = False
        self._stepping = False
        world.note(
            "manager starts, epoch", loaded.epoch, "jobs", list(self.machine.jobs), "leases", loaded.leases
        )
        world.witness.check_restored(self.machine)
        self.wake()

    def die(self) -> None:
        self.alive = False
        for link in list(self.links.values()):
            link.manager_open = False
            if self.world.rng.random() < 0.2:
                link.go_dark()
            else:
                link.cut()

    # -- from clients -------------------------------------------------------------------------------------

    def submit(self, intent: "Intent") -> None:
        earlier = self.world.store.job_by_key(intent.owner, intent.key)
        if earlier is not None:
            self.world.accepted(intent, earlier)
        elif intent.key not in self._keys:
            if not self._pin_needs(intent):
                return  # the client asks again
            self._keys.add(intent.key)
            self._arrivals.append(intent)
            self.wake()

    def cancel(self, id: int, tasks: IntervalSet) -> None:
        job = self.machine.jobs.get(id)
        if job is not None:
            self.world.note("cancel", id, tasks)
            self.world.witness.cancel_asked |= {(id, task) for task in tasks}
            self.machine.on_cancel(job, tasks, "cancelled", self.world.now)
            self.moved()

    def retry(self, id: int, tasks: IntervalSet) -> None:
        if self._reviving:  # one at a time, as requests.py has it: see `Manager.reopening`
            self.world.after(0.05, self.world.retry, id, tasks)
            return
        job = self.machine.jobs.get(id)
        if job is None:
            if self._committing or self._unsaved or self.machine.changes:
                # Its last records are not durable yet: what the store says now is not the whole truth.
                self.world.after(0.05, self.world.retry, id, tasks)
                return
            job = self._reopen(id)
        if job is not None:
            self.world.note("retry", id, tasks)
            self.world.witness.retry_asked |= {(id, task) for task in tasks}
            if self.machine.on_retry(job, tasks, self.world.now):
                self._reviving = True
                self._revive(id)
            self._unpin_reopened()
            self.moved()

    def rollback(self, id: int, tasks: IntervalSet) -> None:
        """As manager/rollback.py does, with force."""
        if self._reviving or self._committing or self._unsaved or self.machine.changes:
            self.world.after(0.05, self.world.rollback, id, tasks)
            return
        machine, store, now, witness = self.machine, self.world.store, self.world.now, self.world.witness
        behind, todo = {id}, [id]
        while todo:
            fresh = set(store.dependents(todo.pop())) - behind
            behind |= fresh
            todo += sorted(fresh)
        lives = {one: live for one in sorted(behind) if (live := store.live(one)) is not None}
        pinned = sorted({*lives, *(needed for live in lives.values() for needed in needed_by(live))})
        for one in pinned:
            machine.pin(one)
            if (live := store.live(one)) is not None:
                machine.remember(live)
        plan = machine.plan_rollback({id: tasks}, behind)
        for one, under_way in plan.in_the_way.items():
            witness.cancel_asked |= {(one, task) for task in under_way}
            machine.on_cancel(machine.jobs[one], under_way, "cancelled", now)
        plan = machine.plan_rollback({id: tasks}, behind)
        self.world.note("rollback", id, tasks, plan)
        witness.rolled_back |= {(one, task) for one, part in plan.parts.items() for task in part.tasks}
        for one in (*plan.parts, *behind):
            if (job := machine.find(one)) is not None:
                witness.outdated |= {stray.attempt for strays in job.strays.values() for stray in strays}
        machine.on_rollback(plan, behind, "by ada", now)
        for one in pinned:
            machine.unpin(one)
        self.moved()

    def _unpin_reopened(self) -> None:
        for needed in self._reopened_needs:
            self.machine.unpin(needed)
        self._reopened_needs.clear()

    def _revive(self, id: int) -> None:
        """Those behind it that have ended, as requests.py does: when the store knows how."""
        if not self.alive:
            return
        if self._committing or self._unsaved or self.machine.changes:
            self.world.after(0.05, self._revive, id)
            return
        todo, seen = [id], {id}
        while todo:
            for behind in self.world.store.dependents(todo.pop(0)):
                more = 0
                if behind not in self.machine.jobs and (job := self._reopen(behind)) is not None:
                    more = self.machine.on_retry(job, job.skipped.copy(), self.world.now)
                if more or behind not in seen:
                    seen.add(behind)
                    todo.append(behind)
        self._unpin_reopened()
        self._reviving = False
        self.moved()

    def _reopen(self, id: int) -> Job | None:
        store = self.world.store
        live = store.live(id)
        if live is None:
            return None
        for needed in needed_by(live):
            self.machine.pin(needed)
            past = store.live(needed)
            if past is not None:
                self.machine.remember(past)
        self._reopened_needs += needed_by(live)
        return self.machine.restore(live)

    def hold(self, id: int, tasks: IntervalSet) -> None:
        if (job := self.machine.jobs.get(id)) is not None:
            self.world.note("hold", id, tasks)
            self.machine.on_hold(job, tasks)
            self.moved()

    def release(self, id: int, tasks: IntervalSet) -> None:
        if (job := self.machine.jobs.get(id)) is not None:
            self.world.note("release", id, tasks)
            self.machine.on_release(job, tasks, self.world.now)
            self.moved()

    def revise(self, id: int, wishes: dict[str, int]) -> None:
        if (job := self.machine.jobs.get(id)) is not None:
            self.world.note("revise", id, wishes)
            self.machine.revise(job, msgspec.structs.replace(job.row.spec, **wishes))
            self.moved()

    def set_queue(self, row: QueueRow) -> None:
        self.world.note("queue", row)
        self.machine.on_queue_set(row)
        self.moved()

    def meddle(self, what: str, worker: str, rng: random.Random) -> None:
        machine, now = self.machine, self.world.now
        self.world.note("meddle", what, worker)
        match what:
            case "quarantine":
                machine.on_quarantine(worker, "ada", "", now)
            case "release":
                machine.on_end_quarantine(worker, now)
            case "tag":
                machine.on_tag(worker, rng.choice(((), ("b",))), rng.choice(((), ("a",))), now)
            case "reserve":
                user, lend, for_s = rng.choice(("", "bob")), rng.random() < 0.5, rng.uniform(1.0, 60.0)
                where = f'worker.name == "{worker}"'
                times = {"since": now, "until": now + for_s}
                id = 1 + max(machine.reservations, default=0)
                machine.on_reserve(
                    Reservation(id=id, owner="ada", where=where, user=user, lend=lend, **times), now
                )
        self.moved()

    def meddle_with_condition(self, rng: random.Random) -> None:
        machine, now = self.machine, self.world.now
        if not machine.conditions:
            return
        condition = rng.choice(list(machine.conditions.values()))
        what = rng.choice(("test", "release", "release some", "fail", "pause", "resume", "resume"))
        self.world.note("condition", condition.id, what)
        match what:
            case "test":
                machine.on_test_now(condition, now)
            case "release":
                machine.on_release_condition(condition, 0, "ada", now)
            case "release some":
                machine.on_release_condition(condition, 2, "ada", now)
            case "fail":
                self.world.witness.given_up |= {
                    (id, t) for id, job in condition.jobs.items() for t in job.blocks[condition]
                }
                machine.on_fail_condition(condition, "no hope", now)
            case "pause":
                machine.on_pause_condition(condition, "paused by ada", now)
            case "resume":
                machine.on_resume_condition(condition, now)
        self.moved()

    def meddle_with_names(self, rng: random.Random) -> None:
        """Somebody adds files under names that tasks will want, or that tasks wait for; or takes them away."""
        names = ["lfn:calib"]
        jobs = [
            job for job in self.machine.jobs.values() if any("lfn:" in o.to[0] for o in job.row.spec.outputs)
        ]
        if jobs and rng.random() < 0.8:
            job = rng.choice(jobs)
            name = next(o.to[0] for o in job.row.spec.outputs if "lfn:" in o.to[0])
            tasks = [task for task in IntervalSet(job.row.ranges) if rng.random() < 0.4]
            names = [name.format(job=job.id, task=task) for task in tasks]
        for name in names:
            found = self.catalogue.files([name])
            if not found:
                self._add_file(name)
            elif not found[0].file.job:
                self._remove_file(name)

    def _add_file(self, name: str) -> None:
        file = FileRow(name=name, size_bytes=1, digest=OTHERS, owner="bob", made_at=self.world.now)
        self._change_file(name, FileRegistered(file, (f"tercel:{OTHERS}",)))

    def _remove_file(self, name: str) -> None:
        self._change_file(name, FileRemoved(name))

    def _change_file(self, name: str, change: Change) -> None:
        """As manager/files.py does."""
        self.world.note("somebody", change)
        self.machine.changes.append(change)
        self.catalogue.note(change)
        self.machine.on_name(name, self.world.now)
        self.moved()

    def _settle_files(self) -> None:
        """All that tasks wait for is there, and nobody has their names."""
        if not self.catalogue.files(["lfn:calib"]):
            self._add_file("lfn:calib")
        for row in self.world.store.files_from(prefix="lfn:f/", limit=10**6):
            if not row.job and self.catalogue.files([row.name]):
                self._remove_file(row.name)

    def let_go(self) -> None:
        if self.world.has_files:
            self._settle_files()
        for condition in list(self.machine.conditions.values()):
            self.machine.on_resume_condition(condition, self.world.now)
            if self.world.has_files:
                self.machine.on_test_now(condition, self.world.now)
        for worker in [*self.machine.rows, *self.machine.workers]:
            if self.machine.row_of(worker) != WorkerRow(name=worker):
                row = self.machine.row_of(worker)
                self.machine.on_end_quarantine(worker, self.world.now)
                self.machine.on_tag(worker, row.lost_tags, row.tags, self.world.now)
        for reservation in list(self.machine.reservations):
            self.machine.on_unreserve(reservation, self.world.now)
        for job in list(self.machine.jobs.values()):
            if job.needs.mem_bytes > self.world.workers[0].whole.mem_bytes:  # it grew beyond the pool
                self.machine.revise(job, msgspec.structs.replace(job.row.spec, mem_bytes=0))
            self.machine.on_release(job, IntervalSet(job.row.ranges), self.world.now)
        for queue in list(self.machine.queues.values()):
            if queue.row.paused:
                self.machine.on_queue_set(msgspec.structs.replace(queue.row, paused=""))
        self.moved()

    def drain(self, name: str) -> None:
        worker = self.machine.workers.get(name)
        if worker is not None and worker.online:
            self.machine.on_drain(name, self.world.now)
            self.moved()

    # -- from workers -------------------------------------------------------------------------------------

    def receive(self, link: Link, messages: list[FromWorker]) -> None:
        for message in messages:
            self._take(link, message)
        self.moved()

    def _take(self, link: Link, message: FromWorker) -> None:
        machine, now = self.machine, self.world.now
        if not link.greeted and not isinstance(message, Hello):
            raise AssertionError(f"{message} before Hello")
        if link.said_bye:
            return
        match message:
            case Hello(_, name, instance, info, held):
                self.world.note("hello", name, instance, held)
                link.name, link.greeted = name, True
                before = self.links.get(name)
                self.links[name] = link
                if before is not None:
                    before.close_at_manager()
                self.away_since.pop(name, None)
                self.world.witness.returned(machine, held)
                link.hello = machine.on_hello(name, instance, info, held, now)
            case Presence(state, capacity, facts):
                machine.on_presence(link.name, state, capacity, now, facts)
            case Started(attempts):
                machine.on_started(link.name, attempts, now)
            case Reports(reports):
                self.world.note(
                    "reports", link.name, [(r.job, r.task, r.attempt, r.end, r.code) for r in reports]
                )
                machine.on_reports(link.name, reports, now)
            case Probed(number, verdict):
                machine.on_tested(number, verdict, now)
            case Stages(bringing, delivering):
                machine.on_stages(link.name, bringing, delivering, now)
            case Removed(id, task):
                job = machine.jobs.get(id)
                flight = job.flights.get(task) if job is not None else None
                if flight is not None and flight.worker.id == link.name:
                    machine.on_removed(id, task)
            case Returned(attempts):
                self.world.note("returned", link.name, attempts)
                machine.on_returned(link.name, attempts)
            case Bye():
                link.said_bye = True
                link.close_at_manager()

    def parted(self, link: Link) -> None:
        if not link.greeted or self.links.get(link.name) is not link:
            return
        del self.links[link.name]
        self.away_since[link.name] = self.world.now
        self.world.note("parted", link.name, "bye" if link.said_bye else "")
        if link.said_bye:
            self.machine.on_bye(link.name, self.world.now)
        else:
            self.machine.on_link_closed(link.name, self.world.now)
        self.moved()

    # -- the loop -----------------------------------------------------------------------------------------

    def moved(self) -> None:
        self.world.witness.check_machine(self.machine)
        self.wake()

    def wake(self) -> None:
        self._awake = True
        if not self._committing and not self._stepping:
            self._stepping = True
            self.world.after(self.world.rng.uniform(0.0, 0.002), self._step)

    def _step(self) -> None:
        self._stepping = False
        if not self.alive or self._committing:
            return
        self._awake = False
        world, machine = self.world, self.machine
        machine.tick(world.now)
        machine.round()
        world.witness.check_machine(machine)
        world.witness.check_round(machine)
        world.witness.check_caps(machine)
        if world.rng.random() < 0.05:
            world.witness.check_reasons(machine, world.now)
        changes, effects = machine.take()
        self.catalogue.begin()
        world.witness.taken(machine, changes)
        for effect in effects:
            if isinstance(effect, Welcomed):
                world.witness.dropping(machine, effect.drop)
            elif isinstance(effect, Ended):
                world.witness.ending(machine, effect.attempts)
            elif isinstance(effect, Resumed):
                world.witness.resumed(effect.attempts)
        self._unsaved += changes
        self._undone += effects
        arrivals, self._arrivals = self._arrivals, []
        batch: list[Change] = [self._added(intent) for intent in arrivals] + self._unsaved
        if not batch:
            self._perform()
        elif not self._crashes("before write"):
            world.store.write(batch)
            self._committing = True
            if not self._crashes("written"):
                world.after(world.commit_delay(), self._finish, batch, arrivals)
        self._wait_for_deadline()

    def _finish(self, batch: list[Change], arrivals: list["Intent"]) -> None:
        if not self.alive:
            return
        world = self.world
        self._committing = False
        if world.disk_is_full():
            world.note("disk full")
            world.store.crash()
            for intent in arrivals:
                self._keys.discard(intent.key)
                self._unpin_needs(intent)
            world.after(1.0, self._again)
            return
        world.store.commit()
        self.catalogue.durable()
        world.note("committed", batch)
        world.witness.committed(batch)
        self._unsaved = []
        if self._crashes("committed"):
            return
        for change, intent in zip(batch, arrivals, strict=False):
            assert isinstance(change, JobAdded)
            self._keys.discard(intent.key)
            self.machine.on_accepted(change.job, change.edges, world.now)
            self._unpin_needs(intent)
            world.accepted(intent, change.job)
            self._awake = True
        self._perform()
        if self._awake:
            self.wake()

    def _again(self) -> None:
        if self.alive:
            self.wake()

    def _unpin_needs(self, intent: "Intent") -> None:
        for id in {self.world.intents[other].job for other, *_ in intent.needs}:
            self.machine.unpin(id)

    def _pin_needs(self, intent: "Intent") -> bool:
        """As finding.pinned does: whether all that it needs is known, and stays so."""
        needed = {self.world.intents[other].job for other, *_ in intent.needs}
        unknown = [id for id in needed if self.machine.find(id) is None]
        if unknown and (self._committing or self._unsaved or self.machine.changes):
            return False
        for id in needed:
            self.machine.pin(id)
            if id in unknown and (past := self.world.store.live(id)) is not None:
                self.machine.remember(past)
        return True

    def _added(self, intent: "Intent") -> JobAdded:
        row = self._row(intent)
        return JobAdded(row, edges=intent.edges_among(self.world.intents, row.id))

    def _row(self, intent: "Intent") -> JobRow:
        row = JobRow(
            id=self._next_job,
            owner=intent.owner,
            spec=intent.spec_among(self.world.intents),
            held=intent.ranges if intent.held else (),
            ranges=intent.ranges,
            max_running=intent.max_running,
            submitted_at=self.world.now,
            key=intent.key,
        )
        self._next_job += 1
        return row

    def _crashes(self, point: str) -> bool:
        if self.world.faults.manager_crash and self.world.rng.random() < self.world.faults.manager_crash:
            self.world.crash_manager(point)
            return True
        return False

    def _wait_for_deadline(self) -> None:
        deadline = self.machine.next_deadline()
        if self.alive and deadline is not None:
            self.world.after(max(0.0, deadline - self.world.now), self._due, deadline)

    def _due(self, deadline: float) -> None:
        if self.alive and self.machine.next_deadline() == deadline:
            self.wake()

    # -- effects ------------------------------------------------------------------------------------------

    def _link_of(self, effect: Effect) -> Link | None:
        match effect:
            case Offered(leases):
                return self.links.get(leases[0].worker)
            case probing.Probe(_, _, worker):
                return self.links.get(worker)
            case Acknowledged(worker) | Ended(worker) | Recalled(worker) | Welcomed(worker) | Drained(worker):
                return self.links.get(worker)
            case Parked(worker) | Resumed(worker):
                return self.links.get(worker)
        return None

    def _perform(self) -> None:
        undone, self._undone = self._undone, []
        for effect in undone:
            if self._crashes_amid(len(undone)):
                return
            if isinstance(effect, JobDone):
                self._forget(effect.job)
            elif isinstance(effect, probing.Probe) and not effect.worker:
                tester = effect.condition.tester
                self.world.probe(tester, lambda verdict, number=effect.number: self._tested(number, verdict))
            elif isinstance(effect, Revised):
                for link in self.links.values():
                    link.briefed.discard(effect.job)
            elif (link := self._link_of(effect)) is not None:
                if isinstance(effect, Welcomed) and effect.hello == link.hello:
                    link.welcomed = True
                # What comes before its Welcome was meant for an older link, and the Hello has settled it.
                if link.welcomed and (messages := self._messages(effect, link)):
                    link.send_down(messages)

    def _tested(self, number: int, verdict: Verdict) -> None:
        if self.alive:
            self.machine.on_tested(number, verdict, self.world.now)
            self.moved()

    def _crashes_amid(self, count: int) -> bool:
        chance = self.world.faults.manager_crash
        if chance and self.world.rng.random() < chance / count:
            self.world.crash_manager("amid effects")
            return True
        return False

    def _messages(self, effect: Effect, link: Link) -> list[FromManager]:
        match effect:
            case Acknowledged(_, attempts):
                self.world.witness.acknowledged(attempts)
                return [Ack(attempts)]
            case Offered(leases):
                job = self.machine.jobs.get(leases[0].job)
                if job is None:
                    return []  # cancelled while its lease was being saved: the Cancel that follows brings it back
                few = frames.offers(leases[0], None) if len(leases) == 1 else frames.scattered(leases, None)
                undo = self._undo(job, leases) if job.left else []
                if job.id in link.briefed:
                    return [*undo, *few]
                link.briefed.add(job.id)
                return [Brief(job.id, job.row.spec.program, job.needs), *undo, *few]
            case Parked(_, attempts):
                self.world.witness.acknowledged(attempts, parked=True)
                return [Park(attempts)]
            case Resumed(_, attempts):
                return [Resume(attempts)]
            case Recalled(_, attempts):
                return [TakeBack(attempts)]
            case probing.Probe(number, row, _, limit_s):
                return [Probe(number, row.tester, limit_s)]
            case Ended(_, attempts):
                return [Cancel(attempts)]
            case Welcomed(_, drop):
                return [Welcome(self.machine.epoch, HEARTBEAT_S, drop)]
            case Drained():
                return [Drain()]
        raise AssertionError(effect)

    def _undo(self, job: Job, leases: list[Lease]) -> list[FromManager]:
        """As manager/telling.py does."""
        left = self.world.store.left_overs(job.id, job.left.ranges())
        found: list[FromManager] = []
        for lease in leases:
            for task in job.left.intersection(IntervalSet([(lease.first, lease.last)])):
                if urls := left.get(task):
                    found.append(Undo(job.id, task, urls))
                else:
                    self.machine.on_removed(job.id, task)
        return found

    def _forget(self, job: int) -> None:
        for link in self.links.values():
            if job in link.briefed:
                link.briefed.discard(job)
                link.send_down([Forget(job)])
