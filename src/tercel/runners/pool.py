"""The runner that a worker uses: a process for each lane, started when the lane is first used, and kept.

Commands are run by spawners, calls of Python functions by interpreters. A lane has at most one of each.

    <dir>/sandboxes/<pid>.<n>/    what the n-th of them in this process works in
    <dir>/outputs/<attempt>.out   large outputs and values; they stay until forgotten, over restarts
    <dir>/trash/                  what is to be removed when there is time
    <dir>/cgroups, containers     whether there are control groups and containers, for the next process to remove

What an earlier process left behind (killed together with its spawners, say) is ended and removed at the start.
"""

import asyncio
import contextlib
import logging
import os
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tercel.core.errors import UsageError
from tercel.core.reports import End, Output, Report
from tercel.runners import outputs, trees
from tercel.runners.board import NOBODY
from tercel.runners.call_lane import CallLane
from tercel.runners.commands import errno_name
from tercel.runners.contract import Launch, Listener
from tercel.runners.diskfloor import DiskFloor
from tercel.runners.hierarchies import Hierarchies
from tercel.runners.lane import Lane, interrupted
from tercel.runners.losses import Losses
from tercel.runners.sandbox import Sweeper
from tercel.runners.seeking import Seeking
from tercel.runners.starting import CONTAINERS, Directories, containers_of

log = logging.getLogger("tercel.runners")

_INTERRUPTED_S = 1.0
"""What this node could not start, or lost with its spawner, is told so late: who launches the next one at once (or
the same one again, which ended its spawner) must not spin."""
_STOP_S = 5.0
_STRAYS_PATIENCE_S = 5.0


class SpawnerPool:
    """See Runner for what its methods do."""

    def __init__(self, dir: Path, node: str, *, cgroups: bool = True, container_args: str = "") -> None:
        """Without `cgroups`, limits are kept by watching alone. `container_args` as a shell would take them.

        Raises UsageError if it would not.
        """
        self._dir = dir.resolve()  # one spelling: leftovers are told by it
        self._hierarchies = Hierarchies(self._dir, use=cgroups)
        self._node = node
        self._container_args = _words(container_args)
        self._outputs = os.fsencode(self._dir / "outputs")
        self._lanes: dict[tuple[int, bool], Lane | CallLane] = {}
        """By number and by whether it makes calls: what a lane started for one kind stays warm beside the other's."""
        self._present: set[Lane | CallLane] = set()
        """Lanes whose processes are not known to be gone, replaced ones too."""
        self._spawners = 0
        self._kept: set[int] = set()
        """Attempts that have files in `outputs`."""
        self._losses = Losses(node)
        self._seeking = Seeking(self.segments, lambda reports: self._listener.ended(reports))
        self._interrupted: list[Report] = []
        self._sweeping: asyncio.Future[None] | None = None
        self._keeping: asyncio.Future[None] | None = None
        self._stopping = False
        self._all_gone = asyncio.Event()

    async def start(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        for name in ("sandboxes", "outputs", "trash"):
            path = self._dir / name
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
        sweeper = await asyncio.to_thread(self._clear_leftovers)
        self._sweeping = self._loop.run_in_executor(None, self._sweep, sweeper)
        floor = DiskFloor(self._dir, self._node, lambda: self._present)
        self._keeping = asyncio.create_task(floor.keep())

    # -- launching ----------------------------------------------------------------------------------------

    def launch(self, launches: list[Launch]) -> None:
        by_lane: dict[int, list[Launch]] = {}
        for launch in launches:
            by_lane.setdefault(launch.lane, []).append(launch)
            if launch.program.patterns:
                self._seeking.expect(launch)
        for number, batch in by_lane.items():
            try:
                lane = self._lane(number, batch[0])
            except OSError as error:
                why = f"{self._node}: no spawner can be started: {error}"
                self._tell_later([interrupted(launch, why, errno_name(error)) for launch in batch])
                continue
            lane.launch(batch)

    def _lane(self, number: int, launch: Launch) -> Lane | CallLane:
        """The one for such launches. Raises OSError if there is none and none can be had."""
        calls = launch.program.function is not None
        lane = self._lanes.get((number, calls))
        if lane is None or lane.lost:
            if self._stopping:
                raise OSError("the worker stops")
            told = (self._node, self._listener, self._on_ended, self._on_gone)
            if calls:
                lane = CallLane(partial(self._new_directories, number), *told, self.segments)
            else:
                lane = Lane(self._new_directories(number), *told)
            self._lanes[number, calls] = lane
            self._present.add(lane)
        return lane

    def _new_directories(self, number: int) -> Directories:
        name = f"{os.getpid()}.{self._spawners}"
        self._spawners += 1
        groups = self._hierarchies.places(name)
        sandboxes, trash, outputs = (self._dir / name for name in ("sandboxes", "trash", "outputs"))
        return Directories(sandboxes / name, trash, outputs, number, groups, self._container_args)

    def kill(self, attempts: list[int]) -> None:
        for lane in self._present:
            if here := [attempt for attempt in attempts if lane.holds(attempt)]:
                lane.kill(here)

    def withdraw(self, attempts: list[int]) -> None:
        for lane in self._present:
            if here := [attempt for attempt in attempts if lane.holds(attempt)]:
                lane.withdraw(here)

    def warn(self, attempts: list[int]) -> None:
        for lane in self._present:
            if here := [attempt for attempt in attempts if lane.holds(attempt)]:
                lane.warn(here)

    def follow(self, attempt: int, on: bool) -> None:
        for lane in self._present:
            if lane.holds(attempt):
                lane.follow(attempt, on)

    def directories(self) -> dict[int, Path]:
        found = ((lane.running(), lane.directory) for lane in self._present)
        return {
            attempt: Path(os.fsdecode(path))
            for attempt, path in found
            if attempt != NOBODY and path is not None
        }

    # -- what happens -------------------------------------------------------------------------------------

    def _on_ended(self, reports: list[Report]) -> None:
        self._losses.forget(reports)
        for report in reports:
            if _is_large(report.out) or _is_large(report.err) or _is_large(report.value):
                self._kept.add(report.attempt)
        if self._seeking.expected:
            reports = self._seeking.take(reports)
        if faults := [report for report in reports if _is_this_nodes_fault(report)]:
            self._tell_later(faults)
            reports = [report for report in reports if not _is_this_nodes_fault(report)]
        if reports:
            self._listener.ended(reports)

    def _on_gone(self, lane: Lane | CallLane) -> None:
        if lane not in self._present:
            return
        self._present.remove(lane)
        culprit = lane.culprit() if isinstance(lane, Lane) and not self._stopping else NOBODY
        reports = lane.interrupted("the worker stopped" if self._stopping else "its spawner was lost")
        reports = [self._losses.judge(r) if r.attempt == culprit else r for r in reports]
        for report in reports:
            self._remove_outputs(report.attempt)  # written, but never reported
        if reports:
            self._tell_later(reports)
        if not self._present:
            self._all_gone.set()

    def _tell_later(self, reports: list[Report]) -> None:
        self._interrupted += reports
        self._loop.call_later(0.0 if self._stopping else _INTERRUPTED_S, self._tell_interrupted)

    def _tell_interrupted(self) -> None:
        reports, self._interrupted = self._interrupted, []
        if self._seeking.expected:
            reports = self._seeking.take(reports)
        if reports:
            self._listener.ended(reports)

    # -- outputs ------------------------------------------------------------------------------------------

    def segments(self, attempt: int, stream: str) -> Iterator[bytes]:
        return outputs.read_pieces(outputs.path_of(self._outputs, attempt, stream))

    def kept(self) -> set[int]:
        return set(self._kept)

    def forget(self, attempts: list[int]) -> None:
        for attempt in self._kept.intersection(attempts):
            self._kept.discard(attempt)
            self._remove_outputs(attempt)

    def _remove_outputs(self, attempt: int) -> None:
        for path in outputs.paths_of(self._outputs, attempt):
            try:
                outputs.remove(path)
            except OSError as error:  # reports must not wait for it; the next start finds what is left
                log.warning("Cannot remove the output of attempt %d: %s.", attempt, error)

    # -- beginning and end --------------------------------------------------------------------------------

    def _clear_leftovers(self) -> Sweeper:
        """In a thread: end what an earlier process left running, gather what it left lying."""
        self._hierarchies.open()
        sandboxes = os.fsencode(self._dir / "sandboxes")
        trees.kill_strays(b"TERCEL_SANDBOX=" + sandboxes + b"/", frozenset(), _STRAYS_PATIENCE_S)
        if (self._dir / CONTAINERS).exists():
            containers_of(self._new_directories(0), self._node).remove_left(whole_worker=True)
            (self._dir / CONTAINERS).unlink()
        sweeper = Sweeper(os.fsencode(self._dir / "trash"), b"%d.old" % os.getpid())
        for path in (self._dir / "trash").iterdir():
            sweeper.add(os.fsencode(path.name))
        for path in (self._dir / "sandboxes").iterdir():
            with contextlib.suppress(OSError):  # something is mounted there, say: it stays
                sweeper.take(os.fsencode(path))
        for path in (self._dir / "outputs").glob("*.part"):
            path.unlink(missing_ok=True)
        self._kept = outputs.kept_attempts(self._outputs)
        return sweeper

    def _sweep(self, sweeper: Sweeper) -> None:
        """In a thread, beside everything else."""
        while sweeper.todo and not self._stopping:
            sweeper.step()

    async def stop(self) -> None:
        self._stopping = True
        if self._keeping is not None:
            self._keeping.cancel()
        for lane in self._present:
            lane.leave()
        if not await self._are_gone():
            for lane in self._present:
                lane.kill_process()
            await self._are_gone()
        for lane in list(self._present):  # hanging in the kernel: nothing more can be done about it
            self._on_gone(lane)
        self._tell_interrupted()
        await self._seeking.stop()
        if self._sweeping is not None:
            await self._sweeping
        await asyncio.to_thread(self._hierarchies.close)
        (self._dir / CONTAINERS).unlink(missing_ok=True)

    async def _are_gone(self) -> bool:
        if not self._present:
            return True
        self._all_gone.clear()
        try:
            await asyncio.wait_for(self._all_gone.wait(), _STOP_S)
        except TimeoutError:
            return False
        return True


def _words(container_args: str) -> str:
    """One per line."""
    try:
        words = shlex.split(container_args)
    except ValueError as error:
        raise UsageError(
            f"TERCEL_CONTAINER_ARGS={container_args}: no shell would take this: {str(error).lower()}"
        ) from None
    return "\n".join(words)


def _is_this_nodes_fault(report: Report) -> bool:
    """No room for a sandbox, no process to be had. (What was withdrawn has no time of its start.)"""
    return report.end is End.INTERRUPTED and report.started_at > 0


def _is_large(output: Output | None) -> bool:
    return output is not None and output.segments > 0
