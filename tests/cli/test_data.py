"""--in and --out: what is uploaded, and what the manager is sent then."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import blake3
import pytest

from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import DROP, FakeManager, problem


def digest(content: bytes) -> str:
    return f"blake3:{blake3.blake3(content).hexdigest()}"


class Catalogue:
    """What the fake manager has been given."""

    def __init__(self, manager: FakeManager) -> None:
        self.manager = manager
        manager.says("POST", "/v1/jobs", api.Submitted(id=37, tasks=1, name=""))
        manager.says("POST", "/v1/files", {})

    def takes(self, content: bytes, *, there: bool = False, after: tuple[Any, ...] = ()) -> str:
        path = f"/v1/contents/{digest(content)}"
        self.manager.says("HEAD", path, {} if there else problem(404, "no such content"))
        self.manager.says("PUT", path, *after, {})
        return path

    @property
    def contents(self) -> dict[str, list[bytes]]:
        puts = [one for one in self.manager.requests if one.method == "PUT"]
        return {path: [one.body for one in puts if one.path == path] for path in {one.path for one in puts}}

    @property
    def files(self) -> list[Any]:
        return sorted(
            (one.json() for one in self.manager.asked("POST", "/v1/files")), key=lambda one: one["name"]
        )

    @property
    def job(self) -> Any:
        [request] = self.manager.asked("POST", "/v1/jobs")
        return request.json()


@pytest.fixture
def catalogue(manager: FakeManager) -> Catalogue:
    return Catalogue(manager)


def write(path: str, content: bytes) -> bytes:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content)
    return content


def test_each_tasks_file_is_uploaded_once_by_its_content_and_registered_by_name(
    tercel: Tercel, catalogue: Catalogue
) -> None:
    one, two = write("data/run0.root", b"one" * 400_000), write("data/run1.root", b"two")
    write("data/run2.root", two)
    paths = [catalogue.takes(one), catalogue.takes(two)]
    done = tercel(
        "submit", "--array", "0-2", "--in", "data/run{task}.root", "--in", "lfn:calib", "--", "./go.sh"
    )
    assert done.code == 0, done.err
    assert catalogue.contents == {paths[0]: [one], paths[1]: [two]}
    start = re.sub(r"data.*", "", catalogue.files[0]["name"])
    assert re.fullmatch("up:[0-9a-f]{20}/", start)
    assert catalogue.files == [
        {
            "name": f"{start}data/run{n}.root",
            "digest": digest(text),
            "size_bytes": len(text),
            "urls": [f"tercel:{digest(text)}"],
        }
        for n, text in enumerate([one, two, two])
    ]
    job = catalogue.job
    assert job["inputs"] == [{"source": f"{start}data/run{{task}}.root"}, {"source": "lfn:calib"}]
    assert "cwd" not in job
    assert job["argv"] == [str(Path("go.sh").absolute())]


def test_what_was_sent_is_named_before_the_rest_is_sent(tercel: Tercel, catalogue: Catalogue) -> None:
    """What has no name goes after an hour, and an upload may take longer."""
    for number in range(20):
        catalogue.takes(write(f"{number}", b"%d" % number))
    assert tercel("submit", "--array", "0-19", "--in", "{task}", "--", "true").code == 0
    methods = [one.method for one in catalogue.manager.requests if one.method in ("PUT", "POST")]
    assert methods.index("POST") < len(methods) - methods[::-1].index("PUT")
    assert len(catalogue.files) == 20


def test_what_the_manager_has_already_is_not_sent_again(tercel: Tercel, catalogue: Catalogue) -> None:
    catalogue.takes(write("x", b"x"), there=True)
    names = []
    for _ in range(2):
        catalogue.manager.requests.clear()
        assert tercel("submit", "--in", "x", "--", "true").code == 0
        assert catalogue.contents == {}
        names += [file["name"] for file in catalogue.files]
    assert names[0] == names[1]


def test_an_empty_file_a_second_name_and_an_absolute_path_are_fine(
    tercel: Tercel, catalogue: Catalogue
) -> None:
    path = catalogue.takes(write("a b.txt", b""))
    whole = str(Path("a b.txt").absolute())
    done = tercel("submit", "--in", "a b.txt -> x/1", "--in", f"{whole}=y", "--in", "./a b.txt", "--", "true")
    assert done.code == 0, done.err
    assert catalogue.contents == {path: [b""]}
    names = [file["name"].partition("/")[2] for file in catalogue.files]
    assert sorted(names) == sorted(["a b.txt", whole.lstrip("/")])
    sources = [(one["source"].partition("/")[2], one.get("name")) for one in catalogue.job["inputs"]]
    assert sources == [("a b.txt", "x/1"), (whole.lstrip("/"), "y"), ("a b.txt", None)]


def test_values_of_a_sweep_name_files_here(tercel: Tercel, catalogue: Catalogue) -> None:
    for name in "ab":
        catalogue.takes(write(f"data/{name}.csv", name.encode()))
    done = tercel("sweep", "--in", "{f} -> {f}", "f=data/*.csv", "--", "./fit", "{f}")
    assert done.code == 0, done.err
    assert [file["name"].partition("/")[2] for file in catalogue.files] == ["data/a.csv", "data/b.csv"]


def test_a_connection_that_breaks_is_tried_again(
    tercel: Tercel, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tercel.sdk.uploading.PAUSE_S", 0.0)
    for content in (b"small", b"large" * 100_000):
        path = catalogue.takes(write("x", content), after=(DROP, DROP))
        assert tercel("submit", "--in", "x", "--", "true").code == 0
        assert catalogue.contents[path] == [content] * 3


def test_what_the_manager_says_to_a_file_is_told_and_no_job_is_submitted(
    tercel: Tercel, catalogue: Catalogue
) -> None:
    catalogue.takes(write("x", b"x"), after=(problem(507, "there is no room"),))
    done = tercel("submit", "--in", "x", "--", "true")
    assert (done.code, done.err) == (3, "tercel: there is no room\n")
    assert not catalogue.manager.asked("POST", "/v1/jobs") and not catalogue.files


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--in", "missing"), "input 'missing' (of task 0): there is no such file here"),
        (
            ("--array", "0-3", "--in", "data/x{task}"),
            "input 'data/x1' (of task 1): there is no such file here",
        ),
        (("--in", "data"), "input 'data' is a directory: name its files one by one, or pack it"),
        (("--in", "data/"), "it names a directory"),
        (("--in", "/dev/null"), "input '/dev/null' is no regular file"),
        (("--in", "data/x{job}"), "is uploaded before the job has a number"),
        (("--in", "data/x0", "--in", "../work/data/x0=y"), ""),
        (("--in", "data/x{task}/../x0"), "has .. behind a part that differs"),
        (("--in", "data/../data/./x0", "--in", "./data//x{task} -> y"), ""),
        (("--in", "data/x0", "--in", "../data/x0=y"), "would have one name when they are uploaded"),
    ],
)
def test_what_cannot_be_uploaded_is_told_before_anything_is_sent(
    tercel: Tercel, catalogue: Catalogue, words: tuple[str, ...], what: str, more: tuple[str, ...]
) -> None:
    catalogue.takes(write("data/x0", b"x"))
    write("../data/x0", b"other")
    done = tercel("submit", *words, *more, "--", "true")
    assert (done.code == 0) is (not what)
    if what:
        assert what in done.err
        assert [one for one in catalogue.manager.requests if one.path != "/v1/health"] == []


def test_the_preview_tells_what_is_read_left_and_uploaded(tercel: Tercel, catalogue: Catalogue) -> None:
    write("data/x0", b"x" * 2048)
    done = tercel(
        *(
            "submit",
            "--dry-run",
            "--in",
            "data/x0=geo.db",
            "--out",
            "log.txt; always",
            "--out",
            "*.x=s3://b/{job}/",
        ),
        *("--", "./go.sh"),
    )
    assert done.code == 0, done.err
    facts = [tuple(re.split(r"\s{2,}", line, maxsplit=1)) for line in done.out.splitlines()[1:]]
    assert ("in", "data/x0 -> geo.db") in facts
    assert ("out", "log.txt; always (kept at the manager as lfn:job/{job}/{task}/log.txt)") in facts
    assert ("out", "*.x -> s3://b/{job}/") in facts
    assert ("upload", "1 file (2.0 KiB)") in facts
    assert ("directory", "an empty one of its own") in facts
    assert not catalogue.manager.requests


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--cwd", "/tmp", "--in", "lfn:a"), "--cwd: inputs are in a task's own directory"),
        (("--cwd", ".", "--out", "a"), "--cwd: outputs are in a task's own directory"),
        (("--in", "https://me:secret@h/x"), "has a login in it"),
        (("--in", "a", "--in", "b/a"), "have the same name"),
        (("--out", "x -> lfn:fit", "--array", "0-9"), "put {task} into it"),
        (("--out", "x; never"), "after ; come"),
    ],
)
def test_wrong_data_is_told_by_its_option(tercel: Tercel, words: tuple[str, ...], what: str) -> None:
    done = tercel("submit", *words, "--", "true")
    assert done.code == 2
    assert what in done.err and done.err.startswith("tercel: --")
    assert "secret" not in done.err


def test_a_program_that_is_brought_is_started_where_it_is_put(tercel: Tercel, catalogue: Catalogue) -> None:
    catalogue.takes(write("go.sh", b"#!/bin/sh"))
    assert tercel("submit", "--in", "go.sh", "--", "./go.sh", "1").code == 0
    assert catalogue.job["argv"] == ["./go.sh", "1"]


def test_a_line_that_begins_with_a_program_from_here_is_remarked_on(
    tercel: Tercel, catalogue: Catalogue
) -> None:
    done = tercel("submit", "--out", "x", "--", "./go.sh > x")
    assert done.code == 0
    assert "./go.sh is not there unless --in brings it" in done.err


def test_a_job_that_is_cloned_uploads_what_it_is_given(tercel: Tercel, catalogue: Catalogue) -> None:
    catalogue.takes(write("x", b"x"))
    catalogue.manager.says("GET", "/v1/jobs/36/submission", api.Submission(argv=("true",)))
    catalogue.manager.says("GET", "/v1/jobs/36", problem(404, "unused"))
    done = tercel("clone", "36", "--set", "inputs=x -> y")
    assert done.code == 0, done.err
    assert catalogue.job["inputs"][0]["source"].startswith("up:")


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_ctrl_c_during_an_upload_leaves_at_once_and_submits_nothing(catalogue: Catalogue, verb: str) -> None:
    begun, over = Event(), Event()

    def stuck(_: object) -> tuple[int, bytes]:
        begun.set()
        over.wait(30)
        return 200, b"{}"

    catalogue.takes(write("x", b"x"), after=(stuck,))
    process = subprocess.Popen(
        [sys.executable, "-m", "tercel", verb, "--in", "x", "--", "true"], stderr=subprocess.PIPE
    )
    try:
        assert begun.wait(30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        over.set()
        process.kill()
        process.communicate()
    assert not catalogue.manager.asked("POST", "/v1/jobs")


def test_every_command_of_the_guide_can_be_submitted(tercel: Tercel) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "data.md").read_text()
    for number in range(10):
        write(f"data/run{number}.root", b"")
    commands = [line for line in guide.replace("\\\n", " ").splitlines() if line.startswith("tercel ")]
    assert len(commands) == 3
    for command in commands:
        _, verb, *words = shlex.split(command)
        done = tercel(verb, "--dry-run", *words)
        assert done.code == 0, done.err
