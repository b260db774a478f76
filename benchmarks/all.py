"""Every benchmark, one after the other."""

import subprocess
import sys
from pathlib import Path

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
    "many_workers",
    "functions",
    "graphs",
    "fair_share",
    "matching",
    "assignment",
    "blocking",
    "crash",
    "tapis_load",
)

for name in NAMES:
    print(f"\n== {name}", flush=True)
    subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False)
