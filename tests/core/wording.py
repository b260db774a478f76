"""How the stories of `transcript` write down jobs, queues and tasks.

submit 2 tasks=0-3%2 cpus=1 mem=0 priority=1000 owner=bob queue=lab flow=1 hold=yes
         after=ok:1,any:1.0-3,notok:1,each:1,each-any:1,each-notok:1      of which all are needed
         edges=1>0,2>0,3>7.0-4                                        task 1 needs task 0, 3 needs tasks of job 7
         requires=a,b where=worker.mem>=4 rank=worker.cpus gpus=1 limit=60s resources=licence.matlab:2
         block=exit:75>tcp:licence:1@site;every_10s_for_1h,start>time:22:00@manager
         in=https://store/x out=sftp://store/
         growth=1.5 on_failure=run|stop max_fails=1 retries=2 backoff=10s retry_on=75:5:30s,9:0:0s
"""

import msgspec

from tercel.core.blocking import parse_rule
from tercel.core.changes import Edge
from tercel.core.commands import parse_array
from tercel.core.files import Input, Made, Output
from tercel.core.intervals import Range
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
from tercel.core.presence import Gpu, Reservation, WorkerInfo, WorkerRow


def options_of(words: list[str]) -> dict[str, str]:
    return {name: text for name, _, text in (word.partition("=") for word in words)}


def needs_of(options: dict[str, str]) -> Needs:
    return Needs(round(float(options.get("cpus", "1")) * 1000), int(options.get("mem", "0")))


def info_of(name: str, options: dict[str, str]) -> WorkerInfo:
    gpus = tuple(map(str, range(int(options.get("gpus", "0")))))
    capacity = needs_of(options)
    amounts = ({"gpus": float(len(gpus))} if gpus else {}) | _resources(options)
    if amounts:
        resources = tuple(sorted((what, round(amount * 1000)) for what, amount in amounts.items()))
        capacity = msgspec.structs.replace(capacity, resources=resources)
    return WorkerInfo(
        node=name,
        capacity=capacity,
        site=options.get("site", ""),
        dir="/work",
        tags=tuple(_parts(options, "tags")),
        gpus=tuple(Gpu(id, "T4", int(options.get("gpu_mem", "0"))) for id in gpus),
        indices={"gpus": gpus} if gpus else {},
        time_left_s=_seconds(options["time"]) if "time" in options else None,
    )


def task_of(name: str) -> tuple[int, int]:
    job, _, task = name.rstrip("abcdefghijklmnopqrstuvwxyz").partition(".")
    return int(job), int(task)


def made_of(name: str) -> Made:
    """Kept at the manager, of one with a name."""
    return (
        Made("x", f"tercel:of-{name}", 1, "d", name) if name.startswith("lfn:") else Made("x", name, 1, "d")
    )


def range_text(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def row_of(id: int, options: dict[str, str], now: float) -> JobRow:
    ranges, max_running = parse_array(options.get("tasks", "0"))
    return JobRow(
        id=id,
        owner=options.get("owner", "ada"),
        spec=spec_of(options),
        ranges=tuple(ranges),
        max_running=max_running,
        submitted_at=now,
        flow=int(options.get("flow", "0")),
        held=tuple(ranges) if "hold" in options else (),
    )


def spec_of(options: dict[str, str]) -> JobSpec:
    return JobSpec(
        argv=("work",),
        cpus=float(options.get("cpus", "1")),
        mem_bytes=int(options.get("mem", "0")),
        gpus=float(options.get("gpus", "0")),
        resources=_resources(options),
        requires=tuple(_parts(options, "requires")),
        where=options.get("where", ""),
        rank=options.get("rank", ""),
        time_limit_s=_seconds(options.get("limit", "0s")),
        mem_growth=float(options.get("growth", "0")),
        priority=int(options.get("priority", "1000")),
        retries=int(options.get("retries", "0")),
        backoff_s=_seconds(options.get("backoff", "0s")),
        retry_rules=tuple(_retry_rule(text) for text in _parts(options, "retry_on")),
        max_fails=options.get("max_fails", ""),
        queue=options.get("queue", ""),
        after=tuple(_after(text) for text in _parts(options, "after")),
        cwd=options.get("cwd", ""),
        block_on=tuple(_block_rule(text) for text in _parts(options, "block")),
        on_failure=OnFailure(options.get("on_failure", "skip")),
        inputs=tuple(Input(source=source) for source in _parts(options, "in")),
        outputs=tuple(Output(name="*", to=(to,)) for to in _parts(options, "out")),
    )


def revised(spec: JobSpec, options: dict[str, str]) -> JobSpec:
    numbers = {"priority": int, "cpus": float, "mem": int}
    fields: dict[str, object] = {}
    for name, text in options.items():
        if name == "block":
            fields["block_on"] = tuple(_block_rule(rule) for rule in _parts(options, "block"))
        else:
            fields["mem_bytes" if name == "mem" else name] = numbers[name](text)
    return msgspec.structs.replace(spec, **fields)


def queue_of(name: str, options: dict[str, str]) -> QueueRow:
    numbers = {field: int(options.get(field, "0")) for field in ("max_running", "max_queued", "user_max")}
    paused = f"paused by {options['paused']}" if "paused" in options else ""
    return QueueRow(
        name=name, owner="ada", weight=float(options.get("weight", "1")), paused=paused, **numbers
    )


def reservation_of(id: int, options: dict[str, str], now: float) -> Reservation:
    return Reservation(
        id=id,
        owner="ada",
        where=options.get("where", "").replace("~", "=="),
        queue=options.get("queue", ""),
        user=options.get("user", ""),
        since=now,
        until=now + _seconds(options["for"]),
        lend="lend" in options,
    )


def kept_of(row: WorkerRow) -> str:
    quarantined = f"quarantined {row.quarantined}" if row.quarantined else ""
    pause = f"tried after {row.pause_s:g} s" if row.pause_s else ""
    tags = " ".join([*(f"+{tag}" for tag in row.tags), *(f"-{tag}" for tag in row.lost_tags)])
    return "; ".join(filter(None, (quarantined, pause, tags)))


def edges_of(id: int, options: dict[str, str]) -> tuple[Edge, ...]:
    found = []
    for text in _parts(options, "edges"):
        task, _, needed = text.partition(">")
        job, dot, numbers = needed.rpartition(".")
        first, last = _range(numbers)
        found.append((int(task), int(job) if dot else id, first, last))
    return tuple(sorted(found))


def _after(text: str) -> After:
    how, _, needed = text.partition(":")
    job, _, tasks = needed.partition(".")
    kind = how.removeprefix("each").removeprefix("-") or "ok"
    return After(
        job=int(job),
        kind=AfterKind(kind),
        each=how.startswith("each"),
        tasks=(_range(tasks),) if tasks else (),
    )


def _retry_rule(text: str) -> RetryRule:
    codes, retries, backoff = text.split(":")
    return RetryRule(codes=(int(codes),), retries=int(retries), backoff_s=_seconds(backoff))


def _block_rule(text: str) -> BlockRule:
    """exit:75>tcp:licence:1@site;every_10s_for_1h"""
    rule = parse_rule(text.replace(">", "->", 1).replace("@", " @").replace("_", " ").replace("+", ","))
    return rule if rule.at else msgspec.structs.replace(rule, at="site")


def _resources(options: dict[str, str]) -> dict[str, float]:
    pairs = (text.partition(":") for text in _parts(options, "resources"))
    return {name: float(amount) for name, _, amount in pairs}


def _parts(options: dict[str, str], name: str) -> list[str]:
    return options[name].split(",") if name in options else []


def _range(text: str) -> Range:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))
