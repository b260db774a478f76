"""tercel blocked, and what other commands say of blocked tasks: what they ask for, and what they print."""

import re
import threading
import time
from pathlib import Path

import pytest

from tercel.cli import blockage
from tercel.core.conditions import Place
from tercel.core.model import BlockRule
from tercel.core.states import Stage, TaskState
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import (
    STATUS,
    FakeManager,
    attempt,
    condition,
    events,
    job,
    problem,
    stream,
    task,
)

COUNTED = api.Counted(count=12)
RULE = "exit:75 -> tcp:licence.lab:27000; every 2m for 12h"


def says(manager: FakeManager, *conditions: api.ConditionView, more: bool = False) -> None:
    manager.says("GET", "/v1/conditions", api.ConditionList(conditions=list(conditions), more=more))
    for one in conditions:
        manager.says("GET", f"/v1/conditions/{one.id}", one)


# -- looking ----------------------------------------------------------------------------------------------


def test_one_row_tells_of_each_condition(tercel: Tercel, manager: FakeManager) -> None:
    says(
        manager,
        condition(
            4, place=Place.MANAGER, where="", job_count=1, tasks=1, tests=0, tested_at=None, testing=True
        ),
        condition(3),
    )
    assert tercel("blocked").out.splitlines() == [
        "ID  WAITS FOR              WHERE      TASKS         TESTS  LAST TEST                    NEXT TEST     GIVES UP",
        "C4  tcp:licence.lab:27000  manager    1 of job 37       0                               being tested  in 2 d",
        "C3  tcp:licence.lab:27000  site lab1  12 of 2 jobs     60  2 h ago: connection refused  in 3 h        in 2 d",
    ]
    assert tercel("blocked", "--json").json["conditions"][1]["id"] == 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"place": Place.WORKER, "where": "w1"}, "worker w1"),
        ({"where": "*"}, "a worker"),
        ({"where": ""}, "a worker"),
        ({"place": Place.HERE, "where": ""}, "manager"),
        ({"paused": "paused by ada", "next_test_at": None}, "paused by ada"),
        (
            {"next_test_at": 5.0, "next": "it is tested when a worker is connected"},
            "it is tested when a worker",
        ),
    ],
)
def test_it_says_where_and_when_it_is_tested(
    tercel: Tercel, manager: FakeManager, more: dict[str, object], said: str
) -> None:
    says(manager, condition(**more))
    assert said in tercel("blocked").out.splitlines()[1]


def test_closed_ones_are_shown_when_asked_for(tercel: Tercel, manager: FakeManager) -> None:
    gone = condition(
        closed_at=time.time() - 7230, closed="cleared", tasks=0, job_count=0, jobs=[], next_test_at=None
    )
    says(manager, gone)
    assert tercel("blocked", "--all").out.splitlines()[1].endswith("2 h ago: cleared")
    assert manager.asked("GET", "/v1/conditions")[-1].query["all"] == ["true"]
    says(manager)
    none = tercel("blocked")
    assert (none.out, none.code) == ("", 0)
    assert "nothing is blocked" in none.err


@pytest.mark.parametrize("width", [80, 100, 120, 400])
def test_on_a_narrow_terminal_nothing_that_matters_is_cut_off(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    tester = "command:/opt/lab/bin/check-licence --server licence.lab --product matlab --seats 12 --quiet"
    no_worker = "it is tested when a worker of site lab1 is connected"
    says(
        manager,
        condition(12345, tester=tester, tasks=1_204_332, job_count=1204),
        condition(4, place=Place.WORKER, where="w7", next_test_at=5.0, next=no_worker, gives_up_at=None),
        condition(3, paused="paused by ada", next_test_at=None, note="x" * 200),
    )
    out = tercel("blocked").out
    rows = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert rows == ["ID", "C12345", "C4", "C3"]
    assert len(out.splitlines()) == 4 or width < 400
    assert max(map(len, out.splitlines())) <= width
    first = out.splitlines()[1]
    for important in ("C12345", "command:", "iet", "1,204,332", "in 3 h", "in 2 d"):
        assert important in first
    assert "site lab1" in out and "worker w7" in out
    assert "of 1,204 jobs" in out
    assert "60 tests" in out or width == 400
    assert no_worker in out
    assert "never" in out and "paused by ada" in out
    assert tester in tercel("blocked", "C12345").out


def test_what_the_last_test_saw_is_whole_on_a_narrow_terminal_and_of_one_condition(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    says(
        manager,
        condition(note="licence.lab:27000: connection refused", place=Place.WORKER, where="node-17-a37d94"),
    )
    assert "licence.lab:27000: connection refused" in " ".join(tercel("blocked").out.split())
    long = "licence.lab:27000: connection refused; tasks met the fault again" + 3 * ", and again"
    says(manager, condition(note=long))
    assert long in tercel("blocked", "C3").out


def test_of_closed_ones_a_narrow_terminal_shows_why(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    gone = condition(closed_at=time.time() - 7230, closed="cleared", tasks=0, job_count=0, jobs=[])
    says(manager, gone)
    row, below = tercel("blocked", "--all").out.splitlines()[1:]
    assert row.split()[:3] == ["C3", "tcp:licence.lab:27000", "closed"]
    assert below.split("; ")[0].strip() == "2 h ago: cleared"


def test_long_lists_come_in_pages(tercel: Tercel, manager: FakeManager) -> None:
    first = api.ConditionList(conditions=[condition(9), condition(8)], more=True)
    manager.says("GET", "/v1/conditions", first, api.ConditionList(conditions=[condition(7)], more=True))
    listed = tercel("blocked", "--limit", "3")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["ID", "C9", "C8", "C7"]
    assert "there are more" in listed.err
    assert manager.asked("GET", "/v1/conditions")[1].query["before"] == ["8"]


def test_one_condition_is_shown_with_its_jobs(tercel: Tercel, manager: FakeManager) -> None:
    says(manager, condition())
    told = tercel("blocked", "c3").out
    assert "12 tasks of 2 jobs: 37.0-9, 38.4,7" in told
    assert "every 1m for 2d" in told and "10 tasks" in told
    assert tercel("blocked", "3", "--json").json["conditions"][0]["tests"] == 60


# -- deciding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "path", "body", "out", "document"),
    [
        (("test", "C3"), "test", None, "C3: being tested\n", {"tested": [3]}),
        (
            ("release", "3"),
            "release",
            {"count": 0},
            "12 tasks released\n",
            {"released": 12, "conditions": [3]},
        ),
        (
            ("release", "C3", "--count", "5"),
            "release",
            {"count": 5},
            "12 tasks released\n",
            {"released": 12, "conditions": [3]},
        ),
        (
            ("fail", "C3", "--why", "no budget"),
            "fail",
            {"why": "no budget"},
            "12 tasks failed\n",
            {"failed": 12, "conditions": [3]},
        ),
        (
            ("pause", "C3"),
            "pause",
            None,
            "C3: paused; `tercel blocked resume C3` goes on\n",
            {"paused": [3], "changed": 12},
        ),
        (("resume", "C3"), "resume", None, "C3: tested again\n", {"resumed": [3], "changed": 12}),
    ],
)
def test_people_decide_about_conditions(
    tercel: Tercel,
    manager: FakeManager,
    words: tuple[str, ...],
    path: str,
    body: object,
    out: str,
    document: dict[str, object],
) -> None:
    says(manager, condition())
    manager.says("POST", f"/v1/conditions/3/{path}", COUNTED)
    done = tercel("blocked", *words)
    assert (done.code, done.out) == (0, out)
    [asked] = manager.asked("POST", f"/v1/conditions/3/{path}")
    assert (asked.json() if asked.body else None) == body
    assert tercel("blocked", *words, "--json").json == {"schema": 1, **document}


def test_several_are_changed_at_once_or_none_if_one_is_not_there(
    tercel: Tercel, manager: FakeManager
) -> None:
    says(manager, condition(3), condition(4))
    for id in (3, 4):
        manager.says("POST", f"/v1/conditions/{id}/release", COUNTED)
    assert tercel("blocked", "release", "C3", "4", "c3").out == "24 tasks released\n"
    manager.requests.clear()
    manager.says("GET", "/v1/conditions/5", problem(404, "there is no condition C5", "condition"))
    refused = tercel("blocked", "release", "C3", "C5")
    assert (refused.code, refused.err) == (2, "tercel: there is no condition C5\n")
    assert [request for request in manager.requests if request.method == "POST"] == []


def test_which_snapshot_was_taken_before_many_failed_is_told(tercel: Tercel, manager: FakeManager) -> None:
    says(manager, condition())
    manager.says("POST", "/v1/conditions/3/fail", api.Counted(count=2000, note="snapshot @7 has them"))
    done = tercel("blocked", "fail", "C3")
    assert (done.code, done.out) == (0, "2,000 tasks failed\n")
    assert "snapshot @7 has them" in done.err


def test_a_test_that_nobody_can_make_is_said_to_wait(tercel: Tercel, manager: FakeManager) -> None:
    says(manager, condition())
    manager.says("POST", "/v1/conditions/3/test", api.Counted(count=0))
    done = tercel("blocked", "test", "C3")
    assert (done.code, done.out) == (0, "")
    assert "no worker is connected that could test it" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("tset",),
        ("test",),
        ("test", "C"),
        ("test", "C3x"),
        ("test", "-3"),
        ("release", "C3", "--count", "0"),
        ("fail", "C3", "--count", "1"),
        ("test", "C" + "9" * 30),
        ("C٣",),
    ],
)
def test_what_is_no_condition_is_refused_before_anybody_is_asked(
    tercel: Tercel, manager: FakeManager, words: tuple[str, ...]
) -> None:
    assert tercel("blocked", *words).code == 2
    assert manager.requests == []


# -- elsewhere --------------------------------------------------------------------------------------------


def test_rules_are_submitted_and_previewed(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/jobs", api.Submitted(id=37, tasks=1, name=""))
    more = "stderr:/Disk quota exceeded/ -> command:./quota-ok.sh"
    assert tercel("submit", "--block-on", RULE, "--block-on", more, "--", "./go.sh").code == 0
    assert manager.asked("POST", "/v1/jobs")[0].json()["block_on"] == [
        {"on": "exit:75", "tester": "tcp:licence.lab:27000", "policy": "every 2m for 12h"},
        {"on": "stderr:/Disk quota exceeded/", "tester": "command:./quota-ok.sh"},
    ]
    told = tercel("submit", "--dry-run", "--block-on", RULE, "--block-on", more, "--", "./go.sh").out
    assert f"block on   {RULE}" in told and f"block on   {more}" in told


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("exit:75 tcp:a:1", "is not a rule; write WHEN -> TESTER"),
        ("exit:0 -> tcp:a:1", "exit codes of failures are 1 to 255"),
        ("stderr:/(/ -> tcp:a:1", "/(/ is not a pattern"),
        ("exit:75 -> tcp:a:1 @moon", "a tester runs @manager, @site or @worker"),
        ("exit:75 -> tcp:a:1; every 0s for 1h", "tests are from 1 s to 7 days apart"),
        ("exit:75 -> tcp:a:1; every 2h for 1h", "it would never be tested"),
        ("exit:75 -> tcp:a:1; every 1s for 9999d", "a policy lasts from 1 s to 366 days"),
    ],
)
def test_a_wrong_rule_is_told_before_anybody_is_asked(
    tercel: Tercel, manager: FakeManager, rule: str, says: str
) -> None:
    for words in (("submit",), ("run",), ("sweep",)):
        command = ("--", "true") if words != ("sweep",) else ("true {a}", "a=1")
        refused = tercel(*words, "--block-on", rule, *command)
        assert refused.code == 2
        assert refused.err.startswith("tercel: --block-on: "), refused.err
        assert says in refused.err
    Path("job.toml").write_text(f"command = 'true'\nblock_on = ['exit:1 -> tcp:a:1', '{rule}']\n")
    refused = tercel("submit", "job.toml")
    assert refused.code == 2
    assert refused.err.startswith("tercel: job.toml:2: block_on[1]: "), refused.err
    assert manager.requests == []


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("exit:75 -> tpc:a:1", "block_on[0]: 'tpc' is no kind of tester; did you mean tcp?"),
        ("exit:75 -> tcp:licence.lab", "block_on[0]: 'licence.lab' is not a host and a port"),
        ("exit:75 -> licence.lab", "block_on[0]: 'licence.lab' is not a tester; write KIND:WHAT"),
        ("exit:75 -> quota:user=ada<10 @worker", "@worker: quota asks the manager's own books"),
        ("exit:75 -> tcp:a:1 @here", "block_on[0]: @here: tcp is tested @manager, @site or @worker"),
    ],
)
def test_a_dry_run_refuses_testers_as_a_manager_would_and_asks_none(
    tercel: Tercel, manager: FakeManager, rule: str, says: str
) -> None:
    for verb, command in (
        ("submit", ("--", "true")),
        ("run", ("--", "true")),
        ("sweep", ("true {a}", "a=1")),
    ):
        refused = tercel(verb, "--dry-run", "--json", "--block-on", rule, *command)
        assert (refused.code, refused.json["kind"], refused.json["field"]) == (2, "usage", "block_on")
        assert says in refused.json["error"]
    Path("flow.toml").write_text(
        f"[step.a]\ncommand = 'true'\n[step.b]\ncommand = 'true'\nblock_on = ['{rule}']\n"
    )
    refused = tercel("submit", "--dry-run", "flow.toml")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("tercel: job 'b' of the flow: block_on[0]: "), refused.err
    assert manager.requests == []


def test_a_dry_run_leaves_testers_of_third_parties_to_a_manager_elsewhere(
    tercel: Tercel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERCEL_SERVER", "http://big.lab:7717")
    told = tercel("submit", "--dry-run", "--block-on", "exit:75 -> tape:drive7", "--", "true")
    assert (told.code, "exit:75 -> tape:drive7" in told.out) == (0, True)
    assert "'tape' is no tester of Tercel's own" in told.err
    assert tercel("submit", "--dry-run", "--block-on", "exit:75 -> tcp:a", "--", "true").code == 2
    assert tercel("submit", "--dry-run", "--block-on", "exit:75 -> tape", "--", "true").code == 2


def test_lists_and_status_count_what_is_blocked(tercel: Tercel, manager: FakeManager) -> None:
    some = job(37, counts=api.Counts(blocked=3, running=7))
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[some, job(36)], more=False))
    header, first, _ = (line.split() for line in tercel("list").out.splitlines())
    assert first[header.index("BLOCKED")] == "3"
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[job(36)], more=False))
    assert "BLOCKED" not in tercel("list").out
    manager.says("GET", "/v1/status", api.Status(**_with_blocked()))
    assert "1 blocked, 2 running" in tercel("status").out


def _with_blocked() -> dict[str, object]:
    fields = {name: getattr(STATUS, name) for name in STATUS.__struct_fields__}
    return fields | {"counts": api.Counts(blocked=1, running=2)}


def test_show_tells_of_rules_conditions_and_hints(tercel: Tercel, manager: FakeManager) -> None:
    rule = BlockRule(on="exit:75", tester="tcp:licence.lab:27000", at="site", policy="every 2m for 12h")
    manager.says("GET", "/v1/jobs/37", job(37, counts=api.Counts(blocked=1), tasks=1, block_on=[rule]))
    told = tercel("show", "37").out
    assert re.search("block on +exit:75 -> tcp:licence.lab:27000 @site; every 2m for 12h", told)
    assert "1 blocked" in told
    note = "blocked on tcp:licence.lab:27000 (stderr:/no licence/): go: there is no licence for this feature of it"
    blocked = task(
        4,
        state=TaskState.BLOCKED,
        why="blocked on tcp:licence.lab:27000 (C3): 1 test so far; tested again in 10 s, given up in 12 h",
        condition=3,
        stage=Stage.LAUNCH,
        resumes_in=TaskState.READY,
        attempts=[attempt(state=TaskState.BLOCKED, code=75, note=note)],
    )
    manager.says("GET", "/v1/jobs/37/tasks/4", blocked)
    told = tercel("show", "37.4").out
    assert re.search(f"seen +{re.escape(note)}\n", told), "the whole of it"
    assert "(C3)" in told and "tested again in 10 s" in told
    assert re.search("fault +met at launch; goes on as ready", told)
    assert told.splitlines()[-1].split()[1] == "blocked"
    manager.says("GET", "/v1/jobs/37/tasks/4", task(4, hint="if this is not its fault: --block-on …"))
    told = tercel("show", "37.4").out
    assert "hint" in told and "met at" not in told and "seen" not in told


def test_who_waits_is_told_once_what_tasks_are_blocked_on(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockage, "GATHER_S", 0.0)
    monkeypatch.setattr(blockage, "LOOK_EVERY_S", 0.001)
    looked = threading.Semaphore(0)

    def look(_: object) -> api.ConditionList:
        looked.release()
        return api.ConditionList(conditions=[condition(3), condition(4, jobs=[])], more=False)

    def twice() -> None:
        assert looked.acquire(timeout=30) and looked.acquire(timeout=30)

    blocked = events(api.Event(job=37, counts=api.Counts(blocked=12))).pieces
    done = events(api.Event(job=37, counts=api.Counts(finished=12), done=True)).pieces
    manager.says("GET", "/v1/conditions", look)
    manager.says("GET", "/v1/events", stream(*blocked, twice, *done))
    waited = tercel("wait", "37")
    assert waited.code == 0
    assert waited.err.count("12 blocked on tcp:licence.lab:27000 (C3), next test in 3 h") == 1
    assert "C4" not in waited.err


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (RULE, [{"on": "exit:75", "tester": "tcp:licence.lab:27000", "policy": "every 2m for 12h"}]),
        ("", []),
    ],
)
def test_rules_of_a_job_are_revised_and_taken_away(
    tercel: Tercel, manager: FakeManager, given: str, sent: object
) -> None:
    manager.says("POST", "/v1/revise", api.Counted(count=1))
    assert tercel("revise", "37", "--block-on", given).out == "1 job revised\n"
    assert manager.asked("POST", "/v1/revise")[0].json()["block_on"] == sent
    assert tercel("revise", "37", "--block-on", given, "--json").json["block_on"] == sent


# -- what people turn off ---------------------------------------------------------------------------------


def test_applications_are_turned_off_and_on(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/switches", api.Counted(count=1))
    assert tercel("switch", "off", "app=matlab", "--why", "upgrade").out == (
        "app=matlab: off; `tercel switch on app=matlab` turns it on again\n"
    )
    assert tercel("switch", "on", "app=matlab").out == "app=matlab: on\n"
    bodies = [request.json() for request in manager.requests if request.path == "/v1/switches"]
    assert bodies == [
        {"name": "app=matlab", "off": True, "why": "upgrade"},
        {"name": "app=matlab", "off": False, "why": ""},
    ]
    manager.says("POST", "/v1/switches", api.Counted(count=0))
    assert tercel("switch", "off", "app=matlab").out.startswith("app=matlab: it was off before; ")
    view = api.SwitchView(name="app=matlab", off="by ada: upgrade", since=time.time() - 60)
    manager.says("GET", "/v1/switches", api.SwitchList(switches=[view]))
    assert "app=matlab" in tercel("switch").out
    manager.says("GET", "/v1/switches", api.SwitchList(switches=[]))
    assert tercel("switch", "list").err == "tercel: nothing is off\n"
