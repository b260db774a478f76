"""What programs written for concurrent.futures rely on. Every test runs against ProcessPoolExecutor too: it is the
reference, and what it does not pass is not expected of ours.
"""

import concurrent.futures
import logging
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, CancelledError, ProcessPoolExecutor
from pathlib import Path

import pytest

from tercel import Executor
from tests.api.conftest import make_home
from tests.processes import PATIENCE_S
from tests.sdk import work
from tests.sdk.work import becomes

pytestmark = pytest.mark.must("d")

SLOTS = 2


@pytest.fixture(scope="module", params=["process pool", "tercel"])
def make(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], concurrent.futures.Executor]]:
    with pytest.MonkeyPatch.context() as patch:
        make_home(tmp_path_factory.mktemp("home"), patch)
        patch.syspath_prepend(Path(__file__).parents[2])  # where workers find this package
        if request.param == "tercel":
            yield lambda: Executor(workers=SLOTS)
        else:
            context = multiprocessing.get_context("fork")
            yield lambda: ProcessPoolExecutor(SLOTS, mp_context=context)


@pytest.fixture(scope="module")
def pool(make: Callable[[], concurrent.futures.Executor]) -> Iterator[concurrent.futures.Executor]:
    with make() as pool:
        yield pool


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where calls that are held wait; they may all go in the end."""
    yield tmp_path
    (tmp_path / "go").touch()


def occupied(pool: concurrent.futures.Executor, place: Path) -> "list[concurrent.futures.Future[str]]":
    """Every slot runs a call that is held."""
    held = [pool.submit(work.hold, str(place), str(n)) for n in range(SLOTS)]
    becomes(lambda: all((place / f"begun-{n}").exists() for n in range(SLOTS)), "the slots are occupied")
    becomes(lambda: all(future.running() for future in held), "they are known to run")
    return held


# -- results ----------------------------------------------------------------------------------------------


def test_a_call_gets_its_arguments_and_returns_its_result(pool: concurrent.futures.Executor) -> None:
    future = pool.submit(work.everything, 1, "two", [3], four={"five": 6})
    assert future.result(PATIENCE_S) == ((1, "two", [3]), {"four": {"five": 6}})
    assert future.done()
    assert not future.running()
    assert not future.cancelled()
    assert future.exception() is None


def test_the_result_is_the_same_object_every_time(pool: concurrent.futures.Executor) -> None:
    future = pool.submit(work.everything)
    assert future.result(PATIENCE_S) is future.result()


def test_the_original_exception_comes_back_with_the_traceback_of_where_it_was_raised(
    pool: concurrent.futures.Executor,
) -> None:
    future = pool.submit(work.fail, "it broke")
    with pytest.raises(ValueError, match="it broke") as raised:
        future.result(PATIENCE_S)
    assert "raise ValueError(text)" in str(raised.value.__cause__)
    error = future.exception()
    assert isinstance(error, ValueError)
    assert future.exception() is error


def test_an_exception_of_ones_own_class_keeps_what_is_in_it(pool: concurrent.futures.Executor) -> None:
    error = pool.submit(work.fail_oddly, 7).exception(PATIENCE_S)
    assert isinstance(error, work.OddError)
    assert (error.args, error.number) == (("odd", 7), 7)


def test_waiting_for_a_result_has_a_limit_and_can_go_on_after_it(
    pool: concurrent.futures.Executor, place: Path
) -> None:
    future = pool.submit(work.hold, str(place))
    with pytest.raises(TimeoutError):
        future.result(0.05)
    with pytest.raises(TimeoutError):
        future.exception(0.05)
    assert not future.done()
    (place / "go").touch()
    assert future.result(PATIENCE_S) == "0"


def test_large_arguments_and_results_arrive_whole(pool: concurrent.futures.Executor) -> None:
    data = bytes(range(256)) * 20_000
    (args, kwargs) = pool.submit(work.everything, data, again=data).result(PATIENCE_S)
    assert args == (data,)
    assert kwargs == {"again": data}


def test_many_small_calls_all_come_back(pool: concurrent.futures.Executor) -> None:
    futures = [pool.submit(work.square, n) for n in range(500)]
    assert [future.result(PATIENCE_S) for future in futures] == [n * n for n in range(500)]


# -- what cannot be sent ----------------------------------------------------------------------------------


def test_arguments_that_cannot_be_pickled_are_told_by_the_future(pool: concurrent.futures.Executor) -> None:
    future = pool.submit(work.everything, threading.Lock())
    assert isinstance(future.exception(PATIENCE_S), TypeError)
    assert pool.submit(work.square, 3).result(PATIENCE_S) == 9


def test_a_function_that_cannot_be_pickled_is_told_by_the_future(pool: concurrent.futures.Executor) -> None:
    lock = threading.Lock()
    future = pool.submit(lambda: lock.locked())
    assert future.exception(PATIENCE_S) is not None
    assert pool.submit(work.square, 3).result(PATIENCE_S) == 9


def test_a_result_that_cannot_be_pickled_is_an_exception(pool: concurrent.futures.Executor) -> None:
    assert pool.submit(work.unpicklable).exception(PATIENCE_S) is not None
    assert pool.submit(work.square, 3).result(PATIENCE_S) == 9


# -- map --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunksize", [1, 7, 1000])
def test_map_yields_results_in_order(pool: concurrent.futures.Executor, chunksize: int) -> None:
    assert list(pool.map(work.square, range(50), chunksize=chunksize)) == [n * n for n in range(50)]


def test_map_takes_several_iterables_and_ends_with_the_shortest(pool: concurrent.futures.Executor) -> None:
    assert list(pool.map(work.add, [1, 2, 3], iter([10, 20]))) == [11, 22]
    assert list(pool.map(work.square, [])) == []


def test_map_raises_an_exception_at_its_place(pool: concurrent.futures.Executor) -> None:
    results = pool.map(work.fail_at_three, range(6))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_map_has_a_limit_of_time(pool: concurrent.futures.Executor, place: Path) -> None:
    results = pool.map(work.hold, [str(place)], timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)


def test_map_refuses_a_chunksize_that_is_none(pool: concurrent.futures.Executor) -> None:
    with pytest.raises(ValueError, match="chunksize"):
        pool.map(work.square, range(3), chunksize=0)


def test_closing_the_iterator_of_a_map_cancels_what_has_not_begun(
    pool: concurrent.futures.Executor, place: Path
) -> None:
    held = occupied(pool, place)
    (place / "first").mkdir()
    results = pool.map(work.note, [str(place)] * 20, map(str, range(20)), timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)
    (place / "go").touch()
    concurrent.futures.wait(held, PATIENCE_S)
    assert pool.submit(work.square, 3).result(PATIENCE_S) == 9
    # ProcessPoolExecutor has a few calls in the hands of its workers already.
    assert len(list(place.glob("ran-*"))) < 10


# -- waiting for several ----------------------------------------------------------------------------------


def test_as_completed_yields_each_future_once(pool: concurrent.futures.Executor) -> None:
    futures = {pool.submit(work.square, n): n for n in range(40)}
    seen = [futures[future] for future in concurrent.futures.as_completed(futures, PATIENCE_S)]
    assert sorted(seen) == list(range(40))


def test_as_completed_yields_what_is_done_before_what_is_not(
    pool: concurrent.futures.Executor, place: Path
) -> None:
    slow = pool.submit(work.hold, str(place))
    quick = pool.submit(work.square, 3)
    done = concurrent.futures.as_completed([slow, quick], PATIENCE_S)
    assert next(done) is quick
    (place / "go").touch()
    assert next(done) is slow


def test_as_completed_has_a_limit_of_time(pool: concurrent.futures.Executor, place: Path) -> None:
    with pytest.raises(TimeoutError):
        list(concurrent.futures.as_completed([pool.submit(work.hold, str(place))], 0.05))


def test_wait_returns_with_the_first_that_completed(pool: concurrent.futures.Executor, place: Path) -> None:
    slow, quick = pool.submit(work.hold, str(place)), pool.submit(work.square, 3)
    done, left = concurrent.futures.wait([slow, quick], PATIENCE_S, FIRST_COMPLETED)
    assert (done, left) == ({quick}, {slow})


def test_wait_returns_with_the_first_exception(pool: concurrent.futures.Executor, place: Path) -> None:
    slow, bad = pool.submit(work.hold, str(place)), pool.submit(work.fail, "no")
    done, left = concurrent.futures.wait([slow, bad], PATIENCE_S, FIRST_EXCEPTION)
    assert (done, left) == ({bad}, {slow})


def test_wait_returns_when_all_are_done(pool: concurrent.futures.Executor) -> None:
    futures = [pool.submit(work.square, 3), pool.submit(work.fail, "no")]
    assert concurrent.futures.wait(futures, PATIENCE_S) == (set(futures), set())


# -- callbacks --------------------------------------------------------------------------------------------


def test_callbacks_are_called_in_order_with_the_future(
    pool: concurrent.futures.Executor, place: Path
) -> None:
    called: list[object] = []
    future = pool.submit(work.hold, str(place))
    future.add_done_callback(lambda done: called.append((1, done.result())))
    future.add_done_callback(lambda done: called.append((2, done)))
    assert called == []
    (place / "go").touch()
    becomes(lambda: len(called) == 2, "both were called")
    assert called == [(1, "0"), (2, future)]
    future.add_done_callback(lambda _: called.append(3))
    assert called[-1] == 3, "at once, if it is done already"


def test_an_exception_in_a_callback_hurts_nobody(
    pool: concurrent.futures.Executor, caplog: pytest.LogCaptureFixture, place: Path
) -> None:
    called: list[int] = []
    future = pool.submit(work.hold, str(place))
    future.add_done_callback(lambda _: 1 // 0)
    future.add_done_callback(lambda _: called.append(2))
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        (place / "go").touch()
        assert future.result(PATIENCE_S) == "0"
        becomes(lambda: called == [2], "the other one was called")
    assert "ZeroDivisionError" in caplog.text
    assert pool.submit(work.square, 3).result(PATIENCE_S) == 9


def test_a_callback_may_submit(pool: concurrent.futures.Executor) -> None:
    more: list[concurrent.futures.Future[int]] = []
    pool.submit(work.square, 3).add_done_callback(
        lambda done: more.append(pool.submit(work.square, done.result()))
    )
    becomes(lambda: len(more) == 1, "the callback submitted")
    assert more[0].result(PATIENCE_S) == 81


# -- cancelling -------------------------------------------------------------------------------------------


def test_a_call_that_waits_can_be_cancelled_and_does_not_run(
    pool: concurrent.futures.Executor, place: Path
) -> None:
    held = occupied(pool, place)
    waiting = [pool.submit(work.note, str(place), str(n)) for n in range(20)]
    assert waiting[-1].cancel()
    assert waiting[-1].cancel(), "and again"
    assert waiting[-1].cancelled()
    assert waiting[-1].done()
    for ask in (waiting[-1].result, waiting[-1].exception):
        with pytest.raises(CancelledError):
            ask(PATIENCE_S)
    (place / "go").touch()
    assert [future.result(PATIENCE_S) for future in [*held, *waiting[:-1]]]
    assert not (place / "ran-19").exists()


def test_a_cancelled_future_calls_its_callbacks(pool: concurrent.futures.Executor, place: Path) -> None:
    occupied(pool, place)
    waiting = [pool.submit(work.square, n) for n in range(20)]
    called: list[object] = []
    waiting[-1].add_done_callback(called.append)
    assert waiting[-1].cancel()
    assert called == [waiting[-1]]


def test_a_call_that_runs_cannot_be_cancelled_and_ends_as_if_nobody_had_tried(
    pool: concurrent.futures.Executor, place: Path
) -> None:
    held = occupied(pool, place)
    assert not held[0].cancel()
    assert not held[0].cancelled()
    (place / "go").touch()
    assert held[0].result(PATIENCE_S) == "0"


def test_a_call_that_ended_cannot_be_cancelled(pool: concurrent.futures.Executor) -> None:
    future = pool.submit(work.square, 3)
    assert future.result(PATIENCE_S) == 9
    assert not future.cancel()
    assert not future.cancelled()
    assert future.result() == 9


# -- the end ----------------------------------------------------------------------------------------------


def test_after_shutdown_nothing_more_is_taken(make: Callable[[], concurrent.futures.Executor]) -> None:
    pool = make()
    assert pool.submit(work.square, 3).result(PATIENCE_S) == 9
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(work.square, 3)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.map(work.square, [3])
    pool.shutdown()


def test_shutdown_waits_for_what_was_submitted(
    make: Callable[[], concurrent.futures.Executor], place: Path
) -> None:
    pool = make()
    futures = [pool.submit(work.note, str(place), str(n)) for n in range(30)]
    pool.shutdown()
    assert all(future.done() for future in futures)
    assert len(list(place.glob("ran-*"))) == 30
    assert [future.result() for future in futures] == [str(n) for n in range(30)]


def test_shutdown_without_waiting_lets_everything_end(
    make: Callable[[], concurrent.futures.Executor], place: Path
) -> None:
    pool = make()
    held = occupied(pool, place)
    waiting = pool.submit(work.square, 3)
    pool.shutdown(wait=False)
    assert not held[0].done()
    (place / "go").touch()
    assert [future.result(PATIENCE_S) for future in held] == ["0", "1"]
    assert waiting.result(PATIENCE_S) == 9


def test_shutdown_may_cancel_what_has_not_begun(
    make: Callable[[], concurrent.futures.Executor], place: Path
) -> None:
    pool = make()
    held = occupied(pool, place)
    waiting = [pool.submit(work.note, str(place), str(n)) for n in range(20)]
    threading.Timer(0.3, (place / "go").touch).start()
    pool.shutdown(cancel_futures=True)
    assert [future.result(PATIENCE_S) for future in held] == ["0", "1"]
    assert all(future.done() for future in waiting)
    assert waiting[-1].cancelled()
    assert not (place / "ran-19").exists()


def test_leaving_the_block_waits(make: Callable[[], concurrent.futures.Executor]) -> None:
    with make() as pool:
        futures = [pool.submit(work.square, n) for n in range(10)]
    assert [future.result() for future in futures] == [n * n for n in range(10)]


def test_an_exception_in_the_block_is_not_swallowed(make: Callable[[], concurrent.futures.Executor]) -> None:
    with pytest.raises(KeyError, match="mine"), make() as pool:
        future = pool.submit(work.square, 3)
        raise KeyError("mine")
    assert future.result() == 9


def test_a_pool_that_is_not_used_ends_too(make: Callable[[], concurrent.futures.Executor]) -> None:
    with make():
        pass


def test_a_call_that_takes_its_interpreter_down_fails(
    make: Callable[[], concurrent.futures.Executor],
) -> None:
    with make() as pool:
        assert pool.submit(work.crash).exception(PATIENCE_S) is not None
