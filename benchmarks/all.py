"""Every benchmark, one after the other, or those that are named. At the end: what was missed. Exit code 1 if anything was."""

import subprocess
import sys
from pathlib import Path

from harness import MISS

HERE = Path(__file__).parent
NAMES = (
    "startup",
    "latency",
    "true_10k",
    "manager_alone",
    "single_submissions",
    "sweep_submit",
    "growth",
    "restart",
    "snapshots",
    "stage_in",
    "many_workers",
    "functions",
    "graphs",
    "fair_share",
    "matching",
    "assignment",
    "blocking",
    "crash",
    "stage_cached",
    "chain",
    "tapis_load",
)


def misses_of(name: str) -> list[str]:
    """Run it, show what it prints, and tell what it missed."""
    print(f"\n== {name}", flush=True)
    command = [sys.executable, str(HERE / f"{name}.py")]
    missed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        for line in script.stdout:
            print(line, end="", flush=True)
            if line.startswith(MISS):
                missed.append(f"{name}: {line.removeprefix(MISS).strip()}")
    if script.returncode and not missed:
        missed.append(f"{name}: ended with exit code {script.returncode} before all was measured")
    return missed


missed = [miss for name in sys.argv[1:] or NAMES for miss in misses_of(name)]
print(f"\n== {len(missed)} missed" if missed else "\n== all hold")
print(*missed, sep="\n", end="\n" if missed else "")
raise SystemExit(1 if missed else 0)
