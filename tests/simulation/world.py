"""A whole pool in one process: clients, a manager, workers, lines between them, and everything that goes wrong.

One seeded generator draws it all, so a seed is a story that can be told again. First comes chaos: jobs arrive and
things break. Then calm: nothing breaks any more, everybody is up, and within a bounded time every accepted task
must be over.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from tercel.core.changes import Edge
from tercel.core.conditions import Verdict
from tercel.core.files import Input, Output, When
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import (
    After,
    AfterKind,
    BlockRule,
    JobRow,
    JobSpec,
    Needs,
    OnFailure,
    QueueRow,
    RetryRule,
)
from tercel.core.reports import End
from tercel.runners.contract import Launch
from tercel.stores.memory import MemoryStore

from .manager import SimManager
from .schedule import Schedule
from .witness import Violation, Witness
from .worker import SimWorker

CLEANUP = "clean"
LICENCE = "tcp:licence:1"
"""What some jobs cannot do without: it is down at times."""
NO_LICENCE = 75
CALIB = "lfn:calib"
"""A file that some tasks read: people add it and take it away."""
STEPS_MOST = 60_000
MEDDLE_S = 10.0
"""Far more than any seed needs: whoever takes so many runs in circles."""


class Faults:
    """How often what goes wrong. Each seed turns only some of it on, so that rare pairs meet often."""

    def __init__(self, rng: random.Random) -> None:
        def sometimes(share: float, low: float, high: float) -> float:
            return rng.uniform(low, high) if rng.random() < share else 0.0

        self.latency_s = rng.choice((0.002, 0.05, 0.3))
        self.frames = sometimes(0.4, 0.002, 0.05)
        self.manager_crash = sometimes(0.5, 0.002, 0.04)
        self.disk_full = sometimes(0.2, 0.02, 0.3)
        self.interrupted = sometimes(0.3, 0.02, 0.2)
        self.second_thoughts = sometimes(0.4, 0.1, 0.8)
        """Jobs cancelled by their owner right after they were accepted."""
        self.commit_s = rng.choice(((0.0005, 0.005), (0.005, 0.1), (0.1, 1.0), (0.5, 4.0)))
        self.every_s: dict[str, float] = {
            kind: rng.uniform(*spread)
            for kind, share, spread in (
                ("cut", 0.5, (0.5, 30.0)),
                ("dark", 0.4, (5.0, 60.0)),
                ("partition", 0.3, (10.0, 80.0)),
                ("kill", 0.5, (3.0, 60.0)),
                ("hold", 0.3, (3.0, 40.0)),
                ("release", 0.3, (3.0, 20.0)),
                ("revise", 0.2, (3.0, 40.0)),
                ("queue", 0.3, (3.0, 30.0)),
                ("drain", 0.25, (10.0, 60.0)),
                ("capacity", 0.2, (5.0, 40.0)),
                ("cancel", 0.4, (2.0, 30.0)),
                ("retry", 0.4, (2.0, 30.0)),
            )
            if rng.random() < share
        }

    def stop(self) -> None:
        self.frames = self.manager_crash = self.disk_full = self.interrupted = self.second_thoughts = 0.0
        self.every_s.clear()
        self.latency_s = 0.01
        self.commit_s = (0.0005, 0.005)


class Intent:
    """A job that a client wants, and how its tasks will behave."""

    def __init__(self, world: "World", number: int) -> None:
        rng = world.rng
        self.key = f"key-{number}"
        self.job = 0
        """Its id, once it was acknowledged."""
        count = rng.choice((1, 2, 3, 5, 8, 12, 30))
        ranges: tuple[Range, ...] = ((0, count - 1),)
        if count > 2 and rng.random() < 0.3:
            hole = rng.randrange(1, count - 1)
            ranges = ((0, hole - 1), (hole + 2, count + 1))
        self.ranges = ranges
        self.max_running = rng.choice((0, 0, 0, 1, 2))
        self.needs_mem = world.more_rng.choice((0, 0, 0, 1, 2, 3))
        """What some of its tasks use, if it may grow: 0 of jobs that may not."""
        self.lasts_s = rng.choice(((0.001, 0.01), (0.02, 0.2), (0.02, 0.2), (0.001, 8.0), (2.0, 20.0)))
        self.fails = rng.choice((0.0, 0.0, 0.2, 0.6, 1.0))
        self.refused_by = [w.base for w in world.workers[1:] if rng.random() < 0.15]
        self.owner = rng.choice(("ada", "ada", "bob"))
        self.needs = self._draw_needs(rng, number) if world.has_graphs else []
        self.own_edges = self._draw_edges(rng) if world.has_graphs and rng.random() < 0.3 else []
        self.held = rng.random() < 0.1 and world.has_graphs
        self._spec = JobSpec(
            argv=("work",),
            cpus=rng.choice((0.5, 1.0, 1.0, 1.0, 2.0)),
            mem_bytes=rng.choice((0, 0, 1, 3)),
            mem_growth=1.5 if self.needs_mem else 0.0,
            cleanup=CLEANUP if world.more_rng.random() < 0.25 else "",
            priority=rng.choice((0, 1000, 1000, 2000)),
            retries=rng.choice((0, 0, 1, 2)),
            backoff_s=rng.choice((0.0, 0.0, 0.1, 3.0)),
            retry_rules=(RetryRule(codes=(7,), retries=rng.choice((0, 3)), backoff_s=1.0),)
            if rng.random() < 0.3
            else (),
            max_fails=rng.choice(("", "", "", "0", "1", "30%")),
            on_failure=rng.choice(
                (OnFailure.SKIP, OnFailure.SKIP, OnFailure.SKIP, OnFailure.RUN, OnFailure.STOP)
            ),
            queue=rng.choice(("", "", "lab")) if world.has_queues else "",
            block_on=self._draw_rules(world.block_rng) if world.has_outages else (),
            **(self._draw_demands(world.match_rng) if world.has_matching else {}),
            **(self._draw_files(world.file_rng) if world.has_files else {}),
        )

    def _draw_rules(self, rng: random.Random) -> tuple[BlockRule, ...]:
        """Some ask before they start; some do not have the patience for every outage."""
        at = rng.choice(("site", "site", "manager", "worker"))
        policy = rng.choice(
            ("every 1s for 2d", "every 1s x3, then 5s for 2d", "backoff 1s to 8s", "every 2s for 9s")
        )
        rule = BlockRule(on=f"exit:{NO_LICENCE}", tester=LICENCE, at=at, policy=policy)
        first = BlockRule(
            on="start", tester=LICENCE, at=rng.choice(("site", "manager")), policy="every 1s for 2d"
        )
        return rng.choice(((), (rule,), (rule,), (first, rule)))

    def _draw_files(self, rng: random.Random) -> dict[str, Any]:
        """What its tasks read and leave: at a storage that is down at times, under names that others take at times."""
        put = Output(
            name="x", to=("sftp://store/{job}/{task}",), when=rng.choice((When.FINISHED, When.ALWAYS))
        )
        kept = Output(name="y", to=("lfn:f/{job}/{task}",))
        both = Output(name="z", to=("lfn:f/{job}/{task}/z", "sftp://store/{job}/{task}/z"))
        return {
            "inputs": rng.choice(((), (), (Input(source="https://store/in"),), (Input(source=CALIB),))),
            "outputs": rng.choice(((), (put,), (put,), (kept,), (put, kept), (put, both))),
        }

    def _draw_demands(self, rng: random.Random) -> dict[str, Any]:
        """The first worker meets all of them."""
        return {
            "requires": rng.choice(((), (), ("a",), ("a", "b"))),
            "where": rng.choice(
                ("", "", "worker.gpus >= 1", 'worker.node == "w0"', "worker.tasks < 4", "worker.cpus > 0.0")
            ),
            "rank": rng.choice(("", "", "worker.cpus", "-worker.tasks", "task.id * worker.cpus", "1 / 0")),
            "gpus": rng.choice((0.0, 0.0, 0.0, 0.4, 1.0, 2.0)),
        }

    def _draw_needs(self, rng: random.Random, number: int) -> list[tuple[int, AfterKind, bool, bool]]:
        """(which earlier intent, how it must end, task by task, as edges instead)."""
        earlier = [other for other in range(number) if rng.random() < 0.5]
        kinds = (AfterKind.OK, AfterKind.OK, AfterKind.OK, AfterKind.ANY, AfterKind.NOTOK)
        return [(other, rng.choice(kinds), rng.random() < 0.4, rng.random() < 0.3) for other in earlier]

    def _draw_edges(self, rng: random.Random) -> list[tuple[int, int]]:
        """Between its own tasks: each may need some of a smaller number."""
        tasks = list(self.tasks)
        return [(task, rng.choice(tasks[:at])) for at, task in enumerate(tasks) if at and rng.random() < 0.5]

    def ready_to_submit(self, others: "list[Intent]") -> bool:
        return all(others[other].job for other, *_ in self.needs)

    def spec_among(self, others: "list[Intent]") -> JobSpec:
        """With the ids of what it needs."""
        after = tuple(
            After(job=others[other].job, kind=kind, each=each and self._matches(others[other]))
            for other, kind, each, edges in self.needs
            if not edges
        )
        return msgspec.structs.replace(self._spec, after=after)

    def _matches(self, other: "Intent") -> bool:
        rest = self.tasks
        rest.difference_update(other.tasks)
        return not rest

    def edges_among(self, others: "list[Intent]", id: int) -> tuple[Edge, ...]:
        found = [(task, id, needed, needed) for task, needed in self.own_edges]
        for other, _, each, edges in self.needs:
            if edges:
                theirs = list(others[other].tasks)
                for at, task in enumerate(self.tasks):
                    first = theirs[at % len(theirs)] if each else theirs[0]
                    last = next(last for low, last in others[other].ranges if low <= first <= last)
                    found.append((task, others[other].job, first, first if each else last))
        return tuple(sorted(found))

    @property
    def tasks(self) -> IntervalSet:
        return IntervalSet(self.ranges)

    @property
    def most_work_s(self) -> float:
        return len(self.tasks) * 4 * (self.lasts_s[1] + 12.0)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.more_rng = random.Random(seed)
        """Apart, so that the stories of older seeds stay as they are."""
        self.match_rng = random.Random(-seed - 1)
        self.has_matching = self.match_rng.random() < 0.5
        self.block_rng = random.Random(3 * seed + 10**9)
        self.has_outages = self.block_rng.random() < 0.4
        self.licence_up = True
        self.licences = self.block_rng.choice((2, 10**9))
        """For so many tasks at a time: more are turned away, though the tester says that it is there."""
        self.licensed = 0
        self.file_rng = random.Random(5 * seed + 2 * 10**9)
        self.has_files = self.has_outages and self.file_rng.random() < 0.6
        self.storage_up = True
        self.staging_s = self.file_rng.choice(((0.0, 0.02), (0.01, 0.5), (0.1, 5.0)))
        self.schedule = Schedule()
        self.store = MemoryStore()
        self.witness = Witness(self)
        self.faults = Faults(rng)
        self.grace_s = rng.choice((2.0, 20.0, 60.0))
        self.reconnect_s = rng.choice((0.2, 5.0))
        self.chaos_s = rng.choice((20.0, 60.0, 120.0))
        self.has_graphs = rng.random() < 0.6
        self.crashed = False
        """A manager that crashed may not have got round to all that a retry means."""
        self.has_queues = rng.random() < 0.4
        self.manager: SimManager | None = None
        self.workers = [SimWorker(self, "w0", Needs(2000, 4), ("a", "b"), 2)]
        for number in range(1, rng.choice((1, 2, 3, 4))):
            capacity = Needs(rng.choice((1000, 2000, 4000)), rng.choice((0, 2, 8)))
            tags, gpus = self.match_rng.choice(((), ("a",), ("a", "b"))), self.match_rng.choice((0, 1, 2))
            self.workers.append(SimWorker(self, f"w{number}", capacity, tags, gpus))
        self.intents = [Intent(self, number) for number in range(rng.choice((1, 2, 3, 5)))]
        self._by_key = {intent.key: intent for intent in self.intents}
        self._by_job: dict[int, Intent] = {}
        self._unreachable_until: dict[str, float] = {}

    @property
    def now(self) -> float:
        return self.schedule.now

    def after(self, delay_s: float, do: Callable[..., None], *arguments: Any) -> None:
        self.schedule.after(delay_s, do, *arguments)

    def note(self, text: str, *details: Any) -> None:
        self.schedule.note(text, *details)

    # -- the story ----------------------------------------------------------------------------------------

    def run(self) -> None:
        self._start_manager()
        for worker in self.workers:
            self.after(self.rng.uniform(0.0, 5.0), worker.start)
        for intent in self.intents:
            self.after(self.rng.uniform(0.0, self.chaos_s * 0.7), self._submit, intent)
        for kind, every_s in self.faults.every_s.items():
            self.after(self.rng.expovariate(1 / every_s), self._go_wrong, kind)
        if self.has_matching:
            self.after(self.match_rng.expovariate(1 / MEDDLE_S), self._meddle)
        if self.has_outages:
            self.after(self.block_rng.expovariate(1 / 10.0), self._change_outside)
            self.after(self.block_rng.expovariate(1 / MEDDLE_S), self._meddle_with_conditions)
        if self.has_files:
            self.after(self.file_rng.expovariate(1 / 10.0), self._change_storage)
            self.after(self.file_rng.expovariate(1 / MEDDLE_S), self._meddle_with_names)
        self._play_until(self.now + self.chaos_s, lambda: False)
        if self.rng.random() < 0.05:
            self._long_night()
        self._calm_down()
        work_s = sum(intent.most_work_s for intent in self.intents)
        if not self._play_until(self.now + work_s + 2 * self.grace_s + 60.0, self._all_over):
            self.witness.broken(f"calm for long, and still not over: {self._unfinished()}")
        if not self._play_until(self.now + 2 * self.grace_s + 60.0, self._all_quiet):
            self.witness.check_end()
            self.witness.broken("all is over, but something still moves")
        self.witness.check_end()

    def _play_until(self, until: float, over: Callable[[], bool]) -> bool:
        while self.schedule.step(until):
            if self.schedule.steps > STEPS_MOST:
                self.witness.broken(f"{STEPS_MOST} steps and no end: {self._unfinished()}")
            if over():
                return True
        self.schedule.now = max(self.now, until)
        return over()

    def _long_night(self) -> None:
        """Nobody is reachable for so long that the manager forgets the workers it knew."""
        self.note("long night")
        self.faults.every_s.clear()
        for worker in self.workers:
            self._unreachable_until[worker.base] = self.now + 3900.0
            if worker.link is not None:
                worker.link.go_dark()
        self._play_until(self.now + 3800.0, lambda: False)

    def _calm_down(self) -> None:
        self.note("calm")
        self.faults.stop()
        self.licence_up, self.licences, self.storage_up = True, 10**9, True
        self._unreachable_until.clear()
        if self.manager is None:
            self._start_manager()
        for worker in self.workers:
            worker.feel("")
            worker.start()
            worker.dial_soon()
        self._let_go()

    def _let_go(self) -> None:
        """Nothing is held or paused any more, also of what comes late."""
        if self.manager is not None:
            self.manager.let_go()
        self.after(5.0, self._let_go)

    def _all_over(self) -> bool:
        if self.manager is None or self.manager.machine.jobs:
            return False  # also if a retry is not durable yet
        return all(intent.job for intent in self.intents) and all(
            (id, number) in self.witness.durable.records
            for id, row in self.witness.accepted.items()
            for first, last in row.ranges
            for number in range(first, last + 1)
        )

    def _all_quiet(self) -> bool:
        manager = self.manager
        return (
            manager is not None
            and not manager.machine.jobs
            and not any(worker.flights for worker in manager.machine.workers.values())
            and not self.witness.durable.leases
            and not any(node.agent.owed or not node.agent.idle for node in self.workers if node.up)
            and not any(node.agent.parcels for node in self.workers if node.up)
        )

    def _unfinished(self) -> list[str]:
        left = [f"{intent.key} was never accepted" for intent in self.intents if not intent.job]
        for id, row in self.witness.accepted.items():
            tasks = [
                n
                for first, last in row.ranges
                for n in range(first, last + 1)
                if (id, n) not in self.witness.durable.records
            ]
            if tasks:
                left.append(f"job {id}: {tasks}")
        return left

    # -- clients ------------------------------------------------------------------------------------------

    def _submit(self, intent: Intent) -> None:
        """Until it is acknowledged, under the same key."""
        if intent.job:
            return
        if self.manager is not None and intent.ready_to_submit(self.intents):
            self.manager.submit(intent)
        self.after(self.rng.uniform(1.0, 5.0), self._submit, intent)

    def accepted(self, intent: Intent, row: JobRow) -> None:
        intent.job = row.id
        self.witness.accepted_job(row)
        if self.rng.random() < self.faults.second_thoughts:
            self.after(self.rng.uniform(0.0, 2 * self.faults.commit_s[1]), self._cancel, row.id, intent.tasks)

    def _cancel(self, id: int, tasks: IntervalSet) -> None:
        if self.manager is not None:
            self.manager.cancel(id, tasks)

    def retry(self, id: int, tasks: IntervalSet) -> None:
        if self.manager is not None and self.faults.every_s:
            self.manager.retry(id, tasks)

    def _some_tasks(self) -> tuple[int, IntervalSet] | None:
        known = [intent for intent in self.intents if intent.job]
        if not known:
            return None
        intent = self.rng.choice(known)
        tasks = intent.tasks
        if self.rng.random() < 0.6:
            tasks = IntervalSet((n, n) for n in tasks if self.rng.random() < 0.4)
        return intent.job, tasks

    def _meddle(self) -> None:
        """People have their ways with workers."""
        rng, manager = self.match_rng, self.manager
        if not self.faults.every_s:
            return
        self.after(rng.expovariate(1 / MEDDLE_S), self._meddle)
        worker = rng.choice(self.workers)
        match rng.choice(("quarantine", "release", "tag", "reserve", "unhealthy", "unhealthy")):
            case "unhealthy":
                worker.feel(rng.choice(("", "disk full")))
            case what if manager is not None:
                manager.meddle(what, worker.name, rng)

    def _change_outside(self) -> None:
        if self.faults.every_s:
            self.licence_up = not self.licence_up
            self.note("licence", self.licence_up)
            self.after(self.block_rng.expovariate(1 / 10.0), self._change_outside)

    def _meddle_with_conditions(self) -> None:
        if self.faults.every_s:
            self.after(self.block_rng.expovariate(1 / MEDDLE_S), self._meddle_with_conditions)
            if self.manager is not None:
                self.manager.meddle_with_condition(self.block_rng)
            if self.block_rng.random() < 0.3:
                known = [intent for intent in self.intents if intent.job]
                if known:
                    intent = self.block_rng.choice(known)
                    tasks = IntervalSet((n, n) for n in intent.tasks if self.block_rng.random() < 0.5)
                    self.rollback(intent.job, tasks)

    def _change_storage(self) -> None:
        if self.faults.every_s:
            self.storage_up = not self.storage_up
            self.note("storage", self.storage_up)
            self.after(self.file_rng.expovariate(1 / 10.0), self._change_storage)

    def _meddle_with_names(self) -> None:
        if self.faults.every_s:
            self.after(self.file_rng.expovariate(1 / MEDDLE_S), self._meddle_with_names)
            if self.manager is not None:
                self.manager.meddle_with_names(self.file_rng)

    def rollback(self, id: int, tasks: IntervalSet) -> None:
        if self.manager is not None and self.faults.every_s:
            self.manager.rollback(id, tasks)

    def probe(self, tester: str, answer: Callable[[Verdict], None]) -> None:
        """Somebody tests whether the licence, or the storage, is there. Some never come back from it."""
        rng = self.block_rng
        if self.faults.every_s and rng.random() < 0.05:
            return
        self.after(
            rng.uniform(0.001, 0.5), lambda: answer(Verdict(self._is_up(tester), rng.choice((0, 0, 2))))
        )

    def _is_up(self, tester: str) -> bool:
        return self.licence_up if tester == LICENCE else self.storage_up

    # -- what goes wrong ----------------------------------------------------------------------------------

    def _go_wrong(self, kind: str) -> None:
        every_s = self.faults.every_s.get(kind)
        if every_s is None:
            return
        self.after(self.rng.expovariate(1 / every_s), self._go_wrong, kind)
        worker = self.rng.choice(self.workers)
        match kind:
            case "cut" if worker.link is not None:
                self.note("cut", worker.name)
                worker.link.cut()
            case "dark" if worker.link is not None:
                self.note("dark", worker.name)
                worker.link.go_dark()
            case "partition":
                self._unreachable_until[worker.base] = self.now + self.rng.uniform(1.0, 2 * self.grace_s)
                self.note("partition", worker.name)
                if worker.link is not None:
                    worker.link.go_dark()
            case "kill":
                worker.kill()
                if self.rng.random() < 0.2:
                    worker.lose_disk()
                self.after(self.rng.uniform(0.1, 1.5 * self.grace_s), worker.start)
            case "drain":
                if self.manager is not None and self.rng.random() < 0.5:
                    self.manager.drain(worker.name)
                else:
                    worker.drain()
                self.after(self.rng.uniform(1.0, 60.0), self._end_drain, worker)
            case "capacity" if worker is not self.workers[0]:
                worker.change_capacity(Needs(self.rng.choice((500, 1000, 3000)), self.rng.choice((0, 2, 8))))
            case "cancel" | "retry" | "hold" | "release":
                chosen = self._some_tasks()
                if chosen is not None and self.manager is not None:
                    getattr(self.manager, kind)(*chosen)
            case "revise":
                chosen = self._some_tasks()
                if chosen is not None and self.manager is not None:
                    wishes = {"priority": self.rng.choice((0, 1000)), "mem_bytes": self.rng.choice((0, 2))}
                    self.manager.revise(chosen[0], wishes)
            case "queue" if self.has_queues and self.manager is not None:
                self.manager.set_queue(
                    QueueRow(
                        name=self.rng.choice(("lab", "ada")),
                        weight=self.rng.choice((0.5, 1.0, 3.0)),
                        max_running=self.rng.choice((0, 0, 1, 3)),
                        max_queued=self.rng.choice((0, 0, 1, 5)),
                        user_max=self.rng.choice((0, 0, 1)),
                        paused=self.rng.choice(("", "", "", "paused by ada")),
                    )
                )

    def _end_drain(self, worker: SimWorker) -> None:
        if worker.up and worker.agent.draining:
            worker.kill()
        worker.start()

    def crash_manager(self, point: str) -> None:
        if self.manager is not None:
            self.note("manager crashes", point)
            self.crashed = True
            self.manager.die()
            self.manager = None
            self.store.crash()
            self.witness.manager_crashed()
            self.after(self.rng.choice((0.1, 2.0, 40.0)), self._start_manager)

    def _start_manager(self) -> None:
        if self.manager is None:
            self.manager = SimManager(self)

    def unreachable_s(self, worker: SimWorker) -> float:
        """For how long its line will stay down."""
        return max(0.0, self._unreachable_until.get(worker.base, 0.0) - self.now)

    def commit_delay(self) -> float:
        return self.rng.uniform(*self.faults.commit_s)

    def disk_is_full(self) -> bool:
        return bool(self.faults.disk_full) and self.rng.random() < self.faults.disk_full

    def awaited(self, name: str) -> bool:
        """Whether the manager should still wait for this worker."""
        manager = self.manager
        if manager is None:
            return False
        since = manager.away_since.get(name)
        return name in manager.links or (since is not None and self.now < since + self.grace_s)

    # -- what tasks do ------------------------------------------------------------------------------------

    def play(self, worker: SimWorker, launch: Launch) -> tuple[float, End, int]:
        """How long an attempt lasts and how it ends."""
        if launch.program.line == CLEANUP:
            return self._clean(worker)
        row = self.store.job(launch.job)
        assert row is not None
        intent = self._by_key[row.key]
        if worker.base in intent.refused_by:
            return 0.0, End.REFUSED, 0
        lasts_s = self.rng.uniform(*intent.lasts_s)
        if 0 < launch.program.limits.mem_bytes < intent.needs_mem and launch.task % 3 == 0:
            return lasts_s / 2, End.EXCEEDED, 9
        if self.faults.interrupted and self.rng.random() < self.faults.interrupted:
            return lasts_s / 2, End.INTERRUPTED, 0
        if row.spec.block_on and not self._is_licensed(lasts_s):
            return lasts_s / 10, End.EXITED, NO_LICENCE
        if self.rng.random() < intent.fails:
            return (lasts_s, *self.rng.choice(((End.EXITED, 1), (End.SIGNALLED, 9), (End.TIMED_OUT, 0))))
        return lasts_s, End.EXITED, 0

    def _is_licensed(self, lasts_s: float) -> bool:
        if not self.licence_up or self.licensed >= self.licences:
            return False
        self.licensed += 1
        self.after(lasts_s, self._give_back)
        return True

    def _give_back(self) -> None:
        self.licensed -= 1

    def _clean(self, worker: SimWorker) -> tuple[float, End, int]:
        """Some cleanups start their machine anew."""
        lasts_s = self.more_rng.choice((0.01, 0.1, 2.0))
        if self.faults.every_s and self.more_rng.random() < 0.1:
            self.after(lasts_s / 2, worker.kill)
            self.after(lasts_s / 2 + self.more_rng.uniform(0.1, 1.5 * self.grace_s), worker.start)
        return (lasts_s, *self.more_rng.choice(((End.EXITED, 0), (End.EXITED, 0), (End.TIMED_OUT, 9))))


def simulate(seed: int) -> int:
    """Play one seed to its end. Returns the number of steps; raises Violation with the whole story."""
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        raise Violation(
            f"seed {seed}: {error!r}\n\nlast events:\n{world.schedule.trace()}\n\n"
            f"seed {seed}: {error!r}\n"
            f"replay: pytest tests/simulation --seed {seed}"
        ) from error
    return world.schedule.steps
