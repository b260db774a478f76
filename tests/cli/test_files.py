"""tercel file, against a manager that really keeps what it is given."""

import asyncio
import http.server
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from tercel.core.changes import FileRegistered
from tercel.core.files import FileRow
from tercel.core.model import Role
from tests.api.house import House, open_house
from tests.cli.conftest import Tercel

CONTENT = bytes(range(256)) * 5000
DIGEST = f"blake3:{blake3(CONTENT).hexdigest()}"
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Served:
    """A manager on a thread of its own: commands block."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._serve()])
        self._thread.start()
        assert self._ready.wait(30)

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        async with open_house(self._data) as self.house:
            self._ready.set()
            await self._done.wait()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(30)


@pytest.fixture
def served(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(home / "data")
    monkeypatch.setenv("TERCEL_SERVER", served.house.url)
    monkeypatch.setenv("TERCEL_TOKEN", served.house.admin)
    yield served
    served.stop()


@pytest.fixture
def web(home: Path) -> Iterator[str]:
    """A plain HTTP server of what is in `web`."""
    (home / "web").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(home / "web"))
    ) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def kept(house: House) -> list[Path]:
    return [path for path in (house.data / "contents").rglob("*") if path.is_file()]


def test_a_path_is_uploaded_once_and_comes_back_the_same(tercel: Tercel, served: Served) -> None:
    Path("calib µ.tar").write_bytes(CONTENT)
    added = tercel("file", "add", "lfn:calib/2026 µ", "calib µ.tar")
    assert added.out == f"lfn:calib/2026 µ: 1.2 MiB, {DIGEST}, kept by the manager\n"
    assert tercel("file", "add", "lfn:other", "calib µ.tar", "--json").json["digest"] == DIGEST
    assert len(kept(served.house)) == 1
    assert tercel("file", "get", "lfn:calib/2026 µ").code == 0
    assert Path("2026 µ").read_bytes() == CONTENT
    Path("there").mkdir()
    got = tercel("file", "get", "lfn:other", "there", "--json").json
    assert (got["path"], Path("there/other").read_bytes()) == ("there/other", CONTENT)
    refused = tercel("file", "get", "lfn:other", "2026 µ")
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert tercel("file", "get", "lfn:other", "2026 µ", "--force").code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["2026 µ", "calib µ.tar", "there"]


def test_files_are_listed_shown_and_forgotten(tercel: Tercel, served: Served) -> None:
    Path("x").write_bytes(b"x")
    served.run(served.house.submit(array="0-4", inputs=[{"source": "lfn:run/{task}"}]))
    for number in range(3):
        tercel("file", "add", f"lfn:run/{number}", "x")
    made = FileRow(name="lfn:fit/4", size_bytes=1, digest=DIGEST, owner="ada", job=1, task=4)
    served.run(served.house.manager.save([FileRegistered(made, ("sftp://store/fit",))]))
    listed = tercel("file", "list", "--json").json["files"]
    assert [file["name"] for file in listed] == ["lfn:fit/4", "lfn:run/0", "lfn:run/1", "lfn:run/2"]
    some = tercel("file", "list", "lfn:run/", "-n", "2")
    assert (some.out.count("lfn:run/"), "--after 'lfn:run/1'" in some.err) == (2, True)
    assert tercel("file", "list", "lfn:*/[24]", "--json").json["more"] is False
    assert [row["name"] for row in tercel("file", "list", "lfn:*/[24]", "--json").json["files"]] == [
        "lfn:fit/4",
        "lfn:run/2",
    ]
    assert [row["name"] for row in tercel("show", "1.4", "--files", "--json").json["files"]] == ["lfn:fit/4"]
    assert "lfn:fit/4" in tercel("show", "1", "--files").out
    assert tercel("show", "1.3", "--files").out == ""
    where = tercel("file", "where", "lfn:run/1").out
    assert ("read by  job 1" in where, "the manager" in where, "somebody added it" in where) == (
        True,
        True,
        True,
    )
    assert "task 1.4" in tercel("file", "where", "lfn:fit/4").out
    gone = tercel("file", "rm", "lfn:fit/4")
    assert gone.out == "lfn:fit/4: forgotten; its bytes stay at 1 place: sftp://store/fit\n"
    missing = tercel("file", "where", "lfn:fit/4", "--json")
    assert (missing.code, missing.json["kind"]) == (2, "not_found")


def test_a_name_that_is_taken_or_cannot_be_is_refused(tercel: Tercel, served: Served) -> None:
    Path("x").write_bytes(b"x")
    Path("y").write_bytes(b"y")
    tercel("file", "add", "lfn:a", "x")
    taken = tercel("file", "add", "lfn:a", "y", "--json")
    assert (taken.code, taken.json["kind"]) == (2, "conflict")
    assert tercel("file", "add", "calib", "x").code == 2
    assert "no such file" in tercel("file", "add", "lfn:b", "absent").err.lower()
    assert len(tercel("file", "list", "--json").json["files"]) == 1


def test_what_is_at_a_url_is_read_once_and_stays_there(
    tercel: Tercel, served: Served, web: str, home: Path
) -> None:
    (home / "web" / "calib").write_bytes(CONTENT)
    added = tercel("file", "add", "lfn:calib", f"{web}/calib", "--json").json
    assert (added["digest"], [one["url"] for one in added["replicas"]]) == (DIGEST, [f"{web}/calib"])
    assert kept(served.house) == []
    assert tercel("file", "get", "lfn:calib", "copy").code == 0
    assert Path("copy").read_bytes() == CONTENT
    wrong = tercel("file", "add", "lfn:wrong", f"{web}/calib", "--digest", f"sha256:{'0' * 64}")
    assert (wrong.code, "its digest is sha256:" in wrong.err) == (2, True)
    assert "404" in tercel("file", "add", "lfn:none", f"{web}/none").err
    needs = tercel("file", "add", "lfn:s3", "s3://bucket/x")
    assert (needs.code, "--digest" in needs.err) == (2, True)
    assert tercel("file", "add", "lfn:s3", "s3://bucket/x", "--digest", DIGEST, "--size", "5").code == 0
    unreached = tercel("file", "get", "lfn:s3")
    assert (unreached.code, "s3://bucket/x" in unreached.err, Path("s3").exists()) == (2, True, False)


def test_verifying_marks_what_is_bad_and_gone_and_leaves_out_what_is_out_of_reach(
    tercel: Tercel, served: Served, web: str, home: Path
) -> None:
    Path("calib").write_bytes(CONTENT)
    (home / "web" / "flipped").write_bytes(CONTENT[:-1] + b"\0")
    tercel("file", "add", "lfn:calib", "calib")
    for url in (f"{web}/flipped", f"{web}/absent", "s3://bucket/x", f"file://{home}/nowhere"):
        size = str(len(CONTENT))
        assert tercel("file", "add", "lfn:calib", url, "--digest", DIGEST, "--size", size).code == 0
    found = tercel("file", "verify", "lfn:calib", "--json")
    assert found.code == 1
    told = {
        one["url"].rpartition("/")[2]: (one["wrong"][:14], one["recorded"]) for one in found.json["replicas"]
    }
    assert told.pop(f"tercel:{DIGEST}") == ("", True)
    assert told == {
        "flipped": ("its digest is ", True),
        "absent": ("it is gone", True),
        "x": ("s3://bucket/x:", False),
        "nowhere": (f"file://{home}"[:14], False),
    }
    where = tercel("file", "where", "lfn:calib", "--json").json["replicas"]
    assert sorted(one["url"].rpartition("/")[2] for one in where if one["bad"]) == ["absent", "flipped"]
    assert tercel("file", "rm", "lfn:calib", "--replica", f"{web}/absent").code == 0
    # With the manager's copy gone the bad one is not taken for it.
    served.house.manager.vault.path(DIGEST).unlink()
    refused = tercel("file", "get", "lfn:calib", "copy")
    assert (refused.code, Path("copy").exists()) == (2, False)


def test_others_read_and_check_a_file_but_do_not_change_what_is_known_of_it(
    tercel: Tercel, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("x").write_bytes(b"x")
    tercel("file", "add", "lfn:a", "x")
    monkeypatch.setenv("TERCEL_TOKEN", served.run(served.house.token(Role.USER, "bob")).secret)
    assert tercel("file", "get", "lfn:a").code == 0
    checked = tercel("file", "verify", "lfn:a", "--json")
    assert (checked.code, [one["recorded"] for one in checked.json["replicas"]]) == (0, [False])
    assert tercel("file", "rm", "lfn:a").code == 2
