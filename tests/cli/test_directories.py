"""worker look: what it asks for, and how directories and files of any name and content are printed."""

import os
import pty
import sys
import time
from typing import Any

import msgspec
import pytest

from tercel.cli.directories import tell_tail
from tercel.cli.screen import Screen
from tercel.wire.api_looking import (
    DirectoryView,
    EntryView,
    FileTail,
    FileView,
    KeptView,
    LeftView,
    PartView,
    SandboxView,
)
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import FakeManager, problem

pytestmark = pytest.mark.C(15)

EVIL = "evil\n\x1b[31mred\u202e"
PLAIN = "evil↵�[31mred�"


def directory(**more: Any) -> DirectoryView:
    at = time.time() - 90
    fields: dict[str, Any] = {
        "worker": "w07",
        "node": "vm",
        "dir": "/scratch/w07",
        "disk_bytes": 100 * 2**30,
        "free_bytes": 50 * 2**30,
        "reports": 0,
        "reports_since": 0.0,
        "parts": [
            PartView(
                name="kept",
                size_bytes=41 * 2**30,
                entries=1200,
                oldest_at=at,
                largest=[EntryView(name=EVIL, size_bytes=2**30, changed_at=at)],
                cut="more",
            ),
            PartView(name="trash", size_bytes=0, entries=0, oldest_at=0.0, largest=[]),
        ],
        "kept": [
            KeptView(
                id="37.4",
                job=37,
                task=4,
                attempt=7,
                since=at,
                size_bytes=2**30,
                entries=9,
                path="/scratch/w07/kept/37.4.7",
                owner="ada",
            )
        ],
        "left": [
            LeftView(
                path=f"/scratch/w07/{EVIL}", size_bytes=5, since=at, why="not put there", advice="remove it"
            )
        ],
        "log": "",
        "findings": ["1 kept sandbox uses 41 GB"],
    }
    return DirectoryView(**(fields | more))


def sandbox(**more: Any) -> SandboxView:
    at = time.time() - 90
    fields: dict[str, Any] = {
        "worker": "w07",
        "id": "37.4",
        "attempt": 7,
        "dir": "/scratch/w07/kept/37.4.7",
        "running": False,
        "since": at,
        "files": [
            FileView(path="out", kind="directory", size_bytes=4096, changed_at=at),
            FileView(path=EVIL, kind="file", size_bytes=10, changed_at=at),
            FileView(path="out/l", kind="link", size_bytes=4, changed_at=at),
            FileView(path="pipe", kind="other", size_bytes=0, changed_at=at),
        ],
        "kept": [5, 7],
        "cut": "more than the first 4 entries",
    }
    return SandboxView(**(fields | more))


def tail(data: bytes, offset: int = 0) -> FileTail:
    return FileTail(
        worker="w07", path="out", size_bytes=offset + len(data), offset=offset, changed_at=1.0, data=data
    )


def test_a_directory_is_shown_with_what_is_worth_a_look_first(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/workers/w07/directory", directory())
    lines = [line for line in tercel("worker", "look", "w07").out.splitlines() if line]
    assert [line.split(maxsplit=1)[0] for line in lines[:5]] == [
        "worker",
        "directory",
        "free",
        "results",
        "log",
    ]
    assert lines[5] == "! 1 kept sandbox uses 41 GB"
    assert lines[7].startswith(f"kept  > 41.0 GiB     1200  1 m 30 s  {PLAIN} (1.0 GiB)")
    assert lines[9].split()[:3] == ["37.4", "7", "ada"]
    assert lines[11].startswith(f"/scratch/w07/{PLAIN}")
    assert lines[12] == "not put there: remove it"
    assert len(lines) == 13, "nothing is said of parts that are empty"


def test_whose_a_kept_sandbox_is_is_told_as_far_as_it_is_known(tercel: Tercel, manager: FakeManager) -> None:
    [kept] = directory().kept
    unrecorded = msgspec.structs.replace(kept, recorded=False)
    unknown = msgspec.structs.replace(kept, owner="", known=False, recorded=False)
    manager.says("GET", "/v1/workers/w07/directory", directory(kept=[kept, unrecorded, unknown]))
    rows = [line.split("  ") for line in tercel("worker", "look", "w07").out.splitlines() if "37.4 " in line]
    assert [[cell.strip() for cell in row if cell][2] for row in rows] == [
        "ada",
        "ada (not on record)",
        "nobody",
    ]


def test_the_path_of_a_kept_sandbox_can_be_pasted_whatever_the_worker_calls_its_directory(
    tercel: Tercel, manager: FakeManager
) -> None:
    [kept] = directory().kept
    odd = msgspec.structs.replace(kept, path="/scratch/$(id)/kept/37.4.7")
    manager.says("GET", "/v1/workers/w07/directory", directory(kept=[odd]))
    assert " '/scratch/$(id)/kept/37.4.7'\n" in tercel("worker", "look", "w07").out


def test_on_a_narrow_terminal_lines_are_not_broken(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.says("GET", "/v1/workers/w07/directory", directory(left=[]))
    told = {}
    for columns in ("80", "50", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        told[columns] = tercel("worker", "look", "w07").out
    assert max(map(len, told["80"].splitlines())) <= 80
    assert ("WHAT" in told["80"], "PATH" in told["80"], "PATH" in told["50"]) == (False, True, False)
    assert "WHAT" in told["200"]


def test_an_orphan_is_nobodys_and_waiting_results_are_told(tercel: Tercel, manager: FakeManager) -> None:
    lane = EntryView(name="9.3", size_bytes=2**30, changed_at=1.0, task="37.4")
    running = PartView(name="sandboxes", size_bytes=2**30, entries=9, oldest_at=1.0, largest=[lane])
    orphan = msgspec.structs.replace(directory().kept[0], owner="", known=False)
    manager.says(
        "GET",
        "/v1/workers/w07/directory",
        directory(
            parts=[running], kept=[orphan], reports=1200, reports_since=time.time() - 60, left=[], findings=[]
        ),
    )
    told = tercel("worker", "look", "w07")
    assert "1,200 not acknowledged, the oldest for 1 m" in told.out
    assert "nobody" in told.out
    assert "37.4 (1.0 GiB)" in told.out, "people know tasks, not lanes"
    assert "nothing here needs a look" in told.err
    assert tercel("--json", "worker", "look", "w07").json["kept"][0]["known"] is False


def test_a_tasks_files_are_shown_in_plain_characters(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/workers/w07/jobs/37/tasks/4/files", sandbox())
    told = tercel("worker", "look", "w07", "37.4")
    lines = told.out.splitlines()
    assert lines[:3] == [
        "task       37.4, attempt 7, kept for 1 m 30 s",
        "directory  w07: /scratch/w07/kept/37.4.7",
        "kept too   attempt 5 (--attempt)",
    ]
    assert [line.split("1 m 30 s ")[1].strip() for line in lines[5:]] == [
        "out/",
        PLAIN,
        "out/l (a link)",
        "pipe (no regular file)",
    ]
    assert "that is not all: more than the first 4 entries" in told.err
    manager.says("GET", "/v1/workers/w07/jobs/37/tasks/4/files", sandbox(kept=list(range(1, 101))))
    others = tercel("worker", "look", "w07", "37.4").out.splitlines()[2]
    assert others == "kept too   attempt 100, 99, 98 and 96 more (--attempt)"
    manager.says("GET", "/v1/workers/w07/jobs/37/tasks/4/files", sandbox())
    assert tercel("--json", "worker", "look", "w07", "37.4").json["files"][1]["path"] == EVIL
    tercel("worker", "look", "w07", "37.4", "--attempt", "5")
    assert manager.asked("GET", "/v1/workers/w07/jobs/37/tasks/4/files")[-1].query == {"attempt": ["5"]}


def test_a_file_is_printed_as_it_is(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/workers/w07/jobs/37/tasks/4/file", tail(b"caf\xc3\xa9\x1b[2J", 100))
    told = tercel("worker", "look", "w07", "37.4", "--read", EVIL)
    assert told.out == "café\x1b[2J"
    assert "the last 9 B of 109 B" in told.err
    assert manager.requests[-1].query == {"path": [EVIL]}
    assert tercel("--json", "worker", "look", "w07", "37.4", "--read", "x").json["text"] == "café\x1b[2J"
    manager.says("GET", "/v1/workers/w07/log", tail(b"Joined.\n"))
    assert tercel("worker", "look", "w07", "--log").out == "Joined.\n"


def test_a_file_whose_name_is_no_text_is_asked_for_as_it_is_shown(
    tercel: Tercel, manager: FakeManager
) -> None:
    manager.says("GET", "/v1/workers/w07/jobs/37/tasks/4/file", tail(b"found"))
    told = tercel("worker", "look", "w07", "37.4", "--read", os.fsdecode(b"caf\xc3\xa9/no\xfftext"))
    assert (told.code, told.out) == (0, "found")
    assert manager.requests[-1].query == {"path": ["café/no\\xfftext"]}


def test_on_a_terminal_a_file_commands_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        tell_tail(Screen(), tail(b"one\x1b]0;title\x07\r\ntwo\n"))
        terminal.flush()
        shown = os.read(ours, 1000)
    os.close(ours)
    assert shown.decode() == "one�]0;title�\r\ntwo\r\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("w07", "--read", "x"), "of which task?"),
        (("w07", "--attempt", "3"), "of which task?"),
        (("w07", "37.4", "--log"), "the worker's, not a task's"),
        (("w07", "37"), "not one task"),
        (("w07", "37.4-5"), "not one task"),
        (("w07", "37.4", "--attempt", "0"), "--attempt"),
        ((), "missing argument"),
    ],
)
def test_what_makes_no_sense_is_said_to(
    tercel: Tercel, manager: FakeManager, words: tuple[str, ...], why: str
) -> None:
    told = tercel("worker", "look", *words)
    assert (told.code, why in told.err) == (2, True), told.err


def test_why_a_worker_cannot_be_looked_into_is_told(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("GET", "/v1/workers/w07/directory", problem(404, "worker w07 is offline since 2 h"))
    told = tercel("worker", "look", "w07")
    assert (told.code, told.err) == (2, "tercel: worker w07 is offline since 2 h\n")
