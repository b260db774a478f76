"""A home of its own for every test, and `tercel` as a function."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tercel.cli import main
from tests.cli.fake_manager import FakeManager, fake_manager


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


Tercel = Callable[..., Result]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("TERCEL_", "_TERCEL_")):
            monkeypatch.delenv(name)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME"):
        (tmp_path / name.lower()).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("COLUMNS", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PWD", str(work))
    return tmp_path


@pytest.fixture
def manager(home: Path) -> Iterator[FakeManager]:
    with fake_manager() as fake:
        yield fake


@pytest.fixture
def tercel(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tercel:
    """Runs a command line in this process."""

    def run(*words: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = main(words)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return run
