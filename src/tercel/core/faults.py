"""What a worker could not do for a task, as a fault: one table from what the system said to what must be there again.

Rules that people write (see blocking) come first; these need none. While another worker can run the task, such a fault is
only that worker's: nobody waits for it.
"""

from tercel.core.blocking import DEFAULT_POLICY
from tercel.core.conditions import Fault, Place
from tercel.core.model import JobSpec
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report
from tercel.core.states import Stage

NO_DIRECTORY = frozenset(
    {"ENOENT", "ENOTDIR", "EACCES", "EPERM", "ESTALE", "EIO", "ETIMEDOUT", "ENOTCONN", "EHOSTDOWN"}
)
"""The job's directory cannot be entered: it is not there yet, or its file system is not."""
NO_ROOM = frozenset({"ENOSPC", "EDQUOT", "EROFS"})
"""The worker's own cannot be written."""
NO_PROCESS = frozenset({"EAGAIN", "ENOMEM", "EMFILE", "ENFILE"})
"""Nothing more can be started there."""


def fault_at_worker(spec: JobSpec, report: Report, worker: str, info: WorkerInfo) -> Fault | None:
    """What must be there again before the task can be run on this worker, if that is known."""
    if report.end not in (End.REFUSED, End.INTERRUPTED) or not report.errno:
        return None
    tester, place, where = "", Place.WORKER, worker
    if report.errno in NO_ROOM and info.dir:
        tester = f"writable:{info.dir}"
    elif report.errno in NO_PROCESS:
        tester = "command:true"
    elif report.errno in NO_DIRECTORY and spec.cwd:
        tester, place, where = f"dir:{spec.cwd}", Place.SITE, info.site
    if not tester:
        return None
    context = (report.errno, report.note) if report.note else (report.errno,)
    return Fault(
        stage=Stage.LAUNCH if report.end is End.REFUSED else Stage.RUN,
        tester=tester,
        place=place,
        where=where,
        own=place is Place.WORKER,
        policy=DEFAULT_POLICY,
        context=context,
    )
