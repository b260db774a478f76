"""tercel submit FILE: job files, options beside them, and what is said of them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.model import After, AfterKind, RetryRule
from tercel.sdk.files.keys import KEYS
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import FakeManager, events, task

SUBMITTED = api.Submitted(id=37, tasks=10, name="fit")
JOB = 'name = "fit"\ncommand = "./fit.sh"\nmem = "4G"\narray = "0-9"\n'
SCRIPT = '#!/bin/sh\n#TERCEL -c 2\n#SBATCH --gres=gpu:1 -t 1h -o out.txt\necho "$@"\n'


@pytest.fixture(autouse=True)
def accepting(manager: FakeManager) -> None:
    manager.says("POST", "/v1/jobs", SUBMITTED)


def sent(manager: FakeManager) -> dict[str, Any]:
    [request] = manager.asked("POST", "/v1/jobs")
    body: dict[str, Any] = request.json()
    return body


def test_a_job_file_is_submitted(tercel: Tercel, manager: FakeManager) -> None:
    Path("job.toml").write_text(JOB)
    done = tercel("submit", "job.toml")
    assert (done.code, done.out) == (0, "37\n")
    body = sent(manager)
    assert (body["name"], body["line"], body["mem_bytes"], body["array"]) == (
        "fit",
        "./fit.sh",
        4 * 2**30,
        "0-9",
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--mem", "8G", "--hold", "job.toml"],
        ["job.toml", "--mem", "8G", "--hold"],
        ["--mem=8G", "job.toml", "--hold"],
        ["--mem=8G", "--hold", "--", "job.toml"],
    ],
)
def test_options_on_either_side_count_more_than_the_file(
    tercel: Tercel, manager: FakeManager, words: list[str]
) -> None:
    Path("job.toml").write_text(JOB)
    assert tercel("submit", *words).code == 0
    body = sent(manager)
    assert (body["mem_bytes"], body["hold"], body["array"]) == (8 * 2**30, True, "0-9")


def test_a_script_with_directives_travels_with_its_arguments(tercel: Tercel, manager: FakeManager) -> None:
    Path("job.sh").write_text(SCRIPT)
    done = tercel("submit", "./job.sh", "-J", "mine", "--", "-v", "a b", "--json")
    assert done.code == 0
    assert "job.sh, line 3: #SBATCH -o out.txt is ignored" in done.err
    body = sent(manager)
    assert body["gpus"] == 1
    assert body["argv"][-4:] == [SCRIPT, "-v", "a b", "--json"]
    assert (body["name"], body["cpus"], body["time_limit_s"]) == ("mine", 2.0, 3600.0)


def test_words_after_a_script_are_its_arguments_too(tercel: Tercel, manager: FakeManager) -> None:
    Path("job.sh").write_text(SCRIPT)
    assert tercel("submit", "job.sh", "a", "--mem", "b").code == 0
    assert sent(manager)["argv"][-4:] == [SCRIPT, "a", "--mem", "b"]


def test_a_script_without_directives_is_a_command_like_any_other(
    tercel: Tercel, manager: FakeManager
) -> None:
    Path("run.sh").write_text("#!/bin/sh\necho\n")
    assert tercel("submit", "./run.sh", "--mem", "x").code == 0
    assert sent(manager)["argv"] == ["./run.sh", "--mem", "x"]


@pytest.mark.K(15)
def test_a_kestrel_file_is_submitted(tercel: Tercel, manager: FakeManager) -> None:
    Path("star.job").write_text("[job]\nqueue = 50000\ncommand = /runtask.sh\n")
    assert tercel("submit", "star.job").code == 0
    body = sent(manager)
    assert (body["line"], body["array"], body["task_id_argument"]) == ("/runtask.sh", "0-49999", True)


def test_new_options_reach_the_manager(tercel: Tercel, manager: FakeManager) -> None:
    tercel(
        *("submit", "-p", "vision", "--retries", "3", "--backoff", "10s", "--retry-on", "75,137:5:30s"),
        *(
            "--retry-on",
            "2",
            "--max-fails",
            "5%",
            "-d",
            "afterany:1:2",
            "--after",
            "3",
            "--on-failure",
            "run",
        ),
        *("--hold", "--kill-grace", "10s", "--", "true"),
    )
    body = sent(manager)
    assert (body["queue"], body["backoff_s"], body["max_fails"]) == ("vision", 10.0, "5%")
    assert msgspec.convert(body["retry_rules"], list[RetryRule]) == [
        RetryRule(codes=(75, 137), retries=5, backoff_s=30.0),
        RetryRule(codes=(2,), retries=1),
    ]
    assert msgspec.convert(body["after"], list[After]) == [
        After(job=1, kind=AfterKind.ANY),
        After(job=2, kind=AfterKind.ANY),
        After(job=3),
    ]
    assert (body["on_failure"], body["hold"], body["kill_grace_s"]) == ("run", True, 10.0)


def test_items_of_an_option_fill_a_commands_holes(tercel: Tercel, manager: FakeManager) -> None:
    tercel("submit", "--from-json", "-", "--", "./go", "{name}", stdin=b'{"name": "a"}\n{"name": "b c"}\n')
    body = sent(manager)
    assert (body["argv"], body["items"]) == (["./go", "{name}"], ['{"name": "a"}', '{"name": "b c"}'])


def test_every_key_with_options_is_an_option(tercel: Tercel) -> None:
    text = tercel("submit", "--help").out
    assert all(flag in text for key in KEYS for flag in key.flags)


# -- dry run ----------------------------------------------------------------------------------------------


def test_a_dry_run_of_a_file_shows_it_and_does_nothing(tercel: Tercel, manager: FakeManager) -> None:
    Path("job.toml").write_text(JOB)
    done = tercel("submit", "job.toml", "--dry-run", "--after", "7")
    assert done.code == 0
    assert "10 (0-9)" in done.out
    assert "7 (ok)" in done.out
    document = tercel("run", "--dry-run", "--json", "job.toml").json
    assert (document["tasks"], document["job"]["line"]) == (10, "./fit.sh")
    assert manager.requests == []


FLOW = (
    '[step.prep]\ncommand = "./prep.sh"\narray = "0-9"\n'
    '[step.fit]\ncommand = "./fit.sh"\narray = "0-9"\nneeds = [{step = "prep", tasks = "same"}]\n'
)


def test_a_dry_run_of_a_flow_shows_its_steps(tercel: Tercel, manager: FakeManager) -> None:
    Path("flow.toml").write_text(FLOW)
    out = tercel("submit", "--dry-run", "flow.toml").out
    assert "2 jobs with 20 tasks" in out
    assert "prep (task by task)" in out
    document = tercel("submit", "--dry-run", "--json", "flow.toml").json
    assert (document["tasks"], [step["job"]["name"] for step in document["steps"]]) == (20, ["prep", "fit"])
    assert document["steps"][1]["needs"] == [{"step": "prep", "tasks": "same"}]
    assert manager.requests == []


def test_a_flow_is_submitted_whole_and_its_jobs_are_told_as_one_selector(
    tercel: Tercel, manager: FakeManager
) -> None:
    Path("flow.toml").write_text(FLOW)
    jobs = [api.Submitted(id=40 + n, tasks=10, name=name) for n, name in enumerate(["prep", "fit"])]
    manager.says("POST", "/v1/flows", api.FlowSubmitted(jobs=jobs))
    done = tercel("submit", "flow.toml", "--mem", "1G")
    assert (done.code, done.out) == (0, "40-41\n")
    assert "2 jobs, 20 tasks" in done.err
    [request] = manager.asked("POST", "/v1/flows")
    flow = msgspec.json.decode(request.body, type=api.Flow)
    assert [(job.name, job.mem_bytes) for job in flow.jobs] == [("prep", 2**30), ("fit", 2**30)]
    assert flow.jobs[1].after == (After(job=-1, each=True),)
    assert len(flow.key) == 32
    document = tercel("submit", "--json", "flow.toml").json
    assert [(job["id"], job["tasks"], job["name"]) for job in document["jobs"]] == [
        (40, 10, "prep"),
        (41, 10, "fit"),
    ]


def test_waiting_for_a_flow_tells_how_each_job_ended(tercel: Tercel, manager: FakeManager) -> None:
    Path("flow.toml").write_text(FLOW)
    jobs = [api.Submitted(id=40 + n, tasks=10, name=name) for n, name in enumerate(["prep", "fit"])]
    manager.says("POST", "/v1/flows", api.FlowSubmitted(jobs=jobs))
    ends = [
        api.Event(job=40, counts=api.Counts(running=10)),
        api.Event(job=40, counts=api.Counts(finished=9, failed=1), done=True),
        api.Event(job=41, counts=api.Counts(finished=9, cancelled=1), done=True),
    ]
    manager.says("GET", "/v1/events", events(*ends))
    failed = task(3, job=40, why="exit code 7", stderr="no such file\n")
    manager.says("GET", "/v1/jobs/40/tasks", api.TaskList(tasks=[failed], more=False))
    done = tercel("submit", "flow.toml", "--wait", "--json")
    assert done.code == 1
    ended = done.json_lines[1:]
    assert [(line["id"], line["counts"]["finished"]) for line in ended] == [(40, 9), (41, 9)]
    assert "40.3 finished: exit code 7: no such file" in done.err


# -- mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("name", "text", "words", "says"),
    [
        ("job.toml", 'command = "x"\nmem = "4 giraffes"', [], "job.toml:2: mem: '4 giraffes' is not a size"),
        ("job.toml", "command = 'x'\ncpus = [1]", [], "job.toml:2: cpus: a number is needed, not a list"),
        ("job.toml", "command = ", [], "job.toml:1: not valid TOML"),
        ("job.toml", "command = 'x'", ["--mem", "much"], "--mem: 'much' is not a size"),
        ("job.toml", "command = 'x'", ["a"], "job.toml is not a script: it takes no arguments ('a')"),
        ("job.toml", "command = 'x'", ["--nosuch"], "--nosuch"),
        (
            "flow.toml",
            "[step.a]\ncommand='x'\nneeds='b'\n[step.b]\ncommand='x'\nneeds='a'",
            [],
            "a -> b -> a",
        ),
        ("job.sh", "#!/bin/sh\n#TERCEL --cups 2\n", [], "job.sh:2: there is no option '--cups'"),
        (
            "star.job",
            f"[job]\ncommand = x\nrequires = {'A' * 101}\n",
            [],
            f"star.job:3: requires: '{'A' * 77}...' is no tag: 1 to 100 printable characters",
        ),
        ("job.toml", "command = 'x'\ngpus = 1.5", [], "job.toml:2: gpus: is 1.5"),
    ],
)
def test_a_wrong_file_is_exit_code_2_in_one_line_and_submits_nothing(
    tercel: Tercel, manager: FakeManager, name: str, text: str, words: list[str], says: str
) -> None:
    Path(name).write_text(text)
    for verb in ("submit", "run"):
        done = tercel(verb, name, *words)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("tercel: ") and done.err.count("\n") == 1
        assert says in done.err
    assert manager.requests == []


def test_json_names_the_key_that_is_wrong(tercel: Tercel) -> None:
    Path("job.toml").write_text("command = 'x'\nmem = 4")
    assert tercel("submit", "job.toml", "--json").json["field"] == "mem"
    assert tercel("submit", "--json", "--output-limit", "x", "--", "true").json["field"] == "output_limit"


@pytest.mark.parametrize("kind", ["job", "flow"])
def test_the_schema_is_printed_for_editors(tercel: Tercel, kind: str) -> None:
    assert tercel("schema", kind).json["type"] == "object"
    assert tercel("schema", kind, "--json").json["document"]["title"] == f"A Tercel {kind} file"
