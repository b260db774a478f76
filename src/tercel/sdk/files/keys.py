"""The table of keys that describe a job: in a job file, in a flow's step, as options of the command line and of #TERCEL.

The reader, the JSON schema for editors and the command line's options are all made from it.
"""

import os
import re
from collections.abc import Iterable

from tercel.core.blocking import check_rule, check_rules, parse_rule, trigger_of
from tercel.core.commands import MAX_CPUS, MAX_RETRIES
from tercel.core.errors import UsageError
from tercel.core.model import (
    DEFAULT_PRIORITY,
    MAX_PRIORITY,
    MAX_TASKS,
    After,
    BlockRule,
    OnFailure,
    RetryRule,
)
from tercel.core.policies import parse_policy
from tercel.core.rules import check_queue_name
from tercel.sdk.files.after import AFTER_PATTERN, parse_after, parse_retry, retry_rule
from tercel.sdk.files.data import DATA
from tercel.sdk.files.directories import SANDBOX
from tercel.sdk.files.key import SIZE, TIME, Key, number, size_of, time_of, whole
from tercel.sdk.files.kinds import AnyOf, Flag, Kind, ListOf, Number, Table, TableOf, Text
from tercel.sdk.files.placing import CLEARING, PLACING


def _variable(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if equals:
        return {name: value}
    if name not in os.environ:
        raise UsageError(f"{name}: this variable is not set here; write {name}=VALUE")
    return {name: os.environ[name]}


def _afters(value: str | int | list[str | int]) -> tuple[After, ...]:
    every = value if isinstance(value, list) else [value]
    return tuple(after for one in every for after in parse_after(str(one)))


def _rules(tables: list[dict[str, object]]) -> tuple[RetryRule, ...]:
    return tuple(retry_rule(table) for table in tables)


def _block_rule(rule: str | dict[str, str]) -> BlockRule:
    return parse_rule(rule) if isinstance(rule, str) else BlockRule(**rule)


def _block_rules(value: str | list[str | dict[str, str]]) -> tuple[BlockRule, ...]:
    rules = tuple(map(_block_rule, value if isinstance(value, list) else [value]))
    check_rules(rules)
    return rules


_MAX_FAILS = r"\s*(\d{1,9}|(\d{1,2}(\.\d{1,6})?|100)%)\s*"


def _max_fails(text: str) -> str:
    if re.fullmatch(_MAX_FAILS, text, re.ASCII) is None:
        raise UsageError(f"{text!r} is not a number of tasks or a share of them; write 10 or 5%")
    return text.strip()


def _queue_name(text: str) -> None:
    if text:
        check_queue_name(text)


_HUGE = 10**300
_LINE = Text(r"[\s\S]*\S[\s\S]*")
_JOB_ID = Number(1, 2**53, whole=True)
_AFTER = Text(AFTER_PATTERN, parse_after)

RETRY = Table(
    {
        "codes": (ListOf(Number(1, 255, whole=True), least=1), "Exit codes; 128 + n for a signal n."),
        "retries": (Number(0, MAX_RETRIES, whole=True), "Further tries of a task that ended so (1)."),
        "backoff": (TIME, "Pause before the first of them; each further one is twice as long."),
    },
    required=("codes",),
)

_ONE_LINE = Text(
    r"\s*[Kk][Nn][Oo][Ww][Nn]\s*(?:;[\s\S]*)?|[\s\S]*\S[\s\S]*->[\s\S]*\S[\s\S]*",
    lambda text: check_rule(parse_rule(text)),
)
BLOCK_ON = Table(
    {
        "on": (
            Text(parse=trigger_of),
            "exit:75, signal:USR1, timeout, start, stderr:/Disk quota exceeded/, known.",
        ),
        "tester": (
            Text(),
            "What shows that it is mended: tcp:licence.lab:27000, command:./quota-ok.sh; none with known.",
        ),
        "at": (
            Text(enum=("manager", "site", "worker")),
            "Where it is tested; else where such a tester makes sense.",
        ),
        "policy": (Text(parse=parse_policy), "How often, and for how long: every 2m for 12h."),
    },
    required=("on",),
)

_VALUE = AnyOf((Text(), Number(-_HUGE, _HUGE), Flag()))
SWEEP = TableOf(AnyOf((ListOf(_VALUE, least=1), _VALUE)), names=r"[A-Za-z_]\w{0,99}|\d{1,9}", least=1)

KEYS: tuple[Key, ...] = (
    Key(
        "name",
        Text(r"[\s\S]{0,256}"),
        "The job's name.",
        "name",
        flags=("-J", "--name", "--job-name"),
        metavar="NAME",
    ),
    Key(
        "command",
        AnyOf((_LINE, ListOf(Text(), least=1))),
        "What is run: a line for the shell, or a list of words that are run without one.",
    ),
    Key("lines", ListOf(_LINE, least=1), "One task per line for the shell."),
    Key(
        "lines_file",
        Text(),
        "One task per line of FILE ('-': stdin); blank lines and # comments are skipped.",
        flags=("--each-line",),
        metavar="FILE",
        is_file=True,
    ),
    Key(
        "items_file",
        Text(),
        "One task per JSON object of FILE ('-': stdin), whose values fill the command's {holes}.",
        flags=("--from-json",),
        metavar="FILE",
        is_file=True,
    ),
    Key(
        "sweep",
        SWEEP,
        'One task per combination of values: C = [0.1, 1, 10], g = "0:1:0.25", f = "data/*.csv", s = "@seeds.txt".',
    ),
    Key("sweep_zip", Flag(), "Take the first values of all names together, then the second ones, and so on."),
    Key(
        "array",
        Text(r"|%\d+|\s*\d+(-\d+(:\d+)?)?\s*(,\s*\d+(-\d+(:\d+)?)?\s*)*(%\d+)?\s*"),
        "Task numbers: 0-99, 0-99:2%10, 1,5,9.",
        "array",
        flags=("--array",),
        metavar="RANGES",
    ),
    Key(
        "cpus",
        Number(0.001, MAX_CPUS),
        "Cores per task.",
        "cpus",
        flags=("-c", "--cpus"),
        metavar="N",
        from_text=number,
        default="1",
    ),
    Key(
        "mem",
        SIZE,
        "Memory per task: 500M, 2G.",
        "mem_bytes",
        size_of("mem"),
        flags=("--mem",),
        metavar="SIZE",
    ),
    Key(
        "time",
        TIME,
        "Limit per attempt: 90s, 1h30m, 2-12:00:00; a bare number is minutes.",
        "time_limit_s",
        time_of("time"),
        flags=("-t", "--time"),
        metavar="TIME",
    ),
    *PLACING,
    Key(
        "queue",
        Text(r"([A-Za-z0-9_][A-Za-z0-9_.@+\-]{0,63})?", _queue_name),
        "The queue that shares the pool with others.",
        "queue",
        flags=("-p", "--queue", "--partition"),
        metavar="NAME",
        default="your own",
    ),
    Key(
        "priority",
        Number(0, MAX_PRIORITY, whole=True),
        "0 is most urgent.",
        "priority",
        flags=("--priority",),
        metavar="N",
        from_text=whole,
        default=str(DEFAULT_PRIORITY),
    ),
    Key(
        "retries",
        Number(0, MAX_RETRIES, whole=True),
        "Further tries of a failed task.",
        "retries",
        flags=("--retries",),
        metavar="N",
        from_text=whole,
        default="0",
    ),
    Key(
        "backoff",
        TIME,
        "Pause before the first retry, up to 1h; twice as long before each further one.",
        "backoff_s",
        time_of("backoff"),
        flags=("--backoff",),
        metavar="TIME",
    ),
    Key(
        "retry",
        ListOf(RETRY),
        "Other retries after these exit codes: 75 (once), 75,137:5 or 75:5:30s; repeatable.",
        "retry_rules",
        _rules,
        flags=("--retry-on",),
        metavar="CODES[:N[:TIME]]",
        from_text=lambda text: [parse_retry(text)],
        repeatable=True,
    ),
    Key(
        "block_on",
        AnyOf((_ONE_LINE, ListOf(AnyOf((_ONE_LINE, BLOCK_ON))))),
        "An end that means: something outside is broken. 'exit:75 -> tcp:licence.lab:27000; every 2m for 12h', or `known`; repeatable.",
        "block_on",
        _block_rules,
        flags=("--block-on",),
        metavar="RULE",
        from_text=lambda text: [text] if text else [],
        repeatable=True,
    ),
    Key(
        "max_fails",
        AnyOf((Number(0, MAX_TASKS, whole=True), Text(_MAX_FAILS, _max_fails))),
        "Cancel the rest of the job when more tasks than N (or P% of them) have failed.",
        "max_fails",
        lambda value: str(value).strip(),
        flags=("--max-fails",),
        metavar="N|P%",
    ),
    Key(
        "after",
        AnyOf((_AFTER, _JOB_ID, ListOf(AnyOf((_AFTER, _JOB_ID))))),
        "Start when other jobs have ended: afterok:37:38, afterany:39, aftercorr:40 (task i after task i).",
        "after",
        _afters,
        flags=("-d", "--dependency", "--after"),
        metavar="JOBS",
        from_text=lambda text: [text],
        repeatable=True,
    ),
    Key(
        "on_failure",
        Text(enum=tuple(OnFailure)),
        "What needs a failed task is skipped, or runs all the same; stop: the whole flow (or job) is cancelled.",
        "on_failure",
        OnFailure,
        flags=("--on-failure",),
        metavar="skip|run|stop",
    ),
    Key("hold", Flag(), "Start nothing until it is released.", "hold", flags=("--hold",)),
    Key(
        "cwd",
        Text(),
        f"Where tasks run; '{SANDBOX}': in an empty directory of their own.",
        flags=("--cwd",),
        metavar="DIR",
        default="here; with --in or --out, 'sandbox'",
    ),
    Key(
        "env",
        TableOf(Text(), names="[^=]+"),
        "Set (or pass on) a variable; repeatable.",
        "env",
        flags=("--env",),
        metavar="NAME[=VALUE]",
        from_text=_variable,
        repeatable=True,
    ),
    *DATA,
    Key(
        "task_id_argument",
        Flag(),
        "Append the task's number to the command.",
        "task_id_argument",
        flags=("--task-id-argument",),
    ),
    *CLEARING,
    Key(
        "kill_grace",
        TIME,
        "Time between the request to end and the kill.",
        "kill_grace_s",
        time_of("kill_grace"),
        flags=("--kill-grace",),
        metavar="TIME",
        default="5s",
    ),
    Key(
        "output_limit",
        SIZE,
        "How much of each task's stdout and stderr is kept.",
        "output_limit_bytes",
        size_of("output_limit"),
        flags=("--output-limit",),
        metavar="SIZE",
        default="10M",
    ),
)

BY_NAME = {key.name: key for key in KEYS}
BY_FLAG = {flag: key for key in KEYS for flag in key.flags}
BY_FIELD = {key.field: key.name for key in KEYS if key.field} | {
    "argv": "command",
    "line": "command",
    "lines": "lines",
    "items": "items_file",
    "grid": "sweep",
    "cwd": "cwd",
}
WHAT_IS_RUN = frozenset({"command", "lines", "lines_file"})
"""Keys that replace one another when a description is laid over another."""


def members(keys: Iterable[Key]) -> dict[str, tuple[Kind, str]]:
    return {
        key.name: (key.kind, f"{key.help} Default: {key.default}." if key.default else key.help)
        for key in keys
    }


JOB = Table(members(KEYS))
