"""What changes jobs and queues that are there: hold, release, reprioritise, retry, cancel, clone, queue."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.grids import Axis, Grid
from tercel.core.model import After, Call, Function
from tercel.core.scripts import starting
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import STATUS, FakeManager, job, problem
from tests.cli.test_errors import one_line
from tests.cli.test_startup import completed

SWEEP = api.Submission(
    line="fit {C} {g}",
    name="svm",
    template=True,
    grid=Grid(axes=(Axis(name="C", values=("1", "2")), Axis(name="g", values=("0", "0.5", "1")))),
    cwd="/data",
    key="of the first one",
)
VISION = api.QueueView(
    name="vision",
    owner="ada",
    weight=3.0,
    max_running=200,
    max_queued=0,
    user_max=50,
    paused="",
    jobs=2,
    ready=1000,
    waiting=7,
    running=12,
    usage=90.0,
    share=0.9,
    fair=0.75,
)


def sent(manager: FakeManager, method: str, path: str) -> Any:
    [request] = manager.asked(method, path)
    return request.json()


# -- hold, release, reprioritise, retry, cancel -----------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "path", "says", "document"),
    [
        (["hold", "37", "38.0-9,12"], "/v1/hold", "3 tasks held\n", {"held": 3}),
        (["release", "37", "38.0-9,12"], "/v1/release", "3 tasks released\n", {"released": 3}),
        (["cancel", "37", "38.0-9,12"], "/v1/cancel", "3 tasks cancelled\n", {"cancelled": 3}),
        (["retry", "37", "38.0-9,12"], "/v1/retry", "3 tasks will run again\n", {"retried": 3}),
    ],
)
def test_what_is_chosen_is_sent_and_what_became_of_it_is_told(
    tercel: Tercel, manager: FakeManager, words: list[str], path: str, says: str, document: dict[str, int]
) -> None:
    manager.says("POST", path, api.Counted(count=3))
    done = tercel(*words)
    assert (done.code, done.out, done.err) == (0, says, "")
    assert sent(manager, "POST", path)["select"] == ["37", "38.0-9,12"]
    assert tercel(*words, "--json").json == {"schema": 1, **document}


@pytest.mark.parametrize(
    ("words", "path", "says"),
    [
        (["hold", "37"], "/v1/hold", "no chosen task waits"),
        (["release", "37"], "/v1/release", "no chosen task is held"),
        (["reprioritise", "37", "--to", "5"], "/v1/revise", "no chosen job is unfinished"),
        (["revise", "37", "--gpus", "0"], "/v1/revise", "no chosen job is unfinished"),
        (["retry", "37"], "/v1/retry", "no chosen task has failed"),
        (["retry", "37", "--all"], "/v1/retry", "no chosen task has ended"),
    ],
)
def test_a_change_that_changes_nothing_says_why(
    tercel: Tercel, manager: FakeManager, words: list[str], path: str, says: str
) -> None:
    manager.says("POST", path, api.Counted(count=0))
    done = tercel(*words)
    assert done.code == 0
    assert says in done.err


def test_reprioritise_tells_jobs_and_priority(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/revise", api.Counted(count=2))
    done = tercel("reprioritise", "37", "40-42", "--to", "5")
    assert (done.code, done.out) == (0, "2 jobs now of priority 5\n")
    body = sent(manager, "POST", "/v1/revise")
    assert (body["select"], body["priority"], body["mem_bytes"]) == (["37", "40-42"], 5, None)
    document = tercel("reprioritise", "37", "--to", "5", "--json").json
    assert document == {"schema": 1, "revised": 2, "priority": 5}


def test_revise_changes_what_is_named_and_takes_requirements_away(
    tercel: Tercel, manager: FakeManager
) -> None:
    manager.says("POST", "/v1/revise", api.Counted(count=1))
    words = (
        "--mem",
        "8G",
        "--requires",
        "",
        "--where",
        "",
        "--rank",
        "worker.speed",
        "--resource",
        "licence.x=2",
    )
    done = tercel("revise", "37", *words)
    assert (done.code, done.out) == (0, "1 job revised\n")
    body = sent(manager, "POST", "/v1/revise")
    given = {
        name: value
        for name, value in body.items()
        if value is not None and name not in ("reason", "unstarted")
    }
    assert given == {
        "select": ["37"],
        "mem_bytes": 8 * 2**30,
        "requires": [],
        "where": "",
        "rank": "worker.speed",
        "resources": {"licence.x": 2},
    }


def test_retry_with_more_memory_and_time(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/retry", api.Counted(count=1))
    tercel("retry", "37", "--failed", "--with-mem", "2G", "--with-time", "2h")
    body = sent(manager, "POST", "/v1/retry")
    assert (body["all"], body["mem_bytes"], body["time_limit_s"]) == (False, 2 * 2**30, 7200.0)


def test_retry_of_all_runs_finished_tasks_too(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/retry", api.Counted(count=1))
    tercel("retry", "37", "--all")
    assert sent(manager, "POST", "/v1/retry")["all"] is True


def test_a_cancel_gives_its_reason(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/cancel", api.Counted(count=100))
    assert tercel("cancel", "37.0-99", "--reason", "wrong data").out == "100 tasks cancelled\n"
    body = sent(manager, "POST", "/v1/cancel")
    assert (body["select"], body["reason"]) == (["37.0-99"], "wrong data")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["hold"], "SELECT"),
        (["hold", "37.x"], "selects nothing: write 37"),
        (["release", "x"], "selects nothing"),
        (["reprioritise", "37"], "--to"),
        (["revise", "37"], "nothing is to change"),
        (["revise", "37", "--gpus", "many"], "--gpus: 'many' is not a number"),
        (["reprioritise", "37", "--to", "soon"], "'soon' is not a valid integer"),
        (["retry", "37", "--failed", "--all"], "--failed and --all exclude each other"),
        (["retry", "37", "--with-mem", "much"], "'much' is not a size"),
        (["retry", "37", "--with-time", "soon"], "'soon' is not a time"),
        (["clone"], "JOB"),
        (["queue", "create"], "NAME"),
        (["queue", "create", "a b"], "'a b' is no name for a queue"),
        (["queue", "set", "vision", "--weight", "much"], "'much' is not a valid float"),
        (["queue", "set", "vision"], "nothing to change: give --weight"),
        (["queue", "psuae", "vision"], "there is no command 'psuae'; did you mean 'pause'?"),
        (["queue", "remove", "../tokens"], "is no name for a queue"),
    ],
)
def test_wrong_usage_asks_the_manager_nothing(
    tercel: Tercel, manager: FakeManager, words: list[str], says: str
) -> None:
    done = tercel(*words)
    assert (done.code, done.out) == (2, "")
    assert one_line(done.err), done.err
    assert says in done.err
    assert manager.requests == []


# -- clone ------------------------------------------------------------------------------------------------


@pytest.fixture
def cloneable(manager: FakeManager) -> FakeManager:
    manager.says("GET", "/v1/jobs/37/submission", SWEEP)
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[job(37)], more=False))
    manager.says("POST", "/v1/jobs", api.Submitted(id=38, tasks=3, name="svm"))
    return manager


def test_a_clone_is_a_job_of_its_own_with_the_settings_changed(
    tercel: Tercel, cloneable: FakeManager
) -> None:
    done = tercel("clone", "37", "--set", "C=5", "--set", "mem=4G", "--set", "time=1h", "--set", "after=7")
    assert (done.code, done.out) == (0, "38\n")
    assert "job 38: 3 tasks, like job 37" in done.err
    [request] = cloneable.asked("POST", "/v1/jobs")
    body = request.json()
    assert body.pop("key") != SWEEP.key
    assert body.pop("grid") == {
        "axes": [{"name": "C", "values": ["5"]}, {"name": "g", "values": ["0", "0.5", "1"]}]
    }
    assert body.pop("after") == [{"job": 7}]
    assert body == {
        "line": "fit {C} {g}",
        "name": "svm",
        "template": True,
        "cwd": "/data",
        "mem_bytes": 4 * 2**30,
        "time_limit_s": 3600.0,
    }


def test_a_clone_of_the_last_job_is_told_as_json(tercel: Tercel, cloneable: FakeManager) -> None:
    assert tercel("clone", "last", "--json").json == {"schema": 1, "id": 38, "tasks": 3, "cloned": 37}


def test_a_dry_clone_shows_what_would_run_and_submits_nothing(tercel: Tercel, cloneable: FakeManager) -> None:
    done = tercel("clone", "37", "--set", "C=5", "--dry-run")
    assert done.code == 0
    assert "Nothing is submitted" in done.out
    assert "fit 5 0.5" in done.out
    document = tercel("clone", "37", "--set", "C=5", "--set", "g=0:1:0.25", "--dry-run", "--json").json
    assert (document["count"], document["first"][:2]) == (5, ["fit 5 0", "fit 5 0.25"])
    assert cloneable.asked("POST", "/v1/jobs") == []


def test_values_of_a_clone_may_be_files_where_its_tasks_run(
    tercel: Tercel, cloneable: FakeManager, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "data" / name).touch()
    cloneable.says(
        "GET", "/v1/jobs/37/submission", api.Submission(**{**_fields(SWEEP), "cwd": str(tmp_path / "data")})
    )
    document = tercel("clone", "37", "--set", "C=*.csv", "--set", "g=1", "--dry-run", "--json").json
    assert document["first"] == ["fit a.csv 1", "fit b.csv 1"]


def test_a_function_and_a_script_are_shown_by_their_names(tercel: Tercel, cloneable: FakeManager) -> None:
    function = api.Submission(
        function=Function(code=b"\xff", name="simulate"), calls=[Call(b"\x80"), Call(b"")]
    )
    cloneable.says("GET", "/v1/jobs/37/submission", function)
    done = tercel("clone", "37", "--dry-run")
    assert (done.code, "simulate(…)" in done.out) == (0, True)
    assert tercel("clone", "37", "--dry-run", "--json").json["first"] == ["simulate(…)"] * 2
    assert tercel("clone", "37").code == 0
    [request] = cloneable.asked("POST", "/v1/jobs")
    sent = msgspec.msgpack.decode(request.body, type=api.Submission)
    assert (sent.function, sent.calls) == (function.function, function.calls)
    script = api.Submission(argv=(*starting("job.sh", "#!/bin/sh\n"), "--fast"))
    cloneable.says("GET", "/v1/jobs/37/submission", script)
    assert tercel("clone", "37", "--dry-run", "--json").json["first"] == ["job.sh --fast"]


def _fields(submission: api.Submission) -> dict[str, Any]:
    return {name: getattr(submission, name) for name in submission.__struct_fields__}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("C", "--set 'C': write NAME=VALUE"),
        ("=5", "--set '=5': write NAME=VALUE"),
        ("D=5", "--set D: there is C, g, name, array"),
        ("C=", "C"),
        ("C=1:2:0", "C"),
        ("mem=much", "--set mem: 'much' is not a size"),
        ("cpus=x", "--set cpus: 'x' is not a number"),
        ("cpus=-1", "--set cpus: -1 is not between"),
        ("priority=1.5", "--set priority: '1.5' is not a whole number"),
        ("queue=a b", "--set queue: 'a b' is no name for a queue"),
        ("max_fails=lots", "--set max_fails: 'lots' is not a number of tasks"),
        ("on_failure=cry", "--set on_failure: 'cry' is not one of"),
        ("array=0-99", "the points of this sweep are numbered 0 to 5"),
    ],
)
def test_a_setting_that_cannot_be_submits_nothing(
    tercel: Tercel, cloneable: FakeManager, setting: str, says: str
) -> None:
    done = tercel("clone", "37", "--set", setting)
    assert (done.code, done.out) == (2, "")
    assert one_line(done.err), done.err
    assert says in done.err
    assert cloneable.asked("POST", "/v1/jobs") == []


def test_tasks_are_not_cloned(tercel: Tercel, cloneable: FakeManager) -> None:
    done = tercel("clone", "37.4")
    assert done.code == 2
    assert "clone a whole job, as in 37" in done.err
    assert cloneable.asked("POST", "/v1/jobs") == []


def test_a_clone_of_what_is_not_there_says_so(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/9/submission", problem(404, "there is no job 9"))
    done = tercel("clone", "9")
    assert (done.code, done.err) == (2, "tercel: there is no job 9\n")


# -- queues -----------------------------------------------------------------------------------------------


@pytest.fixture
def queues(manager: FakeManager) -> FakeManager:
    manager.says("GET", "/v1/queues", api.QueueList(queues=[VISION]))
    manager.says("PUT", "/v1/queues/vision", VISION)
    manager.says("GET", "/v1/status", STATUS)
    return manager


def test_a_queue_is_made_with_weight_and_caps(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/queues", api.QueueList(queues=[]))
    manager.says("PUT", "/v1/queues/vision", VISION)
    done = tercel("queue", "create", "vision", "--weight", "3", "--max-running", "200", "--user-max", "50")
    assert done.code == 0
    assert done.out.splitlines() == [
        "queue        vision",
        "weight       3",
        "under way    12 of at most 200",
        "of one user  at most 50 under way",
        "jobs         2 jobs",
    ]
    body = sent(manager, "PUT", "/v1/queues/vision")
    assert (body["weight"], body["max_running"], body["max_queued"], body["user_max"]) == (3.0, 200, None, 50)
    assert body["paused"] is None


def test_a_queue_that_is_there_is_not_made_again(tercel: Tercel, queues: FakeManager) -> None:
    done = tercel("queue", "create", "vision", "--weight", "2")
    assert done.code == 2
    assert done.err == "tercel: there is a queue vision already: `tercel queue set vision` changes it\n"
    assert queues.asked("PUT", "/v1/queues/vision") == []


@pytest.mark.parametrize("words", [("set", "--weight", "2"), ("pause",), ("resume",)])
def test_a_queue_that_is_not_there_is_not_changed(
    tercel: Tercel, queues: FakeManager, words: tuple[str, ...]
) -> None:
    done = tercel("queue", words[0], "visoin", *words[1:])
    assert done.code == 2
    assert done.err == "tercel: there is no queue visoin: see `tercel queue list`\n"
    assert not [request for request in queues.requests if request.method == "PUT"]


def test_the_own_queue_is_there_before_the_first_job(tercel: Tercel, queues: FakeManager) -> None:
    queues.says("PUT", "/v1/queues/ada", VISION)
    assert tercel("queue", "pause", "ada").code == 0
    assert sent(queues, "PUT", "/v1/queues/ada")["paused"] is True


def test_of_a_queue_only_what_is_named_changes(tercel: Tercel, queues: FakeManager) -> None:
    assert tercel("queue", "set", "vision", "--max-queued", "1000").code == 0
    body = sent(queues, "PUT", "/v1/queues/vision")
    assert {name: value for name, value in body.items() if value not in (None, "")} == {"max_queued": 1000}


def test_a_queue_is_paused_for_a_reason_and_resumed(tercel: Tercel, queues: FakeManager) -> None:
    tercel("queue", "pause", "vision", "--reason", "new disks")
    tercel("queue", "resume", "vision")
    paused, resumed = (request.json() for request in queues.asked("PUT", "/v1/queues/vision"))
    assert (paused["paused"], paused["reason"], paused["weight"]) == (True, "new disks", None)
    assert resumed["paused"] is False


@pytest.mark.parametrize("words", [("queue",), ("queue", "list")])
def test_queues_are_listed_with_how_they_share(
    tercel: Tercel, queues: FakeManager, words: tuple[str, ...]
) -> None:
    header, row = tercel(*words).out.splitlines()
    assert header.split() == [
        "QUEUE",
        "WEIGHT",
        "JOBS",
        "UNDER",
        "WAY",
        "READY",
        "WAITING",
        "HAD",
        "FAIR",
        "CAPS",
        "NOTE",
    ]
    assert row.split("  ")[0] == "vision"
    assert row.split()[1:8] == ["3", "2", "12", "1000", "7", "90%", "75%"]
    assert row.endswith("running 200, of one user 50")
    document = tercel(*words, "--json").json
    assert document["queues"][0]["fair"] == 0.75


def test_no_queues_yet(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/queues", api.QueueList(queues=[]))
    done = tercel("queue", "list")
    assert (done.code, done.out) == (0, "")
    assert "each user gets one with the first job" in done.err


def test_a_queue_is_removed(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("DELETE", "/v1/queues/vision", api.Counted(count=1))
    assert tercel("queue", "remove", "vision").out == "queue vision is gone\n"
    assert tercel("queue", "remove", "vision", "--json").json == {"schema": 1, "removed": "vision"}


@pytest.mark.parametrize(("status", "kind"), [(400, "usage"), (403, "forbidden"), (404, "not_found")])
def test_what_the_manager_refuses_is_told_in_one_line(
    tercel: Tercel, queues: FakeManager, status: int, kind: str
) -> None:
    refusal = problem(status, "queue vision: not so")
    queues.says("PUT", "/v1/queues/vision", refusal)
    queues.says("DELETE", "/v1/queues/vision", refusal)
    for words in (["set", "vision", "--weight", "1"], ["pause", "vision"], ["remove", "vision"]):
        done = tercel("queue", *words, "--json")
        assert (done.code, done.err) == (2, "tercel: queue vision: not so\n")
        assert done.json["kind"] == kind


# -- what is shown ----------------------------------------------------------------------------------------


def test_show_of_a_job_tells_where_and_how_its_tasks_run(tercel: Tercel, manager: FakeManager) -> None:
    placed = job(37, gpus=0.5, resources={"licence.x": 2}, requires=["STAR", "gpu"], where="worker.cpus > 1")
    fields = {
        "cleanup": "./wipe.sh",
        "sandbox": "keep",
        "pids": 64,
        "mem_growth": 1.5,
        "warn_signal": "USR1@120",
    }
    manager.says("GET", "/v1/jobs/37", msgspec.structs.replace(placed, **fields))
    told = tercel("show", "37").out
    for words in (
        "0.5 gpus, 2 licence.x",
        "STAR, gpu",
        "worker.cpus > 1",
        "64 processes, memory grows by 1.5",
        "USR1@120",
        "./wipe.sh, killed after 10",
        "keep",
    ):
        assert words in told


def test_show_of_a_job_tells_queue_flow_and_what_it_waits_for(tercel: Tercel, manager: FakeManager) -> None:
    after = [After(job=35), After(job=36, tasks=((0, 9),), each=True)]
    manager.says(
        "GET",
        "/v1/jobs/37",
        job(counts=api.Counts(waiting=10), queue="vision", flow=35, after=after, max_fails="5%"),
    )
    lines = tercel("show", "37").out.splitlines()
    facts = dict(line.split("  ", 1) for line in lines)
    shown = {name: facts[name].strip() for name in ("queue", "flow", "after", "most failures", "next")}
    assert shown == {
        "queue": "vision",
        "flow": "35",
        "after": "35 (ok), 36.0-9 (ok, task by task)",
        "most failures": "5%",
        "next": "`tercel explain 37` says why tasks wait",
    }


def test_tasks_that_wait_or_are_held_are_counted_in_a_list(tercel: Tercel, manager: FakeManager) -> None:
    waiting = job(9, tasks=10, counts=api.Counts(waiting=4, paused=3, ready=3), ended_at=None)
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[waiting], more=False))
    header, row = (line.split() for line in tercel("list").out.splitlines())
    assert dict(zip(header, row, strict=False))["WAITING"] == "7"


def test_completion_knows_what_changes_jobs_and_queues() -> None:
    assert set(completed("tercel re")) == {"results", "release", "retry", "reprioritise", "reserve", "revise"}
    assert completed("tercel h") == ["history", "hold"]
    assert completed("tercel queue ") == ["list", "create", "set", "pause", "resume", "remove"]
    assert completed("tercel queue create --w") == ["--weight"]
    assert completed("tercel retry --with") == ["--with-mem", "--with-time"]
    assert completed("tercel clone --d") == ["--dry-run"]
