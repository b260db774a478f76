"""Rules for blocking as they are handed in: each tester is judged by its own kind, and written as that writes it.

So all who mean the same thing share one condition, and what no tester understands is refused before anything is stored.

At the manager a tester is the manager's own user: it could run, read and log in to what that one can. So only admins may have
more tested there than whether something on the network answers.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from tercel.core.blocking import KNOWN, trigger_of
from tercel.core.conditions import Place
from tercel.core.errors import Forbidden, UsageError
from tercel.core.machine import Machine
from tercel.core.model import BlockRule, Role
from tercel.core.reports import Report
from tercel.core.symptoms import is_near, known_tester, rule_from
from tercel.manager.access import Identity
from tercel.manager.probing import Examiners

RULES_AT_ONCE = 1000
"""Judged before others get their turn."""

SEARCHED_AT_ONCE = 4000
"""Characters of what tasks printed, before others get their turn."""

HARMLESS = frozenset({"tcp", "dns", "http", "https", "ssh", "time"})
"""Kinds that anybody may have tested at the manager."""

Rules = tuple[BlockRule, ...]


async def settled(examiners: Examiners, who: Identity, rules: Rules) -> Rules:
    """As they are kept. Raises UsageError that says which rule is wrong, and how. They are checked otherwise."""
    found = tuple([await _settle(examiners, number, rule) for number, rule in enumerate(rules)])
    for number, rule in enumerate(found):
        kind = rule.tester.partition(":")[0]
        if rule.at == Place.MANAGER and kind not in HARMLESS and who.role is not Role.ADMIN:
            raise Forbidden(f"block_on[{number}]: only an admin may have {kind} tested @manager", "block_on")
    return found


async def settled_all(
    examiners: Examiners, who: Identity, all_rules: Iterable[Rules]
) -> dict[Rules, Rules | UsageError]:
    """Of many jobs, most of which have the same."""
    found: dict[Rules, Rules | UsageError] = {}
    judged = 0
    for rules in all_rules:
        if rules and rules not in found:
            try:
                found[rules] = await settled(examiners, who, rules)
            except UsageError as error:
                found[rules] = error
            judged += len(rules)
            if judged > RULES_AT_ONCE:
                judged = 0
                await asyncio.sleep(0)
    return found


async def _settle(examiners: Examiners, number: int, rule: BlockRule) -> BlockRule:
    if trigger_of(rule.on).known:
        return rule
    try:
        tester, place = await examiners.judge(rule.tester)
        return msgspec.structs.replace(rule, tester=tester, at=_place(rule, place))
    except UsageError as error:
        raise UsageError(f"block_on[{number}]: {error}", "block_on") from None


async def known(
    examiners: Examiners, machine: Machine, worker: str, reports: list[Report]
) -> dict[int, BlockRule]:
    """By attempt: what must be there again, as its kind writes it, by the table of what programs print.

    Of the worker's word only the piece of output is taken: what is tested, and where, is ours to say. To search it takes
    time, which only those get who can wait for what is found: once for each attempt that is the worker's to speak of.
    """
    found: dict[int, BlockRule] = {}
    asked: set[int] = set()
    searched = 0
    for report in reports:
        if report.attempt in asked or not _may_wait(machine, worker, report):
            continue
        asked.add(report.attempt)
        out, err = ("", "") if report.said else _outputs(report)
        if (tester := known_tester(report.said) or _known_of_old(out, err)) is not None:
            with suppress(UsageError):  # no such host or port can be: then nothing is known of it
                text, place = await examiners.judge(tester)
                at = Place.WORKER if is_near(text) else place
                found[report.attempt] = BlockRule(on=KNOWN, tester=text, at=at)
        searched += len(report.said) + len(out) + len(err)
        if searched >= SEARCHED_AT_ONCE:
            searched = 0
            await asyncio.sleep(0)
    return found


def _may_wait(machine: Machine, worker: str, report: Report) -> bool:
    """Whether the worker found something for a job that waits for what is known, of an attempt that it was given."""
    job = machine.jobs.get(report.job) if report.said or KNOWN in report.matched else None
    return (
        job is not None
        and any(trigger_of(rule.on).known for rule in job.row.spec.block_on)
        and machine.knows(worker, report.attempt)
    )


def _outputs(report: Report) -> tuple[str, str]:
    out, err = ((of.inline.decode(errors="replace") if of else "") for of in (report.out, report.err))
    return out, err


def _known_of_old(out: str, err: str) -> str | None:
    """Of a worker that finds what is known, and is too old to tell what it was."""
    found = rule_from(out, err) if out or err else None
    return found[0].tester if found is not None and found[1].sure else None


def _place(rule: BlockRule, usual: Place) -> str:
    """Where it is tested: where the rule says, or where such a tester makes sense."""
    kind = rule.tester.partition(":")[0].strip()
    if usual is Place.HERE:
        if rule.at and rule.at != Place.HERE:
            raise UsageError(f"@{rule.at}: {kind} asks the manager's own books, at no other place")
        return Place.HERE
    if rule.at == Place.HERE:
        raise UsageError(f"@here: {kind} is tested @manager, @site or @worker")
    if rule.at:
        return rule.at
    # Before anything of it is at a worker, any worker will do.
    return Place.SITE if usual is Place.WORKER and trigger_of(rule.on).start else usual
