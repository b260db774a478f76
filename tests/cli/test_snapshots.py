"""tercel snapshot: what is asked for, and what is told."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tercel.cli.snapshots import whole_file
from tercel.core.model import JobSpec
from tercel.stores.memory import MemoryStore
from tercel.stores.snapshot.saving import Choice, save
from tercel.wire.api_snapshots import Restoration, SnapshotList, SnapshotView
from tests.cli.conftest import Result, Tercel
from tests.cli.fake_manager import FakeManager, problem, stream
from tests.conformance.stores import hand_over, job


def restoration(**more: object) -> Restoration:
    fields: dict[str, object] = {"id": "x", "jobs": [(37, 37)], "tasks": 10, "unfinished": 8}
    return Restoration(**fields | more)  # type: ignore[arg-type]


def test_numbers_that_are_other_ones_are_told(tercel: Tercel, manager: FakeManager) -> None:
    path = "/v1/snapshots/3/restore"
    manager.says("POST", path, restoration(conditions=[(2, 2)]))
    first = "1 job restored: 10 tasks, 2 of them ended, 8 to do"
    assert tercel("snapshot", "restore", "@3").out.splitlines() == [first]
    manager.says("POST", path, restoration(jobs=[(37, 40)], conditions=[(2, 1), (5, 5)]))
    words = [line.split() for line in tercel("snapshot", "restore", "@3").out.splitlines()[1:]]
    assert words == [["WAS", "IS"], ["37", "40"], ["WAS", "IS"], ["C2", "C1"], ["C5", "C5"]]


@pytest.fixture
def content(home: Path) -> bytes:
    """A snapshot of jobs 4 and 6 with 13 tasks."""
    store = MemoryStore()
    for number, array, last in ((4, "0-9", 9), (6, "0-2", 2)):
        hand_over(store, job(number, (0, last), spec=JobSpec(argv=("fit",), array=array)))
    save(store, home / "made", Choice(why="saved by ada"), "ab12", 1_700_000_000.0)
    return (home / "made").read_bytes()


def test_what_was_saved_is_told(tercel: Tercel, manager: FakeManager, content: bytes) -> None:
    manager.says("GET", "/v1/snapshot", stream(content))
    assert tercel("snapshot", "save", "one.tercel").out == f"one.tercel: 2 jobs, 13 tasks, {len(content)} B\n"
    document = tercel("snapshot", "save", "two.tercel", "--json").json
    assert (document["jobs"], document["tasks"], document["size_bytes"]) == (2, 13, len(content))


def test_a_snapshot_goes_through_a_pipe_whole_and_leaves_no_file(
    tercel: Tercel, manager: FakeManager, content: bytes
) -> None:
    before = sorted(Path().iterdir())
    manager.says("GET", "/v1/snapshot", stream(content))
    done = tercel("snapshot", "save", "-", "4")
    assert (done.code, done.out) == (0, content.decode(errors="replace"))
    assert f"stdout: 2 jobs, 13 tasks, {len(content)} B" in done.err
    asked = len(manager.requests)
    refused = tercel("snapshot", "save", "-", "--json")
    assert (refused.code, refused.json["kind"], len(manager.requests)) == (2, "usage", asked)
    assert sorted(Path().iterdir()) == before


def test_what_is_counted_for_people_is_in_the_document_too(tercel: Tercel, content: bytes) -> None:
    Path("one.tercel").write_bytes(content)
    document = tercel("snapshot", "inspect", "one.tercel", "--json").json
    assert (document["tasks"], document["ended"], document["conditions"]) == (13, 0, 0)


def test_one_that_the_manager_took_is_inspected_as_a_file_is(
    tercel: Tercel, manager: FakeManager, content: bytes
) -> None:
    Path("one.tercel").write_bytes(content)
    of_file = tercel("snapshot", "inspect", "one.tercel")
    assert not manager.requests
    manager.says("GET", "/v1/snapshots/3", stream(content))
    assert tercel("snapshot", "inspect", "@3") == of_file
    assert of_file.code == 0
    assert [line.split()[0] for line in of_file.out.splitlines()[-2:]] == ["4", "6"]
    manager.says("GET", "/v1/snapshots/3", stream(content[:-1]))
    damaged = tercel("snapshot", "inspect", "@3")
    assert damaged.code == 2
    assert "@3 is cut off" in damaged.err
    manager.says("GET", "/v1/snapshots/3", problem(404, "there is no snapshot @3"))
    assert "there is no snapshot @3" in tercel("snapshot", "inspect", "@3").err


@pytest.mark.parametrize("way", ["-", "fifo", "/dev/fd/"])
def test_what_comes_through_a_pipe_is_restored_and_inspected_whole(
    tercel: Tercel, manager: FakeManager, content: bytes, way: str
) -> None:
    manager.says("POST", "/v1/restore", restoration())
    ways = {"fifo": Path("fifo").absolute(), "-": None, "/dev/fd/": None}
    if way == "fifo":
        os.mkfifo("fifo")

    def piped(verb: str) -> Result:
        read, write = os.pipe()
        writing = threading.Thread(target=_write, args=(ways[way] or write, content))
        writing.start()
        name = f"/dev/fd/{read}" if way == "/dev/fd/" else way
        try:
            return tercel("snapshot", verb, name, stdin=content if way == "-" else b"")
        finally:
            os.close(read)
            writing.join()

    assert piped("restore").code == 0
    assert manager.asked("POST", "/v1/restore")[0].body == content
    told = piped("inspect")
    assert told.code == 0
    assert [line.split()[0] for line in told.out.splitlines()[-2:]] == ["4", "6"]


def _write(to: Path | int, content: bytes) -> None:
    with (
        suppress(BrokenPipeError),
        open(to, "wb") as file,
    ):  # of a pipe that nobody reads, where stdin is read
        file.write(content)


def test_what_comes_through_a_pipe_has_a_name_that_can_be_opened_again_and_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    (place := home / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    os.mkfifo("fifo")
    writing = threading.Thread(target=_write, args=(Path("fifo").absolute(), content))
    writing.start()
    with whole_file("fifo") as path:
        assert [one for one in place.rglob("*") if one.is_file()] == [path]
        assert [path.read_bytes() for _ in range(2)] == [content] * 2
    writing.join()
    assert not list(place.iterdir())


@pytest.mark.parametrize("verb", ["restore", "inspect"])
def test_what_cannot_be_a_snapshot_is_told_before_anybody_is_asked(
    tercel: Tercel, manager: FakeManager, verb: str
) -> None:
    Path("directory").mkdir()
    Path("empty").touch()
    Path("link").symlink_to("link")
    for name, says in (
        ("directory", "cannot read directory: Is a directory"),
        ("empty", "empty is empty"),
        ("-", "stdin is empty"),
        ("nowhere", "cannot read nowhere: No such file or directory"),
        ("link", "cannot read link: Too many levels of symbolic links"),
        ("/dev/zero", "/dev/zero is not a snapshot of Tercel's"),
        ("/dev/null", "/dev/null is empty"),
    ):
        refused = tercel("snapshot", verb, name)
        assert (refused.code, refused.out) == (2, "")
        assert says in refused.err, refused.err
    assert "stdin is not a snapshot" in tercel("snapshot", verb, "-", stdin=b"nonsense").err
    assert not manager.requests


def test_the_list_says_which_jobs_are_in_each(tercel: Tercel, manager: FakeManager) -> None:
    def view(number: int, jobs: int, numbers: list[int]) -> SnapshotView:
        return SnapshotView(
            number=number,
            id="x",
            saved_at=1_700_000_000.0 + number,
            why="by schedule",
            jobs=jobs,
            numbers=numbers,
            tasks=2000,
            ended=7,
            size_bytes=1536,
        )

    many = list(range(1, 200, 2))
    found = SnapshotList(
        snapshots=[view(4, 500, many), view(3, 4, [1, 2, 3, 7]), view(2, 101, [*range(100)])]
    )
    manager.says("GET", "/v1/snapshots", found)
    header, *rows = tercel("snapshot").out.splitlines()
    assert header.split() == ["SNAPSHOT", "SAVED", "JOBS", "NUMBERS", "TASKS", "ENDED", "SIZE", "WHY"]
    words = [row.split() for row in rows]
    assert [row[3:5] for row in words] == [
        ["500", "1,3,5,7,9,11,13,15,17,1…"],
        ["4", "1-3,7"],
        ["101", "0-99,…"],
    ]
    assert all(row[2].count(":") == 2 for row in words), "to the second"
    assert words[1][5:] == ["2000", "7", "1.5", "KiB", "by", "schedule"]
