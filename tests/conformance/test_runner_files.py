"""The files of attempts: linked into their sandboxes before they begin, gathered when they have ended."""

import os
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import msgspec
import pytest

from tercel.core.files import Trouble
from tercel.core.model import Keep, Limits
from tercel.core.reports import End, Report
from tercel.core.states import Stage
from tercel.runners import gathering, pool
from tercel.runners.contract import Launch
from tercel.runners.measuring import Meter
from tercel.runners.pool import SpawnerPool
from tests.conformance.containers import ARGS, IMAGE, has_image, needs_bwrap
from tests.conformance.runners import Lifeline, Recorder, call, interpreters, run, shell, text, value

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.C(11), pytest.mark.K(20)]


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_INTERRUPTED_S", 0.0)


@pytest.fixture
def cached(tmp_path: Path) -> str:
    return str(in_cache(tmp_path, "data"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where to gather: on the sandboxes' file system, and not there yet."""
    return tmp_path / "outgoing" / "1"


def in_cache(directory: Path, content: str) -> Path:
    path = directory / "cached"
    path.write_text(content)
    path.chmod(0o555)
    return path


def links(launch: Launch, *pairs: tuple[str, str]) -> Launch:
    return msgspec.structs.replace(launch, links=list(pairs))


def gathers(launch: Launch, to: Path, *patterns: str, when: str = "finished") -> Launch:
    return msgspec.structs.replace(
        launch, gathers=[(pattern, when) for pattern in patterns], gather_dir=str(to)
    )


def gathered(report: Report) -> list[str]:
    return sorted(path for path, _ in report.gathered)


def found(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


# -- links ------------------------------------------------------------------------------------------------


NAMES = ["plain", "a/b/c.txt", "a/b/d.txt", "with space", "ünïcode ☃", "new\nline", ".hidden", "-n"]


async def test_links_are_found_read_only_under_their_names(
    runner: SpawnerPool, recorder: Recorder, cached: str
) -> None:
    line = r"find . -type f -printf '%p\0%m\0%n\0'; cat */*/c.txt"
    report = await run(runner, recorder, links(shell(line), *((cached, name) for name in NAMES)))
    *listed, content = text(report.out).split("\0")
    assert content == "data"
    assert sorted(listed[::3]) == sorted(f"./{name}" for name in NAMES)
    assert set(listed[1::3]) == {"555"}
    assert set(listed[2::3]) == {str(len(NAMES) + 1)}, "no copies"
    after = await run(runner, recorder, shell("ls -A", attempt=2))
    assert (after.code, after.out) == (0, None), "the next attempt finds none of them"
    assert Path(cached).read_text() == "data"


async def test_a_sandbox_of_an_attempt_that_did_nothing_is_cleared_of_its_links(
    runner: SpawnerPool, recorder: Recorder, cached: str
) -> None:
    launches = [links(shell("true", attempt), (cached, "x")) for attempt in range(1, 6)]
    runner.launch([*launches, shell("ls -A", 6)])
    assert (await recorder.report(6)).out is None
    assert {recorder.reports[attempt].code for attempt in range(1, 6)} == {0}


@pytest.mark.must("d")
async def test_ten_thousand_links_for_one_attempt(
    runner: SpawnerPool, recorder: Recorder, cached: str
) -> None:
    pairs = ((cached, f"d{number % 50}/{number}") for number in range(10_000))
    report = await run(runner, recorder, links(shell("find . -type f | wc -l"), *pairs))
    assert text(report.out).strip() == "10000"


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """On another file system."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


async def test_from_another_file_system_a_file_is_copied(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, elsewhere: Path
) -> None:
    if elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system only")
    content = "x" * 5_000_000
    source = in_cache(elsewhere, content)
    line = "stat -c '%a %h %s' a/copy; cmp a/copy " + str(source)
    report = await run(runner, recorder, links(shell(line), (str(source), "a/copy")))
    assert (report.code, text(report.out)) == (0, f"555 1 {len(content)}\n")


async def test_copies_of_what_it_reads_do_not_count_against_its_disk(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, elsewhere: Path
) -> None:
    if elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system only")
    source = in_cache(elsewhere, "x" * 5_000_000)
    for attempt, (line, end) in enumerate([("exit 3", End.EXITED), ("cat x > y; exit 3", End.EXCEEDED)]):
        task = shell(line, attempt, limits=Limits(disk_bytes=2_000_000))
        report = await run(runner, recorder, links(task, (str(source), "x")))
        assert report.end is end, report


async def test_with_a_directory_of_the_job_links_are_in_the_sandbox(
    runner: SpawnerPool, recorder: Recorder, cached: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    report = await run(
        runner, recorder, links(shell("ls; cat $TERCEL_SANDBOX/x", cwd=str(work)), (cached, "x"))
    )
    assert text(report.out) == "data"


async def test_a_file_that_is_gone_from_the_cache_is_not_the_tasks_failure(
    runner: SpawnerPool, recorder: Recorder, cached: str
) -> None:
    report = await run(runner, recorder, links(shell("true"), (cached, "x"), (cached + "?", "sub/y")))
    assert (report.end, report.errno) == (End.INTERRUPTED, "ENOENT")
    assert "sub/y: its file in the cache is gone" in report.note
    assert (await run(runner, recorder, shell("ls -A", attempt=2))).out is None


BAD = [
    "../x",
    "/tmp/x",
    "a/../../x",
    "a//b",
    "./x",
    "",
    "x/",
    "x\0y",
    "\ud800",
    "x" * 300,
    "plain/x",
    "plain",
]


@pytest.mark.parametrize("name", BAD)
async def test_a_name_that_cannot_be_is_told_and_leads_nowhere(
    runner: SpawnerPool, recorder: Recorder, cached: str, tmp_path: Path, name: str
) -> None:
    before = sorted(os.listdir(tmp_path))
    report = await run(runner, recorder, links(shell("true"), (cached, "plain"), (cached, name)))
    assert report.end is End.UNSTAGED
    assert report.hitch is not None
    assert (report.hitch.stage, report.hitch.trouble) == (Stage.STAGE_IN, Trouble.REFUSED)
    assert report.hitch.note == report.note
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=Report) == report
    assert sorted({*os.listdir(tmp_path), "worker"}) == sorted({*before, "worker"})
    assert (await run(runner, recorder, shell("ls -A", attempt=2))).out is None


async def test_what_is_killed_while_its_files_are_put_there_never_starts(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, elsewhere: Path
) -> None:
    source = elsewhere / "large"
    with source.open("wb") as file:
        file.truncate(400 * 2**20)
    launch = shell(f"touch {tmp_path}/ran", 1)
    runner.launch([links(launch, *((str(source), f"copy{number}") for number in range(1000)))])
    sandboxes = tmp_path / "worker/sandboxes"
    while not list(sandboxes.rglob("copy0")):
        await run(runner, recorder, shell("true", len(recorder.reports) + 2, lane=1))
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.note) == (End.CANCELLED, "cancelled before it started")
    assert not (tmp_path / "ran").exists()


async def test_time_is_counted_from_when_its_files_are_there(
    runner: SpawnerPool, recorder: Recorder, elsewhere: Path
) -> None:
    source = in_cache(elsewhere, "x" * 50_000_000)
    report = await run(runner, recorder, links(shell("stat -c %.Z copy"), (str(source), "copy")))
    assert report.started_at >= float(text(report.out))


# -- gathering --------------------------------------------------------------------------------------------


TREE = (
    "mkdir -p d/e/f .dot/x; for f in a.txt b.txt c.log d/1.txt d/e/2.txt d/e/f/3.log .h.txt .dot/x/4.txt;"
    "do echo $f > $f; done; "
)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["a.txt"], ["a.txt"]),
        (["./a.txt", "a.txt", "a*"], ["a.txt"]),
        (["*.txt"], ["a.txt", "b.txt"]),
        (["?.log", "[ab].txt"], ["a.txt", "b.txt", "c.log"]),
        (["[!a].txt"], ["b.txt"]),
        (["d"], ["d/1.txt", "d/e/2.txt", "d/e/f/3.log"]),
        (["d/"], ["d/1.txt", "d/e/2.txt", "d/e/f/3.log"]),
        (["?"], []),
        (["d/*"], ["d/1.txt"]),
        (["*/*.txt"], ["d/1.txt"]),
        (["**/*.txt"], ["a.txt", "b.txt", "d/1.txt", "d/e/2.txt"]),
        (["d/**/**/*.log"], ["d/e/f/3.log"]),
        (["d/**"], ["d/1.txt", "d/e/2.txt", "d/e/f/3.log"]),
        ([".*"], [".h.txt"]),
        ([".dot"], [".dot/x/4.txt"]),
        ([300 * "x", 300 * "x" + "/y", "a.txt/x", "none", "none/*", "d/none/**"], []),
    ],
)
async def test_what_matches_is_taken_out(
    runner: SpawnerPool, recorder: Recorder, out: Path, patterns: list[str], expected: list[str]
) -> None:
    report = await run(runner, recorder, gathers(shell(TREE), out, *patterns))
    assert (report.end, report.code, gathered(report)) == (End.EXITED, 0, expected)
    assert dict(report.gathered) == {path: len(path) + 1 for path in expected}
    assert (found(out) if expected else out.exists()) == (expected or False)
    assert all((out / path).read_text() == f"{path}\n" for path in expected)


@pytest.mark.parametrize(
    ("line", "end", "whens"),
    [
        ("true", End.EXITED, {"finished", "always"}),
        ("exit 3", End.EXITED, {"failed", "always"}),
        ("kill -9 $$", End.SIGNALLED, {"failed", "always"}),
        ("sleep 1000", End.TIMED_OUT, {"failed", "always"}),
    ],
)
async def test_what_is_taken_depends_on_the_end(
    runner: SpawnerPool, recorder: Recorder, out: Path, line: str, end: End, whens: set[str]
) -> None:
    limit_s = 0.2 if "sleep" in line else 0.0
    launch = shell(f"touch finished failed always; {line}", time_limit_s=limit_s, kill_grace_s=0.1)
    launch = msgspec.structs.replace(
        launch, gathers=[(when, when) for when in ("finished", "failed", "always")], gather_dir=str(out)
    )
    report = await run(runner, recorder, launch)
    assert (report.end, set(gathered(report))) == (end, whens)


async def test_of_a_killed_attempt_only_that_is_taken_which_always_is(
    runner: SpawnerPool, recorder: Recorder, out: Path, lifeline: Lifeline
) -> None:
    line = f"echo partial > log; touch failed; exec 9>{lifeline.path}; echo x >&9; sleep 600"
    launch = shell(line, kill_grace_s=0.0)
    launch = msgspec.structs.replace(
        launch, gathers=[("log", "always"), ("failed", "failed")], gather_dir=str(out)
    )
    runner.launch([launch])
    await lifeline.held()
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.gathered) == (End.CANCELLED, (("log", 8),))
    await lifeline.dropped()


@pytest.mark.must("d")
async def test_names_of_any_kind_are_gathered(runner: SpawnerPool, recorder: Recorder, out: Path) -> None:
    line = r"""touch -- 'with space' ünïcode☃ -n 'q"uote'; touch "$(printf 'new\nline')" """
    report = await run(runner, recorder, gathers(shell(line), out, "*"))
    names = sorted(["with space", "ünïcode☃", "-n", 'q"uote', "new\nline"])
    assert gathered(report) == found(out) == names


async def test_a_name_that_is_no_unicode_is_refused(
    runner: SpawnerPool, recorder: Recorder, out: Path
) -> None:
    report = await run(runner, recorder, gathers(shell(r"touch $(printf 'a\377b')"), out, "*"))
    assert (report.end, report.note) == (End.UNSTAGED, r"a\xffb: its name is no Unicode")
    assert report.hitch is not None
    assert (report.hitch.stage, report.hitch.trouble) == (Stage.STAGE_OUT, Trouble.REFUSED)


@pytest.mark.parametrize("how", ["sandbox", "cwd", "kept"])
async def test_nothing_outside_is_gathered_whatever_stands_in_its_place(
    runner: SpawnerPool, recorder: Recorder, out: Path, tmp_path: Path, how: str
) -> None:
    line = (
        "ln -s /etc/passwd out.txt; ln -s /etc etc; ln -s ../../../cached up; mkdir d; ln -s / d/root;"
        "ln -s loop loop; ln -s nowhere dangling; mkfifo fifo; ln -s fifo tofifo; ln -s /dev/zero zero; touch good;"
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'"
    )
    in_cache(tmp_path, "secret")
    program = {"sandbox": Keep.KEEP} if how == "kept" else {}
    if how == "cwd":
        (tmp_path / "work").mkdir()
        program = {"cwd": str(tmp_path / "work")}
    patterns = ["out.txt", "etc", "etc/passwd", "*/passwd", "**", "d", "d/root/etc/passwd", "fifo", "sock"]
    report = await run(runner, recorder, gathers(shell(line, **program), out, *patterns))
    assert (report.code, gathered(report)) == (0, ["good"]), report
    assert found(out) == ["good"]


@pytest.mark.parametrize("pattern", ["../*", "/etc/passwd", "d/../../x", "", "x\0", "\ud800"])
async def test_a_pattern_that_leads_out_is_refused(
    runner: SpawnerPool, recorder: Recorder, out: Path, pattern: str
) -> None:
    report = await run(runner, recorder, gathers(shell("true"), out, pattern))
    assert (report.end, report.hitch is not None) == (End.UNSTAGED, True)
    assert not out.exists()
    failed = await run(runner, recorder, gathers(shell("exit 3", 2), out, pattern, when="failed"))
    assert (failed.end, failed.code) == (End.EXITED, 3), "it failed by itself"
    assert "below the task's directory" in failed.note


@pytest.mark.parametrize("how", ["sandbox", "cwd", "kept"])
async def test_a_link_to_a_file_of_the_same_directory_stands_for_it(
    runner: SpawnerPool, recorder: Recorder, out: Path, tmp_path: Path, how: str
) -> None:
    program = {"sandbox": Keep.KEEP} if how == "kept" else {}
    if how == "cwd":
        (tmp_path / "work").mkdir()
        program = {"cwd": str(tmp_path / "work")}
    line = "mkdir d; echo 1 > d/v1; ln -s d/v1 last; ln -s ../last d/again; ln -s $PWD/d/v1 absolute"
    report = await run(runner, recorder, gathers(shell(line, **program), out, "**"))
    assert report.gathered and gathered(report) == found(out) == ["absolute", "d/again", "d/v1", "last"]
    assert {(out / path).read_text() for path in found(out)} == {"1\n"}
    assert not any((out / path).is_symlink() for path in found(out))


async def test_an_input_that_is_passed_on_is_copied(
    runner: SpawnerPool, recorder: Recorder, out: Path, cached: str
) -> None:
    launch = links(gathers(shell("ln in passed; rm in; echo x > own"), out, "*"), (cached, "in"))
    report = await run(runner, recorder, launch)
    assert gathered(report) == ["own", "passed"]
    assert (out / "passed").read_text() == "data"
    assert not (out / "passed").samefile(cached)
    assert (out / "passed").stat().st_nlink == 1


async def test_files_in_a_jobs_directory_are_copied_and_stay(
    runner: SpawnerPool, recorder: Recorder, out: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    line = "echo 1 > r; chmod 750 r; touch $TERCEL_SANDBOX/not"
    report = await run(runner, recorder, gathers(shell(line, cwd=str(work)), out, "*"))
    assert report.gathered == (("r", 2),)
    assert (work / "r").read_text() == (out / "r").read_text() == "1\n"
    assert not (work / "r").samefile(out / "r")
    assert stat.S_IMODE((out / "r").stat().st_mode) == 0o750


async def test_a_kept_sandbox_keeps_what_was_gathered(
    runner: SpawnerPool, recorder: Recorder, out: Path, tmp_path: Path
) -> None:
    launch = gathers(shell("echo 1 > r; exit 1", sandbox=Keep.KEEP_ON_FAILURE), out, "r", when="always")
    report = await run(runner, recorder, launch)
    assert (report.gathered, "sandbox kept: " in report.note) == ((("r", 2),), True)
    [kept] = tmp_path.rglob("kept/*/r")
    assert kept.read_text() == (out / "r").read_text() == "1\n"
    well = gathers(shell("echo 1 > s", 2, sandbox=Keep.KEEP_ON_FAILURE), out, "s")
    assert (await run(runner, recorder, well)).note == ""


async def test_a_cleanup_finds_what_was_gathered(runner: SpawnerPool, recorder: Recorder, out: Path) -> None:
    await run(runner, recorder, gathers(shell("echo 1 > r", cleanup="true"), out, "r"))
    recorder.reports.clear()
    assert text((await run(runner, recorder, shell("cat r; echo 2 > r"))).out) == "1\n"
    assert (out / "r").read_text() == "1\n"


async def test_what_a_task_put_out_of_reach_is_gathered_all_the_same(
    runner: SpawnerPool, recorder: Recorder, out: Path
) -> None:
    line = "mkdir -p d/e; echo 1 > d/e/r; chmod 0 d/e/r d/e d ."
    report = await run(runner, recorder, gathers(shell(line), out, "d"))
    assert report.gathered == (("d/e/r", 2),)
    assert (out / "d/e/r").read_text() == "1\n"
    gone = await run(runner, recorder, gathers(shell("rm -r $PWD; ln -s /etc $PWD", 2), out, "passwd", "*"))
    assert (gone.code, gone.gathered) == (0, ())


async def test_more_files_than_may_be_are_refused(out: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "FILES_MOST", 3)
        for number in range(4):
            (work / f"{number}").touch()
        many = gathering.Gathering(os.fsencode(work), gathering.MOVE, True, os.fsencode(out))
        with pytest.raises(gathering.Unfit, match="more than 3 files"):
            list(many.work(["*"]))
        many.close()
    assert len(os.listdir(work)) == 4


@pytest.mark.must("d")
async def test_ten_thousand_files_of_one_attempt(runner: SpawnerPool, recorder: Recorder, out: Path) -> None:
    line = "mkdir d; cd d; seq 10000 | xargs touch"
    report = await run(runner, recorder, gathers(shell(line), out, "d/*"))
    assert len(report.gathered) == len(os.listdir(out / "d")) == 10_000


async def test_what_cannot_be_saved_is_this_nodes_fault(
    runner: SpawnerPool, recorder: Recorder, out: Path
) -> None:
    out.parent.write_text("in the way")
    report = await run(runner, recorder, gathers(shell("touch x"), out, "x"))
    assert (report.end, report.errno, report.gathered) == (End.INTERRUPTED, "ENOTDIR", ())
    assert report.note == "what it left cannot be saved on node-7: Not a directory"
    assert report.wall_s > 0


async def test_what_is_killed_while_it_is_gathered_ends_as_cancelled(
    runner: SpawnerPool, recorder: Recorder, out: Path, elsewhere: Path
) -> None:
    runner.launch([gathers(shell("truncate -s 8G large", cwd=str(elsewhere)), out, "large")])
    while not (out / "large").exists():
        await run(runner, recorder, shell("true", len(recorder.reports) + 2, lane=1))
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.gathered) == (End.CANCELLED, ())
    (out / "large").unlink()


async def test_linked_files_take_no_room_of_the_attempts_own(tmp_path: Path) -> None:
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    own = Meter(os.fsencode(sandbox)).whole(60.0)
    os.link(in_cache(tmp_path, "x" * 1_000_000), sandbox / "input")
    assert Meter(os.fsencode(sandbox)).whole(60.0) == own
    (sandbox / "output").write_text("x" * 1_000_000)
    os.link(sandbox / "output", sandbox / "another")
    assert Meter(os.fsencode(sandbox)).whole(60.0) >= own + 1_000_000


async def test_templates_and_refused_launches_do_not_mix_up_files(
    runner: SpawnerPool, recorder: Recorder, cached: str
) -> None:
    first = links(shell("ls -A", 1), (cached, "x"))
    runner.launch([first, shell("ls -A", 2), links(shell("ls -A", 3), (cached, "z"))])
    await recorder.until(lambda: len(recorder.reports) == 3)
    assert text(recorder.reports[1].out) == "x\n"
    assert recorder.reports[2].out is None
    assert text(recorder.reports[3].out) == "z\n"


@needs_bwrap
async def test_an_isolated_attempt_has_files_too(
    runner: SpawnerPool, recorder: Recorder, cached: str, out: Path
) -> None:
    launch = gathers(shell("cat in/x > result; cat in/x", isolate="bwrap"), out, "result")
    report = await run(runner, recorder, links(launch, (cached, "in/x")))
    assert (text(report.out), report.gathered) == ("data", (("result", 4),))


async def test_an_attempt_in_a_container_has_files_too(
    recorder: Recorder, cached: str, out: Path, tmp_path: Path
) -> None:
    if not has_image():
        pytest.skip("podman, runc or busybox is not installed, or podman does not work here")
    runner = SpawnerPool(tmp_path / "worker", "node-7", container_args=ARGS)
    await runner.start(recorder)
    launch = gathers(shell("cat in/x > result; cat in/x", container=IMAGE), out, "result")
    report = await run(runner, recorder, links(launch, (cached, "in/x")))
    await runner.stop()
    assert (text(report.out), report.gathered) == ("data", (("result", 4),)), report


# -- calls ------------------------------------------------------------------------------------------------


def _listed() -> list[str]:
    here = Path(os.environ["TERCEL_SANDBOX"])
    return sorted(
        f"{path.relative_to(here)} {path.read_text()}" for path in here.rglob("*") if path.is_file()
    )


def _leaves(content: str, code: int = 0) -> None:
    Path("d").mkdir()
    Path("d/result").write_text(content)
    if code == 1:
        raise ValueError(content)
    if code:
        os._exit(code)


async def test_a_call_finds_its_files_and_the_next_one_does_not(
    runner: SpawnerPool, recorder: Recorder, cached: str
) -> None:
    launch = links(call(_listed), (cached, "a/x"), (cached, "y"))
    runner.launch([launch, call(_listed, attempt=2), links(call(_listed, attempt=3), (cached, "z"))])
    await recorder.until(lambda: len(recorder.reports) == 3)
    listed = [value(runner, recorder.reports[attempt]) for attempt in (1, 2, 3)]
    assert listed == [["a/x data", "y data"], [], ["z data"]]


async def test_a_call_whose_files_cannot_be_had_is_not_made(
    runner: SpawnerPool, recorder: Recorder, cached: str
) -> None:
    gone = await run(runner, recorder, links(call(os.getpid), (cached + "?", "x")))
    assert (gone.end, gone.errno, gone.value) == (End.INTERRUPTED, "ENOENT", None)
    bad = await run(runner, recorder, links(call(os.getpid, attempt=2), (cached, "../x")))
    assert (bad.end, bad.hitch is not None) == (End.UNSTAGED, True)
    assert (await run(runner, recorder, call(os.getpid, attempt=3))).code == 0


@pytest.mark.parametrize(
    ("code", "end", "when"),
    [
        (0, End.EXITED, "finished"),
        (1, End.EXITED, "failed"),
        (3, End.EXITED, "failed"),
        (3, End.EXITED, "always"),
    ],
)
async def test_what_a_call_leaves_is_gathered_however_it_ends(
    runner: SpawnerPool, recorder: Recorder, out: Path, code: int, end: End, when: str
) -> None:
    launch = gathers(call(_leaves, "text", code), out, "d", when=when)
    report = await run(runner, recorder, launch)
    assert (report.end, report.code, report.gathered) == (end, code, (("d/result", 4),)), report
    assert (out / "d/result").read_text() == "text"
    other = "failed" if when == "finished" else "finished"
    again = await run(
        runner, recorder, gathers(call(_leaves, "text", code, attempt=2), out / "2", "d", when=other)
    )
    assert (again.code, again.gathered) == (code, ())


def _writes_and_waits(lifeline: str) -> None:
    Path("log").write_text("partial")
    with open(lifeline, "w") as held:
        held.write("x\n")
        held.flush()
        signal.pause()


async def test_of_a_killed_call_only_that_is_gathered_which_always_is(
    runner: SpawnerPool, recorder: Recorder, out: Path, lifeline: Lifeline
) -> None:
    launch = call(_writes_and_waits, str(lifeline.path), kill_grace_s=0.0)
    runner.launch(
        [msgspec.structs.replace(launch, gathers=[("log", "always"), ("l*", "failed")], gather_dir=str(out))]
    )
    await lifeline.held()
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.gathered) == (End.CANCELLED, (("log", 7),))
    await lifeline.dropped()


@pytest.mark.parametrize("code", [0, 3])
async def test_what_a_call_leaves_and_cannot_be_saved_is_this_nodes_fault(
    runner: SpawnerPool, recorder: Recorder, out: Path, code: int
) -> None:
    out.parent.write_text("in the way")
    report = await run(runner, recorder, gathers(call(_leaves, "text", code), out, "d", when="always"))
    assert (report.end, report.errno, report.gathered) == (End.INTERRUPTED, "ENOTDIR", ())
    assert "what it left cannot be saved on node-7" in report.note


def _leaves_many(count: int) -> int:
    for number in range(count):
        Path(f"{number:0100}").touch()
    return os.getpid()


async def test_more_files_of_a_call_than_its_board_has_room_for(
    runner: SpawnerPool, recorder: Recorder, out: Path
) -> None:
    runner.launch([gathers(call(_leaves_many, 6000), out, "*"), call(os.getpid, attempt=2)])
    await recorder.until(lambda: len(recorder.reports) == 2)
    assert len(recorder.reports[1].gathered) == len(os.listdir(out)) == 6000
    [interpreter] = interpreters()
    assert {value(runner, report) for report in recorder.reports.values()} == {interpreter}
