"""Runs `python -m tercel …` such that it notes each test of a condition in a file, when it begins and when it is over: FILE COMMAND.

Short appends are atomic, so many processes may share the file; and what is over is noted before anybody hears of it.
"""

import os
import runpy
import sys

from tercel.core.conditions import Verdict
from tercel.testers.contract import Surroundings
from tercel.testers.registry import Testers

NOTES = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_ask = Testers.ask


async def _noted(self: Testers, tester_text: str, surroundings: Surroundings) -> Verdict:
    os.write(NOTES, f"+ {tester_text}\n".encode())
    try:
        return await _ask(self, tester_text, surroundings)
    finally:
        os.write(NOTES, f"- {tester_text}\n".encode())


Testers.ask = _noted  # type: ignore[method-assign]
sys.argv = sys.argv[sys.argv.index("tercel") :]
runpy.run_module("tercel", run_name="__main__", alter_sys=True)
