"""What a worker could not do for a task, as a fault: one table from what the system said to what must be there again.

Rules that people write (see blocking) come first; these need none. While another worker can run the task, such a fault is
only that worker's: nobody waits for it.
"""

from tercel.core.blocking import DEFAULT_POLICIES, DEFAULT_POLICY, PATIENT_POLICY
from tercel.core.conditions import Fault, Place
from tercel.core.files import KEPT, Hitch, Trouble, directory_of, endpoint_of, is_name
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
NETWORKED = frozenset({"http", "https", "sftp", "ssh", "ftp"})
"""Their URLs name a host."""
_ANYBODY = ("worker:true", Place.HERE, DEFAULT_POLICY)
"""There is nothing to look at: it is tried again after a while."""
PASSING = frozenset({Trouble.DOWN, Trouble.UNKNOWN_HOST, Trouble.BUSY, Trouble.FULL, Trouble.DENIED})


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


def fault_of_hitch(hitch: Hitch, worker: str, info: WorkerInfo) -> Fault | None:
    """What must be there again before a file can be moved or registered; None: waiting would not help.

    What a worker says names no tester: it is of a kind that is chosen here, and asked where its files are moved.
    """
    tester, place, policy = _sought(hitch)
    if not tester:
        return None
    return Fault(
        stage=hitch.stage,
        tester=tester,
        place=place,
        where={Place.SITE: info.site, Place.WORKER: worker}.get(place, ""),
        policy=policy,
        context=(hitch.note,),
        not_before_s=hitch.not_before_s,
    )


def _sought(hitch: Hitch) -> tuple[str, Place, str]:
    """(tester, where it is asked, how often)."""
    trouble, url = hitch.trouble, hitch.url
    waits = trouble in PASSING or (trouble is Trouble.CORRUPT and hitch.stage is Stage.STAGE_OUT)
    if url.startswith(KEPT) and (waits or hitch.stage is Stage.REGISTER):
        # By the manager, who needs no tester: who meets it finds out, at the policy's times.
        return _ANYBODY
    if waits and not url:  # something of the worker's own
        return _ANYBODY
    if hitch.stage is Stage.REGISTER:
        return f"unused:{url}", Place.HERE, DEFAULT_POLICY
    if is_name(url):  # it is in no catalogue yet, or nowhere else
        made = trouble in (Trouble.MISSING, Trouble.CORRUPT)
        return (f"made:{url}" if made else ""), Place.HERE, PATIENT_POLICY
    scheme, _, host = endpoint_of(url).partition("://")
    named = scheme in NETWORKED and bool(host)
    if trouble is Trouble.DOWN and named:
        return f"tcp:{host}", Place.SITE, DEFAULT_POLICY
    if trouble is Trouble.UNKNOWN_HOST and named:
        return f"dns:{host.rpartition(':')[0]}", Place.SITE, DEFAULT_POLICY
    if trouble is Trouble.BUSY and scheme in ("http", "https"):
        return f"{scheme}://{host}/<500", Place.SITE, DEFAULT_POLICY
    if not waits:
        return "", Place.SITE, ""
    policy = DEFAULT_POLICIES["ssh-auth"] if trouble is Trouble.DENIED else DEFAULT_POLICY
    if hitch.stage is Stage.STAGE_OUT:
        return f"put:{directory_of(url)}", Place.SITE, policy
    # Of a page the directory may be none that can be read.
    return f"get:{url if scheme in ('http', 'https') else directory_of(url)}", Place.SITE, policy
