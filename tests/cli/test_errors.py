"""Exit codes, and what is said when something is wrong: one line, what to do, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tercel.cli import app
from tercel.cli.screen import SCHEMA
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import STATUS, FakeManager, job, problem


def one_line(text: str) -> bool:
    return text.startswith("tercel: ") and text.count("\n") == 1 and "Traceback" not in text


def test_without_a_manager_the_exit_code_is_3_and_the_way_out_is_named(tercel: Tercel) -> None:
    done = tercel("status")
    assert (done.code, done.out) == (3, "")
    assert one_line(done.err)
    assert "tercel up" in done.err


def test_an_unreachable_server_is_named(tercel: Tercel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERCEL_TOKEN", "a.b")
    done = tercel("status", "--server", "http://127.0.0.1:1")
    assert done.code == 3
    assert one_line(done.err)
    assert "http://127.0.0.1:1" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sbumit"], "there is no command 'sbumit'; did you mean 'submit'?"),
        (["status", "--nosuch"], "--nosuch"),
        (["show"], "SELECT"),
        (["submit"], "nothing to run"),
        (["submit", "--array", "9-0", "--", "true"], "ends before it begins"),
        (["submit", "--mem", "much", "--", "true"], "'much' is not a size"),
        (["submit", "-t", "soon", "--", "true"], "'soon' is not a time"),
        (["submit", "-c", "nan", "--", "true"], "cpus"),
        (["submit", "-c", "x", "--", "true"], "is not a number"),
        (["submit", "--retries", "-1", "--", "true"], "retries"),
        (["submit", "--env", "NO_SUCH_VARIABLE_HERE", "--", "true"], "not set here"),
        (["submit", "--env", "=x", "--", "true"], "variable's name"),
        (["submit", "--", "echo", "\udcff"], "argv is no text: it is not UTF-8"),
        (["submit", "--name", "\udcff", "--", "true"], "--name: is no text: it is not UTF-8"),
        (["submit", "--block-on", "exit:1 -> file:/\udcff", "--", "true"], "file:/\\xff is no text"),
        (["worker", "drain", "w\udcff"], "w\\xff is no text: it is not UTF-8"),
        (["submit", "--each-line", "no-such-file"], "cannot read no-such-file"),
        (["submit", "--each-line", "-", "--", "true"], "brings its own commands"),
        (["submit", "--", ""], "nothing to run"),
        (["submit", "--", "echo", "a\0b"], "NUL"),
        (["cancel", "37.x"], "selects nothing: write 37, 37.99"),
        (["cancel", "-5"], "-5"),
        (["explain", "37.0-9"], "several tasks"),
        (["worker", "lsit"], "there is no token for http://lsit:7717"),
        (["worker", "http://"], "is not a manager's address"),
        (["up", "--port", "99999"], "99999"),
        (["up", "--cpus", "0"], "more than none"),
        (["worker", "--cpus", "nan"], "more than none"),
        (["worker", "--mem", "much"], "'much' is not a size"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_wrong_usage_is_exit_code_2_in_one_line_and_asks_the_manager_nothing(
    tercel: Tercel, manager: FakeManager, words: list[str], says: str
) -> None:
    done = tercel(*words, stdin=b"true\n")
    assert (done.code, done.out) == (2, "")
    assert one_line(done.err), done.err
    assert says in done.err
    assert manager.requests == []


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, 2, "usage"),
        (403, 2, "forbidden"),
        (404, 2, "not_found"),
        (503, 3, "passing_fault"),
        (507, 3, "store_full"),
    ],
)
def test_with_json_an_error_is_a_document_too(
    tercel: Tercel, manager: FakeManager, status: int, code: int, kind: str
) -> None:
    manager.says("GET", "/v1/status", problem(status, "the reason"))
    done = tercel("status", "--json")
    assert done.code == code
    assert done.json == {"schema": 1, "error": "the reason", "kind": kind}
    assert done.err == "tercel: the reason\n"


def test_json_is_honoured_even_if_the_command_line_is_wrong(tercel: Tercel) -> None:
    assert tercel("submit", "--nosuch", "--json").json["kind"] == "usage"
    assert tercel("--json", "nosuch").json["kind"] == "usage"
    assert tercel("submit", "--nosuch", "--", "x", "--json").out == ""


def test_the_wrong_field_is_named_for_programs(tercel: Tercel, manager: FakeManager) -> None:
    assert tercel("submit", "--json", "--array", "x", "--", "true").json["field"] == "array"


def test_global_options_stand_before_or_after_the_command(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", STATUS)
    assert tercel("--json", "status").json == tercel("status", "--json").json
    assert tercel("--server", manager.url, "--json").json["url"] == manager.url
    assert tercel("status", "--server", manager.url, "-q").code == 0


def test_a_bare_tercel_is_status(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", STATUS)
    assert tercel("--json").json == tercel("status", "--json").json


def test_a_fault_of_our_own_is_told_apart_from_a_failed_task(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise TypeError("oops")

    monkeypatch.setattr(app, "_run", fault)
    done = tercel("status")
    assert done.code == 70
    assert one_line(done.err)
    assert "TypeError: oops" in done.err


def test_an_error_out_of_a_group_of_tasks_is_told_as_itself(
    tercel: Tercel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise ExceptionGroup("two", [ExceptionGroup("one", [app.UsageError("the port is taken")])])

    monkeypatch.setattr(app, "_run", fault)
    assert tercel("status") == (2, "", "tercel: the port is taken\n")


def test_an_interrupt_is_quiet(tercel: Tercel, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "_run", fault)
    assert tercel("status") == (130, "", "")


def test_a_reader_that_has_enough_is_no_error(home: Path, manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs", api.JobList(jobs=[job(id) for id in range(1000, 0, -1)], more=False))
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "tercel", "list", "--limit", "1000"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_schema_is_that_of_the_api() -> None:
    assert SCHEMA == api.SCHEMA
