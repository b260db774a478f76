"""What a command imports decides how fast it starts; the figures themselves are in benchmarks/startup.py."""

import os
import subprocess
import sys

import pytest

from tercel.cli.app import COMMANDS, tercel
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import STATUS, FakeManager


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
        [sys.executable, "-m", "tercel"], env=env, capture_output=True, text=True, check=True
    )
    return [item.partition(",")[2] for item in done.stdout.split()]


def test_completion_knows_commands_and_options() -> None:
    assert completed("tercel s") == ["submit", "sweep", "status", "show", "switch", "snapshot", "schema"]
    assert completed("tercel worker d") == ["drain"]
    assert completed("tercel worker r") == ["release"]
    assert completed("tercel reserve ") == ["create", "list", "end"]
    assert "--each-line" in completed("tercel run --e")
