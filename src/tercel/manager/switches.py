"""Systems and applications that people turn off and on: what asks about them (`enabled:app=matlab`) waits meanwhile."""

import re

from tercel.core.conditions import SwitchRow
from tercel.core.errors import UsageError
from tercel.manager.access import Identity
from tercel.manager.requests import check_reason, saved
from tercel.manager.service import Manager
from tercel.wire.api import SwitchList, SwitchView

SWITCHES_MOST = 1000
_NAME = re.compile(r"(app|system)=[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,99}")


def listed(manager: Manager) -> SwitchList:
    """What is off, by name."""
    rows = sorted(manager.machine.switches.values(), key=lambda row: row.name)
    return SwitchList(switches=[SwitchView(name=row.name, off=row.off, since=row.since) for row in rows])


async def turn(manager: Manager, who: Identity, name: str, why: str | None) -> int:
    """Off, with the reason, or (None) on again. Returns 1 if that changed anything."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is no switch: write app=NAME or system=NAME, of A-Z a-z 0-9 _ . @ + -", "name"
        )
    switches = manager.machine.switches
    was = switches.get(name)
    told = "" if why is None else f"by {who.user}" + (f": {why}" if why else "")
    if why is None:
        if was is None:
            return 0
    else:
        check_reason(why, "why")
        # Whoever turns it off once more and says nothing does not take back why it is off.
        if was is not None and (not why or was.off == told):
            return 0
        if was is None and len(switches) >= SWITCHES_MOST:
            raise UsageError(f"at most {SWITCHES_MOST:,} switches are off at a time", "name")
    manager.check_saving()
    manager.machine.on_switch(SwitchRow(name=name, off=told, since=manager.clock()))
    await saved(manager)
    return 1
