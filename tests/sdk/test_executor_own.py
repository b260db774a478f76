"""What our executor does beyond those of the standard library: values by reference, tasks by name, a pool of its own."""

import asyncio
import concurrent.futures
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED
from pathlib import Path

import pytest

from tercel import Client, DependencyFailed, Executor, TaskFailed, task
from tercel.core.errors import TercelError, UsageError
from tercel.links.places import data_dir
from tercel.sdk import pickling
from tercel.sdk.decorator import Task
from tests.api.conftest import make_home
from tests.processes import PATIENCE_S, marked
from tests.sdk import work
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


# -- what is sent -----------------------------------------------------------------------------------------


def test_functions_without_a_name_and_with_surroundings_go_by_value(pool: Executor) -> None:
    factor = 7

    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

    assert list(pool.map(lambda x: x * factor, range(3))) == [0, 7, 14]
    assert pool.submit(lambda local: local.x, Local(3)).result(PATIENCE_S) == 3


def test_futures_anywhere_in_the_arguments_become_their_results(pool: Executor) -> None:
    parts = [pool.submit(work.square, n) for n in range(4)]
    concurrent.futures.wait(parts, PATIENCE_S)
    nested = {"a": parts[:2], "b": (parts[2], {"c": parts[3]}), "d": parts[3]}
    assert pool.submit(work.total, nested).result(PATIENCE_S) == 0 + 1 + 4 + 9 + 9
    assert pool.submit(work.everything, x=parts[3]).result(PATIENCE_S) == ((), {"x": 9})


def test_a_large_result_goes_from_task_to_task_and_not_through_the_client(
    pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = pool.submit(bytes, 3_000_000)
    concurrent.futures.wait([large], PATIENCE_S)
    fetched: list[str] = []
    calling = pool._calling
    assert calling is not None
    fetch = calling.fetch
    monkeypatch.setattr(calling, "fetch", lambda key: fetched.append(key) or fetch(key))
    assert pool.submit(len, large).result(PATIENCE_S) == 3_000_000
    assert fetched == []
    assert large.result(PATIENCE_S) == bytes(3_000_000)
    assert fetched == [large.key]


def test_a_large_argument_is_uploaded_once_however_many_calls_have_it(
    pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pool._client is not None
    uploads: list[str] = []
    upload = pool._client.twin.upload

    async def counted(key: str, content: bytes) -> object:
        uploads.append(key)
        return await upload(key, content)

    monkeypatch.setattr(pool._client.twin, "upload", counted)
    data = os.urandom(300_000)
    assert {f.result(PATIENCE_S) for f in [pool.submit(len, data) for _ in range(30)]} == {300_000}
    assert pool.submit(work.everything, data, 1).result(PATIENCE_S)[0] == (data, 1)
    assert len(uploads) == 1


def test_a_large_function_is_uploaded_too(pool: Executor) -> None:
    data = os.urandom(2_000_000)
    assert list(pool.map(lambda n: data[n], range(5))) == list(data[:5])


def test_a_future_of_another_manager_is_refused(pool: Executor) -> None:
    with Executor(workers=1) as other:
        stranger = other.submit(abs, -3)
        error = pool.submit(abs, stranger).exception(PATIENCE_S)
    assert isinstance(error, ValueError)
    assert "another manager" in str(error)


def test_a_call_that_needs_one_that_was_never_sent_fails_at_once(pool: Executor) -> None:
    unsendable = pool.submit(work.everything, threading.Lock())
    error = pool.submit(work.add, unsendable, 1).exception(PATIENCE_S)
    assert isinstance(error, DependencyFailed)


def test_what_is_found_in_the_main_program_by_name_is_not_pickled_by_name() -> None:
    pickled = pickling.pickle_call((sys.modules["__main__"].__name__,), {})
    assert b"__main__" in pickled.call.arguments, "a text that happens to be this is no reason to fail"


def test_what_is_mapped_may_itself_use_the_executor(pool: Executor) -> None:
    parts = [pool.submit(work.square, n) for n in range(3)]
    concurrent.futures.wait(parts, PATIENCE_S)
    assert list(pool.map(work.add, (pool.submit(abs, -n).result() for n in range(3)), parts)) == [0, 2, 6]


# -- tasks ------------------------------------------------------------------------------------------------


def test_a_future_knows_its_task_and_the_manager_knows_its_name(pool: Executor) -> None:
    future = pool.submit(work.square, 3, name="nine")
    assert future.result(PATIENCE_S) == 9
    job = int(future.task_id.partition(".")[0])
    assert pool._client is not None
    view = pool._client.job(job)
    assert view.name == "nine"
    assert view.command == "square(…)"


def test_calls_submitted_one_by_one_are_few_jobs(pool: Executor) -> None:
    futures = [pool.submit(work.square, n) for n in range(1500)]
    concurrent.futures.wait(futures, PATIENCE_S)
    assert len({future.task_id.partition(".")[0] for future in futures}) < 50


@pytest.mark.C(4)
def test_how_calls_are_gathered_can_be_set_by_number_and_by_time(pool: Executor) -> None:
    assert pool._client is not None
    url, token = pool._client.url, pool._client.twin._token
    with Executor(url, token=token, gather=(10, 3600.0)) as full:
        futures = [full.submit(abs, -n) for n in range(20)]
        jobs = {future.task_id.partition(".")[0] for future in futures if future.result(60) >= 0}
        assert len(jobs) == 2, "by number: nobody waited an hour"
    with Executor(url, token=token, gather=(1000, 0.0)) as soon:
        assert soon.submit(abs, -1).result(60) == 1
    with pytest.raises(UsageError, match="gather"):
        Executor(gather=(0, 1.0))


def test_resources_are_those_of_the_job(pool: Executor) -> None:
    future = pool.submit(work.square, 3, resources={"cpus": 0.5, "mem": "300M", "time": "1h"}, retries=2)
    assert future.result(PATIENCE_S) == 9
    assert pool._client is not None
    view = pool._client.job(int(future.task_id.partition(".")[0]))
    assert (view.cpus, view.mem_bytes, view.time_limit_s, view.retries) == (0.5, 300 * 2**20, 3600.0, 2)


def test_memory_that_is_too_little_for_an_interpreter_is_refused(pool: Executor) -> None:
    with pytest.raises(UsageError, match="at least 64 MB"):
        pool.submit(work.square, 3, resources={"mem": "10M"}).result(PATIENCE_S)
    assert pool.submit(work.square, 3, resources={"mem": "64M"}).result(PATIENCE_S) == 9


def test_an_unknown_resource_is_refused(pool: Executor) -> None:
    with pytest.raises(UsageError, match="'cpu' is not a resource"):
        pool.submit(work.square, 3, resources={"cpu": 2})


def test_a_crash_is_told_with_advice_and_the_pool_goes_on(pool: Executor) -> None:
    future = pool.submit(work.crash)
    error = future.exception(PATIENCE_S)
    assert isinstance(error, TaskFailed)
    assert f"tercel logs {future.task_id}" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (TaskFailed, str(error))
    assert pool.submit(work.square, 3).result(PATIENCE_S) == 9


def test_a_call_over_its_time_limit_is_told_so(pool: Executor, place: Path) -> None:
    error = pool.submit(work.hold, str(place), resources={"time": 0.3}).exception(PATIENCE_S)
    assert isinstance(error, TaskFailed)
    assert "time limit" in str(error)


def test_wait_is_woken_by_a_future_that_is_cancelled(pool: Executor, place: Path) -> None:
    held = [pool.submit(work.hold, str(place), str(n)) for n in range(2)]
    becomes(lambda: all(future.running() for future in held), "the slots are occupied")
    waiting = [pool.submit(work.square, n) for n in range(20)]
    threading.Timer(0.1, lambda: waiting[-1].cancel()).start()
    done, _ = concurrent.futures.wait(waiting, PATIENCE_S, FIRST_COMPLETED)
    assert done == {waiting[-1]}


# -- @task ------------------------------------------------------------------------------------------------


@task(cpus=0.5, retries=1)
def tripled(x: int) -> int:
    """Three times."""
    return 3 * x


def test_a_task_runs_here_when_it_is_called_and_in_the_innermost_executor_when_submitted(
    pool: Executor,
) -> None:
    assert isinstance(tripled, Task)
    assert (tripled(2), tripled.__doc__) == (6, "Three times.")
    assert tripled.submit(4).result(PATIENCE_S) == 12
    assert list(tripled.map(range(3))) == [0, 3, 6]
    future = pool.submit(tripled, 5)
    assert future.result(PATIENCE_S) == 15
    assert pool._client is not None
    view = pool._client.job(int(future.task_id.partition(".")[0]))
    assert (view.cpus, view.retries) == (0.5, 1)


# -- clients ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(pool: Executor) -> Iterator[Client]:
    assert pool._client is not None
    transport = pool._client.twin._connected()
    token = dict(transport._headers)["Authorization"].removeprefix("Bearer ")
    with Client(transport.url, token) as client:
        yield client


@pytest.mark.parametrize("chunksize", ["auto", 1, 7])
def test_a_client_maps_in_order(client: Client, chunksize: int | str) -> None:
    assert list(client.map(work.square, range(100), chunksize=chunksize)) == [n * n for n in range(100)]
    assert list(client.map(work.square, [], chunksize=chunksize)) == []


def test_a_mapping_raises_what_the_function_raised(client: Client) -> None:
    results = client.map(work.fail_at_three, range(6), chunksize=1)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_a_wrong_chunksize_is_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="chunksize"):
        next(client.map(work.square, range(3), chunksize="many"))


def test_progress_is_shown_on_stderr_if_asked_for(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    assert list(client.map(work.square, range(3), progress=True)) == [0, 1, 4]
    out, err = capfd.readouterr()
    assert out == ""
    assert "100%" in err


def test_a_command_is_submitted_waited_for_and_read(client: Client) -> None:
    job = client.submit_command("echo $((TERCEL_TASK_ID * 2))", array="0-4", name="twice", mem="1M")
    assert (job.tasks, job.wait().counts.finished) == (5, 5)
    assert [task.stdout for task in job.results()] == [f"{2 * n}\n" for n in range(5)]
    words = client.submit_command(["echo", "$HOME"])
    words.wait()
    assert [task.stdout for task in words.results()] == ["$HOME\n"]


# -- a pool of one's own ----------------------------------------------------------------------------------


def test_a_large_result_is_there_after_the_executor_is_gone() -> None:
    with Executor(workers=1) as own:
        future = own.submit(bytes, 1_000_000)
    assert future.result() == bytes(1_000_000)


def test_calls_run_where_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Executor(workers=1) as own:
        assert own.submit(os.getcwd).result(PATIENCE_S) == str(tmp_path)


def test_nothing_is_left_of_a_pool_nor_of_one_that_died() -> None:
    place = data_dir() / "executors"
    with Executor(workers=1) as own:
        own.submit(abs, -1).result(PATIENCE_S)
        left = list(place.iterdir())
        assert own._pool is not None
        assert own._pool._process is not None
        own._pool._process.kill()
        own._pool._process.wait()
        assert list(place.iterdir()) == left
    with Executor(workers=1) as other:
        other.submit(abs, -1).result(PATIENCE_S)
        assert not set(place.iterdir()) & set(left)
    assert list(place.iterdir()) == []


def test_the_death_of_the_pool_is_told_to_every_future(tmp_path: Path) -> None:
    with Executor(workers=1) as own:
        futures = [own.submit(work.hold, str(tmp_path)), own.submit(work.square, 1)]
        becomes(lambda: bool(futures[1].task_id), "they are submitted")
        assert own._pool is not None
        assert own._pool._process is not None
        own._pool._process.kill()
        for future in futures:
            with pytest.raises(TercelError, match="ended unexpectedly"):
                future.result(PATIENCE_S)
        with pytest.raises(TercelError, match="ended unexpectedly"):
            own.submit(work.square, 2).result(PATIENCE_S)


def test_no_access_file_is_left_for_others() -> None:
    with Executor(workers=1) as own:
        own.submit(abs, -1).result(PATIENCE_S)
        assert list(Path(os.environ["XDG_RUNTIME_DIR"]).rglob("access.json")) == []


SCRIPT = """
import os, sys, time
from tercel import Executor

def double(x):
    return 2 * x

def forever(place):
    open(os.path.join(place, "begun"), "w").close()
    time.sleep(600)

print("main", flush=True)
with Executor(workers=2) as ex:
    print(list(ex.map(double, range(3))), flush=True)
    if sys.argv[1:]:
        future = ex.submit(forever, sys.argv[1])
        print("waiting", flush=True)
        future.result()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def started(script: Path, *words: str) -> "subprocess.Popen[str]":
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SCRIPT": str(script)}
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def heard(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """All that it wrote, when it has ended. One that does not is killed: what it leaves would disturb other tests."""
    try:
        return process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        pytest.fail(f"it does not end; it wrote {err}")


def test_a_script_needs_no_guard_around_its_main_part(script: Path) -> None:
    out, err = heard(started(script))
    assert (out, err) == ("main\n[0, 2, 4]\n", "")


LEFT = """
import time
from tercel import Executor

def slow(x):
    time.sleep(0.5)
    return x

ex = Executor(workers=1)
ex.submit(slow, 7).add_done_callback(lambda future: print("told", future.result(), flush=True))
{end}
print("end of main", flush=True)
"""


@pytest.mark.parametrize("end", ["", "ex.shutdown(wait=False)"])
def test_what_a_script_leaves_behind_is_done_before_it_ends(tmp_path: Path, end: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(LEFT.format(end=end))
    out, err = heard(started(path))
    assert (out, err) == ("end of main\ntold 7\n", "")


def test_ctrl_c_ends_a_script_at_once_with_all_that_it_runs(script: Path, tmp_path: Path) -> None:
    process = started(script, str(tmp_path))
    becomes((tmp_path / "begun").exists, "the call runs")
    process.send_signal(signal.SIGINT)
    _, err = heard(process)
    assert "KeyboardInterrupt" in err
    assert process.returncode != 0
    becomes(lambda: marked(f"SCRIPT={script}\0") == {}, "nothing of it is left")


INTERRUPTED = """
import os, sys, time
from tercel import Executor

place = sys.argv[1]

def forever(n=0):
    open(os.path.join(place, f"begun-{n}"), "w").close()
    time.sleep(600)

"""
BODIES = {
    "in a map": "with Executor(workers=2) as ex: list(ex.map(forever, range(100)))",
    "leaving the block": "with Executor(workers=2) as ex: ex.submit(forever)",
    "in shutdown": "ex = Executor(workers=2); ex.submit(forever); ex.shutdown()",
    "before the answer to its cancelling": """
import asyncio
from tercel.sdk.calling import Calling
cancel = Calling.cancel

async def slowly(self, futures, **how):
    count = await cancel(self, futures, **how)
    await asyncio.sleep(1)
    return count

Calling.cancel = slowly
ex = Executor(workers=2); ex.submit(forever); ex.shutdown()""",
    "without a block": "ex = Executor(workers=2); ex.submit(forever).result()",
    "at the end": "ex = Executor(workers=2); ex.submit(forever)",
    "with others that wait": """with Executor(workers=2) as ex:
    last = ex.submit(forever)
    for _ in range(50):
        last = ex.submit(abs, last)
    last.result()""",
    "in a client's map": """with Executor(workers=2) as ex:
    ex.submit(int).result()
    list(ex._client.map(forever, range(10), chunksize=1))""",
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("where", BODIES)
def test_wherever_ctrl_c_meets_a_script_it_ends_and_nothing_is_left(
    tmp_path: Path, where: str, times: int
) -> None:
    path = tmp_path / "script.py"
    path.write_text(INTERRUPTED + BODIES[where])
    process = started(path, str(tmp_path))
    becomes((tmp_path / "begun-0").exists, "the call runs")
    for _ in range(times):
        process.send_signal(signal.SIGINT)
    _, err = heard(process)
    assert "KeyboardInterrupt" in err
    assert err.count("Traceback") <= times, err
    assert "RuntimeError" not in err
    becomes(lambda: marked(f"SCRIPT={path}\0") == {}, "nothing of it is left")


AGAIN = """
from tercel.sdk import executor

pending = executor.Executor._pending

def interrupted(self):
    executor.Executor._pending = pending
    raise KeyboardInterrupt

executor.Executor._pending = interrupted
with Executor(workers=2) as ex: ex.submit(forever).result()
"""


def test_a_second_ctrl_c_before_anything_was_cancelled_ends_the_script_too(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(INTERRUPTED + AGAIN)
    process = started(path, str(tmp_path))
    becomes((tmp_path / "begun-0").exists, "the call runs")
    process.send_signal(signal.SIGINT)
    _, err = heard(process)
    assert err.count("KeyboardInterrupt") >= 2
    becomes(lambda: marked(f"SCRIPT={path}\0") == {}, "nothing of it is left")


def test_a_script_that_is_killed_leaves_nothing_behind(script: Path, tmp_path: Path) -> None:
    process = started(script, str(tmp_path))
    becomes((tmp_path / "begun").exists, "the call runs")
    process.kill()
    process.communicate()
    becomes(lambda: marked(f"SCRIPT={script}\0") == {}, "nothing of it is left")


def test_an_executor_works_where_a_loop_is_running_already() -> None:
    async def cell() -> list[int]:
        with Executor(workers=1) as own:
            future = own.submit(abs, -4)
            return [future.result(PATIENCE_S), await asyncio.wrap_future(own.submit(abs, -5))]

    assert asyncio.run(cell()) == [4, 5]
