"""What an earlier version of this manager kept, with testers as they are written now.

How a kind writes the same thing may change (`disk:/scratch>=20G` was `>=21474836480B`), and conditions are shared by what is
written. So what comes from the store is written anew before the machine knows it: jobs from before and after share one.

What a tester would not take any more stays as it is, for it was taken once. So does what third parties' testers wrote: each
would have to be asked in a process of its own, and nobody could do anything until then.
"""

from collections.abc import Iterable

import msgspec

from tercel.core.changes import LiveJob, Loaded
from tercel.core.conditions import Postponed
from tercel.core.errors import UsageError
from tercel.core.model import JobRow
from tercel.manager.probing import Examiners

replace = msgspec.structs.replace


async def respelled(examiners: Examiners, loaded: Loaded) -> Loaded:
    """Costs nothing where no job has rules and none of its tasks is blocked."""
    sought = [row.tester for row in loaded.conditions]
    rows = [live.job for live in (*loaded.jobs, *loaded.past)]
    spelling = await _spelling(examiners, [*sought, *(text for row in rows for text in _testers(row))])
    if not spelling:
        return loaded
    return replace(
        loaded,
        jobs=[_live(live, spelling) for live in loaded.jobs],
        past=[_live(live, spelling) for live in loaded.past],
        conditions=[replace(row, tester=spelling.get(row.tester, row.tester)) for row in loaded.conditions],
    )


async def respelled_job(examiners: Examiners, live: LiveJob) -> LiveJob:
    return _live(live, await _spelling(examiners, _testers(live.job)))


def _testers(row: JobRow) -> list[str]:
    return [rule.tester for rule in row.spec.block_on] + [one.fault.tester for one in row.postponed]


async def _spelling(examiners: Examiners, texts: Iterable[str]) -> dict[str, str]:
    """Of those that are written otherwise now."""
    spelling: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        if text and examiners.is_own(text.partition(":")[0]):
            try:
                now, _ = await examiners.judge(text)
            except UsageError:
                continue
            if now != text:
                spelling[text] = now
    return spelling


def _live(live: LiveJob, spelling: dict[str, str]) -> LiveJob:
    row = live.job
    if not spelling.keys() & {*_testers(row)}:
        return live
    rules = tuple(replace(rule, tester=spelling.get(rule.tester, rule.tester)) for rule in row.spec.block_on)
    postponed = tuple(_postponed(one, spelling) for one in row.postponed)
    return replace(live, job=replace(row, spec=replace(row.spec, block_on=rules), postponed=postponed))


def _postponed(one: Postponed, spelling: dict[str, str]) -> Postponed:
    fault = one.fault
    return replace(one, fault=replace(fault, tester=spelling.get(fault.tester, fault.tester)))
