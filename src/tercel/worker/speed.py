"""How fast one core is, beside a reference: a number that people can rank workers by.

A fixed text is packed with zlib a few times and the best time counts: work of a common kind (integers, branches, memory
near the core) that depends little on the version of Python. It is processor time, so that a busy node is not taken for a
slow one. 1.0 is a core that packs 32 MB of the text in a second, as a server of 2020 does; steps of a tenth, since less
is noise, and workers of one kind should look alike.
"""

import platform
import random
import time
import zlib
from pathlib import Path

REFERENCE_BYTES_PER_S = 32e6
_ROUNDS = 6
_WORDS = 20_000


def measured() -> float:
    """Takes some 30 ms."""
    text = _text()
    best_s = min(_pack_s(text) for _ in range(_ROUNDS))
    return max(0.1, round(len(text) / best_s / REFERENCE_BYTES_PER_S, 1))


def _pack_s(text: bytes) -> float:
    begun = time.thread_time()
    zlib.compress(text, 6)
    return max(1e-6, time.thread_time() - begun)


def _text() -> bytes:
    chance = random.Random(20)  # noqa: S311  # the same everywhere
    words = [bytes(chance.choices(b"abcdefghijklmnop", k=chance.randint(2, 9))) for _ in range(500)]
    return b" ".join(chance.choices(words, k=_WORDS))


def cpu_model() -> str:
    """Whatever tells this node's cores from others'."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or f"{platform.machine()} {platform.processor()}".strip()
