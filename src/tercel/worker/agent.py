"""The worker's side of the protocol, pure: what it holds, what it owes, what it may forget.

    offered -> queue --launches()--> lane --on_ended()--> owed --on_ack()--> forgotten, or cleaned up after (see cleaning)
      |          ^ \\                       \\--> what it left is delivered first (see parcels)
      |          |  \\--on_take_back(), on_cancel(), drain(), pause(), set_capacity()--> returned
      +-> staging, while values that it refers to, and files that it reads, are fetched

A lane is a place where one attempt runs at a time, with the resources of that attempt. Attempts of a job whose
tasks are short are put into a lane ahead of time, so that its spawner never waits for a round trip; such an
attempt counts as started and takes no resources of its own. Should the one before it last after all, it is
withdrawn from the lane and waits in the queue again. The queue is first in, first out: a large task at its head is not
starved by small ones behind it. Only one that waits for a licence or a GPU is passed by those behind it that want none of its
kind: room kept for it would be of no use to anybody. Once it can have that, it is first again.
"""

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from tercel.core.errors import PeerError
from tercel.core.files import Hitch, Made
from tercel.core.model import Needs
from tercel.core.presence import Held
from tercel.core.reports import End, Report
from tercel.runners.contract import Launch
from tercel.wire.messages import Brief, Offer, Scattered
from tercel.worker.cleaning import Cleanup, cleans_after
from tercel.worker.debts import Debts
from tercel.worker.held import Attempt, Job, Lane
from tercel.worker.lanes import Lanes
from tercel.worker.parcels import Parcels, delivers, told, unstaged
from tercel.worker.staging import Place, Staging


class Agent:
    """Events come in as method calls; what to launch, kill, send comes out as return values."""

    def __init__(
        self,
        capacity: Needs,
        indices: Mapping[str, tuple[str, ...]] = {},
        cache_bytes: int = 2**30,
        outgoing: str = "",
    ) -> None:
        """What it gives to tasks when nothing else needs the node; the names of pieces by resource; room for values.

        `outgoing`: the directory in which attempts leave what is to be delivered, each in one of its own.
        """
        self._outgoing = outgoing
        self._whole = capacity
        self.draining = False
        self.paused = False
        """It starts nothing, for now."""
        self._debts = Debts()
        self._jobs: dict[int, Job] = {}
        self._held: dict[int, Attempt] = {}
        self._queue: deque[Attempt] = deque()
        self._staging: dict[int, Attempt] = {}
        """They wait for values, and nobody waits for them."""
        self._values = Staging(cache_bytes)
        self._unbrought: dict[int, Attempt] = {}
        """Those of the staging ones that want files."""
        self._new_wants: list[Attempt] = []
        self._unwanted: list[int] = []
        self._left: list[tuple[Report, Attempt]] = []
        self._undelivered: list[int] = []
        self._undo: dict[tuple[int, int], tuple[list[str], list[int]]] = {}
        """By job and task: what is to be removed before an attempt of it is begun, and which ones were lost."""
        self.parcels = Parcels()
        self.lanes = Lanes(capacity, indices)
        self._cleanups: dict[int, Cleanup] = {}
        """That are not done, by the attempt that they clean up after."""
        self._cleaned: list[tuple[Cleanup, Report]] = []

    # -- what it holds ------------------------------------------------------------------------------------

    @property
    def capacity(self) -> Needs:
        """What it gives to tasks at this time."""
        return self.lanes.capacity

    @property
    def offered(self) -> Needs:
        """What the manager may count on: not the places that are being cleaned."""
        if not self._cleanups:
            return self.capacity
        left = dict(self.capacity.resources)
        millicpus, mem_bytes = self.capacity.millicpus, self.capacity.mem_bytes
        for cleanup in self._cleanups.values():
            needs = cleanup.lane.needs
            millicpus -= needs.millicpus
            mem_bytes -= needs.mem_bytes
            for name, amount in needs.resources:
                left[name] = max(0, left.get(name, 0) - amount)
        return msgspec.structs.replace(
            self.capacity,
            millicpus=max(0, millicpus),
            mem_bytes=max(0, mem_bytes),
            resources=tuple(left.items()),
        )

    @property
    def only_cleans(self) -> bool:
        """Whether it cleans up after tasks, and runs none."""
        return bool(self._cleanups) and len(self._cleanups) == len(self.lanes)

    @property
    def running_count(self) -> int:
        return len(self.lanes)

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing waits to run, to be delivered or to be cleaned up. What is parked waits for others."""
        return not self._held and not self._cleanups and not self.parcels.delivering

    @property
    def owed(self) -> dict[int, Report]:
        """Reports that are not acknowledged yet, in order of ending."""
        return self._debts.owed

    @property
    def clogged(self) -> bool:
        """Whether so much is unacknowledged that nothing more is launched."""
        return self._debts.clogged

    def in_lane(self, attempt: int) -> bool:
        """Whether it was launched and has not ended."""
        return (held := self._held.get(attempt)) is not None and held.lane is not None

    def held(self) -> list[Held]:
        """For Hello: all that the manager may believe is here. What is in a lane may have begun."""
        here = [
            Held(h.job.id, h.task, h.attempt, h.lane is not None, False)
            for h in self._held.values()
            if h.wanted
        ]
        here += self.parcels.held(self.owed) if self.parcels else []
        return here + [Held(r.job, r.task, r.attempt, True, True) for r in self.owed.values()]

    def restore(self, reports: Iterable[Report], parked: Iterable[Report] = ()) -> None:
        """Reports found in the spool of an earlier process; and those of attempts that had not delivered what they left."""
        for report in reports:
            self._debts.add(report)
        for report in parked:
            owed = self.owed.get(report.attempt)
            if owed is None or (owed.hitch is not None and owed.hitch.kept):
                self.parcels.park(report)

    # -- from the manager ---------------------------------------------------------------------------------

    def on_welcome(self, drop: list[int]) -> list[int]:
        """Forget what is no longer wanted, and what was only said on a link that is gone; returns what to kill."""
        self.on_ack(drop)
        self._undo.clear()
        kill = [attempt for attempt in drop if self.in_lane(attempt)]
        for attempt in kill:
            self._held[attempt].wanted = False
        self._unqueue(set(drop))
        for job in [job for job in self._jobs.values() if not job.held]:
            del self._jobs[job.id]
        return kill

    def on_brief(self, brief: Brief) -> None:
        known = self._jobs.get(brief.job)
        if known is None:
            self._jobs[brief.job] = Job(brief)
        else:
            known.program, known.needs, known.ended = brief.program, brief.needs, False
            known.declared = None

    def on_forget(self, job: int) -> None:
        if (known := self._jobs.get(job)) is not None:
            known.ended = True
            self._forget_if_unused(known)

    def on_offer(self, offer: Offer | Scattered) -> list[int]:
        """Queue the offered tasks. Returns those it will not take: it is draining or paused, or gives less by now."""
        tasks = offer.tasks if isinstance(offer, Scattered) else range(offer.first, offer.last + 1)
        count = len(tasks)
        if not count or any(of is not None and len(of) != count for of in (offer.lines, offer.calls)):
            raise PeerError(
                f"the manager offered tasks of job {offer.job} with wrong lines or calls, or none"
            )
        attempts = range(offer.first_attempt, offer.first_attempt + count)
        if self.draining or self.paused:
            return self._untaken(offer.job, tasks, attempts)
        job = self._jobs.get(offer.job)
        if job is None:
            raise PeerError(f"the manager offered tasks of job {offer.job} without its brief")
        if (job.program.function is None) != (offer.calls is None):
            raise PeerError(f"the manager offered tasks of job {offer.job} that are not what its brief says")
        if self._exceeds(job.needs):
            return self._untaken(offer.job, tasks, attempts)
        for at, attempt in enumerate(attempts):
            if attempt not in self._held and attempt not in self.owed:
                line = offer.lines[at] if offer.lines is not None else ""
                call = offer.calls[at] if offer.calls is not None else None
                self._hold(Attempt(job, tasks[at], attempt, line, call))
        return []

    def _untaken(self, job: int, tasks: Iterable[int], attempts: Iterable[int]) -> list[int]:
        """Whoever runs them instead is told what to remove first: what it delivers then is not ours to remove."""
        for task in tasks if self._undo else ():
            self._undo.pop((job, task), None)
        return self.unknown(attempts)

    def _hold(self, held: Attempt) -> None:
        held.job.held += 1
        self._held[held.attempt] = held
        held.undo, held.lost = self._undo.pop((held.job.id, held.task), ([], []))
        program = held.job.program
        wants = bool(program.inputs or program.outputs or held.undo)
        if wants:
            self._unbrought[held.attempt] = held
            self._new_wants.append(held)
        if (not held.keys or self._values.need(held.attempt, held.keys)) and not wants:
            self._queue.append(held)
        else:
            self._staging[held.attempt] = held

    def on_take_back(self, attempts: list[int]) -> list[int]:
        """Give back those that have not been launched, and those that never came: either way they are not here."""
        unknown = self.unknown(attempts)
        self._recall(attempts)
        return self._unqueue(set(attempts)) + unknown

    def on_cancel(self, attempts: list[int]) -> tuple[list[int], list[int]]:
        """Returns (what to kill, what is given back unstarted)."""
        unknown = self.unknown(attempts)
        kill = self._recall(attempts)
        return kill, self._unqueue(set(attempts)) + unknown

    def unknown(self, attempts: Iterable[int]) -> list[int]:
        """Not here: of an offer that is not taken, say, or was not sent because its job ended first.

        Saying so frees what was booked for them.
        """
        return [
            attempt
            for attempt in attempts
            if attempt not in self._held and attempt not in self.owed and attempt not in self.parcels
        ]

    def _recall(self, attempts: list[int]) -> list[int]:
        """Returns those that are in a lane."""
        launched = [attempt for attempt in attempts if self.in_lane(attempt)]
        for attempt in launched:
            self._held[attempt].recalled = True
        return launched

    def on_ack(self, attempts: list[int]) -> None:
        self._debts.forget(attempts)
        for attempt in attempts if self._cleanups else ():
            if (cleanup := self._cleanups.get(attempt)) is not None:
                cleanup.due = True

    def drain(self) -> list[int]:
        """Take nothing more; give back what has not been launched."""
        self.draining = True
        return self._unqueue_all()

    def pause(self) -> list[int]:
        """Start nothing until `resume`; give back what has not been launched. See `Lanes.unbegun` for the rest."""
        self.paused = True
        return self._unqueue_all()

    def resume(self) -> None:
        self.paused = False

    def set_capacity(self, capacity: Needs) -> list[int]:
        """What it gives from now on. Returns what is given back, because it would not fit even alone."""
        self.lanes.capacity = capacity
        waiting = [*self._queue, *self._staging.values()]
        return self._unqueue({held.attempt for held in waiting if self._exceeds(held.job.needs)})

    def _exceeds(self, needs: Needs) -> bool:
        """Whether it is too much only because less is given than this worker has."""
        capacity = self.capacity
        if capacity is self._whole:
            return False
        return (needs.millicpus > capacity.millicpus and capacity.millicpus < self._whole.millicpus) or (
            needs.mem_bytes > capacity.mem_bytes and capacity.mem_bytes < self._whole.mem_bytes
        )

    def _unqueue_all(self) -> list[int]:
        return self._unqueue({held.attempt for held in self._queue} | self._staging.keys())

    def _unqueue(self, attempts: set[int]) -> list[int]:
        gone = [held for held in self._queue if held.attempt in attempts]
        if gone:
            self._queue = deque(held for held in self._queue if held.attempt not in attempts)
        gone += [self._staging.pop(attempt) for attempt in sorted(attempts & self._staging.keys())]
        for held in gone:
            self._let_go(held)
        return [held.attempt for held in gone]

    def _let_go(self, held: Attempt) -> None:
        del self._held[held.attempt]
        self._unbrought.pop(held.attempt, None)
        if held.job.program.inputs or held.undo:
            self._unwanted.append(held.attempt)
        if held.keys:
            self._values.release(held.attempt, held.keys)
        held.job.held -= 1
        if held.job.ended:
            self._forget_if_unused(held.job)

    def _forget_if_unused(self, job: Job) -> None:
        if not job.held:
            self._jobs.pop(job.id, None)

    # -- values that calls refer to ----------------------------------------------------------------------

    def fetches(self) -> list[str]:
        """Keys of values to ask for, each told once."""
        return self._values.take_new()

    def awaits(self, key: str) -> bool:
        return self._values.awaits(key)

    def on_value(self, key: str, place: Place, size_bytes: int) -> None:
        for attempt in self._values.arrived(key, place, size_bytes):
            if attempt not in self._unbrought:
                self._queue.append(self._staging.pop(attempt))

    def on_value_gone(self, key: str) -> list[int]:
        """Returns the attempts that cannot run without it: see `fail_staging`."""
        return self._values.gone(key)

    # -- files that they read, and that they left ----------------------------------------------------------

    def wants(self) -> list[Attempt]:
        """Attempts whose files are to be brought, each told once."""
        wants, self._new_wants = self._new_wants, []
        return [held for held in wants if held.attempt in self._unbrought]

    def on_undo(self, job: int, task: int, urls: list[str], lost: list[int]) -> None:
        """What earlier attempts of a task had delivered is to be removed before the next one, which follows, is begun.

        Of very much it is told in several pieces.
        """
        before, _ = self._undo.get((job, task), ([], []))
        self._undo[job, task] = before + urls, lost

    def take_unwanted(self) -> list[int]:
        """Attempts that wanted files, or others' removed, and do not any more."""
        unwanted, self._unwanted = self._unwanted, []
        return unwanted

    def on_brought(self, attempt: int, links: list[tuple[str, str]]) -> bool:
        """All files that it reads are here: (path in the cache, name in its sandbox). Whether anybody still wants that."""
        held = self._unbrought.pop(attempt, None)
        if held is None:
            return False
        held.links = links
        if not self._values.lacks(attempt):
            self._queue.append(self._staging.pop(attempt))
        return True

    def on_unbrought(self, attempt: int, hitch: Hitch, now: float) -> list[Report]:
        """Some cannot be had. Returns the reports that are owed."""
        held = self._unbrought.get(attempt)
        if held is None:
            return []
        del self._staging[attempt]
        self._let_go(held)
        report = Report(held.job.id, held.task, attempt, End.UNSTAGED, 0, now, 0.0, 0.0, 0, hitch.note)
        return self._owe(unstaged(report, hitch))

    def take_left(self) -> list[tuple[Report, Attempt]]:
        """Attempts whose files are to be delivered, and how they ended, each told once."""
        left, self._left = self._left, []
        return left

    def take_undelivered(self) -> list[int]:
        """Attempts that may have left something which nobody wants: they were cancelled, or did not come to an end of their own."""
        undelivered, self._undelivered = self._undelivered, []
        return undelivered

    def on_delivered(self, attempt: int, files: tuple[Made, ...]) -> list[Report]:
        return self._owe(self.parcels.delivered(attempt, files))

    def on_undelivered(self, attempt: int, hitch: Hitch) -> list[Report]:
        return self._owe(self.parcels.hitched(attempt, hitch))

    def on_spoilt(self, attempt: int, note: str, errno: str) -> list[Report]:
        """What it left cannot be read any more, by this node's own fault: it has to be run again."""
        return self._owe(self.parcels.spoilt(attempt, note, errno))

    def on_park(self, attempts: list[int]) -> None:
        """Their reports cannot be taken yet: they are reported again when the manager says so."""
        for attempt in attempts:
            if (report := self.owed.get(attempt)) is not None:
                self.on_ack([attempt])  # how it ended is known: its place can be cleaned
                self.parcels.park(report)

    def drop_parcels(self, attempts: list[int], *, tell: bool) -> tuple[list[int], list[Report]]:
        """Nobody wants what these left. Returns (whose files may go, the reports that are owed if somebody is to be told)."""
        under_way, parked = self.parcels.drop(attempts)
        gone = [report.attempt for report in under_way] + parked
        owed: list[Report] = []
        for report in under_way if tell else ():
            owed += self._owe(told(msgspec.structs.replace(report, end=End.CANCELLED, code=0)))
        return gone, owed

    def _owe(self, report: Report | None) -> list[Report]:
        if report is None:
            return []
        self._debts.add(report)
        return [report]

    def fail_staging(self, attempts: list[int], why: str, now: float, errno: str = "") -> list[Report]:
        """Those that are still held end; returns the reports that are owed."""
        reports = []
        for attempt in attempts:
            if (held := self._staging.pop(attempt, None)) is not None:
                self._let_go(held)
                ids = (held.job.id, held.task, attempt)
                reports.append(Report(*ids, End.INTERRUPTED, 0, now, 0.0, 0.0, 0, why, errno=errno))
                self._debts.add(reports[-1])
        return reports

    def cache_news(self) -> tuple[list[tuple[str, int]], list[str]] | None:
        """Values that were kept and that went since this was last asked, if any."""
        return self._values.take_news()

    def kept_values(self) -> list[tuple[str, int]]:
        """All that are kept, with their sizes, for a manager that knows of none."""
        return self._values.kept()

    def dropped_values(self) -> list[str]:
        """Paths of files that are of no more use."""
        return self._values.take_dropped()

    # -- from and to the runner ---------------------------------------------------------------------------

    def launches(self) -> list[Launch]:
        """What to start now: new lanes while there is room, then short tasks behind running ones."""
        launches = self._due_cleanups() if self._cleanups else []
        if self.clogged:
            return launches
        while (at := self.lanes.first_fitting(self._queue)) is not None:
            launches.append(self._place(at, self.lanes.open(self._queue[at].job)))
        if self.lanes.overfull and len(self.lanes) > 1:
            return launches  # nothing behind what runs, or it would never become less
        while self._queue and (deeper := self._deepen(self._queue[0].job)):
            launches += deeper
        return launches

    def _deepen(self, job: Job) -> list[Launch]:
        """Fill up lanes of this job that run low, in turn; stops where another job's attempt is at the head."""
        launches: list[Launch] = []
        depth = job.depth()
        # Below half only: one refill of many costs the runner less than many of one.
        lanes = [
            lane
            for lane in self.lanes
            if lane.job is job and 0 < len(lane.attempts) <= depth // 2 and lane.lasting < 0
        ]
        while lanes:
            for lane in lanes:
                if not self._queue or self._queue[0].job is not job:
                    return launches
                launches.append(self._place(0, lane))
            lanes = [lane for lane in lanes if len(lane.attempts) < depth]
        return launches

    def _place(self, at: int, lane: Lane) -> Launch:
        head = self._queue[at]
        del self._queue[at]
        head.lane = lane
        lane.attempts[head.attempt] = head
        job, inputs = head.job, self._values.inputs(head.keys)
        ids = (lane.number, job.id, head.task, head.attempt)
        if not head.links and not head.gathers:
            return Launch(*ids, job.program, head.line, head.call, inputs, lane.env)
        where, gathers = f"{self._outgoing}/{head.attempt}", head.gathers
        return Launch(*ids, job.program, head.line, head.call, inputs, lane.env, head.links, gathers, where)

    def on_started(self, attempts: list[int]) -> list[int]:
        """Returns those the manager should be told of."""
        news = []
        for attempt in attempts:
            held = self._held.get(attempt)
            if held is not None and held.lane is not None:
                held.lane.lasting = attempt
                if held.wanted:
                    news.append(attempt)
        return news

    def stuck(self, attempts: list[int]) -> list[int]:
        """What to withdraw from the runner: attempts that wait in a lane behind one of these, which last."""
        stuck = []
        for attempt in attempts:
            held = self._held.get(attempt)
            if held is not None and held.lane is not None:
                for behind in held.lane.attempts.values():
                    if behind is not held and not behind.withdrawn:
                        behind.withdrawn = True
                        stuck.append(behind.attempt)
        return stuck

    def on_ended(self, reports: list[Report]) -> list[Report]:
        """Returns the reports that are owed to the manager, in order."""
        owed = []
        back = []
        for report in reports:
            held = self._held.get(report.attempt)
            if held is None or held.lane is None:
                self._on_cleaned(report)
                continue
            if cleans_after(held.job.program, report):
                self._cleanups[report.attempt] = Cleanup(held.lane, report, due=not held.wanted)
            self._leave_lane(held, held.lane)
            if self._comes_back(held, report):
                back.append(held)
                continue
            if report.end is End.INTERRUPTED and report.started_at:
                held.job.singly = True
            elif report.end is End.EXITED:
                mean = held.job.mean_wall_s
                held.job.mean_wall_s = report.wall_s if mean is None else mean + 0.2 * (report.wall_s - mean)
            self._let_go(held)
            if held.wanted and held.gathers and delivers(report):
                self.parcels.begin(report)
                self._left.append((report, held))
                continue
            if held.gathers:
                self._undelivered.append(report.attempt)
            if held.wanted:
                report = told(report)
                self._debts.add(report)
                owed.append(report)
        if back:
            self._queue.extendleft(reversed(back))
        return owed

    def _comes_back(self, held: Attempt, report: Report) -> bool:
        """Whether it was withdrawn before it began, and so simply waits again."""
        never_began = held.withdrawn and report.end is End.INTERRUPTED and not report.started_at
        held.withdrawn = False
        stays = not self.draining and not self.paused and not self._exceeds(held.job.needs)
        return never_began and held.wanted and not held.recalled and stays

    def _leave_lane(self, held: Attempt, lane: Lane) -> None:
        held.lane = None
        del lane.attempts[held.attempt]
        if lane.lasting == held.attempt:
            lane.lasting = -1
        if not lane.attempts and held.attempt not in self._cleanups:
            self.lanes.close(lane)

    # -- cleaning up --------------------------------------------------------------------------------------

    def _due_cleanups(self) -> list[Launch]:
        return [c.launch() for c in self._cleanups.values() if c.due and not c.launched]

    def _on_cleaned(self, report: Report) -> None:
        cleanup = self._cleanups.get(report.attempt)
        if cleanup is not None and cleanup.launched:
            del self._cleanups[report.attempt]
            self.lanes.close(cleanup.lane)
            self._cleaned.append((cleanup, report))

    def take_cleaned(self) -> list[tuple[Cleanup, Report]]:
        """Cleanups that have ended since this was last asked, and how."""
        cleaned, self._cleaned = self._cleaned, []
        return cleaned
