"""Processes that use a cache, for tests that kill them. Started once; each line on stdin makes one (by fork, which is quick).

use <dir> <room> <holder> <seed>      fetches, uses and drops files at random until it is killed
need <dir> <room> <holder> <log>      needs each of NEEDED files, and writes a line for each that it fetched itself
reap <pid>                            says when it has ended, and with which status
"""

import os
import random
import sys
import time
import traceback
from pathlib import Path

from tercel.data.cache import Cache, CacheFull
from tests.conformance.caches import content, digest_of

NEEDED = 12
SIZES = (10, 3000, 5000, 9000)


def use(dir: str, room: str, holder: str, seed: str) -> None:
    chance = random.Random(int(seed))
    cache = Cache(Path(dir), int(room), holder)
    cache.open()
    pinned: dict[str, list[tuple[Path, bytes]]] = {}
    while True:
        pin, data = chance.choice("pqr"), content(chance.randrange(8), chance.choice(SIZES))
        if chance.random() < 0.4:
            cache.unpin(pin)
            pinned.pop(pin, None)
        path = cache.get(digest_of(data), pin) or fetched(cache, data, pin)
        if path is not None:
            pinned.setdefault(pin, []).append((path, data))
        assert all(path.read_bytes() == data for files in pinned.values() for path, data in files)


def fetched(cache: Cache, data: bytes, pin: str) -> Path | None:
    digest = digest_of(data)
    if (claim := cache.claim(digest)) is None:
        return None
    try:
        if (path := cache.get(digest, pin)) is not None:
            return path
        cache.reserve(claim, len(data))
        claim.path.unlink(missing_ok=True)
        claim.path.write_bytes(data)
        return cache.add(claim, digest, len(data), pin)
    except CacheFull:
        return None
    finally:
        claim.release()


def need(dir: str, room: str, holder: str, log: str) -> None:
    cache = Cache(Path(dir), int(room), holder)
    cache.open()
    for number in range(NEEDED):
        data = content(number, 100)
        while cache.get(digest_of(data), "task") is None:
            if (claim := cache.claim(digest_of(data))) is None:
                time.sleep(0.001)  # another fetches it
                continue
            if cache.get(digest_of(data), "task") is None:
                with open(log, "a") as file:
                    file.write(f"{number}\n")
                claim.path.write_bytes(data)
                cache.add(claim, digest_of(data), len(data), "task")
            claim.release()
    cache.close()


def main() -> None:
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "reap":
            print(os.waitpid(int(words[0]), 0)[1], flush=True)
        elif pid := os.fork():
            print(pid, flush=True)
        else:
            try:
                {"use": use, "need": need}[verb](*words)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)


if __name__ == "__main__":
    main()
