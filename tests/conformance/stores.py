"""What tests of stores share: values to keep, stores to keep them in, and every question at once."""

from pathlib import Path
from typing import Protocol

from tercel.core.changes import Change, Concluded, JobAdded, Loaded, SpanConcluded
from tercel.core.conditions import ConditionRow, Place
from tercel.core.files import FileRow
from tercel.core.intervals import Range
from tercel.core.model import Call, JobRow, JobSpec, Lease, Role, Token
from tercel.core.reports import Blame, End, Outcome, Output, Report
from tercel.core.states import TERMINAL, TaskState
from tercel.stores.contract import Store
from tercel.stores.memory import MemoryStore
from tercel.stores.sqlite import SqliteStore

FINISHED, FAILED, CANCELLED = TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED
BLOCKED = TaskState.BLOCKED
KEYS = ("b" + "a" * 64, "b" + "b" * 64)
"""Of values that somebody uploaded."""


class Kept(Protocol):
    """A store that can be lost and opened again."""

    @property
    def store(self) -> Store: ...

    def reopen(self) -> Loaded:
        """As after the end of the process: what was not committed is gone."""


class KeptInMemory:
    def __init__(self) -> None:
        self.store: MemoryStore = MemoryStore()

    def reopen(self) -> Loaded:
        self.store.crash()
        return self.store.load()


class KeptInSqlite:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.store: SqliteStore = SqliteStore(path)

    def reopen(self) -> Loaded:
        self.store.close()
        self.store = SqliteStore(self.path)
        return self.store.load()


def hand_over(store: Store, *changes: Change) -> None:
    store.write(changes)
    store.commit()


def job(
    number: int = 1,
    *ranges: Range,
    owner: str = "ada",
    key: str = "",
    spec: JobSpec | None = None,
    lines: tuple[str, ...] = (),
    calls: tuple[Call, ...] = (),
) -> JobAdded:
    row = JobRow(
        id=number,
        owner=owner,
        spec=spec or JobSpec(argv=("true",)),
        ranges=ranges or ((0, 9),),
        max_running=0,
        submitted_at=100.0 + number,
        key=key,
        has_lines=bool(lines),
    )
    return JobAdded(row, lines, calls)


def outcome(
    task: int,
    *,
    attempt: int | None = None,
    job: int = 1,
    state: TaskState = FINISHED,
    worker: str = "node1",
    note: str = "",
    out: Output | None = None,
    err: Output | None = None,
    value: Output | None = None,
    exceeded: str = "",
    blame: Blame | None = None,
) -> Outcome:
    report = Report(
        job=job,
        task=task,
        attempt=1000 * job + task if attempt is None else attempt,
        end=End.EXCEEDED if exceeded else End.EXITED,
        code=0 if state is FINISHED else 3,
        started_at=200.125 + task,
        wall_s=0.1,
        cpu_s=0.03,
        max_rss_bytes=3_456_789,
        note=note,
        out=out,
        err=err,
        value=value,
        exceeded=exceeded,
    )
    return Outcome(state, worker, 200.3 + task, report, blame)


def concluded(tasks: range | list[int], *, job: int = 1, state: TaskState = FINISHED) -> list[Change]:
    return [Concluded(outcome(task, job=job, state=state)) for task in tasks]


def cancelled(first: int, last: int, *, job: int = 1, reason: str = "ada asked") -> SpanConcluded:
    return SpanConcluded(job, first, last, CANCELLED, 300.5, reason)


def lease(number: int, *, job: int = 1, first: int = 0, last: int = 4, worker: str = "node1") -> Lease:
    return Lease(number, worker, job, first, last)


def token(name: str, role: Role = Role.USER) -> Token:
    return Token(id=name, role=role, user="ada", digest="ab" * 32, created_at=5.5, note="laptop")


def condition(id: int, *, tests: int = 0, closed_at: float | None = None) -> ConditionRow:
    return ConditionRow(
        id=id,
        owner="ada",
        tester="tcp:licence.lab:27000",
        place=Place.MANAGER,
        env={"PATH": "/bin"} if id % 2 else {},
        policy="every 2m for 12h",
        opened_at=400.5 + id,
        tests=tests,
        closed_at=closed_at,
        closed="" if closed_at is None else "cleared",
    )


NAMES = (
    "lfn:calib/2026",
    "lfn:fit/1/a b",
    "lfn:fit/µ",
    "up:7f/run.root",
    "up:7f/run2.root",
    "up:8a/x",
    "sftp://store/h",
)
DIGESTS = ("blake3:" + "a" * 64, "blake3:" + "b" * 64)
URLS = ("sftp://store/a", "https://other/a", f"tercel:{DIGESTS[0]}")


def file(
    name: str = "lfn:calib/2026",
    *,
    digest: str = DIGESTS[0],
    job: int = 0,
    task: int = 0,
    attempt: int = 0,
    made_at: float = 150.5,
) -> FileRow:
    return FileRow(
        name=name,
        size_bytes=2**40,
        digest=digest,
        owner="ada",
        made_at=made_at,
        job=job,
        task=task,
        attempt=attempt,
    )


def answers(store: Store, attempts: int = 0) -> dict[str, object]:
    """What the store says to every question about all it knows (and output of attempts up to a number)."""
    told: dict[str, object] = {
        "jobs": store.jobs(owner=None, before=None, limit=1000),
        "page": store.jobs(owner="ada", before=3, limit=2),
        "conditions": store.conditions(open_only=False, before=None, limit=1000),
        "open conditions": [
            store.conditions(open_only=True, before=before, limit=limit)
            for before, limit in ((None, 1000), (3, 1), (3, 0))
        ],
        "condition": [store.condition(id) for id in range(6)],
        "files": store.files([*NAMES, "lfn:none", NAMES[0]]),
        "pages of files": [
            store.files_from(prefix=prefix, pattern=pattern, after=after, limit=limit)
            for prefix, pattern in (("", ""), ("lfn:fit/", ""), ("", "*f*/?*"), ("up:", "*[!2].root"))
            for after, limit in (("", 1000), ("", 1), ("lfn:fit/1/a b", 2), ("", 0))
        ],
        "names at": store.names_at([*URLS, "none"]),
        "readers": [store.readers(name, limit=limit) for name in NAMES for limit in (100, 1)],
    }
    for row in store.jobs(owner=None, before=None, limit=1000):
        job, first, last = row.id, row.ranges[0][0], row.ranges[-1][1]
        tasks = range(first, last + 1)
        told |= {
            f"{job}": store.job(job),
            f"{job} by key": store.job_by_key(row.owner, row.key),
            f"{job} lines": [store.lines(job, [(first, last)]), store.lines(job, [(first + 1, last - 1)])],
            f"{job} line by line": [store.lines(job, [(task, task)]) for task in tasks],
            f"{job} calls": [store.calls(job, [(first, last)]), store.calls(job, [(first + 1, last - 1)])],
            f"{job} call by call": [store.calls(job, [(task, task)]) for task in tasks],
            f"{job} values": store.values(job, ranges=[(first, last)], limit=1000, most_bytes=10**6),
            f"{job} some values": [
                store.values(job, ranges=[(last - 2, last), (first, first + 3)], limit=limit, most_bytes=1)[
                    :1
                ]
                for limit in (0, 1, 4)
            ],
            f"{job} outcomes": store.outcomes(job, ranges=[(first, last)], limit=1000),
            f"{job} some": [
                store.outcomes(job, ranges=[(last - 2, last), (first, first + 3)], states=states, limit=limit)
                for states in ((), (FINISHED,), (FAILED,), (CANCELLED, FAILED), (CANCELLED, FINISHED))
                for limit in (0, 1, 4)
            ],
            f"{job} ended": [store.ended(job, state) for state in sorted(TERMINAL)],
            f"{job} history": [store.history(job, task) for task in tasks],
            f"{job} tried": [store.tried(job, task) for task in tasks],
            f"{job} notes": [store.notes(job, task) for task in tasks],
            f"{job} all notes": [
                store.job_notes(job, since=since, skip=skip, limit=limit)
                for since, skip, limit in ((0.0, 0, 100), (0.0, 1, 2), (5.0, 0, 3), (7.5, 1, 100))
            ],
            f"{job} half done": store.half_done(job, [(first, last - 2), (last - 1, last)]),
            f"{job} ended since": [store.ended_since(job, at) for at in (0.0, 15.0, 1e12)],
            f"{job} live": store.live(job),
            f"{job} files": [
                store.made_by(job, ranges, after=after, limit=limit)
                for ranges in ([(first, last)], [(first + 1, last - 2), (last, last)])
                for after, limit in (((-1, ""), 1000), ((first + 1, NAMES[2]), 2), ((-1, ""), 0))
            ],
            f"{job} left over": [
                store.left_overs(job, ranges)
                for ranges in ([(first, last)], [(first, first), (last - 1, last)], [])
            ],
            f"{job} dependents": store.dependents(job),
        }
    for attempt in range(1, attempts + 1):
        told[f"output of {attempt}"] = [
            store.output_segments(attempt, stream) for stream in ("out", "err", "value")
        ]
    for key in KEYS:
        told[f"value {key}"] = (store.value_piece_count(key), store.value_pieces(key, 1, 2))
    return told
