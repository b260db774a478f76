"""When a task's end means that something outside is broken: rules that people write, and one table for what they do not.

    exit:75 -> tcp:licence.lab:27000
    exit:70-79,1 -> https://store.lab/health; every 1m for 1d
    stderr:/Disk quota exceeded/ -> command:./quota-ok.sh; every 2m for 12h
    signal:USR2 -> file:/data/ready @manager
    timeout -> dns:store.lab
    start -> time:22:00-06:00          before it is run at all
    known                              what ssh, curl, Slurm and others print (symptoms.py): it says itself what to test

What is not named here is the task's own failure: `hint` says how to name it.
"""

import difflib
import re
import shlex
import signal
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from tercel.core.conditions import EVERYWHERE, Fault, Place
from tercel.core.errors import UsageError
from tercel.core.model import BlockRule, JobSpec, Program
from tercel.core.patterns import compiled
from tercel.core.policies import parse_policy
from tercel.core.quoting import quoted
from tercel.core.reports import End, Report
from tercel.core.states import Stage
from tercel.core.symptoms import known_patterns, known_words, rule_from

KNOWN = "known"
RULES_MOST = 50
TESTER_MOST = 4000
DEFAULT_POLICY = "every 10s x2, 20s x10, 1m x10, 2m x100, then 5m for 2d"
"""Tapis' own."""
DEFAULT_POLICIES = {
    # A password that is tried again and again locks people out: Tapis, too, tries 15 times.
    "ssh-auth": "every 1m x5, 2m x5, then 5m at most 15 tests",
}
PATIENT = frozenset({"quota", "time", "enabled", "worker", "made"})
"""Nothing is broken where these wait: their turn comes. They are given up only if somebody says when."""
PATIENT_POLICY = "every 10s x2, 20s x10, then 1m for ever"

_RULE = re.compile(
    r"\s*(?P<on>(?:stdout|stderr|output):/.+/|(?:(?!->).)+?)\s*->\s*(?P<tester>.+?)\s*"
    r"(?:;\s*(?P<policy>(?:every|backoff|for|at\s+most)\b[^;]*))?",
    re.DOTALL | re.IGNORECASE,
)
"""A command may have semicolons of its own: what follows the last is a policy only if it begins like one."""
_KNOWN = re.compile(r"\s*known\s*(?:;\s*(?P<policy>.*))?", re.DOTALL | re.IGNORECASE)
_PLACED = re.compile(r"(?P<tester>.+?)\s+@(?P<place>[a-z]+)", re.DOTALL)
_LIKE_A_POLICY = re.compile(r"(?i)\bfor\s+[0-9.]+\s*[smhd]\b|\bat\s+most\s+[0-9]+\s+tests?\b")
_OUTPUT = re.compile(r"(?P<stream>stdout|stderr|output):/(?P<pattern>.+)/", re.DOTALL)


class Trigger(msgspec.Struct, frozen=True):
    """What a rule's left side says."""

    codes: tuple[tuple[int, int], ...] = ()
    signal: int = 0
    timeout: bool = False
    start: bool = False
    known: bool = False
    streams: tuple[str, ...] = ()
    pattern: str = ""


def parse_rule(text: str) -> BlockRule:
    """As people write it in one line; what it says is checked by `check_rule`."""
    if (known := _KNOWN.fullmatch(text)) is not None:
        return BlockRule(on=KNOWN, policy=(known["policy"] or "").strip())
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text[:200]!r} is not a rule; write WHEN -> TESTER, as in 'exit:75 -> tcp:licence.lab:27000' "
            "or 'stderr:/quota exceeded/ -> command:./quota-ok.sh; every 2m for 12h'; or `known`",
            "block_on",
        )
    tester, place = match["tester"], ""
    if (placed := _PLACED.fullmatch(tester)) is not None:
        tester, place = placed["tester"], placed["place"]
    return BlockRule(on=match["on"], tester=tester, at=place, policy=(match["policy"] or "").strip())


def check_rules(rules: Iterable[BlockRule]) -> None:
    """All but the tester, which its own kind must judge."""
    rules = tuple(rules)
    if len(rules) > RULES_MOST:
        raise UsageError(f"at most {RULES_MOST} rules for blocking", "block_on")
    if sum(rule.on.strip() == "start" for rule in rules) > 1:
        raise UsageError("one rule for `start` at most: a command can test several things", "block_on")
    for number, rule in enumerate(rules):
        try:
            check_rule(rule)
        except UsageError as error:
            raise UsageError(f"block_on[{number}]: {error}", "block_on") from None


def check_rule(rule: BlockRule) -> None:
    trigger = trigger_of(rule.on)
    if trigger.known and (rule.tester or rule.at):
        raise UsageError(
            "known: what was printed says what is tested, and where: write `known`, or `known; every 2m for 12h`"
        )
    _check_tail(rule.tester)
    if parse_policy(policy_of(rule)).is_endless and _kind(rule.tester) not in PATIENT:
        raise UsageError(
            f"{rule.policy}: what is broken for ever must be given up: say for how long", "policy"
        )
    if rule.at and rule.at not in tuple(Place):
        raise UsageError(f"@{rule.at[:40]}: a tester runs @manager, @site or @worker")
    if rule.at == Place.WORKER and trigger.start:
        raise UsageError("start @worker: nothing of it is at any worker before it starts")
    if not trigger.known and not rule.tester.strip():
        raise UsageError(f"{rule.on[:100]}: say what shows that it is mended, as in tcp:licence.lab:27000")
    if len(rule.tester) > TESTER_MOST:
        raise UsageError(f"a tester has at most {TESTER_MOST:,} characters")


def policy_of(rule: BlockRule) -> str:
    """As it was written, or what is right for such a tester."""
    kind = _kind(rule.tester)
    if not rule.policy:
        return PATIENT_POLICY if kind in PATIENT else DEFAULT_POLICIES.get(kind, DEFAULT_POLICY)
    has_end = re.search(r"(?i)\bfor\b|\bat\s+most\b", rule.policy) is not None
    return rule.policy if has_end or kind not in PATIENT else f"{rule.policy} for ever"


def _kind(tester: str) -> str:
    return tester.partition(":")[0].strip().lower()


def _check_tail(tester: str) -> None:
    """A command may have semicolons, and a policy typing errors."""
    _, semicolon, tail = tester.rpartition(";")
    if not semicolon:
        return
    word = tail.split()[0].lower() if tail.split() else ""
    is_like_one = difflib.get_close_matches(word, ("every", "backoff"), cutoff=0.7) or _LIKE_A_POLICY.search(
        tail
    )
    if is_like_one:
        raise UsageError(
            f"{tail.strip()[:60]!r} looks like a policy and is none; write `every 2m for 12h`, or `for 12h`",
            "policy",
        )


def rule_text(rule: BlockRule) -> str:
    """As people write it in one line."""
    at = f" @{rule.at}" if rule.at and rule.at != Place.HERE else ""
    tester = f" -> {rule.tester}{at}" if rule.tester else ""
    return f"{rule.on}{tester}" + (f"; {rule.policy}" if rule.policy else "")


@lru_cache(maxsize=1000)
def trigger_of(on: str) -> Trigger:
    kind, _, rest = on.strip().partition(":")
    if (match := _OUTPUT.fullmatch(on.strip())) is not None:
        streams = ("out", "err") if match["stream"] == "output" else (match["stream"].removeprefix("std"),)
        compiled(match["pattern"])
        return Trigger(streams=streams, pattern=match["pattern"])
    match kind, rest.strip():
        case "exit", codes if codes:
            return Trigger(codes=tuple(_codes(codes)))
        case "signal", name if name:
            return Trigger(signal=_signal(name))
        case "timeout", "":
            return Trigger(timeout=True)
        case "start", "":
            return Trigger(start=True)
        case "known", "":
            return Trigger(known=True)
    raise UsageError(
        f"{on[:100]!r} is nothing that a rule can begin with: exit:75, exit:70-79,1, signal:USR1, timeout, start, known, "
        "stderr:/pattern/, stdout:/pattern/ or output:/pattern/"
    )


def _codes(text: str) -> Iterable[tuple[int, int]]:
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(piece) > 20:
            raise UsageError(f"exit:{text[:60]}: {piece[:20]!r} is not an exit code or a range of them")
        low, high = int(first), int(last) if dash else int(first)
        if not 1 <= low <= high <= 255:
            raise UsageError(f"exit:{text[:60]}: exit codes of failures are 1 to 255")
        yield low, high


def _signal(name: str) -> int:
    name = name.upper()
    try:
        number = int(name) if name.isdecimal() else signal.Signals["SIG" + name.removeprefix("SIG")].value
    except (KeyError, ValueError):
        raise UsageError(f"signal:{name[:20]}: there is no such signal") from None
    if not 1 <= number <= 64:
        raise UsageError(f"signal:{name[:20]}: signals are 1 to 64")
    return number


def patterns_of(spec: JobSpec) -> tuple[tuple[str, str, str], ...]:
    """What a worker looks for in outputs: (what the rule begins with, stream, pattern).

    By its text, not by the rule's number: the job may have other rules when the attempt ends.
    """
    found = []
    for rule in spec.block_on:
        trigger = trigger_of(rule.on)
        found += [(rule.on, stream, trigger.pattern) for stream in trigger.streams]
        if trigger.known:
            found += [(KNOWN, stream, pattern) for stream, pattern in known_patterns()]
    return tuple(found)


def program_of(spec: JobSpec) -> Program:
    """What a worker must know to run its tasks, and to see whether something outside is broken."""
    program = spec.program
    return msgspec.structs.replace(program, patterns=patterns_of(spec)) if spec.block_on else program


def rule_for(spec: JobSpec, report: Report, known: BlockRule | None = None) -> BlockRule | None:
    """The first that says of such an end that something outside is broken. Success is success, whatever was printed.

    `known`: what must be there again, by what it printed.
    """
    if report.end is End.EXITED and report.code == 0:
        return None
    for rule in spec.block_on:
        trigger = trigger_of(rule.on)
        if trigger.known:
            if known is not None and report.end in (End.EXITED, End.SIGNALLED):
                return msgspec.structs.replace(known, on=rule.on, policy=rule.policy)
        elif rule.on in report.matched:
            return rule
        if report.end is End.EXITED and any(low <= report.code <= high for low, high in trigger.codes):
            return rule
        if report.end is End.SIGNALLED and trigger.signal and report.code == trigger.signal:
            return rule
        if report.end is End.TIMED_OUT and trigger.timeout:
            return rule
    return None


def seen_by(rule: BlockRule, report: Report) -> str:
    """What it printed by which the rule knows that something outside is broken, for people."""
    if trigger_of(rule.on).known:
        return quoted(known_words(report.said))
    return quoted(dict(zip(report.matched, report.seen, strict=False)).get(rule.on, ""))


def start_fault(spec: JobSpec) -> Fault | None:
    """What is to be tested before any of its tasks is tried."""
    for rule in spec.block_on:
        if trigger_of(rule.on).start:
            fault = fault_of(spec, rule, "", EVERYWHERE, ("before it starts",))
            return msgspec.structs.replace(fault, stage=Stage.ADMISSION)
    return None


def fault_of(spec: JobSpec, rule: BlockRule, worker: str, site: str, context: tuple[str, ...] = ()) -> Fault:
    """Of a rule that applies, where it does."""
    place = Place(rule.at)
    where = {Place.SITE: site, Place.WORKER: worker}.get(place, "")
    is_command = rule.tester.startswith("command:")
    return Fault(
        tester=rule.tester,
        place=place,
        where=where,
        cwd=spec.cwd if is_command else "",
        env=spec.env if is_command else {},
        policy=policy_of(rule),
        context=context,
    )


def hint(report: Report, out: str = "", err: str = "") -> str:
    """How to declare such an end recoverable: by what it printed, where that is known, else by how it ended."""
    if report.end not in (End.EXITED, End.SIGNALLED) or not report.code:
        return ""
    word = "exit" if report.end is End.EXITED else "signal"
    rule, symptom = rule_from(out, err) or (BlockRule(on=f"{word}:{report.code}", tester="TESTER"), None)
    known = f"--block-on {KNOWN}, or " if symptom is not None and symptom.sure else ""
    return f"if this is not its fault: {known}--block-on {shlex.quote(rule_text(rule))}"
