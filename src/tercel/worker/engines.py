"""Container engines on this node: those that are in PATH and answer.

One that is there but broken (no library, no permission) is not found. One that answered before is believed as long as its
program's file is the same; one that did not is asked again at the next start.
"""

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

from tercel.worker.remembered import Engine

ENGINES = ("podman", "docker", "apptainer", "singularity")
PATIENCE_S = 3.0


def found(known: dict[str, Engine], engines: tuple[str, ...] = ENGINES) -> dict[str, Engine]:
    """By name, in order of preference."""
    here = {name: engine for name in engines if (engine := _look(name)) is not None}
    unsure = {name: engine for name, engine in here.items() if known.get(name) != engine}
    silent = unsure.keys() - _answering(unsure)
    return {name: engine for name, engine in here.items() if name not in silent}


def _look(name: str) -> Engine | None:
    path = shutil.which(name)
    if path is None:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return Engine(path, status.st_size, status.st_mtime_ns)


def _answering(engines: dict[str, Engine]) -> set[str]:
    """All are asked at once, so that a slow one costs its own time only."""
    asked: dict[str, subprocess.Popen[bytes]] = {}
    for name, engine in engines.items():
        with contextlib.suppress(OSError):  # no program for this machine, say
            asked[name] = subprocess.Popen(
                [engine.path, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    until = time.monotonic() + PATIENCE_S
    return {name for name, process in asked.items() if _exit_code(process, until) == 0}


def _exit_code(process: "subprocess.Popen[bytes]", until: float) -> int:
    try:
        return process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
