"""tercel fork: what is asked for, and what is told."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import FakeManager, job
from tests.cli.test_errors import one_line

FORKED = api.Forked(
    at=1000.0,
    jobs=[
        api.ForkedJob(job=37, id=52, name="fit", tasks=100, kept=40, unfinished=10, changed=50, needy=0),
        api.ForkedJob(job=38, id=53, name="plot", tasks=100, kept=40, unfinished=0, changed=0, needy=60),
    ],
    notes=["all jobs of a flow are forked together"],
)


def sent(manager: FakeManager) -> Any:
    [request] = manager.asked("POST", "/v1/fork")
    return request.json()


def test_what_is_forked_is_told_with_why_tasks_run_again(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/fork", FORKED)
    done = tercel("fork", "37", "--hold", "--name", "again", "--queue", "chem")
    assert done.code == 0
    first, *lines = done.out.splitlines()
    assert first == "2 jobs forked: 80 tasks keep their results, 120 will run again"
    assert [line.split() for line in lines[1:]] == [
        ["37", "52", "fit", "100", "40", "10", "50", "0"],
        ["38", "53", "plot", "100", "40", "0", "0", "60"],
    ]
    assert "all jobs of a flow" in done.err
    assert sent(manager) == {"select": ["37"], "hold": True, "name": "again", "queue": "chem"}


def test_a_dry_run_says_what_would_be_and_json_has_it_all(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/fork", FORKED)
    assert (
        "2 jobs to fork: 80 tasks keep their results, 120 would run again"
        in tercel("fork", "37", "--dry-run").out
    )
    document = tercel("fork", "37", "--dry-run", "--only-affected", "--json").json
    assert document["jobs"][0]["changed"] == 50
    assert document["schema"] == 1
    last = manager.asked("POST", "/v1/fork")[-1].json()
    assert last == {"select": ["37"], "dry_run": True, "only_affected": True}


def test_settings_are_those_of_job_files(tercel: Tercel, manager: FakeManager, home: Path) -> None:
    manager.says("POST", "/v1/fork", FORKED)
    Path("lines.txt").write_text("echo a\n# no\necho b\n")
    words = [
        "fit:command=./fit2.sh {C}",
        "mem=2G",
        "plot:env.SEED=7",
        "time=1h",
        "retry=75:5",
        "retry=76",
        "38:cwd=sub",
        "read:lines_file=lines.txt",
        "task_id_argument=true",
    ]
    done = tercel("fork", "37", *(part for word in words for part in ("--set", word)))
    assert done.code == 0, done.err
    assert sent(manager)["changes"] == [
        {"step": "fit", "fields": ["argv", "line"], "spec": {"line": "./fit2.sh {C}"}},
        {"fields": ["mem_bytes"], "spec": {"mem_bytes": 2**31}},
        {"step": "plot", "fields": ["env"], "spec": {"env": {"SEED": "7"}}},
        {"fields": ["time_limit_s"], "spec": {"time_limit_s": 3600.0}},
        {
            "fields": ["retry_rules"],
            "spec": {
                "retry_rules": [
                    {"codes": [75], "retries": 5, "backoff_s": 0.0},
                    {"codes": [76], "retries": 1, "backoff_s": 0.0},
                ]
            },
        },
        {"step": "38", "fields": ["cwd"], "spec": {"cwd": str(home / "work" / "sub")}},
        {"step": "read", "lines": ["echo a", "echo b"]},
        {"fields": ["task_id_argument"], "spec": {"task_id_argument": True}},
    ]


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--set", "comand=x"], "there is no key 'comand'; did you mean 'command'?"),
        (["--set", "mem"], "write KEY=VALUE"),
        (["--set", "=x"], "write KEY=VALUE"),
        (["--set", "mem=lots"], "'lots' is not a size"),
        (["--set", "mem.x=1"], "only variables have names"),
        (["--set", "fit:array=0-9"], "tercel clone"),
        (["--set", "after=37"], "tercel clone"),
        (["--set", "task_id_argument=yes"], "true or false is needed"),
        (["--set", "lines_file=absent.txt"], "cannot read absent.txt"),
        (["--set", "command="], "--set command: the command is empty"),
        (["--at", "25:00"], "is no time"),
        (["--at", "tomorrow"], "is no time"),
    ],
)
def test_what_means_nothing_is_told_before_anybody_is_asked(
    tercel: Tercel, manager: FakeManager, words: list[str], text: str
) -> None:
    done = tercel("fork", "37", *words)
    assert done.code == 2
    assert one_line(done.err)
    assert text in done.err
    assert not manager.asked("POST", "/v1/fork")


def test_a_moment_is_sent_as_seconds_and_told(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/fork", FORKED)
    done = tercel("fork", "37", "--at", "2023-11-15T13:50")
    assert done.out.startswith("2 jobs forked as of 2023-11-15 13:50:00: 80 tasks keep")
    assert sent(manager)["at"] == datetime(2023, 11, 15, 13, 50).timestamp()


def test_show_says_where_a_copy_is_from(tercel: Tercel, manager: FakeManager) -> None:
    manager.says(
        "GET", "/v1/jobs/52", job(52, forked="from job 37 as of 2026-11-16 14:05:00, with mem_bytes")
    )
    assert "forked" in tercel("show", "52").out
    assert "from job 37 as of" in tercel("show", "52").out
