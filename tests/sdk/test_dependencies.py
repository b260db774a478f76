"""Futures as arguments: calls wait for one another in the manager, and values go from worker to worker."""

import concurrent.futures
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from tercel import DependencyFailed, Executor, TaskFailed
from tercel.core import commands
from tercel.sdk import calling, pickling
from tercel.sdk.failures import RemoteTraceback
from tercel.sdk.futures import TaskFuture
from tercel.wire.api import ValueRow
from tests.api.conftest import make_home
from tests.processes import PATIENCE_S
from tests.sdk import work
from tests.sdk.graphs import random_graph
from tests.sdk.work import becomes

pytestmark = pytest.mark.must("d")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with pytest.MonkeyPatch.context() as patch:
        make_home(tmp_path_factory.mktemp("home"), patch)
        patch.syspath_prepend(ROOT)
        with Executor(workers=2) as pool:
            pool.submit(work.square, 1).result(PATIENCE_S)
            yield pool


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    (tmp_path / "go").touch()


# -- shapes -----------------------------------------------------------------------------------------------


def test_each_call_of_a_chain_gets_what_the_one_before_it_returned(pool: Executor) -> None:
    last: TaskFuture[Any] = pool.submit(work.add, 0, 1)
    for _ in range(40):
        last = pool.submit(work.add, last, 1)
    assert last.result(PATIENCE_S) == 41


def test_a_call_waits_for_one_that_runs_long(pool: Executor, place: Path) -> None:
    held = pool.submit(work.hold, str(place), "x")
    becomes((place / "begun-x").exists, "it runs")
    behind = pool.submit(work.add, held, "y")
    other = pool.submit(work.square, 3)
    assert other.result(PATIENCE_S) == 9, "nobody else waits"
    assert not behind.done()
    (place / "go").touch()
    assert behind.result(PATIENCE_S) == "xy"


def test_a_thousand_results_are_merged_by_one_call(pool: Executor) -> None:
    parts = [pool.submit(work.square, n) for n in range(1000)]
    assert pool.submit(work.total, parts).result(PATIENCE_S) == sum(n * n for n in range(1000))


def test_ten_thousand_futures_fit_into_one_call(pool: Executor) -> None:
    parts = [pool.submit(abs, -n) for n in range(pickling.MANY)]
    assert pool.submit(work.total, parts).result(PATIENCE_S) == sum(range(pickling.MANY))


def test_so_many_futures_that_they_do_not_fit_are_refused_with_advice(
    pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickling, "MAX_CALL_BYTES", 300)
    monkeypatch.setattr(pickling, "MANY", 50)
    parts = [pool.submit(abs, -n) for n in range(60)]
    error = pool.submit(work.total, parts).exception(PATIENCE_S)
    assert isinstance(error, ValueError)
    assert "60 futures in them" in str(error)
    assert "merge some 50 futures to a call" in str(error)
    assert pickling.MAX_CALL_BYTES < commands.MAX_CALL_BYTES


def test_a_future_that_gets_its_number_while_it_is_pickled_is_not_taken_for_one_that_has_none(
    pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    need = pool.submit(work.square, 3)
    really_pickle = calling.pickle_call

    def pickle_slowly(*arguments: Any) -> pickling.PickledCall:
        pickled = really_pickle(*arguments)
        assert not pickled.settled
        need.result(PATIENCE_S)
        return pickled

    monkeypatch.setattr(calling, "pickle_call", pickle_slowly)
    assert pool.submit(work.add, need, 1).result(PATIENCE_S) == 10


class Late(pickling.Referable):
    """Gets its number between two looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def __reduce__(self) -> str:
        raise TypeError("only by its key")

    @property
    def key(self) -> str:
        self.looks += 1
        return "t3.4" if self.looks > 1 else ""


def test_the_keys_of_a_call_are_those_in_its_pickle() -> None:
    late = Late()
    assert not pickling.pickle_call((late,), {}).settled
    again = pickling.pickle_call((late,), {})
    assert again.settled
    assert again.call.values == ("t3.4",)


def test_one_result_serves_many_calls(pool: Executor) -> None:
    source = pool.submit(work.add, 20, 1)
    assert list(pool.map(work.add, [source] * 200, range(200))) == [21 + n for n in range(200)]


def test_a_diamond(pool: Executor) -> None:
    top = pool.submit(work.add, 1, 1)
    left, right = pool.submit(work.add, top, 10), pool.submit(work.square, top)
    assert pool.submit(work.add, left, right).result(PATIENCE_S) == 12 + 4


def test_futures_of_unfinished_calls_are_found_wherever_they_are(pool: Executor, place: Path) -> None:
    pool.submit(work.hold, str(place), "0")
    parts = [pool.submit(work.square, n) for n in range(4)]
    nested = {"a": parts[:2], "b": (parts[2], {"c": [parts[3]]}), "d": parts[3]}
    summed = pool.submit(work.total, nested)
    kept = pool.submit(work.everything, *parts, last=parts[-1])
    (place / "go").touch()
    assert summed.result(PATIENCE_S) == 0 + 1 + 4 + 9 + 9
    assert kept.result(PATIENCE_S) == ((0, 1, 4, 9), {"last": 9})


def test_a_graph_of_two_thousand_random_calls_gives_what_it_gives_here(pool: Executor) -> None:
    futures, results = random_graph(pool, 2000, seed=3)
    assert [future.result(PATIENCE_S) for future in futures] == results


# -- values -----------------------------------------------------------------------------------------------


def test_large_values_on_their_way_never_pass_through_the_client(
    pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pool._client is not None
    client = pool._client.twin
    rows: list[ValueRow] = []
    fetched: list[str] = []
    ask_rows, ask_value = client.values, client.value

    async def values(job: int, tasks: str = "") -> list[ValueRow]:
        answer = await ask_rows(job, tasks)
        rows.extend(answer)
        return answer

    def value(key: str) -> AsyncGenerator[bytes, None]:
        fetched.append(key)
        return ask_value(key)

    monkeypatch.setattr(client, "values", values)
    monkeypatch.setattr(client, "value", value)
    last: TaskFuture[Any] = pool.submit(bytes, 2_000_000)
    for _ in range(4):
        last = pool.submit(work.add, last, b"x")
    assert pool.submit(len, last).result(PATIENCE_S) == 2_000_004
    becomes(lambda: len(rows) == 6, "all have been told")
    assert sum(len(row[5] or b"") for row in rows) < 1000
    assert fetched == []


def test_a_value_that_is_computed_again_is_what_later_calls_get(pool: Executor, tmp_path: Path) -> None:
    """By `tercel retry --all`, under the same key."""
    assert pool._client is not None
    first = pool.submit(work.count_up, str(tmp_path / "count"))
    assert pool.submit(work.add, first, 0).result(PATIENCE_S) == 1
    assert pool._client.retry([first.task_id], all=True).count == 1
    for _ in pool._client.watch([int(first.task_id.partition(".")[0])]):
        pass
    assert pool.submit(work.add, first, 0).result(PATIENCE_S) == 2


# -- what goes wrong --------------------------------------------------------------------------------------


def test_what_needs_a_call_that_fails_tells_what_that_one_raised(pool: Executor, place: Path) -> None:
    held = pool.submit(work.hold, str(place), "bad")
    bad = pool.submit(work.fail, held)
    behind = pool.submit(work.add, bad, 1)
    further = pool.submit(work.add, [behind], [2])
    (place / "go").touch()
    for future in (further, behind):
        error = future.exception(PATIENCE_S)
        assert isinstance(error, DependencyFailed)
        assert isinstance(error.__cause__, ValueError)
        assert str(error.__cause__) == "bad"
        assert isinstance(error.__cause__.__cause__, RemoteTraceback)
    assert f"it needs {bad.task_id}, which failed" in str(behind.exception())


def test_what_needs_a_call_that_has_failed_long_ago_tells_it_too(pool: Executor) -> None:
    bad = pool.submit(work.fail, "early")
    assert isinstance(bad.exception(PATIENCE_S), ValueError)
    error = pool.submit(work.add, bad, 1).exception(PATIENCE_S)
    assert isinstance(error, DependencyFailed)
    assert f"it needs {bad.task_id}, which failed" in str(error)
    assert error.__cause__ is bad.exception()


def test_a_failure_reaches_the_end_of_a_long_chain(pool: Executor, place: Path) -> None:
    held = pool.submit(work.hold, str(place), "deep")
    last: TaskFuture[Any] = pool.submit(work.fail, held)
    chain = [last := pool.submit(work.add, last, 1) for _ in range(400)]
    (place / "go").touch()
    error = last.exception(PATIENCE_S)
    assert isinstance(error, DependencyFailed)
    assert isinstance(error.__cause__, ValueError)
    concurrent.futures.wait(chain, PATIENCE_S)
    assert {type(future.exception(0)) for future in chain} == {DependencyFailed}


def test_others_than_those_that_need_a_failed_call_are_not_touched(pool: Executor) -> None:
    good, bad = pool.submit(work.square, 2), pool.submit(work.fail, "no")
    futures = [pool.submit(work.add, good if n % 2 else bad, n) for n in range(20)]
    errors = [type(future.exception(PATIENCE_S)) for future in futures]
    assert errors == [DependencyFailed, type(None)] * 10


def test_what_needs_a_cancelled_call_is_not_run(pool: Executor, place: Path) -> None:
    held = [pool.submit(work.hold, str(place), str(n)) for n in range(2)]
    becomes(lambda: all(future.running() for future in held), "the slots are occupied")
    waiting = pool.submit(work.note, str(place), "cancelled")
    behind = pool.submit(work.note, str(place), waiting)
    becomes(lambda: bool(behind.task_id), "it is submitted")
    assert waiting.cancel()
    error = behind.exception(PATIENCE_S)
    assert isinstance(error, DependencyFailed)
    assert f"it needs {waiting.task_id}, which was cancelled" in str(error)
    assert error.__cause__ is None
    with pytest.raises(CancelledError):
        waiting.result(0)
    (place / "go").touch()
    assert [future.result(PATIENCE_S) for future in held] == ["0", "1"]
    assert not list(place.glob("ran-*"))


def test_a_call_that_waits_for_another_can_be_cancelled(pool: Executor, place: Path) -> None:
    held = pool.submit(work.hold, str(place), "0")
    behind = pool.submit(work.note, str(place), held)
    becomes(lambda: bool(behind.task_id), "it is submitted")
    assert behind.cancel()
    assert behind.cancelled()
    (place / "go").touch()
    assert held.result(PATIENCE_S) == "0"


def test_a_need_that_fails_at_first_and_is_retried_is_waited_for(pool: Executor, tmp_path: Path) -> None:
    flaky = pool.submit(work.fail_until, str(tmp_path / "count"), 3, retries=5)
    assert pool.submit(work.add, flaky, 1).result(PATIENCE_S) == 4


def test_a_call_that_crashes_is_the_cause_of_what_it_keeps_from_running(pool: Executor) -> None:
    crashed = pool.submit(work.crash)
    error = pool.submit(work.add, crashed, 1).exception(PATIENCE_S)
    assert isinstance(error, DependencyFailed)
    assert isinstance(error.__cause__, TaskFailed)
    assert error.__cause__.task_id == crashed.task_id


# -- kill -9 ----------------------------------------------------------------------------------------------


def test_a_graph_survives_the_death_of_its_interpreters(pool: Executor) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_options", pool._chosen(work.total, {"retries": 50})[1])
        futures, results = random_graph(pool, 1500, seed=4)
    for at in range(100, 1500, 200):
        futures[at].result(PATIENCE_S)
        # A call of its own makes sure that there is one to kill; what it does to others is what is shown here.
        pid = pool.submit(os.getpid).result(PATIENCE_S)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it is being replaced
    assert [future.result(PATIENCE_S) for future in futures] == results
