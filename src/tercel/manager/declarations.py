"""Whether the files that a worker tells of are ones that its task was to leave.

What it tells is registered under its names, and removed from its URLs, by any worker, when the task is run again. So neither may be
of its choosing.
"""

from collections.abc import Collection, Sequence

import msgspec

from tercel.core.declared import Declared, Leaving
from tercel.core.errors import UsageError
from tercel.core.files import KEPT, Hitch, Made, Trouble
from tercel.core.ledger import Job
from tercel.core.locating import check_path, placed
from tercel.core.machine import Machine
from tercel.core.model import JobSpec
from tercel.core.reports import End, Report
from tercel.core.states import Stage
from tercel.stores.contract import Store

KNOWN_MOST = 256
"""Jobs whose declarations are kept in memory, made ready to be filled."""


class Declarations:
    def __init__(self, machine: Machine, store: Store) -> None:
        self._machine = machine
        self._store = store
        self._known: dict[int, tuple[JobSpec, Declared]] = {}

    def believed(self, reports: Sequence[Report]) -> list[Report]:
        """These; of one with other files than its task was to leave, that nothing of it was delivered. Raises PassingFault."""
        return [report if self._are_due(report) else _refused(report) for report in reports]

    def _are_due(self, report: Report) -> bool:
        job = self._machine.jobs.get(report.job) if report.files else None
        if job is None:
            return True  # nothing is registered of it
        leavings = self._leavings(job, report.task)
        return all(_is_due(made, leavings) for made in report.files)

    def _leavings(self, job: Job, task: int) -> Collection[Leaving]:
        spec, declared = self._known.get(job.id, (None, None))
        if declared is None or spec is not job.row.spec:
            while len(self._known) >= KNOWN_MOST:
                del self._known[next(iter(self._known))]
            declared = Declared(job.row.spec)
            self._known[job.id] = job.row.spec, declared
        lines = self._store.lines(job.id, [(task, task)]) if job.row.has_lines else []
        item = lines[0] if lines else ""
        try:
            return declared.outputs_of(job.id, task, item)
        except UsageError:  # its values make no places of them: its worker can have delivered nothing
            return ()


def _is_due(made: Made, leavings: Collection[Leaving]) -> bool:
    try:
        check_path(made.path, "path")
    except UsageError:
        return False
    if made.url.startswith(KEPT) and made.url != f"{KEPT}{made.digest}":
        return False
    return any(
        made.name == (placed(one.name, one.pattern, made.path) if one.name else "")
        and (
            any(made.url == placed(place, one.pattern, made.path) for place in one.to)
            if one.to
            else made.url.startswith(KEPT)
        )
        for one in leavings
    )


def _refused(report: Report) -> Report:
    note = "its worker told of files that its job does not declare"
    hitch = Hitch(Stage.STAGE_OUT, Trouble.REFUSED, "", note)
    return msgspec.structs.replace(report, end=End.UNSTAGED, code=0, files=(), note=note, hitch=hitch)
