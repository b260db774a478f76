"""10,000 Python functions through Executor.map on 2 slots, results back: against Ray in the same run; and against the
ideal where each works for 1 ms.

Ray is installed into an environment of its own (once, beside this script's cache); without it only the second is claimed.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import claim, end, place
from tercel import Executor

CALLS = 10_000
SLOTS = 2
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
RAY = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tercel-bench" / "ray"

RAY_SCRIPT = f"""
import time, ray
ray.init(num_cpus={SLOTS}, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

@ray.remote
def nothing(x):
    return x

ray.get([nothing.remote(n) for n in range(100)])
began = time.perf_counter()
assert ray.get([nothing.remote(n) for n in range({CALLS})]) == list(range({CALLS}))
print(time.perf_counter() - began)
"""


def nothing(x: int) -> int:
    return x


def work_1ms(x: int) -> int:
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        pass
    return x


def ray_python() -> Path | None:
    python = RAY / "bin" / "python"
    if not python.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", str(RAY)], check=True, capture_output=True)
            subprocess.run(
                [str(python), "-m", "pip", "install", "-q", "ray"], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"Ray cannot be installed here ({error}): it is left out")
            return None
    return python


def ray_rate(python: Path) -> float:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", RAY_SCRIPT], check=True, capture_output=True, text=True, env=env
    )
    return CALLS / float(done.stdout.split()[-1])


def tercel_rates() -> tuple[float, float]:
    """(calls of nothing per second, fraction of the ideal time of calls of 1 ms)."""
    with place() as at:
        os.environ.update(at.env)
        with Executor(workers=SLOTS) as executor:
            list(executor.map(nothing, range(100)))  # as Ray's: the interpreters are warm
            began = time.perf_counter()
            assert list(executor.map(nothing, range(CALLS))) == list(range(CALLS))
            took_s = time.perf_counter() - began
            began = time.perf_counter()
            assert list(executor.map(work_1ms, range(CALLS))) == list(range(CALLS))
            worked_s = time.perf_counter() - began
    return CALLS / took_s, CALLS * 0.001 / SLOTS / worked_s


def main() -> None:
    python = ray_python()
    ratios, fractions = [], []
    for _ in range(ROUNDS):
        ours, fraction = tercel_rates()
        fractions.append(fraction)
        line = f"tercel {ours:,.0f}/s, of 1 ms {fraction:.2f} of ideal"
        if python is not None:
            theirs = ray_rate(python)
            ratios.append(ours / theirs)
            line += f"   ray {theirs:,.0f}/s"
        print(line, flush=True)
    if ratios:
        claim("10,000 no-op functions through Executor.map / Ray", statistics.median(ratios), 5, " x")
    claim("10,000 functions of 1 ms, 2 slots / ideal", statistics.median(fractions), 0.85, " x")


main()
end()
