"""What the manager tells its workers: to whom it speaks, and which of them know which jobs.

A message for a worker that is not connected goes nowhere: when it comes back, the machine says anew what it is due.
"""

from collections.abc import Sequence

from tercel.core.blocking import program_of
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.machine import Machine
from tercel.core.model import Call, Lease
from tercel.manager import frames
from tercel.manager.conversation import Conversation
from tercel.manager.values import named
from tercel.stores.contract import Store
from tercel.wire.messages import Brief, Forget, FromManager, Welcome


class Telling:
    def __init__(self, machine: Machine, store: Store) -> None:
        self._machine = machine
        self._store = store
        self._conversations: dict[str, Conversation] = {}
        self._briefed: dict[int, set[str]] = {}
        """Which connected workers were sent each job's brief."""

    @property
    def count(self) -> int:
        """Of the workers that are connected."""
        return len(self._conversations)

    def conversation_with(self, worker: str) -> Conversation | None:
        return self._conversations.get(worker)

    def joined(self, conversation: Conversation) -> None:
        """A worker said Hello. An older link of the same worker is dead or half open: it is closed."""
        before = self._conversations.get(conversation.worker)
        if before is not None:
            before.abandon("the worker connected again")
            self._unbrief(before)
        self._conversations[conversation.worker] = conversation

    def parted(self, conversation: Conversation) -> bool:
        """Its link is closed. Whether that was the worker's: it may have another by now."""
        if self._conversations.get(conversation.worker) is not conversation:
            return False
        del self._conversations[conversation.worker]
        self._unbrief(conversation)
        return True

    def _unbrief(self, conversation: Conversation) -> None:
        """A new link starts with no briefs."""
        for job in conversation.briefed:
            if (workers := self._briefed.get(job)) is not None:
                workers.discard(conversation.worker)

    def send(self, worker: str, message: FromManager) -> None:
        conversation = self._conversations.get(worker)
        if conversation is not None:
            conversation.post(message)

    def welcome(self, worker: str, hello: int, message: Welcome) -> None:
        """Only on the link whose Hello this answers: two may have waited for one commit."""
        conversation = self._conversations.get(worker)
        if conversation is not None and conversation.hello == hello:
            conversation.post(message)

    def offer(self, leases: Sequence[Lease]) -> None:
        """Leases of one job that follow one another, for one worker."""
        id, worker = leases[0].job, leases[0].worker
        job = self._machine.jobs.get(id)
        conversation = self._conversations.get(worker)
        if job is None or conversation is None or not conversation.welcomed:
            return  # cancelled meanwhile: the Cancel that follows brings it back; or the link is another by now
        briefed = self._briefed.setdefault(id, set())
        if worker not in briefed:
            briefed.add(worker)
            conversation.briefed.add(id)
            conversation.post(Brief(id, program_of(job.row.spec), job.needs))
        if job.row.spec.outputs and (job.left or job.strays):
            self._undo(job, leases, conversation)
        if len(leases) > 1 and conversation.takes_scattered:
            for scattered in frames.scattered(leases, *self._own(job, leases, conversation)):
                conversation.post(scattered)
            return
        for lease in leases:
            for offer in frames.offers(lease, *self._own(job, [lease], conversation)):
                conversation.post(offer)

    def _undo(self, job: Job, leases: Sequence[Lease], conversation: Conversation) -> None:
        """Before tasks are run again: what earlier attempts had delivered goes. What the manager keeps goes by itself."""
        again = job.left.intersection(IntervalSet((lease.first, lease.last) for lease in leases))
        left = self._store.left_overs(job.id, again.ranges()) if again else {}
        for lease in leases:
            for task in range(lease.first, lease.last + 1):
                urls = left.get(task, [])
                lost = [stray.attempt for stray in job.strays.get(task, ())]
                if urls or lost:
                    for undo in frames.undos(job.id, task, urls, lost):
                        conversation.post(undo)
                if not urls and task in again:
                    self._machine.on_removed(job.id, task)

    def _own(
        self, job: Job, leases: Sequence[Lease], conversation: Conversation
    ) -> tuple[list[str] | None, list[Call] | None]:
        """The lines, or the calls, that its tasks have of their own; the worker may ask for the values that those name."""
        ranges = [(lease.first, lease.last) for lease in leases]
        lines = self._store.lines(job.id, ranges) if job.row.has_lines else None
        function = job.row.spec.function
        if function is None:
            return lines, None
        calls = self._store.calls(job.id, ranges)
        if keys := named(calls) + ([function.value] if function.value else []):
            conversation.allow(job.id, keys)
        return lines, calls

    def brief_anew(self, job: int) -> None:
        """Workers that know the job are told before they are given more of it."""
        for worker in self._briefed.pop(job, ()):
            if (conversation := self._conversations.get(worker)) is not None:
                conversation.briefed.discard(job)

    def forget(self, job: int) -> None:
        """It has ended."""
        for worker in self._briefed.pop(job, ()):
            if (conversation := self._conversations.get(worker)) is not None:
                conversation.forget(job)
                conversation.post(Forget(job))
