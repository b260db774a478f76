"""status, list, show, pool, explain, logs: for people and with --json."""

import pytest

from tercel.cli import main
from tercel.core.states import TaskState
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import (
    POOL,
    STATUS,
    FakeManager,
    Request,
    attempt,
    events,
    job,
    problem,
    stream,
    task,
)


def test_status_tells_manager_user_workers_and_jobs(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", STATUS)
    done = tercel("status")
    assert done.err == ""
    assert manager.url in done.out
    assert "ada (admin)" in done.out
    assert "1 job under way: 3 ready, 2 running, 5 finished" in done.out
    document = tercel("status", "--json").json
    assert (document["schema"], document["counts"]["running"], document["role"]) == (1, 2, "admin")


def test_list_pages_until_it_has_enough(tercel: Tercel, manager: FakeManager) -> None:
    def page(request: Request) -> api.JobList:
        last = int(request.query.get("before", ["3001"])[0])
        limit = int(request.query["limit"][0])
        ids = range(last - 1, max(0, last - 1 - limit), -1)
        return api.JobList(jobs=[job(id) for id in ids], more=last - 1 > limit)

    manager.says("GET", "/v1/jobs", page)
    document = tercel("list", "--all", "--limit", "2500", "--json").json
    assert [j["id"] for j in document["jobs"]] == list(range(3000, 500, -1))
    assert document["more"] is True
    assert manager.requests[0].query["all"] == ["true"]


def test_list_shows_aligned_columns_and_hides_control_characters(
    tercel: Tercel, manager: FakeManager
) -> None:
    jobs = [job(100, name="a\x1b[31m"), job(9, tasks=2, counts=api.Counts(running=2), ended_at=None)]
    manager.says("GET", "/v1/jobs", api.JobList(jobs=jobs, more=False))
    header, first, second = tercel("list").out.splitlines()
    assert header.split() == [
        *(
            "ID",
            "NAME",
            "OWNER",
            "TASKS",
            "WAITING",
            "READY",
            "RUNNING",
            "FINISHED",
            "FAILED",
            "CANCELLED",
            "AGE",
            "COMMAND",
        )
    ]
    assert first.startswith("100  a�[31m")
    assert second.startswith("  9  fit")
    assert len({line.index("./fit.sh") for line in (first, second)}) == 1


def test_an_empty_list_says_where_to_look(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[], more=False))
    done = tercel("list")
    assert (done.out, done.code) == ("", 0)
    assert "--all" in done.err
    assert tercel("list", "--json").json == {"schema": 1, "jobs": [], "more": False}


def test_show_of_a_job_names_its_failed_tasks(tercel: Tercel, manager: FakeManager) -> None:
    failed = task(3, state=TaskState.FAILED, why="exit code 7", exit_code=7)
    manager.says("GET", "/v1/jobs/37", job(counts=api.Counts(finished=9, failed=1)))
    manager.says("GET", "/v1/jobs/37/tasks", api.TaskList(tasks=[failed], more=False))
    done = tercel("show", "37")
    assert "37 (fit)" in done.out
    assert "9 finished, 1 failed" in done.out
    assert "37.3" in done.out
    document = tercel("show", "37", "--json").json
    assert document["id"] == 37
    assert document["failed_tasks"][0]["exit_code"] == 7


def test_show_of_a_task_has_every_attempt(tercel: Tercel, manager: FakeManager) -> None:
    lost = attempt(state=TaskState.READY, end="interrupted", note="worker lost")
    manager.says(
        "GET", "/v1/jobs/37/tasks/4", task(4, attempts=[lost, attempt(attempt=99)], why="exit code 0")
    )
    done = tercel("show", "37.4")
    assert "worker lost" in done.out
    assert "99" in done.out
    assert len(tercel("show", "37.4", "--json").json["attempts"]) == 2


def test_show_of_a_task_says_how_many_attempts_are_not_kept_any_more(
    tercel: Tercel, manager: FakeManager
) -> None:
    tried = [attempt(), attempt(attempt=99)]
    for left_out, says in ((431, "… 431 more attempts between these"), (1, "… 1 more attempt between")):
        manager.says("GET", "/v1/jobs/37/tasks/4", task(4, attempts=tried, left_out=left_out))
        assert tercel("show", "37.4").out.splitlines()[-1].startswith(says)
    manager.says("GET", "/v1/jobs/37/tasks/4", task(4, attempts=tried))
    assert "…" not in tercel("show", "37.4").out


def test_show_of_several_tasks_is_a_table(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37", job())
    manager.says("GET", "/v1/jobs/37/tasks", api.TaskList(tasks=[task(8), task(9)], more=False))
    assert [t["task"] for t in tercel("show", "37.8-20", "--json").json["tasks"]] == [8, 9]
    assert manager.asked("GET", "/v1/jobs/37/tasks")[0].query["tasks"] == ["8-9"]
    lines = [line.split()[:4] for line in tercel("show", "37.8-20").out.splitlines()]
    assert lines[0] == ["TASK", "STATE", "EXIT", "WORKER"], "how often it was tried is not known here"
    assert [line[0] for line in lines[1:]] == ["37.8", "37.9"]


@pytest.mark.parametrize("words", [("show", "--limit", "2000"), ("wait",), ("logs",)])
def test_many_ranges_are_asked_for_in_requests_that_servers_take(
    tercel: Tercel, manager: FakeManager, words: tuple[str, ...]
) -> None:
    """Every second number is a range of its own."""

    def page(request: Request) -> api.TaskList:
        assert len(request.query["tasks"][0]) < 2500
        numbers = map(int, request.query["tasks"][0].split(","))
        return api.TaskList(tasks=[task(number, stdout=f"{number}\n") for number in numbers], more=False)

    ended = [(number, number) for number in range(0, 2000, 2)]
    told = api.Event(job=37, counts=api.Counts(finished=1000), ended=ended, done=True)
    manager.says("GET", "/v1/jobs/37", job(tasks=1000, array="0-1999:2"))
    manager.says("GET", "/v1/jobs/37/tasks", page)
    manager.says("GET", "/v1/events", events(told))
    done = tercel(*words, "37.0-1999")
    assert (done.code, done.err) == (0, "")
    asked = manager.asked("GET", "/v1/jobs/37/tasks")
    assert ",".join(r.query["tasks"][0] for r in asked) == ",".join(map(str, range(0, 2000, 2)))


def test_tasks_that_a_job_does_not_have_are_said_to_be_missing(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37", job())
    done = tercel("show", "37.50-60")
    assert done.code == 2
    assert "job 37 has no task 50-60: its tasks are numbered 0 to 9" in done.err


def test_last_is_the_newest_job_even_if_it_has_ended(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[job(41)], more=True))
    manager.says("GET", "/v1/jobs/41", job(41))
    assert tercel("show", "last", "--json").json["id"] == 41
    manager.says("GET", "/v1/jobs/41/tasks/5", task(5))
    assert tercel("show", "last.5", "--json").json["task"] == 5
    assert manager.requests[0].query == {"limit": ["1"], "all": ["true"]}


def test_last_of_nothing_is_not_found(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[], more=False))
    done = tercel("show", "last")
    assert (done.code, done.err) == (2, "tercel: there is no job yet\n")


def test_a_range_of_jobs_shows_those_that_exist(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[job(5), job(3), job(1)], more=True))
    for id in (3, 5, 9):
        manager.says("GET", f"/v1/jobs/{id}", job(id))
    assert [d["id"] for d in tercel("show", "--json", "2-5,9").json_lines] == [3, 5, 9]
    assert manager.requests[0].query["before"] == ["6"]


def test_pool_hides_the_workers_that_are_gone(tercel: Tercel, manager: FakeManager) -> None:
    gone = api.WorkerView(
        id="old",
        node="vm",
        state="offline",
        since=0,
        cpus=1,
        mem_bytes=1,
        running=0,
        queued=0,
        completed=0,
        version="",
    )
    manager.says("GET", "/v1/pool", api.Pool(workers=[*POOL.workers, gone], online=1, cpus=2.0))
    done = tercel("pool")
    assert "vm-1" in done.out
    assert "old" not in done.out
    assert "1 gone" in done.err
    assert len(tercel("worker", "list", "--all", "--json").json["workers"]) == 2


def test_explain_gives_the_reason_and_its_parts(tercel: Tercel, manager: FakeManager) -> None:
    reasons = [
        api.Reason(state=TaskState.READY, count=3, text="waits for memory"),
        api.Reason(state=TaskState.RUNNING, count=12, text="runs"),
    ]
    manager.says("GET", "/v1/explain", api.Explanation(id="37", summary="3 wait", reasons=reasons))
    done = tercel("explain", "37")
    assert done.out.splitlines() == ["37: 3 wait", "   3 ready: waits for memory", "  12 running: runs"]
    assert tercel("explain", "37", "--json").json["reasons"][0]["count"] == 3


@pytest.mark.parametrize(
    ("summary", "headline"),
    [
        ("3 ready: waits for memory; 2 running: runs; 1 ready: is behind", "4 ready, 2 running"),
        ("ended: 1 finished, 5 failed; waits for memory; runs; is behind", "ended: 1 finished, 5 failed"),
    ],
)
def test_explain_says_no_reason_twice(
    tercel: Tercel, manager: FakeManager, summary: str, headline: str
) -> None:
    reasons = [
        api.Reason(state=TaskState.READY, count=3, text="waits for memory"),
        api.Reason(state=TaskState.RUNNING, count=2, text="runs"),
        api.Reason(state=TaskState.READY, count=1, text="is behind"),
    ]
    manager.says("GET", "/v1/explain", api.Explanation(id="37", summary=summary, reasons=reasons))
    lines = tercel("explain", "37").out.splitlines()
    assert (lines[0], len(lines)) == (f"37: {headline}", 4)


@pytest.mark.parametrize(("command", "word"), [("cancel", "cancelled"), ("retry", "retried")])
def test_cancel_and_retry_send_each_selector_and_print_the_count(
    tercel: Tercel, manager: FakeManager, command: str, word: str
) -> None:
    manager.says("POST", f"/v1/{command}", api.Counted(count=10))
    done = tercel(command, "37.0-9,12", "1-5,9", "last")
    assert done.out.startswith("10 tasks ")
    assert manager.requests[0].json()["select"] == ["37.0-9,12", "1-5", "9", "last"]
    assert tercel(command, "37", "--json").json == {"schema": 1, word: 10}


def test_a_retry_of_nothing_says_how_cancelled_tasks_are_run_again(
    tercel: Tercel, manager: FakeManager
) -> None:
    manager.says("POST", "/v1/retry", api.Counted(count=0))
    done = tercel("retry", "37")
    assert done.out == "0 tasks will run again\n"
    assert "cancelled ones run again if they are named, as in 37.0-9" in done.err


def test_workers_are_drained_by_id(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/workers/vm-1/drain", api.Counted(count=1))
    assert tercel("worker", "drain", "vm-1").out.startswith("1 worker will leave")


# -- logs -------------------------------------------------------------------------------------------------


def test_logs_of_one_task_are_its_bytes(
    manager: FakeManager, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    manager.says("GET", "/v1/jobs/37/tasks/9/logs", stream(b"a\xff\x00", b"b"))
    manager.says("GET", "/v1/jobs/37/tasks/9", task(9, attempts=[attempt(out_bytes=4)]))
    assert main(["logs", "37.9"]) == 0
    assert capfdbinary.readouterr().out == b"a\xff\x00b"


def test_a_character_that_arrives_in_two_pieces_is_one_in_json(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37/tasks/9/logs", stream(b"caf\xc3", b"\xa9\xff", b"\xe2\x82"))
    manager.says("GET", "/v1/jobs/37/tasks/9", task(9, attempts=[attempt(out_bytes=8)]))
    lines = tercel("logs", "37.9", "--json").json_lines
    assert "".join(line["text"] for line in lines) == "café\ufffd\ufffd"


def test_logs_of_a_job_are_byte_for_byte_too(
    manager: FakeManager, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    manager.says("GET", "/v1/jobs/37", job(tasks=1))
    manager.says("GET", "/v1/jobs/37/tasks", api.TaskList(tasks=[task(0, stdout="\ufffd")], more=False))
    manager.says("GET", "/v1/jobs/37/tasks/0/logs", stream(b"\xff\n"))
    manager.says("GET", "/v1/jobs/37/tasks/0", task(0, attempts=[attempt(out_bytes=2)]))
    assert main(["logs", "37"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\n"
    manager.says("GET", "/v1/jobs/37", job(tasks=2))
    page = api.TaskList(tasks=[task(0, stdout="\ufffd"), task(1, stdout="b\n")], more=False)
    manager.says("GET", "/v1/jobs/37/tasks", page)
    assert main(["logs", "37"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\nb\n"
    assert main(["logs", "37", "--label"]) == 0
    assert capfdbinary.readouterr().out == b"37.0: \xff\n37.1: b\n"


def test_logs_say_what_the_output_does_not_tell(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37/tasks/9/logs", stream(b""))
    manager.says("GET", "/v1/jobs/37/tasks/9", task(9, attempts=[attempt(out_bytes=0, err_bytes=120)]))
    assert "120 B on the other stream (with --stderr)" in tercel("logs", "37.9").err
    manager.says("GET", "/v1/jobs/37/tasks/9/logs", stream(b"end"))
    manager.says("GET", "/v1/jobs/37/tasks/9", task(9, attempts=[attempt(out_bytes=2**30, out_cut=True)]))
    assert "wrote 1.0 GiB; only the end was kept" in tercel("logs", "37.9").err
    manager.says("GET", "/v1/jobs/37/tasks/9/logs", stream(b""))
    manager.says("GET", "/v1/jobs/37/tasks/9", task(9, state=TaskState.READY, why="waits for a worker"))
    assert "37.9 is ready and has written nothing: waits for a worker" in tercel("logs", "37.9").err


def test_logs_follow_and_stderr_are_asked_for(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37/tasks/9/logs", stream(b"1\n", b"2\n"))
    manager.says("GET", "/v1/jobs/37/tasks/9", task(9, attempts=[attempt()]))
    done = tercel("logs", "37.9", "--follow", "--stderr", "--json")
    assert [(d["id"], d["stream"], d["text"]) for d in done.json_lines] == [
        ("37.9", "stderr", "1\n"),
        ("37.9", "stderr", "2\n"),
    ]
    assert manager.requests[0].query == {"stream": ["err"], "follow": ["true"]}


def test_logs_of_a_job_are_those_of_all_its_tasks(tercel: Tercel, manager: FakeManager) -> None:
    manager.says(
        "GET",
        "/v1/jobs/37/tasks",
        api.TaskList(tasks=[task(0, stdout="a\n"), task(1, stdout="b")], more=True),
        api.TaskList(tasks=[task(2, stdout="", stderr="e"), task(3, stdout="c\nd\n")], more=False),
    )
    assert tercel("logs", "37", "--label").out == "37.0: a\n37.1: b\n37.3: c\n37.3: d\n"
    assert manager.requests[1].query["after"] == ["1"]
    assert tercel("logs", "37", "--follow").code == 2


def test_following_a_job_of_one_task_follows_that_task(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37", job(tasks=1))
    manager.says("GET", "/v1/jobs/37/tasks", api.TaskList(tasks=[task(0)], more=False))
    manager.says("GET", "/v1/jobs/37/tasks/0/logs", stream(b"hi\n"))
    manager.says("GET", "/v1/jobs/37/tasks/0", task(0, attempts=[attempt()]))
    assert tercel("logs", "37", "-f").out == "hi\n"


def test_logs_of_what_does_not_exist(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37/tasks/9/logs", problem(404, "job 37 has no task 9"))
    assert tercel("logs", "37.9") == (2, "", "tercel: job 37 has no task 9\n")


@pytest.mark.K(17)
def test_status_tells_of_a_job_or_the_pool_too(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/1", job(1))
    manager.says("GET", "/v1/jobs/1/tasks", api.TaskList(tasks=[], more=False))
    manager.says("GET", "/v1/pool", POOL)
    assert tercel("status", "1").out == tercel("show", "1").out != ""
    assert tercel("status", "pool").out == tercel("pool").out != ""
    assert tercel("status", "nonsense").code == 2
