"""A store on a disk that fills up: DIRECTORY tmpfs|limit. Says `ok` if nothing was lost and all went on.

Run in a process of its own, because a limit on the size of files and a mounted file system are a process's affair.
"""

import resource
import sys
from collections.abc import Callable
from pathlib import Path

from tercel.core.changes import Change, Concluded
from tercel.core.errors import StoreFull
from tercel.core.reports import Output
from tercel.stores.sqlite import SqliteStore
from tests.conformance.stores import FINISHED, answers, hand_over, job, outcome

DIRECTORY = Path(sys.argv[1])
FILLER = b"x" * 2000


def batch(number: int) -> list[Change]:
    first = number * 50
    return [
        Concluded(outcome(task, attempt=task + 1, out=Output(2000, 2000, FILLER)))
        for task in range(first, first + 50)
    ]


def narrow_disk() -> Callable[[], None]:
    """A file system of fixed size, partly taken. What is returned frees the part."""
    ballast = DIRECTORY / "ballast"
    ballast.write_bytes(bytes(4 << 20))
    return ballast.unlink


def narrow_limit() -> Callable[[], None]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def main() -> None:
    make_room = {"tmpfs": narrow_disk, "limit": narrow_limit}[sys.argv[2]]()
    store = SqliteStore(DIRECTORY / "store.db")
    store.load()
    hand_over(store, job(1, (0, 4_999)))
    done = 0
    try:
        while done < 80:
            store.write(batch(done))
            store.commit()
            done += 1
    except StoreFull as error:
        print(f"full after {done} batches: {error}", file=sys.stderr)
    assert 0 < done < 80

    # Full: it still answers, refuses again and again, and keeps what it has.
    before = answers(store)
    assert store.ended(1, FINISHED) == [(0, done * 50 - 1)]
    for _ in range(3):
        try:
            hand_over(store, *batch(done), *batch(done + 1), job(2))
        except StoreFull:
            pass
        else:
            raise AssertionError("there cannot be room")
    assert answers(store) == before

    # Opening it then is refused or works, but harms nothing.
    store.close()
    try:
        store = SqliteStore(DIRECTORY / "store.db")
        store.load()
    except StoreFull:
        pass
    else:
        assert answers(store) == before

    make_room()
    store.close()
    store = SqliteStore(DIRECTORY / "store.db")
    for number in range(done, done + 20):
        hand_over(store, *batch(number))
    loaded = store.load()
    assert loaded.jobs[0].finished == [(0, (done + 20) * 50 - 1)]
    records = store.outcomes(1, ranges=[(0, 4_999)], limit=5_000)
    assert [record.report.task for record in records] == list(range((done + 20) * 50))
    assert all(record.report.out == Output(2000, 2000, FILLER) for record in records)
    store.close()
    print("ok")


main()
