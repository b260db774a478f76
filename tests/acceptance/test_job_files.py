"""Job files with real tasks: scripts run as they were when they were submitted, by their own interpreter."""

import json
from pathlib import Path

import pytest

from tests.lab import Lab

pytestmark = pytest.mark.must("e")


def write(lab: Lab, name: str, text: str) -> Path:
    path = lab.work / name
    path.write_text(text)
    return path


def test_a_bash_script_runs_with_its_arguments_and_directives(lab: Lab) -> None:
    write(
        lab,
        "job.sh",
        "#!/bin/bash\n#SBATCH --account=physics\n#TERCEL --array 0-2 --env WORD='a b'\n"
        'values=("$@")\necho "${TERCEL_TASK_ID}|$SLURM_ARRAY_TASK_ID|${#values[@]}|$1|$WORD|${0##*/}|$(pwd)"\n',
    )
    done = lab.run("run", "job.sh", "--", "x y", "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{n}|{n}|2|x y|a b|job.sh|{lab.work}" for n in range(3)]
    assert "job.sh, line 2: #SBATCH --account=physics is ignored" in done.stderr


def test_a_python_script_runs_under_python_and_its_exit_code_is_the_tasks(lab: Lab) -> None:
    write(
        lab,
        "job.py",
        "#!/usr/bin/env python3\n#TERCEL -J py --cwd sandbox\nimport os, sys\nprint(sys.argv[1:], os.listdir())\nsys.exit(7)\n",
    )
    done = lab.run("run", "job.py", "a'b")
    assert done.returncode == 1
    assert done.stdout == "[\"a'b\"] ['.tercel']\n"
    assert "exited with code 7" in done.stderr


async def test_a_script_that_is_changed_or_gone_runs_as_it_was_submitted(lab: Lab) -> None:
    await lab.up()
    script = write(
        lab, "job.sh", "#!/bin/sh\n#TERCEL --array 0-1\nwhile [ ! -e go ]; do sleep 0.02; done; echo first\n"
    )
    job = lab.run("submit", "job.sh").stdout.strip()
    script.write_text("#!/bin/sh\necho second\n")
    script.unlink()
    (lab.work / "go").write_text("")
    assert lab.run("wait", job).returncode == 0
    for task in range(2):
        assert lab.run("logs", f"{job}.{task}").stdout == "first\n"


def test_a_job_of_toml_runs(lab: Lab) -> None:
    write(lab, "cmds.txt", "# two\necho one\necho $WORD | tr a-z A-Z\n")
    write(lab, "job.toml", 'lines_file = "cmds.txt"\n[env]\nWORD = "two"\n')
    done = lab.run("run", "job.toml", "--label")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["1.0: one", "1.1: TWO"]


def test_a_sweep_of_toml_runs(lab: Lab) -> None:
    write(lab, "job.toml", "command = ['echo', '{C}:{k}']\n[sweep]\nC = [0.1, 10]\nk = ['a b', \"it's\"]\n")
    done = lab.run("run", "job.toml")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0.1:a b", "0.1:it's", "10:a b", "10:it's"]


@pytest.mark.K(15)
def test_a_kestrel_file_runs_with_the_tasks_number_last(lab: Lab) -> None:
    write(lab, "star.job", "[job]\nqueue = 3\ncommand = echo task | cat -; echo number\n")
    done = lab.run("run", "star.job")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(line for line in lines if line != "task") == [f"number {n}" for n in range(3)]


def test_a_wrong_file_starts_nothing(lab: Lab) -> None:
    write(lab, "job.toml", "command = 'touch started'\ncpus = 'many'\n")
    done = lab.run("run", "job.toml", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == "job.toml:2: cpus: a number is needed, not text"
    assert not (lab.work / "started").exists()


FLOW = """\
name = "study"
[step.merge]
command = "cat part.* > all; echo merged"
needs = ["part"]
[step.part]
command = "cp seed.$TERCEL_TASK_ID part.$TERCEL_TASK_ID"
array = "0-2"
needs = [{step = "seed", tasks = "same"}]
[step.seed]
command = "echo $TERCEL_TASK_ID > seed.$TERCEL_TASK_ID"
array = "0-2"
"""


def test_a_flow_runs_in_the_order_of_its_needs(lab: Lab) -> None:
    write(lab, "flow.toml", FLOW)
    done = lab.run("run", "flow.toml")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "merged\n"
    assert (lab.work / "all").read_text() == "0\n1\n2\n"
    assert "3 jobs, 7 tasks: 1-3" in done.stderr
    assert "7 finished" in done.stderr


@pytest.mark.parametrize(
    ("on_failure", "made"),
    [
        ("skip", {"free"}),
        ("run", {"free", "needy"}),
    ],
)
def test_what_a_failure_means_for_others_is_the_files_to_say(
    lab: Lab, on_failure: str, made: set[str]
) -> None:
    write(
        lab,
        "flow.toml",
        f"on_failure = '{on_failure}'\n[step.bad]\ncommand = 'exit 3'\n"
        "[step.needy]\ncommand = 'touch needy'\nneeds = 'bad'\n[step.free]\ncommand = 'touch free'\n",
    )
    done = lab.run("run", "flow.toml")
    assert done.returncode == 1
    assert "1.0 failed: exited with code 3" in done.stderr
    assert {path.name for path in lab.work.iterdir()} - {"flow.toml"} == made


def test_a_flow_with_a_circle_starts_nothing(lab: Lab) -> None:
    write(lab, "flow.toml", FLOW.replace("[step.seed]", "[step.seed]\nneeds = ['merge']"))
    done = lab.run("run", "flow.toml")
    assert done.returncode == 2
    assert (
        "flow.toml:10: step.seed.needs[0]: steps need one another in a circle: merge -> part -> seed -> merge"
        in done.stderr
    )
    assert {path.name for path in lab.work.iterdir()} == {"flow.toml"}
