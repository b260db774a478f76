"""The access file, the places it lies in, and how address and token are found."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tercel.core.errors import Unreachable, UsageError
from tercel.links.access import (
    Access,
    find_server,
    is_loopback,
    normal_url,
    read_access,
    read_token,
    remove_access,
    write_access,
    write_secret,
)
from tercel.links.places import data_dir, private_dir, runtime_dir, shared_cache_dir


def an_access(**more: object) -> Access:
    fields = {"url": "http://127.0.0.1:7717", "token": "a.b", "worker_token": "c.d", "data": "/d"}
    return Access(**({"pid": os.getpid()} | fields | more))  # type: ignore[arg-type]


def a_dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- places -----------------------------------------------------------------------------------------------


def test_directories_follow_xdg_and_are_their_owners_alone(home: Path) -> None:
    for place, variable in (
        (data_dir, "DATA_HOME"),
        (runtime_dir, "RUNTIME_DIR"),
    ):
        path = place()
        assert path == home / f"xdg_{variable.lower()}" / "tercel"
        assert mode(path) == 0o700


def test_a_relative_xdg_directory_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "somewhere/else")
    assert data_dir() == home / "home" / ".local" / "share" / "tercel"


@pytest.mark.parametrize("value", ["", "/nowhere/at/all"])
def test_without_a_runtime_directory_the_data_directory_serves(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert runtime_dir() == data_dir()


def test_a_directory_that_cannot_be_made_is_named(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot make the directory .*file/below"):
        private_dir(home / "file" / "below")


def test_workers_share_a_cache_if_files_can_be_linked_from_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert shared_cache_dir(home / "not/there/yet") == home / "home/.cache/tercel"
    assert shared_cache_dir(Path("/proc")) is None, "it is another disk"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "other"))
    assert shared_cache_dir(home) == home / "other/tercel"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert shared_cache_dir(home) is None, "it cannot be written to"


# -- the file ---------------------------------------------------------------------------------------------


def test_the_access_file_is_read_as_it_was_written_and_only_its_owner_can() -> None:
    path = write_access(an_access())
    assert path == runtime_dir() / "access.json"
    assert mode(path) == 0o600
    assert read_access(path) == an_access()
    assert [p.name for p in path.parent.iterdir()] == ["access.json"]


@pytest.mark.parametrize("wrong_mode", [0o640, 0o604, 0o660])
def test_an_access_file_that_others_can_read_is_refused(wrong_mode: int) -> None:
    path = write_access(an_access())
    path.chmod(wrong_mode)
    with pytest.raises(UsageError, match="can be read by others: chmod 600"):
        read_access(path)


def test_an_access_file_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_access(an_access())
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(UsageError, match="belongs to somebody else"):
        read_access(path)


def test_a_damaged_access_file_says_what_to_do() -> None:
    path = write_access(an_access())
    path.write_text("{")
    with pytest.raises(UsageError, match="is damaged: remove it"):
        read_access(path)


def test_a_manager_removes_only_its_own_access_file() -> None:
    mine, another = an_access(), an_access(token="e.f")
    path = write_access(another)
    remove_access(mine, path)
    assert read_access(path) == another
    remove_access(another, path)
    assert not path.exists()
    remove_access(another, path)


def test_writing_a_secret_replaces_an_open_file_by_a_closed_one(tmp_path: Path) -> None:
    path = tmp_path / "worker.token"
    path.write_text("old")
    path.chmod(0o644)
    write_secret(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)


# -- token files ------------------------------------------------------------------------------------------


def test_a_token_file_gives_its_first_line(tmp_path: Path) -> None:
    write_secret(tmp_path / "t", b"a.b\nnote\n")
    assert read_token(tmp_path / "t") == "a.b"


def test_a_token_file_that_others_can_read_is_refused_unless_it_is_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    path.write_text("a.b")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        read_token(path)
    monkeypatch.setattr(os, "getuid", lambda: 4242)  # a secret mounted by root, say
    assert read_token(path) == "a.b"


def test_missing_and_empty_token_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_token(tmp_path / "none")
    write_secret(tmp_path / "t", b"\n")
    with pytest.raises(UsageError, match="is empty"):
        read_token(tmp_path / "t")


# -- which manager ----------------------------------------------------------------------------------------


def test_nobody_types_a_token_on_the_managers_machine() -> None:
    write_access(an_access())
    assert find_server(None, None) == ("http://127.0.0.1:7717", "a.b")
    assert find_server(None, None, worker=True) == ("http://127.0.0.1:7717", "c.d")


def test_without_any_manager_it_says_how_to_start_or_name_one() -> None:
    with pytest.raises(Unreachable, match=r"no manager runs here.*tercel up.*--server"):
        find_server(None, None)


def test_an_access_file_whose_manager_is_gone_gives_no_token_away() -> None:
    write_access(an_access(pid=a_dead_pid()))
    with pytest.raises(Unreachable, match=r"is gone: start it again with `tercel up`"):
        find_server(None, None)


def test_a_manager_on_another_machine_is_not_judged_by_processes_here() -> None:
    write_access(an_access(url="http://elsewhere:7717", pid=a_dead_pid()))
    assert find_server(None, None) == ("http://elsewhere:7717", "a.b")


def test_a_living_manager_comes_before_a_stale_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write_access(an_access(pid=a_dead_pid()))
    write_access(an_access(token="l.m"), data_dir() / "access.json")
    assert find_server(None, None)[1] == "l.m"


def test_option_comes_before_environment_before_access_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write_access(an_access())
    monkeypatch.setenv("TERCEL_SERVER", "http://b:1")
    monkeypatch.setenv("TERCEL_TOKEN", "t.env")
    assert find_server(None, None) == ("http://b:1", "t.env")
    assert find_server("c", "t.arg") == ("http://c:7717", "t.arg")


def test_the_token_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secret(tmp_path / "t", b"t.file\n")
    monkeypatch.setenv("TERCEL_TOKEN_FILE", str(tmp_path / "t"))
    assert find_server("http://b:1", None) == ("http://b:1", "t.file")


def test_a_named_manager_of_this_machine_is_known_by_its_access_file() -> None:
    write_access(an_access())
    assert find_server("127.0.0.1:7717", None) == ("http://127.0.0.1:7717", "a.b")


def test_a_token_is_never_sent_to_an_address_it_is_not_for() -> None:
    write_access(an_access())
    with pytest.raises(UsageError, match=r"no token for http://other:7717.*TERCEL_TOKEN_FILE"):
        find_server("http://other:7717", None)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("host", "http://host:7717"),
        ("host:80", "http://host:80"),
        ("http://host:7717/", "http://host:7717"),
        ("https://host/tercel/", "https://host/tercel"),
        ("http://[::1]:7717", "http://[::1]:7717"),
        ("[::1]", "http://[::1]:7717"),
    ],
)
def test_addresses_are_written_in_several_ways(text: str, url: str) -> None:
    assert normal_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "ftp://host", "http://", "http://host:99999", "host:x", "http://u@host", "http://a b", "h\n", "h?x"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a manager's address: write http://host:7717"):
        normal_url(text)


def test_loopback_is_known_by_name_and_by_number() -> None:
    assert (
        is_loopback("http://127.0.0.1:1")
        and is_loopback("http://localhost:1")
        and is_loopback("http://[::1]:1")
    )
    assert is_loopback("http://127.0.1.1:1")
    assert not is_loopback("http://10.0.0.1:1")
    assert not is_loopback("http://127.example.org:1")
