"""The thread in which futures are told, and users' callbacks run.

Not a ThreadPoolExecutor: Python ends all of those as soon as the main program has, while calls that it left may still have
to be told.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue


class Teller:
    def __init__(self) -> None:
        self._due: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        threading.Thread(target=self._run, name="tercel-teller", daemon=True).start()

    def submit(self, tell: Callable[..., None], *args: object) -> "Future[None]":
        """In order, one after the other; after `stop`, at once and here."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                tell(*args)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        with self._lock:
            if not self._stopped:
                self._due.put(run)
                return done
        run()
        return done

    def stop(self) -> None:
        """When what is due is done."""
        with self._lock:
            self._stopped = True
            self._due.put(None)

    def _run(self) -> None:
        while (run := self._due.get()) is not None:
            run()
