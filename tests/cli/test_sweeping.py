"""tercel sweep, submit --from-json, list --points, results."""

import csv
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from tercel.core.states import TaskState
from tercel.wire import api
from tests.cli.conftest import Result, Tercel
from tests.cli.fake_manager import FakeManager, Request, attempt, job, task

PAPER = """\
svm -train -kernel rbf -C [1] -gamma [2]
[1] 0.001, 0.01, 0.1, 1, 10, 100
[2] 0 0.25 0.5 0.75 1
"""


@pytest.fixture(autouse=True)
def accepting(manager: FakeManager) -> None:
    manager.says("POST", "/v1/jobs", api.Submitted(id=37, tasks=30, name=""))


def sent(manager: FakeManager) -> dict[str, Any]:
    [request] = manager.asked("POST", "/v1/jobs")
    body: dict[str, Any] = request.json()
    return body


def values(axis: dict[str, Any]) -> list[str]:
    return axis["values"]


# -- sweep -------------------------------------------------------------------------------------------------


def test_a_sweep_is_sent_as_its_template_and_its_axes(tercel: Tercel, manager: FakeManager) -> None:
    done = tercel("sweep", "svm -C {C} -g {g}", "C=0.001,1", "g=0:1:0.25", "-J", "svm", "--mem", "1G", "-q")
    assert (done.code, done.out, done.err) == (0, "37\n", "")
    body = sent(manager)
    assert (body["line"], body["template"], body["name"], body["mem_bytes"]) == (
        "svm -C {C} -g {g}",
        True,
        "svm",
        2**30,
    )
    span = {"rule": "plus", "start": "0", "by": "0.25", "count": 5}
    assert body["grid"] == {"axes": [{"name": "C", "values": ["0.001", "1"]}, {"name": "g", "span": span}]}


def test_words_after_two_dashes_are_an_argv_with_holes(tercel: Tercel, manager: FakeManager) -> None:
    tercel("sweep", "x=a b,c", "--zip", "y=1:2", "--", "./fit.py", "--zip", "{x}", "-c={y}")
    body = sent(manager)
    assert body["argv"] == ["./fit.py", "--zip", "{x}", "-c={y}"]
    assert body["grid"]["zipped"] is True
    assert "line" not in body


def test_options_may_stand_anywhere_before(tercel: Tercel, manager: FakeManager) -> None:
    tercel("sweep", "--array", "0-1%1", "run {x}", "--retries", "2", "x=1:3", "-c", "2")
    body = sent(manager)
    assert (body["array"], body["retries"], body["cpus"]) == ("0-1%1", 2, 2.0)


def test_only_so_many_of_all_points_at_a_time(tercel: Tercel, manager: FakeManager) -> None:
    tercel("sweep", "run {x}", "x=1:300", "--array", "%10")
    assert sent(manager)["array"] == "0-299%10"


@pytest.mark.must("a")
@pytest.mark.B(9)
def test_a_dry_run_of_the_papers_grid_counts_its_thirty_commands(
    tercel: Tercel, manager: FakeManager
) -> None:
    Path("grid.txt").write_text(PAPER)
    shown = tercel("sweep", "grid.txt", "--dry-run", "--json").json
    assert shown["count"] == shown["tasks"] == 30
    assert shown["dry_run"] is True
    assert shown["job"]["grid"]["axes"][0]["name"] == "1"
    assert shown["first"] == [
        f"svm -train -kernel rbf -C {C} -gamma {g}"
        for C in ("0.001", "0.01")
        for g in (0, 0.25, 0.5, 0.75, 1)
    ]
    text = tercel("sweep", "grid.txt", "--dry-run").out
    assert "svm -train -kernel rbf -C 0.001 -gamma 0.25" in text
    assert "... and 20 more" in text
    assert not manager.asked("POST", "/v1/jobs")


def test_a_dry_run_of_a_subset_shows_its_points(tercel: Tercel) -> None:
    shown = tercel(
        "sweep", "--dry-run", "--json", "x=a b,c", "--array", "1,0", "--", "p", "{x}", "{task}"
    ).json
    assert shown["count"] == 2
    assert shown["first"] == ["p 'a b' 0", "p c 1"]


def test_every_dry_run_has_the_count_and_the_first_commands(tercel: Tercel) -> None:
    shown = tercel("submit", "--dry-run", "--json", "--array", "5-99", "--", "echo", "a b").json
    assert (shown["count"], shown["first"]) == (95, ["echo 'a b'"] * 10)
    Path("lines").write_text("a\n#\nb\n")
    shown = tercel("submit", "--dry-run", "--json", "--each-line", "lines").json
    assert (shown["count"], shown["first"]) == (2, ["a", "b"])
    shown = tercel("submit", "--dry-run", "--json", "--array", "7", "--task-id-argument", "a; b").json
    assert shown["first"] == ["a; b 7"]


def test_values_come_from_files_and_patterns(tercel: Tercel, manager: FakeManager) -> None:
    Path("seeds.txt").write_text("1\n\n# two\n  22\n")
    Path("data").mkdir()
    for name in ("r10.csv", "r9.csv", "b c.csv", "x.txt"):
        (Path("data") / name).write_text("")
    tercel("sweep", "run {s} {f}", "s=@seeds.txt", "f=data/*.csv")
    seeds, files = sent(manager)["grid"]["axes"]
    assert values(seeds) == ["1", "22"]
    assert values(files) == ["data/b c.csv", "data/r9.csv", "data/r10.csv"]


@pytest.mark.parametrize(("cwd", "names"), [("data", ["a.csv"]), ("sandbox", ["{here}/data/a.csv"])])
def test_files_are_called_as_tasks_find_them(
    tercel: Tercel, manager: FakeManager, home: Path, cwd: str, names: list[str]
) -> None:
    Path("data").mkdir()
    Path("data/a.csv").write_text("")
    pattern = "*.csv" if cwd == "data" else "data/*.csv"
    tercel("sweep", "run {f}", f"f={pattern}", "--cwd", cwd)
    [files] = sent(manager)["grid"]["axes"]
    assert values(files) == [name.format(here=home / "work") for name in names]


def test_a_name_that_the_command_does_not_use_is_mentioned(tercel: Tercel) -> None:
    assert "g is not in the command" in tercel("sweep", "run {C}", "C=1", "g=2").err


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("words", "what", "field"),
    [
        ([], "nothing to run", "line"),
        (["no-such-file"], "nor is there a file no-such-file", "grid"),
        (["run {x}"], "nothing to sweep over", "grid"),
        (["--", "run", "{x}"], "nothing to sweep over", "grid"),
        (["x=1"], "nothing to sweep over", "grid"),
        (["x=1", "--"], "nothing to sweep over", "grid"),
        (["run {x", "x=1"], "unclosed {", "line"),
        (["run {x} {y}", "x=1"], "nothing is called 'y'", "line"),
        (["run {}", "x=1"], "without a name", "line"),
        (["run {x}", "x="], "x has no values", "grid"),
        (["run {x}", "x=1", "x=2"], "x is given 2 times", "grid"),
        (["run {x}", "another"], "not NAME=VALUES", "grid"),
        (["run {x}", "x=1:1000000", "y=1:1000000", "z=1:1000"], "1,000,000,000,000,000 points", "grid"),
        (["run {x}", "x=1,2", "y=1", "--zip"], "x has 2, y has 1", "grid"),
        (["run {x}", "x=@nowhere"], "cannot read nowhere", "grid"),
        (["run {x}", "x=*.none"], "no file fits", "grid"),
        (["run {x}", "x=1:3", "--array", "0-3"], "numbered 0 to 2", "array"),
        (["run {x}", "x=1:3", "--array", "%0"], "after % comes", "array"),
        (["echo $(ls {x})", "x=1"], "inside $(...)", "line"),
        (["run {x}", "x=1", "--mem", "much"], "not a size", "mem"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused_in_one_line(
    tercel: Tercel, manager: FakeManager, words: list[str], what: str, field: str
) -> None:
    done = tercel("sweep", "--json", *words)
    assert done.code == 2
    assert what in done.json["error"]
    assert done.json["field"] == field
    assert len(done.err.splitlines()) == 1
    assert not manager.asked("POST", "/v1/jobs")


@pytest.mark.must("e")
def test_a_grid_file_that_is_wrong_is_refused_with_its_line(tercel: Tercel, manager: FakeManager) -> None:
    Path("g.txt").write_text("run [1]\n[1] 1\nwhat\n")
    done = tercel("sweep", "g.txt")
    assert (done.code, manager.asked("POST", "/v1/jobs")) == (2, [])
    assert "g.txt:3: 'what' does not say" in done.err


# -- submit --from-json ------------------------------------------------------------------------------------

ITEMS = ['{"name": "a b", "size": 0.10}', '{"size": [1, 2], "name": null}']


@pytest.mark.parametrize(
    "text", ["\n\n".join(ITEMS) + "\n", f" [{ITEMS[0]}\n,\n{ITEMS[1]} ]\n", "\ufeff" + "\n".join(ITEMS)]
)
def test_each_json_object_is_a_task(tercel: Tercel, manager: FakeManager, text: str) -> None:
    Path("items").write_text(text)
    tercel("submit", "--from-json", "items", "--", "./go.sh", "{name}", "{size}")
    body = sent(manager)
    assert body["items"] == ITEMS
    assert (body["argv"], body["template"]) == (["./go.sh", "{name}", "{size}"], True)


def test_objects_come_from_stdin_and_fill_a_line(tercel: Tercel) -> None:
    stdin = "\n".join(ITEMS).encode()
    shown = tercel("run", "--from-json", "-", "--dry-run", "--json", "go {name} '{size}'", stdin=stdin).json
    assert shown["first"] == ["go 'a b' '0.10'", "go null '[1,2]'"]


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "words", "what"),
    [
        ("", ["{a}"], "items has no items"),
        ("[]", ["{a}"], "items has no items"),
        ('{"a": 1}\n\n{"a": }\n', ["{a}"], "items:3 is not valid JSON"),
        ('{"a": 1}\n[1]\n', ["{a}"], "items:2 is not a JSON object"),
        ('{"a": 1}\n\n{"b": 2}\n', ["{a}"], "nothing is called 'a' in items:3"),
        ('[{"a": 1},\n\n{"b": 2}]', ["{a}"], "nothing is called 'a' in items:3"),
        ('[{"a": 1},\n\n{"a": }]', ["{a}"], "items:3 is not valid JSON"),
        ('[{"a": 1}\n{"a": 2}]', ["{a}"], "items:2: here"),
        ('[{"a": 1}] x', ["{a}"], "items:1: here"),
        ('[{"a": 1},]', ["{a}"], "items:1 is not valid JSON"),
        ('{"a": 1}', ["{a"], "unclosed"),
        ('{"a": 1}', [], "a command with {names}"),
    ],
)
def test_items_that_make_no_sense_are_refused_with_their_line(
    tercel: Tercel, manager: FakeManager, text: str, words: list[str], what: str
) -> None:
    Path("items").write_text(text)
    done = tercel("submit", "--from-json", "items", *(["--", "run", *words] if words else []))
    assert done.code == 2
    assert what in done.err
    assert not manager.asked("POST", "/v1/jobs")


def test_two_sources_of_tasks_are_one_too_many(tercel: Tercel) -> None:
    assert tercel("submit", "--from-json", "a", "--each-line", "b").code == 2
    assert "numbers its tasks by item" in _with_array(tercel).err


def _with_array(tercel: Tercel) -> Result:
    Path("items").write_text("{}")
    return tercel("submit", "--from-json", "items", "--array", "0-1", "--", "true")


# -- looking -----------------------------------------------------------------------------------------------


VIEWS = [
    task(0, 37, TaskState.FINISHED, exit_code=0, attempts=[attempt(wall_s=1.5)], point={"C": "0.1", "state": "x"},
         stdout='start\n{"loss": 0.25, "C": 7, "ok": true}\n'),
    task(1, 37, TaskState.FAILED, exit_code=3, attempts=[attempt(wall_s=2.0)], point={"C": "10", "state": "y\nz"},
         stdout='{"loss": 1}\n{"broken": \n[1]\n'),
    task(2, 37, TaskState.READY, point={"C": "100", "state": 'a,"b"'}),
]  # fmt: skip


@pytest.fixture
def swept(manager: FakeManager) -> FakeManager:
    """Answers in pages of one task."""
    manager.says(
        "GET", "/v1/jobs/37", job(37, tasks=3, template=True, points=3, grid="C (3)", command="run {C}")
    )

    def page(request: Request) -> api.TaskList:
        after = int(request.query.get("after", ["-1"])[0])
        wanted = [view for view in VIEWS if view.task > after]
        return api.TaskList(tasks=wanted[:1], more=len(wanted) > 1)

    manager.says("GET", "/v1/jobs/37/tasks", page)
    for view in VIEWS:
        manager.says("GET", f"/v1/jobs/37/tasks/{view.task}", view)
    return manager


def test_the_points_of_tasks_are_listed(tercel: Tercel, swept: FakeManager) -> None:
    lines = tercel("list", "37", "--points").out.splitlines()
    assert lines[0].split() == ["TASK", "C", "state", "STATE", "EXIT", "SECONDS"]
    assert [line.split() for line in lines[1:]] == [
        ["37.0", "0.1", "x", "finished", "0", "1.500"],
        ["37.1", "10", "y↵z", "failed", "3", "2.000"],
        ["37.2", "100", 'a,"b"', "ready"],
    ]
    found = tercel("list", "37", "--points", "--json").json_lines
    assert [line["point"] for line in found] == [view.point for view in VIEWS]
    assert found[1] | {"point": None} == {
        "schema": 1, "id": "37.1", "task": 1, "point": None, "state": "failed", "exit": 3, "seconds": 2.0,
    }  # fmt: skip


def test_a_list_of_tasks_ends_at_its_limit_and_says_so(tercel: Tercel, swept: FakeManager) -> None:
    done = tercel("list", "37", "-n", "2")
    assert len(done.out.splitlines()) == 3
    assert "there are more: --limit 20" in done.err


def test_points_are_of_one_job_that_has_them(tercel: Tercel, manager: FakeManager) -> None:
    assert tercel("list", "--points").code == 2
    manager.says("GET", "/v1/jobs/38", job(38))
    done = tercel("list", "38", "--points")
    assert (done.code, "has no points" in done.err) == (2, True)


def test_a_job_and_a_task_show_their_template_and_point(tercel: Tercel, swept: FakeManager) -> None:
    shown = tercel("show", "37").out
    assert "template   run {C}" in shown
    assert "points     3: C (3)" in shown
    assert '{"C":"10","state":"y\\nz"}' in tercel("show", "37.1").out


COLUMNS = ["task", "C", "in_state", "state", "exit", "seconds", "loss", "out_C", "ok"]


@pytest.mark.parametrize("where", [[], ["--csv", "-"], ["--csv", "r.csv"]])
def test_results_are_a_table_of_points_ends_and_last_words(
    tercel: Tercel, swept: FakeManager, where: list[str]
) -> None:
    done = tercel("results", "37", *where)
    assert done.code == 0
    text = Path("r.csv").read_text() if "r.csv" in where else done.out
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows == [
        COLUMNS,
        ["0", "0.1", "x", "finished", "0", "1.5", "0.25", "7", "true"],
        ["1", "10", "y\nz", "failed", "3", "2.0", "1", "", ""],
        ["2", "100", 'a,"b"', "ready", "", "", "", "", ""],
    ]
    if "r.csv" in where:
        assert (done.out, "3 rows in r.csv" in done.err) == ("", True)


def test_results_as_json_are_one_line_per_task(tercel: Tercel, swept: FakeManager) -> None:
    first, _, last = tercel("results", "37", "--json").json_lines
    assert first == {
        "schema": 1, "task": 0, "C": "0.1", "in_state": "x", "state": "finished", "exit": 0, "seconds": 1.5,
        "loss": 0.25, "out_C": 7, "ok": True,
    }  # fmt: skip
    assert last["state"] == "ready"


def test_results_as_parquet_have_types(tercel: Tercel, swept: FakeManager) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    said = tercel("results", "37", "--parquet", "r.parquet", "--json").json
    assert said == {"schema": 1, "file": "r.parquet", "rows": 3, "columns": COLUMNS}
    table = parquet.read_table("r.parquet")
    assert {field.name: str(field.type) for field in table.schema} == {
        "task": "int64", "C": "double", "in_state": "string", "state": "string", "exit": "int64",
        "seconds": "double", "loss": "double", "out_C": "int64", "ok": "bool",
    }  # fmt: skip
    assert table.column("C").to_pylist() == [0.1, 10.0, 100.0]
    assert table.column("loss").to_pylist() == [0.25, 1.0, None]


def test_parquet_without_pyarrow_says_what_to_install(
    tercel: Tercel, swept: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)  # as if it were not there
    done = tercel("results", "37", "--parquet", "r.parquet")
    assert done.code == 2
    assert "pip install 'tercel[parquet]'" in done.err
    assert not Path("r.parquet").exists()


def test_a_file_that_cannot_be_written_is_told(tercel: Tercel, swept: FakeManager) -> None:
    for option in ("--csv", "--parquet"):
        done = tercel("results", "37", option, "nowhere/x")
        assert (done.code, "cannot write to nowhere/x" in done.err) == (3, True)
