"""job.sh: directives -> a job, and the script's own text as what is run."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tercel.core.errors import UsageError
from tercel.core.model import After, AfterKind
from tercel.core.points import CommandTemplate
from tercel.sdk.files import Draft, is_job_file, read_file
from tercel.sdk.files.options import read_options
from tercel.sdk.files.sources import OptionSource


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    return tmp_path


def read(text: str, *arguments: str, options: tuple[str, ...] = ()) -> Draft:
    Path("job.sh").write_text(text)
    [draft] = read_file("job.sh", arguments, read_options(options, OptionSource()))
    return draft


def complaint(text: str, *options: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(text, options=options)
    return str(caught.value)


def test_tercel_directives_are_the_command_lines_options() -> None:
    job = read(
        "#!/bin/sh\n"
        "#TERCEL -J fit -c2 --mem=4G -t 1h --array 0-9\n"
        "# a comment\n\n"
        "#TERCEL --env A='b c' --env B=1 --retry-on 75,137:5:30s --hold --cwd sandbox -p vision\n"
        "true\n"
    ).submission
    assert (job.name, job.cpus, job.mem_bytes, job.time_limit_s) == ("fit", 2.0, 4 * 2**30, 3600.0)
    assert (job.array, job.env, job.cwd, job.queue) == ("0-9", {"A": "b c", "B": "1"}, "", "vision")
    assert job.hold
    assert [(rule.codes, rule.retries, rule.backoff_s) for rule in job.retry_rules] == [((75, 137), 5, 30.0)]


def test_sbatch_directives_are_understood_where_they_mean_something_here() -> None:
    draft = read(
        "#!/bin/bash\n"
        "#SBATCH --job-name=fit --cpus-per-task 2 -t 01:30:00 # a comment\n"
        "#SBATCH --mem-per-cpu=500M\n"
        "#SBATCH -a 0-9%2 -D /data -n 1 -N 1 --requeue\n"
        "#SBATCH --export=A=1,B=x=y --dependency=afterok:1:2,aftercorr:3,afterany:4\n"
        "true\n"
    )
    job = draft.submission
    assert draft.remarks == []
    assert (job.name, job.cpus, job.mem_bytes, job.time_limit_s) == ("fit", 2.0, 1000 * 2**20, 5400.0)
    assert (job.array, job.cwd, job.env) == ("0-9%2", "/data", {"A": "1", "B": "x=y"})
    assert job.after == (
        After(job=1),
        After(job=2),
        After(job=3, each=True),
        After(job=4, kind=AfterKind.ANY),
    )


@pytest.mark.parametrize(
    ("words", "fields", "ignored"),
    [
        ("--gpus=2", {"gpus": 2}, ""),
        ("-G 2", {"gpus": 2}, ""),
        ("--gpus-per-task=1", {"gpus": 1}, ""),
        ("--gpus=a100:2", {"gpus": 2}, "--gpus: the model a100"),
        ("--gres=gpu", {"gpus": 1}, ""),
        ("--gres=gpu:3", {"gpus": 3}, ""),
        ("--gres=gpu:a100", {"gpus": 1}, "--gres: the model a100"),
        ("--gres=gpu:a100:2", {"gpus": 2}, "--gres: the model a100"),
        ("--gres=fpga:1", {"gpus": 0}, "--gres=fpga:1"),
        ("--constraint=intel", {"requires": ("intel",)}, ""),
        ("-C 'intel&ib'", {"requires": ("intel", "ib")}, ""),
        ("-C 'intel|amd'", {"requires": ()}, "-C intel|amd"),
        ("--constraint=[a*2&b]", {"requires": ()}, "--constraint=[a*2&b]"),
        ("--signal=USR1@120", {"warn_signal": "USR1@120"}, ""),
        ("--signal=B:TERM@90", {"warn_signal": "TERM@90"}, ""),
        ("--signal=SIGINT", {"warn_signal": "SIGINT@60"}, ""),
        ("--signal=10@30", {"warn_signal": "USR1@30"}, ""),
    ],
)
def test_sbatch_says_where_tasks_run_and_how_they_are_warned(
    words: str, fields: dict[str, object], ignored: str
) -> None:
    draft = read(f"#!/bin/sh\n#SBATCH {words}\ntrue\n")
    assert {name: getattr(draft.submission, name) for name in fields} == fields
    assert draft.remarks == ([f"job.sh, line 2: #SBATCH {ignored} is ignored"] if ignored else [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--signal=KILL@60", "job.sh:2: --signal: no task can heed KILL"),
        ("--signal=NOSUCH@60", "job.sh:2: --signal: there is no signal NOSUCH"),
        ("--signal=USR1@soon", "job.sh:2: --signal: 'USR1@SOON' is not NAME@SECONDS"),
        ("--gpus=many", "job.sh:2: --gpus: 'many' is not a number"),
        ("--gpus=1.5", "job.sh:2: --gpus: is 1.5; more than one GPU are whole ones"),
    ],
)
def test_what_sbatch_cannot_mean_is_refused_with_its_line(words: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read(f"#!/bin/sh\n#SBATCH {words}\ntrue\n")


def test_what_is_ignored_of_sbatch_is_said_with_its_line() -> None:
    draft = read(
        "#!/bin/bash\n"
        "#SBATCH --gres=fpga:1 -c 2\n"
        "#SBATCH -o out.txt -p short --exclusive\n"
        "##SBATCH --commented-out\n"
        "#SBATCH --ntasks 4 --export=ALL,A=1\n"
        "true\n"
    )
    assert draft.remarks == [
        "job.sh, line 2: #SBATCH --gres=fpga:1 is ignored",
        "job.sh, line 3: #SBATCH -o out.txt is ignored",
        "job.sh, line 3: #SBATCH -p short is ignored",
        "job.sh, line 3: #SBATCH --exclusive is ignored",
        "job.sh, line 5: #SBATCH --ntasks=4 is ignored",
        "job.sh, line 5: #SBATCH --export=ALL is ignored",
    ]
    assert (draft.submission.cpus, draft.submission.env) == (2.0, {"A": "1"})


def test_tercel_counts_more_than_sbatch_and_options_more_than_both() -> None:
    text = "#!/bin/sh\n#TERCEL -c 3 --mem 3G\n#SBATCH -c 2 --mem 2G -t 2h -J two\ntrue\n"
    job = read(text, options=("--mem", "4G")).submission
    assert (job.cpus, job.mem_bytes, job.time_limit_s, job.name) == (3.0, 4 * 2**30, 7200.0, "two")


def test_directives_end_at_the_first_line_of_commands() -> None:
    assert read("#!/bin/sh\n#TERCEL -c 2\n\necho\n#TERCEL -c 3 --nonsense\n").submission.cpus == 2.0


def test_a_script_is_called_by_its_files_name() -> None:
    assert read("#!/bin/sh\n#TERCEL -c 1\n").submission.name == "job.sh"


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("directive", "says"),
    [
        ("#TERCEL --cups 2", "job.sh:2: there is no option '--cups'; did you mean '--cpus'?"),
        ("#TERCEL --mem '4 giraffes'", "job.sh:2: --mem: '4 giraffes' is not a size"),
        ("#TERCEL -c", "job.sh:2: -c: needs a value: -c N"),
        ("#TERCEL -c two", "job.sh:2: -c: 'two' is not a number"),
        ("#TERCEL --hold=yes", "job.sh:2: --hold: takes no value"),
        ("#TERCEL 0-9", "job.sh:2: '0-9' is not an option"),
        ("#TERCEL --env 'A", "job.sh:2: #TERCEL: no closing quotation"),
        ("#TERCEL --retry-on x", "job.sh:2: --retry-on: 'x' is not CODES[:RETRIES[:BACKOFF]]"),
        ("#TERCEL --retry-on 300", "job.sh:2: --retry-on: 300 is not between 1 and 255"),
        ("#TERCEL --each-line f", "job.sh:2: --each-line: the script itself is what is run"),
        ("#TERCEL --array 9-0", "job.sh:2: --array: '9-0': '9-0' ends before it begins"),
        ("#SBATCH -t soon", "job.sh:2: -t: 'soon' is not a time"),
        ("#SBATCH --mem-per-cpu=x", "job.sh:2: --mem-per-cpu: 'x' is not a size"),
        (
            "#SBATCH --dependency=afterok:1?afterok:2",
            "job.sh:2: --dependency: 'afterok:1?afterok:2': waiting for any",
        ),
        ("#SBATCH --dependency=singleton", "'singleton' is not supported"),
    ],
)
def test_a_wrong_directive_is_told_with_its_line(directive: str, says: str) -> None:
    assert says in complaint(f"#!/bin/sh\n{directive}\ntrue\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\n#TERCEL -c 1\n" + "# x\n" * 40_000, "the script has 160,023 bytes; at most 125,952"),
        ("#!/bin/sh\n#TERCEL -c 1\necho \0\n", "the script contains a NUL byte"),
    ],
)
def test_a_script_that_cannot_travel_is_refused(text: str, says: str) -> None:
    assert says in complaint(text)


# -- what is run ------------------------------------------------------------------------------------------


def run(draft: Draft, sandbox: Path) -> subprocess.CompletedProcess[str]:
    sandbox.mkdir(exist_ok=True)
    environment = os.environ | {"TERCEL_SANDBOX": str(sandbox)}
    return subprocess.run(draft.submission.argv, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ('#!/bin/bash\n#TERCEL -c 1\n[[ a == a ]] && echo "$# $1 ${0##*/}"\n', "2 a 'b job.sh\n"),
        ("#!/usr/bin/env python3\n#TERCEL -c 1\nimport sys; print(sys.argv[1:])", "[\"a 'b\", '$c']\n"),
        ('#TERCEL -c 1\nprintf \'%s|\' "$@" "it\'s {C} \\n"', "a 'b|$c|it's {C} \\n|"),
        ("#!/bin/sh -e\n#TERCEL -c 1\nfalse\necho not reached\n", ""),
    ],
)
def test_the_scripts_text_runs_under_its_own_interpreter(here: Path, text: str, out: str) -> None:
    done = run(read(text, "a 'b", "$c"), here / "sandbox")
    assert done.stdout == out


def test_exit_codes_and_signals_are_the_scripts_own(here: Path) -> None:
    assert run(read("#!/bin/sh\n#TERCEL -c 1\nexit 7\n"), here / "s").returncode == 7
    assert run(read("#!/bin/sh\n#TERCEL -c 1\nkill -TERM $$\n"), here / "s").returncode == -15


def test_the_file_may_change_after_it_was_read(here: Path) -> None:
    draft = read("#!/bin/sh\n#TERCEL -c 1\necho first\n")
    Path("job.sh").write_text("#!/bin/sh\necho second\n")
    assert run(draft, here / "s").stdout == "first\n"
    Path("job.sh").unlink()
    assert run(draft, here / "s").stdout == "first\n"


def test_items_fill_the_holes_of_the_arguments_and_leave_the_script_alone(here: Path) -> None:
    Path("items.jsonl").write_text('{"a": "x y"}\n')
    draft = read('#!/bin/bash\n#TERCEL --from-json items.jsonl\nX={1}; echo ${X} "$1"\n', "{a}!")
    argv, _ = CommandTemplate(draft.submission.argv, "").command({"a": "x y"}, 0)
    assert argv is not None
    environment = os.environ | {"TERCEL_SANDBOX": str(here)}
    assert subprocess.run(argv, env=environment, capture_output=True, text=True).stdout == "{1} x y!\n"


# -- which files are job files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("job.sh", b"#!/bin/sh\n#TERCEL -c 2\n", True),
        ("job.sh", b"#!/bin/sh\n#SBATCH -c 2\n", True),
        ("job.sh", b"#!/bin/sh\necho a\n#TERCEL -c 2\n", False),
        ("job.sh", b"#!/bin/sh\n#TERCELLIAN\n", False),
        ("job.sh", b"#!/bin/sh\necho a\n", False),
        ("job.toml", b"", True),
        ("job", b"[job]\ncommand = x\n", True),
        ("job", b"; Kestrel\n\n[client]\njid = x\n[job]\ncommand = x\n", True),
        ("setup.cfg", b"[metadata]\nname = x\n", False),
        ("program", b"\x7fELF\0\0#TERCEL", False),
        ("text", b"see [job]\n", False),
    ],
)
def test_a_job_file_is_known_by_its_name_or_content(name: str, content: bytes, wanted: bool) -> None:
    Path(name).write_bytes(content)
    assert is_job_file(name) is wanted
    assert not is_job_file("no-such-file")


def test_arguments_are_for_scripts_only() -> None:
    Path("job.toml").write_text("command = 'x'")
    with pytest.raises(UsageError, match=r"job\.toml is not a script: it takes no arguments \('a'\)"):
        read_file("job.toml", ["a"])


def test_any_other_file_is_no_job_file() -> None:
    Path("notes").write_text("hello")
    with pytest.raises(UsageError, match="notes is no job file"):
        read_file("notes")
