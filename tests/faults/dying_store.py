"""Keeps batches of ten outcomes until it is killed: PATH. Says what it has done, and waits to be told to go on.

written N     batch N is handed over and not committed
committed N   it is committed
"""

import sys

from tercel.core.changes import Concluded
from tercel.stores.sqlite import SqliteStore
from tests.conformance.stores import hand_over, job, outcome


def say(what: str, number: int) -> None:
    print(what, number, flush=True)
    if not sys.stdin.readline():
        raise SystemExit(f"nobody listens after {what} {number}")


store = SqliteStore(sys.argv[1])
epoch = store.load().epoch
hand_over(store, job(1, (0, 99_999)))
batch = 0
while True:
    tasks = range(batch * 10, batch * 10 + 10)
    store.write([Concluded(outcome(task, attempt=(epoch << 32) + task)) for task in tasks])
    say("written", batch)
    store.commit()
    say("committed", batch)
    batch += 1
