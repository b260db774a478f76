"""job.toml -> a job; and what is said of a file that is wrong, with line and key."""

from pathlib import Path

import pytest

from tercel.core.errors import UsageError
from tercel.core.model import After, AfterKind, OnFailure, RetryRule
from tercel.sdk.files import Draft, read_file
from tercel.sdk.files.options import read_options
from tercel.sdk.files.sources import OptionSource
from tercel.wire.api import Submission

WHOLE = """\
name = "fit"
command = "./fit.sh | tee log"
array = "0-99:2%10"
cpus = 2
mem = "4G"
time = "1h30m"
priority = 5
queue = "vision"
cwd = "sandbox"
output_limit = "1M"
task_id_argument = true
kill_grace = "10s"
retries = 3
backoff = "10s"
max_fails = "5%"
hold = true
on_failure = "run"
after = ["afterok:37", "aftercorr:38.0-4", 39]

[env]
NAME = "value"
OTHER = ""

[[retry]]
codes = [75, 137]
retries = 5
backoff = "30s"

[[retry]]
codes = [2]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    return tmp_path


def read(text: str, *options: str) -> Draft:
    Path("job.toml").write_text(text)
    [draft] = read_file("job.toml", above=read_options(options, OptionSource()))
    return draft


def complaint(text: str, *options: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(text, *options)
    return str(caught.value)


def test_every_key_reaches_the_job() -> None:
    draft = read(WHOLE)
    assert draft.submission == Submission(
        name="fit",
        line="./fit.sh | tee log",
        array="0-99:2%10",
        cpus=2.0,
        mem_bytes=4 * 2**30,
        time_limit_s=5400.0,
        priority=5,
        queue="vision",
        cwd="",
        output_limit_bytes=2**20,
        task_id_argument=True,
        kill_grace_s=10.0,
        retries=3,
        backoff_s=10.0,
        max_fails="5%",
        hold=True,
        on_failure=OnFailure.RUN,
        after=(After(job=37), After(job=38, tasks=((0, 4),), each=True), After(job=39)),
        env={"NAME": "value", "OTHER": ""},
        retry_rules=(
            RetryRule(codes=(75, 137), retries=5, backoff_s=30.0),
            RetryRule(codes=(2,), retries=1),
        ),
    )
    assert draft.tasks == 50


def test_a_command_is_all_a_job_needs(here: Path) -> None:
    assert read("command = 'true'").submission == Submission(line="true", cwd=str(here))


def test_a_list_of_words_is_run_without_a_shell() -> None:
    submission = read('command = ["./fit.sh", "a b", "$HOME"]').submission
    assert (submission.argv, submission.line) == (("./fit.sh", "a b", "$HOME"), "")


def test_lines_are_tasks() -> None:
    draft = read('lines = ["echo a", "echo b"]')
    assert (draft.submission.lines, draft.tasks) == (["echo a", "echo b"], 2)


def test_a_file_of_lines_is_looked_for_beside_the_job_file(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "cmds.txt").write_text("# one\necho a\n\necho b\n")
    (here / "sub" / "job.toml").write_text('lines_file = "cmds.txt"\ncwd = "data"')
    [draft] = read_file("sub/job.toml")
    assert draft.submission.lines == ["echo a", "echo b"]
    assert draft.remarks == ["2 blank or comment lines of cmds.txt skipped"]
    assert draft.submission.cwd == str(here / "data"), (
        "the directory is where the user is, not where the file is"
    )


def test_options_count_more_than_the_file() -> None:
    draft = read(WHOLE, "--mem", "8G", "-c4", "--env", "NAME=other", "--max-fails=3", "--retry-on", "1:2")
    job = draft.submission
    assert (job.mem_bytes, job.cpus, job.max_fails) == (8 * 2**30, 4.0, "3")
    assert job.env == {"NAME": "other", "OTHER": ""}, "variables are put together"
    assert job.retry_rules == (RetryRule(codes=(1,), retries=2),)
    assert job.time_limit_s == 5400.0


def test_lines_of_an_option_replace_the_files_command() -> None:
    Path("cmds.txt").write_text("a\nb\n")
    submission = read("command = 'true'", "--each-line", "cmds.txt").submission
    assert (submission.lines, submission.line) == (["a", "b"], "")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("37", [(37, AfterKind.OK, False)]),
        ("37, 38", [(37, AfterKind.OK, False), (38, AfterKind.OK, False)]),
        ("afterok:37:38", [(37, AfterKind.OK, False), (38, AfterKind.OK, False)]),
        ("afterany:1,aftercorr:2", [(1, AfterKind.ANY, False), (2, AfterKind.OK, True)]),
        ("afternotok:5", [(5, AfterKind.NOTOK, False)]),
    ],
)
def test_dependencies_are_written_as_in_sbatch(text: str, kinds: list[tuple[int, AfterKind, bool]]) -> None:
    after = read(f'command = "true"\nafter = "{text}"').submission.after
    assert [(one.job, one.kind, one.each) for one in after] == kinds


def test_a_dependency_may_be_on_some_tasks_only() -> None:
    after = read('command = "true"\nafter = ["37.0-9,12", "afterok:38_4:39"]').submission.after
    assert after == (
        After(job=37, tasks=((0, 9), (12, 12))),
        After(job=38, tasks=((4, 4),)),
        After(job=39),
    )


def test_a_sweep_is_a_task_per_combination() -> None:
    draft = read("command = './fit {C} {g} {k}'\n[sweep]\nC = [0.001, 1e-5, 10]\ng = '0:1:0.5'\nk = 'a,b'\n")
    grid = draft.submission.grid
    assert grid is not None
    assert (draft.tasks, grid.point(0), grid.point(17)) == (
        18,
        {"C": "0.001", "g": "0", "k": "a"},
        {"C": "10", "g": "1", "k": "b"},
    )
    assert grid.axes[0].values == ("0.001", "0.00001", "10")


def test_a_zipped_sweep_takes_values_together() -> None:
    draft = read("command = './fit {a} {b}'\nsweep_zip = true\nsweep.a = [1, true]\nsweep.b = ['x', 'y']\n")
    grid = draft.submission.grid
    assert grid is not None
    assert [grid.point(number) for number in range(draft.tasks)] == [
        {"a": "1", "b": "x"},
        {"a": "true", "b": "y"},
    ]


def test_values_may_come_from_files(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "seeds.txt").write_text("7\n# not this\n8\n")
    for name in ("run10.csv", "run2.csv"):
        (here / name).write_text("")
    (here / "sub" / "job.toml").write_text(
        "command = 'x {s} {f}'\nsweep.s = '@seeds.txt'\nsweep.f = '*.csv'\n"
    )
    [draft] = read_file("sub/job.toml")
    assert draft.submission.grid is not None
    assert [axis.values for axis in draft.submission.grid.axes] == [("7", "8"), ("run2.csv", "run10.csv")]


@pytest.mark.parametrize("content", ['{"a": 1}\n\n{"a": "x y"}\n', '[{"a": 1},\n {"a": "x y"}]'])
def test_items_fill_the_holes_of_a_command(content: str) -> None:
    Path("items.jsonl").write_text(content)
    draft = read('command = ["./go", "{a}"]\nitems_file = "items.jsonl"')
    assert draft.tasks == 2
    assert [item.replace(" ", "") for item in draft.submission.items or []] == ['{"a":1}', '{"a":"xy"}']


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "command = 'x {D}'\n[sweep]\nC = [1]",
            "job.toml:1: command: template: nothing is called 'D' in the sweep",
        ),
        ("command = 'x {C'\n[sweep]\nC = [1]", "job.toml:1: command:"),
        ("command = 'x {C}'\n[sweep]\nC = []", "job.toml:3: sweep.C: the list is empty"),
        ("command = 'x {C}'\n[sweep]\nC = {a = 1}", "job.toml:3: sweep.C: a list or text"),
        (
            "command = 'x {C}'\n[sweep]\nC = '0:1:'",
            "job.toml:3: sweep.C: C='0:1:': the step '' is not a number",
        ),
        ("command = 'x {C}'\n[sweep]\nC = '0:1e15'", "job.toml:2: sweep:"),
        ("command = 'x {C}'\n[sweep]\nC = '@no-file'", "job.toml:3: sweep.C: cannot read no-file"),
        ("command = 'x'\n[sweep]\n'A=B' = 'x'", "job.toml:3: sweep.A=B: 'A=B' is not a name"),
        ("command = 'x'\n[sweep]", "job.toml:2: sweep: the table is empty"),
        ("command = 'x'\nsweep_zip = true", "job.toml:2: sweep_zip: there is no sweep"),
        (
            "sweep_zip = true\ncommand = 'x {a}{b}'\n[sweep]\na = [1]\nb = [1, 2]",
            "job.toml:3: sweep: zipped values must",
        ),
        ("lines = ['x']\n[sweep]\nC = [1]", "job.toml:2: sweep: needs one command for all tasks"),
        ("command = 'x'\nitems_file = 'no-file'", "job.toml:2: items_file: cannot read no-file"),
        (
            "command = 'x {a}'\nitems_file = 'bad.jsonl'",
            "job.toml:2: items_file: bad.jsonl:2 is not valid JSON",
        ),
        (
            "command = 'x {a}'\nitems_file = 'bad.json'",
            "job.toml:2: items_file: bad.json:2 is not valid JSON",
        ),
        ("command = 'x'\nitems_file = 'empty'", "job.toml:2: items_file: empty has no items"),
    ],
)
def test_a_sweep_or_items_that_make_no_commands_are_refused(here: Path, text: str, says: str) -> None:
    (here / "bad.jsonl").write_text('{"a": 1}\n{"a": }\n')
    (here / "bad.json").write_text('[{"a": 1},\n{"a": }]\n')
    (here / "empty").write_text("\n")
    assert says in complaint(text)


# -- what is wrong ----------------------------------------------------------------------------------------


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('"4G"', '"4 giraffes"', "job.toml:5: mem: '4 giraffes' is not a size; write 500M or 2G"),
        ('"4G"', "4", "job.toml:5: mem: text is needed, not a number"),
        ("cpus = 2", "cpus = [2]", "job.toml:4: cpus: a number is needed, not a list"),
        ("cpus = 2", "cpus = true", "job.toml:4: cpus: a number is needed, not true"),
        ("cpus = 2", "cpus = nan", "job.toml:4: cpus: nan is not between 0.001 and 1,000,000"),
        ("cpus = 2", "cups = 2", "job.toml:4: cups: there is no key 'cups'; did you mean 'cpus'?"),
        ("priority = 5", "priority = 5.5", "job.toml:7: priority: a whole number is needed, not a number"),
        ('"1h30m"', '"soon"', "job.toml:6: time: 'soon' is not a time"),
        ('"1h30m"', "1979-05-27", "job.toml:6: time: text is needed, not a date"),
        ("0-99:2%10", "9-0", "job.toml:3: array: '9-0': '9-0' ends before it begins"),
        ('backoff = "10s"', 'backoff = "2h"', "job.toml:14: backoff: is 7200"),
        ('"vision"', '"my queue"', "job.toml:8: queue: 'my queue' is no name for a queue"),
        ('"5%"', '"most"', "job.toml:15: max_fails: 'most' is not a number of tasks"),
        ('"5%"', '"101%"', "job.toml:15: max_fails: '101%' is not a number of tasks"),
        ('"run"', '"panic"', "job.toml:17: on_failure: 'panic' is not one of skip, stop, run"),
        ('"afterok:37"', '"afterok:x"', "job.toml:18: after[0]: 'afterok:x': 'x' is not a job's id"),
        ('"afterok:37"', '"aftr:1"', "job.toml:18: after[0]: 'aftr:1': 'aftr' is not a kind of dependency"),
        ('"afterok:37"', '"afterok:1?afterok:2"', "waiting for any one of several (?) is not supported"),
        ('"afterok:37"', '"singleton"', "'singleton' is not supported"),
        ('OTHER = ""', "OTHER = 3", "job.toml:22: env.OTHER: text is needed, not a number"),
        ('OTHER = ""', '"A=B" = ""', "job.toml:20: env: 'A=B' is not a variable's name"),
        ("[75, 137]", "[75,\n1375]", "job.toml:26: retry[0].codes[1]: 1375 is not between 1 and 255"),
        ("codes = [2]", "retries = 2", "job.toml:29: retry[1]: codes is missing"),
        ("codes = [2]", "codes = []", "job.toml:30: retry[1].codes: the list is empty"),
        ('"30s"', '"x"', "job.toml:27: retry[0].backoff: 'x' is not a time"),
        ("./fit.sh | tee log", "", "job.toml:2: command: the command is empty"),
        ('command = "./fit.sh | tee log"', "", "job.toml:1: nothing to run: give a command"),
        ('command = "./fit.sh | tee log"', "command = []", "job.toml:2: command: the list is empty"),
        ('queue = "vision"', 'lines = ["a"]', "job.toml:8: lines: command says already what is run"),
        ("[env]", "[env", "job.toml:20: not valid TOML: expected ']' at the end of a table declaration"),
        ("hold = true", "hold = True", "job.toml:16: not valid TOML: invalid value"),
        ("hold = true", 'name = "again"', "job.toml:16: not valid TOML: cannot overwrite a value"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_key(was: str, becomes: str, says: str) -> None:
    assert was in WHOLE
    assert says in complaint(WHOLE.replace(was, becomes, 1))


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "job.toml:1: nothing to run"),
        ("command = ", "job.toml:1: not valid TOML: invalid value"),
        ('command = """\nnever closed\n', "job.toml:2: not valid TOML"),
        ("x = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("priority = " + "9" * 10_000, "not valid TOML"),
        ("priority = " + "9" * 400 + "\ncommand = 'x'", "job.toml:1: priority"),
        ('lines_file = "no-such-file"', "job.toml:1: lines_file: cannot read no-such-file"),
        ('lines = ["a",\n "b",\n ""]', "job.toml:3: lines[2]: is empty"),
    ],
)
def test_a_file_that_is_no_job_is_refused_with_one_message(text: str, says: str) -> None:
    message = complaint(text)
    assert says in message
    assert "\n" not in message


def test_a_file_that_is_not_text_is_named_with_its_line() -> None:
    Path("job.toml").write_bytes(b"name = 'a'\ncommand = '\xff'\n")
    with pytest.raises(UsageError, match=r"job\.toml:2 is not UTF-8 text"):
        read_file("job.toml")


def test_a_wrong_option_beside_a_file_is_blamed_on_the_option() -> None:
    assert complaint(WHOLE, "--mem", "much") == "--mem: 'much' is not a size; write 500M or 2G"


def test_a_bad_line_of_another_file_is_named_by_its_place_there() -> None:
    Path("cmds.txt").write_text("echo a\n\necho " + "x" * 70_000)
    assert "job.toml:1: lines_file: cmds.txt:3 is 70,005 bytes long" in complaint('lines_file = "cmds.txt"')
