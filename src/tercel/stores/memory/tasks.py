"""What is known of one job's tasks: how they ended, what became of earlier attempts, and what they wait for."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from tercel.core.changes import Noted, SpanConcluded
from tercel.core.intervals import IntervalSet, Range
from tercel.core.reports import Blame, End, Outcome
from tercel.core.states import Stage, TaskState
from tercel.stores.contract import LEFT_OUT, note_left_out, noted_span, unattempted


class Tasks:
    """What is known of one job's tasks."""

    __slots__ = ("blocked", "history", "notes", "outcomes", "spans", "spent")

    def __init__(self) -> None:
        self.outcomes: dict[int, Outcome] = {}
        """By task."""
        self.spans: list[SpanConcluded] = []
        """Disjoint, in any order."""
        self.history: defaultdict[int, dict[int, Outcome]] = defaultdict(dict)
        """By task, then attempt."""
        self.spent: defaultdict[int, set[int]] = defaultdict(set)
        """By task: the attempts that spent a retry since it was last reopened."""
        self.blocked: dict[tuple[int, Stage], IntervalSet] = {}
        """By condition, and by the stage in which they met it, which wait for it: disjoint, and none empty."""
        self.notes: list[Noted] = []

    def conclude_span(self, span: SpanConcluded) -> None:
        self._cut_spans(span.first, span.last)
        self.spans.append(span)

    def reopen(self, first: int, last: int) -> None:
        for task in _members(self.outcomes, first, last):
            outcome = self.outcomes.pop(task)
            self.history[task][outcome.report.attempt] = outcome
        for task in _members(self.spent, first, last):
            del self.spent[task]
        self.notes += self._cut_spans(first, last)

    def put_blame(self, task: int, attempt: int, blame: Blame) -> None:
        earlier = self.history.get(task, {})
        if attempt in earlier:
            earlier[attempt] = msgspec.structs.replace(earlier[attempt], blame=blame)
            self.spent[task].discard(attempt)
            if not self.spent[task]:
                del self.spent[task]

    def _cut_spans(self, first: int, last: int) -> list[Noted]:
        """Returns what is to be told of the parts that are gone."""
        kept: list[SpanConcluded] = []
        gone: list[Noted] = []
        for span in self.spans:
            if span.last < first or span.first > last:
                kept.append(span)
                continue
            gone.append(noted_span(span, max(first, span.first), min(last, span.last)))
            if span.first < first:
                kept.append(msgspec.structs.replace(span, last=first - 1))
            if span.last > last:
                kept.append(msgspec.structs.replace(span, first=last + 1))
        self.spans = kept
        return gone

    def block(self, ranges: Sequence[Range], condition: int, stage: Stage) -> None:
        self.unblock(ranges)
        if ranges:
            self.blocked.setdefault((condition, stage), IntervalSet()).update(IntervalSet(ranges))

    def unblock(self, ranges: Sequence[Range]) -> None:
        freed = IntervalSet(ranges)
        for key, waiting in list(self.blocked.items()):
            waiting.difference_update(freed)
            if not waiting:
                del self.blocked[key]

    def notes_of(self, task: int) -> list[Noted]:
        told = [*self.notes, *(noted_span(span, span.first, span.last) for span in self.spans)]
        found = [note for note in told if any(first <= task <= last for first, last in note.ranges)]
        # A dictionary: what was noted twice was handed over twice.
        alone = {msgspec.structs.replace(note, ranges=((task, task),)): None for note in found}
        return sorted(alone, key=lambda note: note.at)

    def all_notes(self) -> list[Noted]:
        """Of all tasks, those that say the same at the same time as one."""
        joined: dict[tuple[float, str, str], tuple[Noted, int, IntervalSet]] = {}
        written = len(self.notes)
        spans = [noted_span(span, span.first, span.last) for span in self.spans]
        for number, note in enumerate([*self.notes, *spans]):
            words = (note.at, note.what, note.note)
            whole = joined.setdefault(words, (note, min(number, written), IntervalSet()))
            whole[2].update(IntervalSet(note.ranges))
        order = sorted(joined.values(), key=lambda one: (one[0].at, one[1], one[0].what, one[0].note))
        return [msgspec.structs.replace(note, ranges=tuple(tasks.ranges())) for note, _, tasks in order]

    def all_records(self) -> Iterator[Outcome]:
        yield from self.outcomes.values()
        for attempts in self.history.values():
            yield from attempts.values()

    def ended_since(self, at: float) -> IntervalSet:
        numbers = IntervalSet((span.first, span.last) for span in self.spans if span.at >= at)
        for task, outcome in sorted(self.outcomes.items()):
            if outcome.ended_at >= at:
                numbers.add(task)
        return numbers

    def record_count(self) -> int:
        return len(self.outcomes) + len(self.spans) + sum(map(len, self.history.values()))

    def attempts(self) -> set[int]:
        """Of all that has a record."""
        earlier = {attempt for attempts in self.history.values() for attempt in attempts}
        return earlier | {outcome.report.attempt for outcome in self.outcomes.values()}

    def middle(self, keep: int, ended_before: float) -> list[tuple[int, int]]:
        """(task, attempt) of those between the first and the last `keep` of histories that do not count."""
        found: list[tuple[int, int]] = []
        for task, attempts in self.history.items():
            for attempt in sorted(attempts)[keep:-keep]:
                if not self._counts(task, attempt) and attempts[attempt].ended_at < ended_before:
                    found.append((task, attempt))
        return found

    def _counts(self, task: int, attempt: int) -> bool:
        """Against the task's retries, or as its record."""
        record = self.outcomes.get(task)
        return attempt in self.spent.get(task, ()) or (
            record is not None and record.report.attempt == attempt
        )

    def forget(self, task: int, attempt: int) -> bool:
        """Whether there was such an earlier attempt, and it did not count."""
        gone = attempt in self.history[task] and not self._counts(task, attempt)
        if gone:
            del self.history[task][attempt]
        return gone

    def compact(self, keep: int, ended_before: float) -> set[int]:
        """Which attempts were removed from the middle of histories."""
        gone = self.middle(keep, ended_before)
        for task, attempts in groupby(gone, key=lambda one: one[0]):
            removed = [self.history[task].pop(attempt) for _, attempt in attempts]
            self._leave_out(task, removed)
        return {attempt for _, attempt in gone}

    def _leave_out(self, task: int, removed: Sequence[Outcome]) -> None:
        """One note tells of all, however often some go."""
        earlier = [note for note in self.notes if note.what == LEFT_OUT and note.ranges == ((task, task),)]
        self.notes = [note for note in self.notes if note not in earlier]
        at = max(outcome.ended_at for outcome in removed)
        self.notes.append(note_left_out(removed[0].report.job, task, len(removed), at, earlier))

    def ended(self, state: TaskState) -> IntervalSet:
        numbers = IntervalSet((span.first, span.last) for span in self.spans if span.state is state)
        for task, outcome in sorted(self.outcomes.items()):
            if outcome.state is state:
                numbers.add(task)
        return numbers

    def skipped(self) -> IntervalSet:
        return IntervalSet((span.first, span.last) for span in self.spans if span.end is End.SKIPPED)

    def records(self, wanted: IntervalSet) -> Iterator[Outcome]:
        """In no particular order."""
        yield from (outcome for task, outcome in self.outcomes.items() if task in wanted)
        for span in self.spans:
            for task in wanted.intersection(IntervalSet([(span.first, span.last)])):
                yield unattempted(span, task)

    def failures(self) -> dict[int, int]:
        over = IntervalSet((span.first, span.last) for span in self.spans)
        return {
            task: len(attempts)
            for task, attempts in sorted(self.spent.items())
            if task not in self.outcomes and task not in over
        }


def _members(tasks: Iterable[int], first: int, last: int) -> list[int]:
    return [task for task in tasks if first <= task <= last]
