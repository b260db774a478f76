"""up, worker, token: what starts, what it says, and what it never shows."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tercel.cli.commands.worker_start import without_token
from tercel.core.model import Role
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import WORKER_TOKEN, FakeManager, problem

SECRET = "5e6f.very-secret"


def started(*words: str, **more: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tercel", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


async def test_a_token_does_not_stay_in_the_arguments(home: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = started("worker", url, "--token", SECRET, "--dir", str(home / "w"), "--cpus", "1")
        listener.settimeout(60)
        try:
            peer, _ = await asyncio.to_thread(listener.accept)  # it dials: so it has long read its token
            with peer:
                peer.settimeout(60)
                asked = await asyncio.to_thread(peer.recv, 65536)
            assert f"Bearer {SECRET}".encode() in asked
            assert SECRET not in " ".join(arguments(process.pid))
            assert url in arguments(process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert SECRET not in out + err


def test_only_the_token_is_taken_out_of_the_arguments() -> None:
    before = [
        "python",
        "-m",
        "tercel",
        "worker",
        "http://h",
        "--token",
        "x",
        "--token-file",
        "f",
        "--token=y",
        "-q",
    ]
    assert without_token(before) == [
        "python",
        "-m",
        "tercel",
        "worker",
        "http://h",
        "--token-file",
        "f",
        "-q",
    ]


async def test_up_writes_its_files_says_how_to_join_and_drains_on_a_signal(home: Path) -> None:
    process = started("up", "--port", "0", "--cpus", "1", "--json")
    assert process.stdout is not None
    document = json.loads(await asyncio.to_thread(process.stdout.readline))
    token_file, access = Path(document["worker_token_file"]), Path(document["access"])
    for path in (token_file, access):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = token_file.read_text().strip()
    assert secret == json.loads(access.read_text())["worker_token"]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert not access.exists()
    assert secret not in out + err


async def test_up_lets_running_tasks_end_and_stops_at_once_when_told_twice(home: Path) -> None:
    process = started("up", "--port", "0", "--cpus", "1")
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        await asyncio.to_thread(process.stdout.readline)
        subprocess.run([sys.executable, "-m", "tercel", "submit", "touch here; sleep 600"], check=True)
        while not Path("here").exists():
            assert process.poll() is None
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        while "Ctrl-C again" not in (line := await asyncio.to_thread(process.stderr.readline)):
            assert line
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert "nothing is lost" in await asyncio.to_thread(process.stderr.read)
    assert process.wait(60) == 0


async def test_up_never_prints_the_token(home: Path) -> None:
    process = started("up", "--port", "0", "--cpus", "1")
    assert process.stdout is not None and process.stderr is not None
    first = await asyncio.to_thread(process.stdout.readline)
    assert first.startswith("manager  http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    with process.stdout, process.stderr:
        rest, err = process.stdout.read(), process.stderr.read()
    assert process.wait(60) == 0
    token_file = home / "xdg_data_home" / "tercel" / "worker.token"
    assert f"tercel worker {first.split()[1]} --token-file {token_file}" in rest
    assert token_file.read_text().strip() not in first + rest + err


def test_a_manager_that_may_not_start_says_why(home: Path) -> None:
    done = started("manager", "--port", "0", "--host", "0.0.0.0")
    out, err = done.communicate(timeout=60)
    assert (done.returncode, out) == (2, "")
    assert err.startswith("tercel: ")
    assert "token" in err
    assert "Traceback" not in err


# -- tokens -----------------------------------------------------------------------------------------------


def test_a_new_token_stands_alone_on_stdout(tercel: Tercel, manager: FakeManager) -> None:
    issued = api.IssuedToken(id="a1", role=Role.WORKER, user="ada", secret="a1.secret")
    manager.says("POST", "/v1/tokens", issued)
    done = tercel("token", "create", "--role", "worker", "--user", "ada", "--note", "lab")
    assert (done.code, done.out) == (0, "a1.secret\n")
    assert manager.requests[0].json() == {"role": "worker", "user": "ada", "note": "lab"}
    assert tercel("token", "create", "--user", "ada", "--json").json["secret"] == "a1.secret"


def test_a_new_token_may_go_into_a_file_that_only_its_owner_reads(
    tercel: Tercel, manager: FakeManager
) -> None:
    issued = api.IssuedToken(id="a1", role=Role.USER, user="ada", secret="a1.secret")
    manager.says("POST", "/v1/tokens", issued)
    done = tercel("token", "create", "--user", "ada", "-o", "ada.token")
    assert done.out == ""
    assert "a1.secret" not in done.err
    assert Path("ada.token").read_text() == "a1.secret\n"
    assert stat.S_IMODE(Path("ada.token").stat().st_mode) == 0o600
    again = tercel("token", "create", "--user", "ada", "-o", "ada.token")
    assert again.code == 2
    nowhere = tercel("token", "create", "--user", "ada", "-o", "no/such/place")
    assert (nowhere.code, nowhere.err) == (2, "tercel: there is no directory no/such to write place into\n")
    assert len(manager.asked("POST", "/v1/tokens")) == 1, "none is made that cannot be written down"


def test_tokens_are_listed_without_their_secrets_and_revoked_by_id(
    tercel: Tercel, manager: FakeManager
) -> None:
    view = api.TokenView(id="a1", role=Role.USER, user="ada", created_at=time.time(), note="lab")
    manager.says("GET", "/v1/tokens", api.TokenList(tokens=[view]))
    manager.says("DELETE", "/v1/tokens/a1", api.Counted(count=1))
    manager.says("DELETE", "/v1/tokens/b2", problem(404, "there is no token 'b2'"))
    assert "ada" in tercel("token").out
    assert tercel("token", "list", "--json").json["tokens"][0]["id"] == "a1"
    assert tercel("token", "revoke", "a1", "--json").json == {"schema": 1, "revoked": "a1"}
    assert tercel("token", "revoke", "b2").code == 2


def test_without_a_manager_tokens_are_made_on_its_data_directory(tercel: Tercel, home: Path) -> None:
    data = str(home / "data")
    made = tercel("token", "create", "--role", "worker", "--user", "ada", "--data", data, "--json").json
    assert made["secret"].startswith(f"{made['id']}.")
    listed = tercel("token", "list", "--data", data, "--json").json["tokens"]
    assert [(t["id"], t["role"], t["user"]) for t in listed] == [(made["id"], "worker", "ada")]
    assert tercel("token", "revoke", made["id"], "--data", data).code == 0
    assert tercel("token", "list", "--data", data, "--json").json["tokens"] == []
    assert tercel("token", "revoke", "none", "--data", data).code == 2


# -- what a worker joins ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "environment", "token"),
    [
        ([], {}, WORKER_TOKEN),
        (["{url}"], {}, WORKER_TOKEN),
        (["start", "{url}"], {"TERCEL_TOKEN": "e.nv"}, "e.nv"),
        (["--token-file", "t", "{url}"], {"TERCEL_TOKEN": "e.nv"}, "f.ile"),
    ],
)
def test_a_worker_finds_address_and_token(
    tercel: Tercel,
    manager: FakeManager,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    environment: dict[str, str],
    token: str,
) -> None:
    joined: list[tuple[Any, ...]] = []

    async def join(screen: object, ways: list[tuple[str, str]], *_: object) -> int:
        joined.extend(ways)
        return 0

    Path("t").write_text("f.ile\n")
    Path("t").chmod(0o600)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tercel.cli.hosting.join", join)
    assert tercel("worker", *(word.format(url=manager.url) for word in words)).code == 0
    assert joined == [(manager.url, token)]
    assert "TERCEL_TOKEN" not in os.environ or environment
