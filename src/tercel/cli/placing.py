"""Where and how the tasks of a job run, for people."""

from tercel.cli.words import cpus, duration, short, size
from tercel.core.blocking import rule_text
from tercel.core.declaring import input_text, kept, output_text
from tercel.core.files import Output
from tercel.core.model import Keep
from tercel.wire.api import JobView, Submission

WIDTH = 400
MOST_FILES = 20


def needs_of(job: JobView | Submission) -> str:
    parts = [f"{cpus(job.cpus)} cpus"]
    parts += [size(job.mem_bytes)] if job.mem_bytes else []
    parts += [f"{job.gpus:g} gpus"] if job.gpus else []
    parts += [f"{amount:g} {name}" for name, amount in sorted(job.resources.items())]
    return ", ".join(parts)


def placing_facts(job: JobView | Submission) -> list[tuple[str, str]]:
    """As `words.pairs` takes them: what is empty is not told."""
    cleanup = f"{short(job.cleanup, WIDTH)}, killed after {duration(job.cleanup_limit_s)}"
    return [
        ("requires", short(", ".join(job.requires), WIDTH)),
        ("where", short(job.where, WIDTH)),
        ("rank", short(job.rank, WIDTH)),
        ("limits", _limits(job)),
        ("warned by", job.warn_signal),
        ("isolated by", job.isolate),
        ("container", job.container),
        ("sandbox", "" if job.sandbox is Keep.REMOVE else job.sandbox),
        ("cleanup", cleanup if job.cleanup else ""),
        *(("block on", short(rule_text(rule), WIDTH)) for rule in job.block_on),
    ]


def data_facts(job: JobView | Submission) -> list[tuple[str, str]]:
    """What its tasks read and leave, the first of each."""
    ins = [("in", short(input_text(one), WIDTH)) for one in job.inputs[:MOST_FILES]]
    outs = [("out", short(_output(one), WIDTH)) for one in job.outputs[:MOST_FILES]]
    more_in, more_out = len(job.inputs) - len(ins), len(job.outputs) - len(outs)
    ins += [("in", f"and {more_in:,} more")] if more_in else []
    outs += [("out", f"and {more_out:,} more")] if more_out else []
    return [*ins, *outs]


def _output(one: Output) -> str:
    """With where it goes, also if that was not said."""
    if one.to != (kept(one.name),):
        return output_text(one)
    return f"{output_text(one)} (kept at the manager as {one.to[0]})"


def _limits(job: JobView | Submission) -> str:
    parts = [f"{job.pids:,} processes"] if job.pids else []
    parts += [f"{size(job.disk_bytes)} of disk"] if job.disk_bytes else []
    parts += [f"memory grows by {job.mem_growth:g} when it is too little"] if job.mem_growth else []
    return ", ".join(parts)
