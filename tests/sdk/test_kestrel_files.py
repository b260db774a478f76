"""Kestrel's job files."""

from pathlib import Path

import pytest

from tercel.core.errors import UsageError
from tercel.sdk.files import Draft, read_file
from tercel.sdk.files.options import read_options
from tercel.sdk.files.sources import OptionSource

pytestmark = pytest.mark.K(5, 15)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, *options: str) -> Draft:
    Path("star.job").write_text(text)
    [draft] = read_file("star.job", above=read_options(options, OptionSource()))
    return draft


def complaint(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(text)
    return str(caught.value)


def test_a_job_is_a_shell_command_run_so_often_with_the_tasks_number_last() -> None:
    draft = read("; for STAR\n[job]\nqueue = 50000\ncommand = /runtask.sh | tee log\n")
    job = draft.submission
    assert (job.line, job.array, job.task_id_argument) == ("/runtask.sh | tee log", "0-49999", True)
    assert draft.tasks == 50_000


def test_it_is_read_as_kestrel_read_it() -> None:
    """Names in any case, `:` for `=`, values that go on, other sections, empty values."""
    job = read(
        "[client]\njid = a@b\n[Job]\nQueue: 5\ncommand=./a.sh \\\n   --more\ncleanup =\nrequires=\n"
    ).submission
    assert (job.line, job.array) == ("./a.sh \\\n--more", "0-4")


@pytest.mark.K(4, 5, 12)
@pytest.mark.parametrize(
    "requires",
    [
        "requires = Python2.6 SleekXMPP",
        "requires: Python2.6, SleekXMPP",
        "requires =\n  Python2.6\n  SleekXMPP\n  Python2.6",
    ],
)
def test_what_it_requires_and_how_it_is_cleaned_up_after_are_the_jobs(requires: str) -> None:
    job = read(f"[job]\ncommand = x\n{requires}\ncleanup = ./wipe.sh | tee log\n").submission
    assert (job.requires, job.cleanup) == (("Python2.6", "SleekXMPP"), "./wipe.sh | tee log")


def test_without_queue_there_is_one_task() -> None:
    assert read("[job]\ncommand = x\n").tasks == 1


def test_options_count_more() -> None:
    job = read("[job]\ncommand = x\nqueue = 5\n", "--array", "0-1", "-c", "2").submission
    assert (job.array, job.cpus) == ("0-1", 2.0)


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[job]\nqueue = 5\n", "star.job:1: [job] has no command"),
        ("[job]\ncommand =\n", "star.job:1: [job] has no command"),
        ("[job]\ncommand = x\nqueue = many\n", "star.job:3: queue: 'many' is not a number of tasks"),
        ("[job]\ncommand = x\nqueue = 0\n", "star.job:3: queue: '0' is not a number of tasks"),
        ("[job]\ncommand = x\nqeue = 5\n", "star.job:3: there is no key 'qeue'; did you mean 'queue'?"),
        ("[job]\ncommand = x\ncommand = y\n", "star.job:3: command: it stands in line 2 already"),
        ("[job]\ncommand = x\nwhat is this\n", "star.job:3: 'what is this' is not NAME = VALUE"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_line(text: str, says: str) -> None:
    assert says in complaint(text)
