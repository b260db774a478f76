"""`command:LINE`: a line of the user's for `sh` exits with 0. Its last line says why not, or `room=N` for how many tasks.

It is asked in a process of its own (see host.py), which bounds its memory and the files that it writes.
"""

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tercel.core.commands import MAX_LINE_BYTES
from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers.contract import Surroundings
from tercel.testers.running import Ended, run
from tercel.testers.verdicts import ROOM_MOST, not_cleared, why

_ROOM = re.compile(r"room=([0-9]{1,9})")


class CommandTester:
    kind = "command"
    place = Place.SITE
    summary = "a command exits with 0; it may print room=N: command:./quota-ok.sh"

    def normalise(self, text: str) -> str:
        line = text.strip()
        if not line or "\0" in line or len(line.encode(errors="replace")) > MAX_LINE_BYTES:
            raise UsageError("command: write the line that is to be run, as in command:./quota-ok.sh")
        return line

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        try:
            async with _directory(surroundings.cwd) as cwd:
                ended = await run(["/bin/sh", "-c", text], cwd=cwd, env=surroundings.env)
        except (OSError, ValueError) as error:  # ValueError: a variable that no process can have
            at = f" in {surroundings.cwd}" if surroundings.cwd else ""
            return not_cleared(f"the command cannot be started{at}: {why(error).lower()}")
        return _verdict(ended)


@asynccontextmanager
async def _directory(given: str) -> AsyncIterator[str]:
    """The one that is given, or else one of its own, which is gone afterwards."""
    if given:
        yield given
        return
    making = asyncio.ensure_future(asyncio.to_thread(tempfile.mkdtemp, prefix="tercel-tester-"))
    try:
        yield await asyncio.shield(making)
    finally:
        # Also for who was cancelled before it was there: a thread that has begun makes it all the same.
        await asyncio.to_thread(shutil.rmtree, await making, ignore_errors=True)


def _verdict(ended: Ended) -> Verdict:
    if ended.code != 0 or ended.excess:
        return not_cleared(ended.excess or ended.last_line or f"the command failed: {ended.how}")
    if (match := _ROOM.fullmatch(ended.last_line)) is None:
        return Verdict(True, note=ended.last_line)
    room = int(match[1])
    if not room:
        return not_cleared("the command says that there is room for none")
    return Verdict(True, room=min(room, ROOM_MOST), note=f"room for {room:,}")
