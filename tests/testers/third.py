"""The module of a package of somebody else's, with all that a tester can do wrong. What is asked is how it misbehaves."""

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers.contract import Surroundings

HOARD = []


class BadTester:
    kind = "bad"
    place = Place.WORKER
    summary = "does what it is asked: bad:hang"

    def normalise(self, text: str) -> str:
        text = text.strip().lower()
        if text == "spin":
            while True:
                pass
        if text == "exit":
            os._exit(7)
        if text == "raise":
            raise RuntimeError("oops")
        if text == "number":
            return 7
        if not text:
            raise UsageError("bad: of what?")
        return text

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        how, _, what = text.partition(" ")
        if how == "ok":
            return Verdict(True, room=3, note=f"{what} of {os.getpid()}")
        return await getattr(self, how)(what)

    async def wait_for(self, path: str) -> Verdict:
        while not Path(path).exists():
            await asyncio.sleep(0.01)
        return Verdict(True, note=str(os.getpid()))

    async def sleep(self, what: str) -> Verdict:
        await asyncio.sleep(3600)

    async def swallow(self, what: str) -> Verdict:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    async def block(self, what: str) -> Verdict:
        Path(what).touch() if what else None
        time.sleep(3600)

    async def block_unless(self, what: str) -> Verdict:
        if not Path(what).exists():
            time.sleep(3600)
        return Verdict(True, note=str(os.getpid()))

    async def block_in_c(self, what: str) -> Verdict:
        ctypes.PyDLL(None).sleep(3600)  # with the interpreter's lock

    async def leave(self, what: str) -> Verdict:
        os._exit(3)

    async def leave_later(self, what: str) -> Verdict:
        threading.Timer(0.05, os._exit, [4]).start()
        await asyncio.sleep(3600)

    async def system_exit(self, what: str) -> Verdict:
        sys.exit(5)

    async def crash(self, what: str) -> Verdict:
        ctypes.string_at(0)

    async def hoard(self, what: str) -> Verdict:
        while True:
            HOARD.append(bytes(64 * 2**20))  # not touched: at once, however busy the machine is

    async def flood(self, what: str) -> Verdict:
        for _ in range(2000):
            os.write(1, b"x" * 2**20)
            os.write(2, b"x" * 2**20)
        print("done")
        return Verdict(True)

    async def babble(self, what: str) -> Verdict:
        for fd in range(3, 256):
            try:
                os.write(fd, b"\xff" * 100_000)
            except OSError:
                pass
        await asyncio.sleep(3600)

    async def spawn(self, what: str) -> Verdict:
        child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
        Path(what).write_text(str(child.pid))
        time.sleep(3600)

    async def fail(self, what: str) -> Verdict:
        raise ValueError("\x1b[31mred\x1b[0m " + "x" * 10**7)

    async def nothing(self, what: str) -> Verdict:
        return None

    async def true(self, what: str) -> Verdict:
        return True

    async def negative(self, what: str) -> Verdict:
        return Verdict(True, room=-1)

    async def much(self, what: str) -> Verdict:
        return Verdict(True, room=10**30, note="x" * 10**7, not_before_s=1e300)

    async def nan(self, what: str) -> Verdict:
        return Verdict(True, not_before_s=float("nan"))

    async def odd(self, what: str) -> Verdict:
        return Verdict("yes", note=b"bytes")

    async def escape(self, what: str) -> Verdict:
        return Verdict(False, note="\x1b]0;title\x07\n\nsecond \u202eline")


class SyncTester:
    kind = "sync"
    place = Place.SITE
    summary = "is not async: sync:x"

    def normalise(self, text: str) -> str:
        return text

    def test(self, text: str, surroundings: Surroundings) -> Verdict:
        return Verdict(True)
