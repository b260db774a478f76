"""What data tasks take, by key, so that they can be sent to where it is."""

from collections.abc import Collection, Mapping, Sequence

from tercel.core.intervals import IntervalSet

Keys = Mapping[int, Sequence[str]]
"""By task: the keys of the data that it takes. In order of task number."""


class Inputs:
    """Of the tasks of one job."""

    __slots__ = ("_tasks", "all_keys")

    def __init__(self, keys: Keys) -> None:
        self._tasks: dict[str, list[int]] = {}
        """Tasks that take it, by key; the next one last."""
        for task in reversed(list(keys)):
            for key in dict.fromkeys(keys[task]):
                self._tasks.setdefault(key, []).append(task)
        self.all_keys = tuple(self._tasks)

    def __len__(self) -> int:
        """How many keys."""
        return len(self._tasks)

    def keys(self) -> list[str]:
        return list(self._tasks)

    def __contains__(self, key: str) -> bool:
        return key in self._tasks

    def takers(self, key: str, ready: IntervalSet, waiting: IntervalSet, most: int) -> list[int]:
        """Ready tasks that take it, the first of them.

        Those at the front that neither are ready nor wait for others are forgotten: if one is ready again, it goes to wherever
        there is room.
        """
        tasks = self._tasks.get(key)
        if tasks is None:
            return []
        while tasks and tasks[-1] not in ready and tasks[-1] not in waiting:
            tasks.pop()
        if not tasks:
            del self._tasks[key]
            return []
        found = []
        for at in range(len(tasks) - 1, -1, -1):
            if tasks[at] in ready:
                found.append(tasks[at])
                if len(found) >= most:
                    break
        return found


FEW_KEYS = 64
"""A job that takes more is always looked at: it is not worth the trouble to find it by each."""


class Takers:
    """Which jobs take what, of those in a line."""

    __slots__ = ("_broad", "_by_key")

    def __init__(self) -> None:
        self._broad: dict[int, None] = {}
        self._by_key: dict[str, dict[int, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._broad or self._by_key)

    def add(self, job: int, inputs: Inputs) -> None:
        if len(inputs) > FEW_KEYS:
            self._broad[job] = None
            return
        for key in inputs.all_keys:
            self._by_key.setdefault(key, {})[job] = None

    def remove(self, job: int, inputs: Inputs) -> None:
        """Keys that it has forgotten since stay; whoever looks must ask the job."""
        self._broad.pop(job, None)
        for key in inputs.all_keys:
            jobs = self._by_key.get(key)
            if jobs is not None:
                jobs.pop(job, None)
                if not jobs:
                    del self._by_key[key]

    def near(self, keys: Collection[str]) -> list[int]:
        """Jobs that (may) take any of these."""
        found = dict(self._broad)
        if len(keys) <= len(self._by_key):
            for key in keys:
                found.update(self._by_key.get(key, {}))
        else:
            for key, jobs in self._by_key.items():
                if key in keys:
                    found.update(jobs)
        return list(found)
