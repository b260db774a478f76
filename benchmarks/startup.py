"""How long `tercel --help` and `tercel status` take, against a bare Python."""

import statistics
import subprocess
import sys
import time

from harness import claim, end, manager, place

ROUNDS = 20


def wall_ms(command: list[str], env: dict[str, str]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


with place() as at, manager(at) as managed:
    bare = wall_ms([sys.executable, "-c", "pass"], at.env)
    help_ = wall_ms(at.command("--help"), at.env)
    status = wall_ms(at.command("status"), at.env)
print(f"python -c pass {bare:.0f} ms; --help {help_ / bare:.1f} x, status {status / bare:.1f} x that")
claim("tercel --help", help_, 150, " ms", at_most=True)
claim("tercel status", status, 200, " ms", at_most=True)
end()
