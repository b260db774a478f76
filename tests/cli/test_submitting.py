"""tercel submit: options -> what the manager is sent."""

import errno
from pathlib import Path
from typing import Any

import pytest

from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import FakeManager, events, problem, task

SUBMITTED = api.Submitted(id=37, tasks=10, name="fit")


@pytest.fixture(autouse=True)
def accepting(manager: FakeManager) -> None:
    manager.says("POST", "/v1/jobs", SUBMITTED)


def sent(manager: FakeManager) -> dict[str, Any]:
    [request] = manager.asked("POST", "/v1/jobs")
    body: dict[str, Any] = request.json()
    assert len(body.pop("key")) == 32
    return body


def test_the_job_id_is_all_that_stands_on_stdout(tercel: Tercel) -> None:
    done = tercel("submit", "--", "true")
    assert (done.code, done.out) == (0, "37\n")


def test_json_gives_id_tasks_and_name(tercel: Tercel) -> None:
    assert tercel("submit", "--json", "--", "true").json == {
        "schema": 1,
        "id": 37,
        "tasks": 10,
        "name": "fit",
    }


def test_every_option_reaches_the_manager(tercel: Tercel, manager: FakeManager) -> None:
    tercel(
        *("submit", "-J", "fit", "-c", "2", "--mem", "500M", "-t", "1h", "--array", "0-9%3"),
        *("--priority", "5", "--retries", "2", "--cwd", "/data", "--env", "A=b=c", "--env", "HOME"),
        *("--task-id-argument", "--output-limit", "1M", "--", "./fit.sh", "-v", "--json"),
    )
    body = sent(manager)
    assert body.pop("env")["A"] == "b=c"
    assert body == {
        "argv": ["./fit.sh", "-v", "--json"],
        "name": "fit",
        "cpus": 2.0,
        "mem_bytes": 500 * 2**20,
        "time_limit_s": 3600.0,
        "array": "0-9%3",
        "priority": 5,
        "retries": 2,
        "cwd": "/data",
        "task_id_argument": True,
        "output_limit_bytes": 2**20,
    }


def test_options_end_where_the_command_begins(tercel: Tercel, manager: FakeManager) -> None:
    tercel("submit", "echo", "-n", "--array", "x")
    assert sent(manager)["argv"] == ["echo", "-n", "--array", "x"]


@pytest.mark.parametrize(
    ("words", "argv", "line"),
    [
        (["true"], ["true"], None),
        (["./fit.sh", "a b"], ["./fit.sh", "a b"], None),
        (["echo hello"], None, "echo hello"),
        (["a|b"], None, "a|b"),
        (["X=1"], None, "X=1"),
        (["echo $HOME > x"], None, "echo $HOME > x"),
        (["./my tool"], ["./my tool"], None),
    ],
)
def test_one_quoted_word_is_a_line_for_the_shell_unless_a_file_has_that_name(
    tercel: Tercel, manager: FakeManager, words: list[str], argv: list[str] | None, line: str | None
) -> None:
    Path("my tool").write_text("")
    tercel("submit", *words)
    body = sent(manager)
    assert (body.get("argv"), body.get("line")) == (argv, line)


@pytest.mark.parametrize(
    ("given", "wanted"), [([], "{here}"), (["--cwd", "sub"], "{here}/sub"), (["--cwd", ".."], "{above}")]
)
def test_tasks_run_where_the_user_stands(
    tercel: Tercel, manager: FakeManager, home: Path, given: list[str], wanted: str
) -> None:
    tercel("submit", *given, "--", "true")
    assert sent(manager)["cwd"] == wanted.format(here=home / "work", above=home)


def test_the_directory_keeps_the_name_the_shell_knows_it_by(
    tercel: Tercel, manager: FakeManager, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "link").symlink_to(home / "work")
    monkeypatch.setenv("PWD", str(home / "link"))
    tercel("submit", "--", "true")
    assert sent(manager)["cwd"] == str(home / "link")


def test_a_name_of_the_directory_that_only_another_user_may_follow_is_not_used(
    tercel: Tercel, manager: FakeManager, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `sudo`, which passes PWD on."""

    def closed(*_: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setenv("PWD", "/root/of-somebody-else")
    monkeypatch.setattr(Path, "exists", closed)
    monkeypatch.setattr(Path, "samefile", closed)
    assert tercel("submit", "--", "true").code == 0
    assert sent(manager)["cwd"] == str(home / "work")


def test_a_sandbox_is_asked_for_by_name(tercel: Tercel, manager: FakeManager) -> None:
    tercel("submit", "--cwd", "sandbox", "--", "true")
    assert "cwd" not in sent(manager)


# -- lines ------------------------------------------------------------------------------------------------


def test_each_line_is_a_task_and_comments_are_skipped_aloud(tercel: Tercel, manager: FakeManager) -> None:
    Path("commands.txt").write_bytes(b"# first\n\n  echo a  \r\necho 'b # c'\n   \n")
    done = tercel("submit", "--each-line", "commands.txt")
    assert sent(manager)["lines"] == ["echo a", "echo 'b # c'"]
    assert "3 blank or comment lines of commands.txt skipped" in done.err


def test_the_mark_that_some_editors_begin_a_file_with_is_no_command(
    tercel: Tercel, manager: FakeManager
) -> None:
    Path("commands.txt").write_bytes(b"\xef\xbb\xbfecho a\r\necho b\r\n")
    tercel("submit", "--each-line", "commands.txt")
    assert sent(manager)["lines"] == ["echo a", "echo b"]


def test_lines_come_from_stdin_too(tercel: Tercel, manager: FakeManager) -> None:
    done = tercel("submit", "-q", "--each-line", "-", stdin=b"echo a\necho b")
    assert sent(manager)["lines"] == ["echo a", "echo b"]
    assert done.err == ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has no lines to run"),
        (b"# only\n\n", "has no lines to run"),
        (b"echo a\n\n# x\necho \xff\n", "f:4 is not UTF-8"),
        (b"\necho a\0b\n", "f:2 contains a NUL byte"),
        (b"#\n" + b"x" * 70_000, "f:2 is 70,000 bytes long"),
    ],
)
def test_a_bad_line_is_named_by_its_place_in_the_file(
    tercel: Tercel, manager: FakeManager, content: bytes, says: str
) -> None:
    Path("f").write_bytes(content)
    done = tercel("submit", "--each-line", "f")
    assert done.code == 2
    assert says in done.err
    assert manager.requests == []


# -- dry run, wait ----------------------------------------------------------------------------------------


def test_a_dry_run_tells_and_does_nothing(tercel: Tercel, manager: FakeManager) -> None:
    done = tercel("submit", "--dry-run", "--array", "0-99", "--mem", "2G", "--", "./fit.sh")
    assert done.code == 0
    assert "Nothing is submitted" in done.out
    assert "100 (0-99)" in done.out
    document = tercel("submit", "--dry-run", "--json", "--array", "0-99", "--", "./fit.sh").json
    assert (document["dry_run"], document["tasks"], document["job"]["argv"]) == (True, 100, ["./fit.sh"])
    assert manager.requests == []


def test_with_wait_the_exit_code_tells_how_it_ended(tercel: Tercel, manager: FakeManager) -> None:
    good = api.Event(job=37, counts=api.Counts(finished=10), done=True)
    bad = api.Event(job=37, counts=api.Counts(finished=9, failed=1), done=True)
    failed = task(3, why="exit code 7", stderr="reading\nno such file\n")
    manager.says("GET", "/v1/jobs/37/tasks", api.TaskList(tasks=[failed], more=False))
    manager.says("GET", "/v1/events", events(good))
    assert tercel("submit", "--wait", "--", "true").code == 0
    manager.says("GET", "/v1/events", events(bad))
    done = tercel("submit", "--wait", "--json", "--", "true")
    assert done.code == 1
    first, last = done.json_lines
    assert first["id"] == last["id"] == 37
    assert last["counts"]["failed"] == 1
    assert "37.3 finished: exit code 7: no such file" in done.err


def test_a_full_disk_is_told_as_the_managers_trouble(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/jobs", problem(507, "the disk is full"))
    done = tercel("submit", "--", "true")
    assert (done.code, done.out, done.err) == (3, "", "tercel: the disk is full\n")
