"""#SBATCH options: those that mean something here become keys of the job, all others are ignored, and said to be."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tercel.core.commands import parse_size
from tercel.core.errors import UsageError
from tercel.core.placement import parse_warning
from tercel.sdk.files.keys import BY_NAME
from tercel.sdk.files.kinds import without_field
from tercel.sdk.files.options import Option, split_options
from tercel.sdk.files.sources import Given, LineSource, Words

_KEYS = {
    "-J": "name",
    "--job-name": "name",
    "-c": "cpus",
    "--cpus-per-task": "cpus",
    "--mem": "mem",
    "-t": "time",
    "--time": "time",
    "-a": "array",
    "--array": "array",
    "-D": "cwd",
    "--chdir": "cwd",
    "-d": "after",
    "--dependency": "after",
    "-G": "gpus",
    "--gpus": "gpus",
    "--gpus-per-task": "gpus",
}
"""What means the same, in the same words."""
_MET = frozenset({"--requeue", "--parsable", "-Q", "--quiet", "--no-requeue"})
"""What is so anyway, or nothing to a job."""
_ALONE = frozenset(
    {
        *("--requeue", "--no-requeue", "--parsable", "-Q", "--quiet", "-H", "--hold", "--exclusive"),
        *(
            "-W",
            "--wait",
            "-v",
            "--verbose",
            "-O",
            "--overcommit",
            "-s",
            "--oversubscribe",
            "-k",
            "--no-kill",
        ),
        *("--contiguous", "--spread-job", "--test-only", "--use-min-nodes", "--reboot", "-I", "--immediate"),
    }
)
"""Options of sbatch that take no value, or need none."""
_WHOLESALE = frozenset({"ALL", "NONE", "NIL"})
_ONE = {"-n": "tasks", "--ntasks": "tasks", "-N": "nodes", "--nodes": "nodes", "--ntasks-per-node": "tasks"}
"""Of which a task here is one."""


class Directive(NamedTuple):
    """What one #SBATCH line says."""

    line: int
    words: list[str]


def read_sbatch(file: str, directives: Iterable[Directive]) -> tuple[Words, list[str]]:
    """(keys of the job, what was ignored). Raises UsageError for what is understood and wrong."""
    words: Words = {}
    remarks: list[str] = []
    per_cpu: Given | None = None
    for line, texts in directives:
        source = LineSource(file, line)
        for option in split_options(texts, _ALONE):
            if isinstance(option, str):
                raise source.wrong((), f"#SBATCH: {option!r} is not an option")
            if option.flag == "--mem-per-cpu":
                per_cpu = Given(option.value, source, (option.flag,))
            elif option.flag == "--export":
                ignored = _export(words, option, source)
                remarks += [f"{file}, line {line}: #SBATCH --export={ignored} is ignored"] if ignored else []
            elif option.flag in _READERS and option.value is not None:
                ignored = _READERS[option.flag](words, option, source)
                remarks += [f"{file}, line {line}: #SBATCH {ignored} is ignored"] if ignored else []
            elif not _take(words, option, source):
                remarks.append(f"{file}, line {line}: #SBATCH {option} is ignored")
    if per_cpu is not None:
        words["mem"] = _times_cpus(per_cpu, words.get("cpus"))
    return words, remarks


def _take(words: Words, option: Option, source: LineSource) -> bool:
    """Whether the option was understood."""
    if option.flag in _MET:
        return True
    if option.flag in _ONE:
        return option.value == "1"
    if option.flag in ("-H", "--hold"):
        words["hold"] = Given(True, source, (option.flag,))
        return True
    name = _KEYS.get(option.flag)
    if name is None:
        return False
    if option.value is None:
        raise source.wrong((option.flag,), "needs a value")
    read: Callable[[str], object] = BY_NAME[name].from_text
    if option.flag == "--mem" and option.value == "0":
        return False  # all memory of a node: there is no such thing here
    try:
        words[name] = Given(read(option.value), source, (option.flag,))
    except UsageError as error:
        raise source.wrong((option.flag,), without_field(error)) from None
    return True


def _gpus(words: Words, option: Option, source: LineSource) -> str:
    """2, a100:2, gpu:2, gpu:a100:2. Returns what is ignored: the model, and what are no GPUs."""
    *names, count = (option.value or "").split(":")
    if option.flag == "--gres":
        if not count.isdigit():  # gpu:a100 is one of them
            names, count = [*names, count], "1"
        if names[:1] != ["gpu"]:
            return str(option)
        del names[0]
    if not _take(words, Option("--gpus", count), source):
        return str(option)
    return f"{option.flag}: the model {':'.join(names)}" if names else ""


def _constraint(words: Words, option: Option, source: LineSource) -> str:
    """intel&gpu: tags. Returns what is ignored: all that is not simply a list of them."""
    text = option.value or ""
    if not re.fullmatch(r"[^&|,*()\[\]\s]+(&[^&|,*()\[\]\s]+)*", text):
        return str(option)
    words["requires"] = Given(text.split("&"), source, (option.flag,))
    return ""


def _signal(words: Words, option: Option, source: LineSource) -> str:
    """[B:]USR1[@120]: by name or number, 60 seconds before the end if it does not say."""
    name, _, seconds = re.sub("^[BR]{1,2}:", "", option.value or "").partition("@")
    text = f"{_SIGNALS.get(name, name)}@{seconds or 60}".upper()
    try:
        parse_warning(text)
    except UsageError as error:
        raise source.wrong((option.flag,), without_field(error)) from None
    words["warn_signal"] = Given(text, source, (option.flag,))
    return ""


_READERS: dict[str, Callable[[Words, Option, LineSource], str]] = {
    "-G": _gpus,
    "--gpus": _gpus,
    "--gpus-per-task": _gpus,
    "--gres": _gpus,
    "-C": _constraint,
    "--constraint": _constraint,
    "--signal": _signal,
}
"""What means something in other words. They return what of it is ignored."""
_SIGNALS = {
    "1": "HUP",
    "2": "INT",
    "3": "QUIT",
    "10": "USR1",
    "12": "USR2",
    "14": "ALRM",
    "15": "TERM",
    "18": "CONT",
}


def _export(words: Words, option: Option, source: LineSource) -> str:
    """NAME=VALUE,NAME,…: variables. Returns what is ignored: ALL, because a worker's environment is its own."""
    variables: dict[str, str] = {}
    ignored: list[str] = []
    for pair in (option.value or "").split(","):
        try:
            variables |= BY_NAME["env"].from_text(pair) if pair not in _WHOLESALE else {}
        except UsageError:
            ignored.append(pair)
    if "ALL" in (option.value or "").split(","):
        ignored.append("ALL")
    if variables:
        words["env"] = Given(variables, source, (option.flag,))
    return ",".join(ignored)


def _times_cpus(per_cpu: Given, cpus: Given | None) -> Given:
    number = cpus.value if cpus is not None and isinstance(cpus.value, int | float) else 1
    try:
        size = parse_size(str(per_cpu.value or ""), "")
    except UsageError as error:
        raise per_cpu.source.wrong(per_cpu.path, str(error).strip()) from None
    if not 0 <= number <= 1_000_000:  # which is refused where cpus is read
        number = 1
    return per_cpu._replace(value=f"{round(size * number)}B")
