"""10,000 small files from the cache into sandboxes, against `cp -l` of as many.

What a worker does before a task begins is timed: each file is looked up, checked and pinned, and linked into the sandbox. Printed
only: with the unpinning after its end, too. Ten files a task; the directories are made before.
"""

import hashlib
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from harness import claim, end, place
from tercel.data.cache import Cache

FILES = 10_000
SIZE_BYTES = 4096
PER_TASK = 10
ROUNDS = 5


def filled(cache: Cache) -> list[str]:
    digests = []
    for number in range(FILES):
        data = number.to_bytes(8, "big") * (SIZE_BYTES // 8)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        held = cache.claim(digest)
        assert held is not None
        held.path.write_bytes(data)
        cache.add(held, digest, len(data), "filling")
        digests.append(digest)
    cache.unpin("filling")
    return digests


def sandboxes(root: Path, per_task: int) -> list[Path]:
    shutil.rmtree(root, ignore_errors=True)
    made = [root / str(number) for number in range(FILES // per_task)]
    for sandbox in made:
        sandbox.mkdir(parents=True)
    return made


def staged_s(cache: Cache, digests: list[str], root: Path) -> tuple[float, float]:
    """Until all is there, and until all is unpinned."""
    made = sandboxes(root, PER_TASK)
    began = time.perf_counter()
    for number, sandbox in enumerate(made):
        wanted = digests[number * PER_TASK : (number + 1) * PER_TASK]
        for path, digest in zip(cache.get_all(wanted, str(number)), wanted, strict=True):
            assert path is not None
            os.link(path, f"{sandbox}/{digest}")
    staged = time.perf_counter() - began
    for number in range(len(made)):
        cache.unpin(str(number))
    return staged, time.perf_counter() - began


def linked_s(plain: Path, root: Path) -> float:
    sandboxes(root, FILES)
    began = time.perf_counter()
    subprocess.run(["cp", "-rl", str(plain), str(root / "0")], check=True)
    return time.perf_counter() - began


with place() as at:
    cache = Cache(at.root / "cache", 2**30, "bench")
    cache.open()
    began = time.perf_counter()
    digests = filled(cache)
    print(f"  filled at {FILES / (time.perf_counter() - began):,.0f}/s")
    plain = at.root / "plain"
    plain.mkdir()
    for digest in digests:
        (plain / digest).write_bytes(b"x" * SIZE_BYTES)
    ours, whole, cp = [], [], []
    for _ in range(ROUNDS):
        cp.append(FILES / linked_s(plain, at.root / "links"))
        staged, unpinned = staged_s(cache, digests, at.root / "sandboxes")
        ours.append(FILES / staged)
        whole.append(FILES / unpinned)
    cache.close()
rate, bare = statistics.median(ours), statistics.median(cp)
print(f"  cp -l {bare:,.0f}/s; staged {rate:,.0f}/s; and unpinned {statistics.median(whole):,.0f}/s")
claim("10,000 cached files of 4 KiB into sandboxes, of the rate of cp -l", rate / bare, 0.3)
end()
