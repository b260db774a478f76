"""What people type -> what is run: arrays, shell lines, sizes and times; and the limits of a submission."""

import re
import shlex
from collections.abc import Sequence

from tercel.core.declared import check_data
from tercel.core.errors import UsageError
from tercel.core.grids import check_grid
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import MAX_MEM_BYTES, MAX_PRIORITY, MAX_RANGES, MAX_TASKS, Call, Function, JobSpec
from tercel.core.placement import check_placement
from tercel.core.points import check_items, check_sweep

MAX_ARGV_BYTES = 127 * 1024
"""Linux starts no program with a single argument or variable of 128 KiB."""
MAX_LINE_BYTES = 64 * 1024
MAX_ENV_BYTES = 127 * 1024
MAX_NAME = 256
MAX_TASK_NUMBER = 2**31 - 1
MAX_CPUS = 1_000_000
MAX_SECONDS = 10 * 365 * 86400
MAX_RETRIES = 1_000_000
MAX_OUTPUT_BYTES = 2**30
MAX_VALUE_BYTES = 2**32
MAX_CODE_BYTES = 2**20
MAX_CALL_BYTES = 2**20
"""Of one call's arguments and the keys in them: what is larger is uploaded as a value, and named by its key."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=\- \t'\"]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SHELL_WORDS = frozenset(
    "if then else elif fi for while until do done case esac in function select time coproc "
    ". : [ alias bg bind break builtin caller cd chdir command compgen complete compopt continue declare dirs disown eval "
    "exec exit export fc fg getopts hash help history jobs let local logout mapfile popd pushd read readarray "
    "readonly return set shift shopt source suspend test times trap type typeset ulimit umask unalias unset "
    "wait true false echo printf pwd kill enable".split()
)
_DIRECT_BUILTINS = frozenset({"true", "false", "echo"})
"""Shell builtins that stand in every PATH as programs with the same meaning, as long as no option is given."""
_KEY = re.compile(r"t(\d{1,16})\.(\d{1,10})|b[0-9a-f]{64}")
_ARRAY_PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def plain_argv(line: str) -> list[str] | None:
    """The words of a line that needs no shell, or None: starting it directly is twice as fast."""
    if not _PLAIN.fullmatch(line):
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if not words or _ASSIGNMENT.match(words[0]):
        return None
    if words[0] in _DIRECT_BUILTINS:
        return None if any(word.startswith("-") for word in words) else words
    return None if words[0] in _SHELL_WORDS else words


def parse_array(text: str) -> tuple[list[Range], int]:
    """`0-99:2,200%10` -> (ranges of task numbers, at most so many at a time; 0 for no limit)."""
    body, percent, limit_text = text.strip().partition("%")
    limit = 0
    if percent:
        if not re.fullmatch("[0-9]{1,10}", limit_text) or not 0 < int(limit_text) <= MAX_TASK_NUMBER:
            raise UsageError(
                f"array {_cut(text)}: after % comes how many may run at a time, as in 0-99%10", "array"
            )
        limit = int(limit_text)
    if body.count(",") >= MAX_RANGES:
        raise UsageError(f"array {_cut(text)} has more than {MAX_RANGES:,} ranges", "array")
    ranges: list[Range] = []
    for part in body.split(","):
        _add_part(ranges, part.strip(), text)
    numbers = IntervalSet(ranges)
    if len(numbers) > MAX_TASKS:
        raise UsageError(
            f"array {_cut(text)} has {len(numbers):,} tasks; at most {MAX_TASKS:,} per job", "array"
        )
    return numbers.ranges(), limit


def _add_part(ranges: list[Range], part: str, text: str) -> None:
    array = f"array {_cut(text)}"
    match = _ARRAY_PART.fullmatch(part)
    if match is None or not part.isascii() or len(part) > 60:
        raise UsageError(f"{array}: {_cut(part)} is not a range; write 0-99, 0-99:2 or 1,5,9", "array")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    step = int(match[3]) if match[3] else 1
    if last < first:
        raise UsageError(f"{array}: {part!r} ends before it begins", "array")
    if last > MAX_TASK_NUMBER:
        raise UsageError(f"{array}: task numbers go up to {MAX_TASK_NUMBER:,}", "array")
    if step < 1:
        raise UsageError(f"{array}: the step in {part!r} must be at least 1", "array")
    if len(ranges) + ((last - first) // step if step > 1 else 0) >= MAX_RANGES:
        raise UsageError(
            f"{array}: at most {MAX_RANGES:,} separate ranges, and each step of a stepped range is one; "
            "use step 1 and multiply TERCEL_TASK_ID in the command",
            "array",
        )
    if step == 1:
        ranges.append((first, last))
    else:
        ranges += [(number, number) for number in range(first, last + 1, step)]


def _cut(text: str) -> str:
    """What the user wrote, quoted, for an error message: the beginning says enough."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def parse_key(key: str, field: str = "key") -> tuple[int, int] | None:
    """The task whose value a key names (`t37.4`), or None if it is what a client uploaded (`b` and a SHA-256)."""
    match = _KEY.fullmatch(key)
    if match is None or not key.isascii():
        raise UsageError(f"{_cut(key)} is not a value's key; write t37.4, or b and 64 hex digits", field)
    return (int(match[1]), int(match[2])) if match[1] else None


def check_spec(
    spec: JobSpec,
    lines: Sequence[str] | None = None,
    *,
    items: Sequence[str] | None = None,
    calls: Sequence[Call] | None = None,
    uploads: bool = False,
) -> tuple[list[Range], int]:
    """Refuse what cannot be run. Returns the job's task numbers and how many may run at a time.

    `uploads`: inputs may be files of the submitter that are yet to be uploaded.
    """
    _check_program(spec, lines, calls)
    _check_points(spec, lines, items)
    _check_text("name", spec.name, MAX_NAME)
    _check_text("cwd", spec.cwd, 4096)
    if spec.cwd and not spec.cwd.startswith("/"):
        raise UsageError(f"cwd {spec.cwd!r} must be an absolute path (or empty for the sandbox)", "cwd")
    _check_env(spec.env)
    check_numbers(spec)
    ranges, limit = _tasks(spec, lines, items, calls)
    check_data(spec, ranges, items, uploads=uploads)
    return ranges, limit


def _tasks(
    spec: JobSpec, lines: Sequence[str] | None, items: Sequence[str] | None, calls: Sequence[Call] | None
) -> tuple[list[Range], int]:
    if lines is not None:
        if spec.array:
            raise UsageError("a job of lines numbers its tasks by line: leave array out", "array")
        return [(0, len(lines) - 1)], 0
    if calls is not None:
        if spec.array:
            raise UsageError("a function's job numbers its tasks by call: leave array out", "array")
        return [(0, len(calls) - 1)], 0
    if items is not None:
        if spec.array:
            raise UsageError("a job of items numbers its tasks by item: leave array out", "array")
        return [(0, len(items) - 1)], 0
    if spec.grid is not None:
        return _check_subset(spec.array, spec.grid.count)
    return parse_array(spec.array) if spec.array else ([(0, 0)], 0)


def check_numbers(spec: JobSpec) -> None:
    """Also of a job that is to be revised."""
    _check_number("cpus", spec.cpus, 0.001, MAX_CPUS)
    _check_number("mem_bytes", spec.mem_bytes, 0, MAX_MEM_BYTES)
    _check_number("time_limit_s", spec.time_limit_s, 0, MAX_SECONDS)
    _check_number("kill_grace_s", spec.kill_grace_s, 0, 3600)
    _check_number("priority", spec.priority, 0, MAX_PRIORITY)
    _check_number("retries", spec.retries, 0, MAX_RETRIES)
    _check_number("output_limit_bytes", spec.output_limit_bytes, 0, MAX_OUTPUT_BYTES)
    check_placement(spec)


def _check_points(spec: JobSpec, lines: Sequence[str] | None, items: Sequence[str] | None) -> None:
    """Of a job of a template."""
    if spec.grid is None and items is None:
        if spec.template:
            raise UsageError("a template needs values: give a grid or items", "template")
        return
    field = "items" if items is not None else "grid"
    if spec.grid is not None and items is not None:
        raise UsageError("both a grid and items are given: give one of them", field)
    if lines is not None or not (spec.argv or spec.line):
        raise UsageError(f"{field} needs one command for all tasks: argv or line", field)
    if spec.grid is not None:
        check_grid(spec.grid, MAX_TASKS)
        check_sweep(spec.argv, spec.line, spec.grid, MAX_ARGV_BYTES)
    if items is not None:
        if not items:
            raise UsageError("there are no items, so nothing to run", "items")
        if len(items) > MAX_TASKS:
            raise UsageError(f"{len(items):,} items; at most {MAX_TASKS:,} per job", "items")
        check_items(spec.argv, spec.line, items, MAX_ARGV_BYTES)


def _check_subset(array: str, count: int) -> tuple[list[Range], int]:
    if not array:
        return [(0, count - 1)], 0
    ranges, limit = parse_array(array)
    if ranges[-1][1] >= count:
        raise UsageError(
            f"array {_cut(array)}: the points of this sweep are numbered 0 to {count - 1:,}", "array"
        )
    return ranges, limit


def _check_program(spec: JobSpec, lines: Sequence[str] | None, calls: Sequence[Call] | None) -> None:
    ways = (
        ("argv", bool(spec.argv)),
        ("line", bool(spec.line)),
        ("lines", lines is not None),
        ("function", spec.function is not None),
    )
    given = [name for name, there in ways if there]
    if len(given) != 1:
        what = "nothing to run" if not given else f"both {' and '.join(given)} are given"
        raise UsageError(
            f"{what}: give exactly one of argv, line, lines and function", given[-1] if given else "argv"
        )
    if (spec.function is None) != (calls is None):
        raise UsageError("a function and its calls go together: one of them is missing", "calls")
    if spec.function is not None and calls is not None:
        _check_function(spec.function)
        _check_calls(calls)
        if spec.task_id_argument:
            raise UsageError("a function gets its arguments from its calls", "task_id_argument")
    if spec.argv:
        if not spec.argv[0].strip():
            raise UsageError("the command is empty", "argv")
        _check_text("argv", " ".join(spec.argv), MAX_ARGV_BYTES)
    if given == ["line"]:
        _check_line("line", spec.line)
    if lines is not None:
        if not lines:
            raise UsageError("there are no lines, so nothing to run", "lines")
        if len(lines) > MAX_TASKS:
            raise UsageError(f"{len(lines):,} lines; at most {MAX_TASKS:,} per job", "lines")
        for number, line in enumerate(lines):
            _check_line(f"lines[{number}]", line)


def _check_function(function: Function) -> None:
    if bool(function.code) == bool(function.value):
        raise UsageError(
            "a function is given by its code or by the key of a value: by one of them", "function.code"
        )
    if len(function.code) > MAX_CODE_BYTES:
        raise UsageError(
            f"the function's code is {len(function.code):,} bytes long; at most {MAX_CODE_BYTES:,}: upload it as a value",
            "function.code",
        )
    if function.value and parse_key(function.value, "function.value") is not None:
        raise UsageError("a function's code is an uploaded value, not what a task returned", "function.value")
    _check_text("function.name", function.name, MAX_NAME)
    _check_text("function.python", function.python, 32)
    for part in function.path:
        _check_text("function.path", part, 4096)
    if sum(map(len, function.path)) > MAX_ENV_BYTES:
        raise UsageError(f"function.path is longer than {MAX_ENV_BYTES:,} characters", "function.path")


def _check_calls(calls: Sequence[Call]) -> None:
    if not calls:
        raise UsageError("there are no calls, so nothing to run", "calls")
    if len(calls) > MAX_TASKS:
        raise UsageError(f"{len(calls):,} calls; at most {MAX_TASKS:,} per job", "calls")
    for number, call in enumerate(calls):
        size = len(call.arguments)
        if call.values:
            size += sum(map(len, call.values))
            for key in call.values:
                parse_key(key, f"calls[{number}].values")
        if call.names and (len(call.names) != len(call.values) or max(map(len, call.names)) > MAX_NAME):
            raise UsageError(
                f"calls[{number}] does not name the values that it has", f"calls[{number}].names"
            )
        if size > MAX_CALL_BYTES:
            raise UsageError(
                f"calls[{number}] has {size:,} bytes of arguments; at most {MAX_CALL_BYTES:,}: upload large ones as "
                "values",
                f"calls[{number}]",
            )


def _check_line(field: str, line: str) -> None:
    if not line.strip():
        raise UsageError(f"{field} is empty", field)
    _check_text(field, line, MAX_LINE_BYTES)


def _check_env(env: dict[str, str]) -> None:
    for name, value in env.items():
        if not name or "=" in name:
            raise UsageError(f"env: {_cut(name)} is not a variable's name", "env")
        _check_text(f"env {name[:40]!r}", name + value, MAX_ENV_BYTES, field="env")
    if sum(len(f"{name}={value}".encode()) for name, value in env.items()) > MAX_ENV_BYTES:
        raise UsageError(f"env is larger than {MAX_ENV_BYTES:,} bytes", "env")


def _check_text(what: str, text: str, most_bytes: int, field: str = "") -> None:
    field = field or what
    if "\0" in text:
        raise UsageError(f"{what} contains a NUL byte", field)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{what} is no text: it is not UTF-8", field) from None
    if size > most_bytes:
        raise UsageError(f"{what} is {size:,} bytes long; at most {most_bytes:,}", field)


def _check_number(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # also true of what is not a number
        shown = f"{value:g}" if abs(value) < 1e300 or isinstance(value, float) else "absurdly large"
        raise UsageError(f"{what} is {shown}; it must be between {least:g} and {most:g}", what)


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def parse_size(text: str, field: str) -> int:
    """`500M`, `2G`, `1.5GiB` -> bytes (binary units). Without a unit: megabytes, as in sbatch."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not text.isascii() or len(match[1]) > 30:
        raise UsageError(f"{field} {_cut(text)} is not a size; write 500M or 2G", field)
    unit = match[2].upper() or ("" if text.strip().upper().endswith("B") else "M")
    return int(float(match[1]) * _UNITS[unit])


_TIME_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME_WORD = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_time(text: str, field: str) -> float:
    """`90s`, `1h30m`, `01:30:00`, `2-12:00:00` -> seconds. A bare number: minutes, as in sbatch."""
    text = text.strip().lower()
    wrong = UsageError(f"{field} {_cut(text)} is not a time; write 90s, 1h30m, 01:30:00 or 2-12:00:00", field)
    if not text or not text.isascii():
        raise wrong
    if text.isdigit():
        return int(text[:15]) * 60.0
    if re.fullmatch(r"(\d+(?:\.\d+)?[smhd])+", text):
        return sum(float(number) * _TIME_UNITS[unit] for number, unit in _TIME_WORD.findall(text))
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,9}):(\d{1,2})(?::(\d{1,2}))?", text)
    if match is None:
        raise wrong
    days, a, b, c = match.groups()
    if days is not None or c is not None:  # [days-]hours:minutes[:seconds]
        return int(days or 0) * 86400 + int(a) * 3600 + int(b) * 60 + int(c or 0)
    return int(a) * 60.0 + int(b)  # minutes:seconds
