"""A pool of one's own: a child process with a manager and a worker, for an executor where no manager is set.

It lives as long as a pipe to it is open, so however this process ends, it ends as well. Its address and token come back
through another pipe; they are in no file that others read, no argument and no log.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import msgspec

from tercel.core.errors import TercelError, Unreachable
from tercel.links.access import current_access, find_server

_BOOT = "import sys; sys.path[:] = sys.argv[3:]; from tercel.sdk.embedded_main import main; main()"
START_S = 60.0
STOP_S = 10.0


class Ready(msgspec.Struct, frozen=True):
    """What the child says when it can be used; or what keeps it from it."""

    url: str = ""
    token: str = ""
    fault: str = ""


def manager_is_set() -> bool:
    """Whether a manager is named in the environment, or one runs here that is not itself gone with a `tercel run`."""
    if os.environ.get("TERCEL_SERVER"):
        return True
    try:
        find_server(None, None)
    except Unreachable:
        return False
    access = current_access()
    return access is not None and not access.embedded


class EmbeddedPool:
    """Started when it is first needed. What it did is gone with it."""

    def __init__(self, cpus: float | None) -> None:
        self._cpus = len(os.sched_getaffinity(0)) if cpus is None else cpus
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def start(self) -> tuple[str, str]:
        """(address, token)."""
        # It finds its modules where we do, and what its tasks find in the environment is what we found.
        command = [sys.executable, "-P", "-c", _BOOT, str(self._cpus), str(os.getpid()), *sys.path]
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for us alone
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            ready = msgspec.json.decode(line, type=Ready)
        except msgspec.MsgspecError:
            ready = Ready(fault=f"its process ended with exit code {process.wait(START_S)}")
        if ready.fault:
            self.stop()
            raise TercelError(f"a pool on this machine cannot be started: {ready.fault}")
        return ready.url, ready.token

    def on_death(self, tell: Callable[[TercelError], None]) -> None:
        """Call it if the pool ends before it is stopped."""
        threading.Thread(target=self._await_end, args=(tell,), name="tercel-pool", daemon=True).start()

    def _await_end(self, tell: Callable[[TercelError], None]) -> None:
        assert self._process is not None
        code = self._process.wait()
        if not self._stopping:
            tell(TercelError(f"the executor's pool on this machine ended unexpectedly (exit code {code})"))

    def stop(self) -> None:
        self._stopping = True
        process = self._process
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
