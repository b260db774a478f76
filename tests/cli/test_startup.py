"""What a command imports decides how fast it starts; the figures themselves are in benchmarks/startup.py."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from tercel.cli import completing
from tercel.cli.app import COMMANDS, tercel
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import POOL, STATUS, TOKEN, FakeManager, Request, condition, job, problem


def imported(*words: str) -> set[str]:
    script = (
        "import sys\nfrom tercel.cli import main\n"
        f"code = main({list(words)!r})\nprint('\\nMODULES', *sys.modules)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("MODULES ")[2].split())


def test_help_imports_nothing_that_talks() -> None:
    modules = imported("--help")
    assert "click" in modules
    assert not modules & {"asyncio", "h11", "rich", "aiohttp", "tercel.wire.api", "tercel.sdk.client"}


def test_status_imports_no_manager_and_no_bar(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", STATUS)
    modules = imported("status", "--json")
    assert "h11" in modules
    assert not modules & {
        "aiohttp",
        "rich",
        "uvloop",
        "sqlite3",
        "psutil",
        "tercel.wiring",
        "tercel.cli.hosting",
    }


@pytest.mark.parametrize("name", [entry.name for entry in COMMANDS])
def test_every_command_has_help_of_its_own_without_loading_a_manager(name: str) -> None:
    modules = imported(name, "--help")
    assert not modules & {"aiohttp", "rich", "tercel.wiring"}


def test_every_command_of_the_table_exists() -> None:
    with tercel.make_context("tercel", ["--help"], resilient_parsing=True) as context:
        for entry in COMMANDS:
            command = tercel.get_command(context, entry.name)
            assert command is not None
            assert command.help


def test_help_lists_every_command(tercel: Tercel) -> None:
    out = tercel("--help").out
    assert all(f"  {entry.name} " in out for entry in COMMANDS)
    assert "--each-line" in tercel("run", "-h").out


def test_version_is_told_in_both_ways(tercel: Tercel) -> None:
    assert tercel("--version").out == tercel("version").out
    assert set(tercel("version", "--json").json) == {"schema", "version", "python"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_us_back(tercel: Tercel, shell: str) -> None:
    done = tercel("completion", shell)
    assert done.code == 0
    assert "_TERCEL_COMPLETE" in done.out


def test_without_a_name_the_users_shell_is_meant(tercel: Tercel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert tercel("completion", "--json").json["shell"] == "fish"
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert tercel("completion").code == 2


def completed(line: str) -> list[str]:
    words = line.split(" ")
    env = os.environ | {
        "_TERCEL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tercel"], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return [item.partition(",")[2] for item in done.stdout.split()]


def test_completion_knows_commands_and_options() -> None:
    assert completed("tercel s") == ["submit", "sweep", "status", "show", "switch", "snapshot", "schema"]
    assert completed("tercel worker d") == ["drain"]
    assert completed("tercel worker r") == ["release"]
    assert completed("tercel reserve ") == ["create", "list", "end"]
    assert "--each-line" in completed("tercel run --e")


@pytest.fixture
def offered(tercel: Tercel, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """As `completed`, in this process, with all the patience that a busy machine may need."""
    monkeypatch.setattr(completing, "PATIENCE_S", 60.0)

    def offer(line: str) -> list[str]:
        monkeypatch.setenv("_TERCEL_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        done = tercel()
        assert (done.code, done.err) == (0, "")
        return [item.partition(",")[2] for item in done.out.split()]

    return offer


def test_completion_offers_the_managers_jobs(
    offered: Callable[[str], list[str]], manager: FakeManager
) -> None:
    jobs = [job(371), job(37), job(4)]

    def listed(request: Request) -> api.JobList:
        return api.JobList(jobs=jobs if "all" in request.query else jobs[1:2], more=False)

    manager.says("GET", "/v1/jobs", listed)
    for verb in ("show", "history", "rollback", "fork", "retry"):
        assert offered(f"tercel {verb} ") == ["371", "37", "4"]
    for verb in ("cancel", "hold", "release"):
        assert offered(f"tercel {verb} 4 ") == ["37"]
    assert offered("tercel show 37") == ["371", "37"]
    before = len(manager.requests)
    assert offered("tercel show 37.") == offered("tercel show la") == []
    assert offered("tercel show --js") == ["--json"]
    assert len(manager.requests) == before
    manager.says("GET", "/v1/jobs", problem(403, "no"))
    assert offered("tercel show ") == []


def test_completion_offers_the_managers_conditions(
    offered: Callable[[str], list[str]], manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [condition(12), condition(3)]
    manager.says("GET", "/v1/conditions", api.ConditionList(conditions=found, more=False))
    assert offered("tercel blocked test ") == ["C12", "C3"]
    assert offered("tercel blocked release C3 c1") == ["C12"]
    assert offered("tercel blocked C") == ["C12", "C3"], "as it may be written without a command's name"
    assert offered("tercel blocked re") == ["release", "resume"]
    monkeypatch.setenv("TERCEL_TOKEN", TOKEN)
    monkeypatch.setenv("TERCEL_SERVER", "http://127.0.0.1:1")
    assert offered(f"tercel blocked test --server {manager.url} C3") == ["C3"]
    assert offered("tercel blocked test C3") == [], "nobody is there"
    monkeypatch.setenv("TERCEL_SERVER", "http://a..b:x")
    assert offered("tercel blocked test C3") == [], "it is no address"
    monkeypatch.delenv("TERCEL_TOKEN")
    monkeypatch.setenv("TERCEL_SERVER", "http://127.0.0.1:1")
    assert offered("tercel blocked test C3") == [], "there is no token for it"


def test_completion_offers_the_workers_that_are_there(
    offered: Callable[[str], list[str]], manager: FakeManager
) -> None:
    here = POOL.workers[0]
    workers = [
        msgspec.structs.replace(here, id=id, state=state)
        for id, state in (("n1", "available"), ("n2", "draining"), ("n3", "offline"), ("w1", "available"))
    ]
    manager.says("GET", "/v1/pool", api.Pool(workers=workers, online=3, cpus=2.0))
    for verb in ("look", "drain", "quarantine", "release", "tag"):
        assert offered(f"tercel worker {verb} n") == ["n1", "n2"]


def test_completion_offers_no_name_that_a_shell_would_obey(
    offered: Callable[[str], list[str]], manager: FakeManager
) -> None:
    here = POOL.workers[0]
    names = ("w1;id", "w`id`", "w$(id)", "w*", "w'", "w 2", "w\u00a02", "--all", "w\\", "", "n.1-a@lab_2")
    workers = [msgspec.structs.replace(here, id=name) for name in names]
    manager.says("GET", "/v1/pool", api.Pool(workers=workers, online=3, cpus=2.0))
    assert offered("tercel worker look ") == ["n.1-a@lab_2"]


def test_completion_of_snapshots_is_the_shells_own(
    offered: Callable[[str], list[str]], tercel: Tercel
) -> None:
    for verb in ("save", "inspect", "restore"):
        offered(f"tercel snapshot {verb} cam")
        assert tercel().out == "file,cam\n"
    assert offered("tercel snapshot inspect @") == []


def test_completion_gives_up_on_a_manager_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERCEL_TOKEN", "a.b")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("TERCEL_SERVER", f"http://127.0.0.1:{mute.getsockname()[1]}")
        assert completed("tercel show ") == []
