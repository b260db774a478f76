"""What a task is given by the runner: arguments, environment, signals, a sandbox."""

import ast
import json
import os
import sys
from pathlib import Path

import msgspec
import pytest

from tercel.core.grids import Axis, Grid
from tercel.core.model import Program
from tercel.core.reports import End
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import Recorder, python, run, shell, spawners, text


async def test_odd_arguments_arrive_unchanged(runner: SpawnerPool, recorder: Recorder) -> None:
    odd = ["", " ", "a b", "'", '"', "$HOME", "`id`", "\\", "*", "ä€𝄞", "new\nline", "-n", "#", "x" * 100_000]
    report = await run(runner, recorder, python("import sys; print(ascii(sys.argv[1:][:-1]))", *odd))
    assert text(report.out) == ascii(odd[:-1]) + "\n"


async def test_plain_line_needs_no_shell_and_others_get_one(runner: SpawnerPool, recorder: Recorder) -> None:
    program = Program(argv=("overridden",))
    lines = ["printf '%s|' a 'b c'", "printf '%s|' $((40 + 2)) && printf x", "readlink /proc/self/exe"]
    runner.launch([Launch(0, 1, at, at, program, line) for at, line in enumerate(lines)])
    outputs = [text((await recorder.report(at)).out) for at in range(3)]
    assert outputs[:2] == ["a|b c|", "42|x"]


@pytest.mark.K(15)
async def test_task_number_is_appended_when_asked(runner: SpawnerPool, recorder: Recorder) -> None:
    argv = Program(argv=("echo", "a b"), task_id_argument=True)
    line = Program(line="echo $((1 + 1)); echo 'a  b' ", task_id_argument=True)
    runner.launch([Launch(0, 1, 14, 1, argv), Launch(0, 2, 15, 2, line), Launch(0, 2, 16, 3, line)])
    assert text((await recorder.report(1)).out) == "a b 14\n"
    assert text((await recorder.report(2)).out) == "2\na  b 15\n"
    assert text((await recorder.report(3)).out) == "2\na  b 16\n"


async def test_environment_tells_the_task_who_it_is_and_no_secret(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERCEL_TOKEN", "very-secret")
    monkeypatch.setenv("TERCEL_TASK_ID", "of another")
    monkeypatch.setenv("OF_THE_WORKER", "1")
    report = await run(
        runner, recorder, shell("env -0", env={"GREETING": "hällo\nthere", "OF_THE_WORKER": "2"})
    )
    env = dict(entry.split("=", 1) for entry in text(report.out).split("\0") if entry)
    assert env["TERCEL_JOB_ID"] == env["SLURM_ARRAY_JOB_ID"] == "3"
    assert env["TERCEL_TASK_ID"] == env["SLURM_ARRAY_TASK_ID"] == "14"
    assert env["TERCEL_ATTEMPT"] == "1"
    assert env["TERCEL_NODE"] == "node-7"
    assert env["GREETING"] == "hällo\nthere"
    assert env["OF_THE_WORKER"] == "2"
    assert env["PATH"] == os.environ["PATH"]
    assert "very-secret" not in text(report.out)
    [spawner] = spawners()
    assert b"very-secret" not in Path(f"/proc/{spawner}/environ").read_bytes()


async def test_task_starts_with_default_signals_no_input_and_no_foreign_descriptors(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(runner, recorder, shell("grep Sig /proc/self/status; ls /proc/self/fd; wc -c"))
    status = dict(line.split(":\t") for line in text(report.out).splitlines() if line.startswith("Sig"))
    of_libc = 1 << 31 | 1 << 32  # its posix_spawn ignores those that it keeps for itself
    assert int(status["SigBlk"], 16) == int(status["SigIgn"], 16) & ~of_libc == 0
    descriptors = [line for line in text(report.out).splitlines() if not line.startswith("Sig")]
    assert descriptors == ["0", "1", "2", "3", "0"]  # 3 is that of ls itself; the last is what wc could read


async def test_outputs_made_non_blocking_by_one_task_block_for_the_next(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    spoil = "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK | os.O_WRONLY)"
    look = "import os, sys; print(os.get_blocking(1), os.get_blocking(2))"
    runner.launch([python(spoil), python(look, attempt=2), shell("true", attempt=3), python(look, attempt=4)])
    for attempt in (2, 4):
        assert text((await recorder.report(attempt)).out) == "True True\n"


async def test_task_leads_a_session_of_its_own(runner: SpawnerPool, recorder: Recorder) -> None:
    source = "import os; print(os.getpid() == os.getsid(0) == os.getpgid(0))"
    assert text((await run(runner, recorder, python(source))).out) == "True\n"


async def test_each_attempt_finds_an_empty_sandbox_of_its_own(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    litter = "mkdir -p d/e; touch .hidden d/e/f; chmod 0 d"
    worse = [
        litter,
        "rmdir $PWD",
        f"cd ..; rm -r 0; ln -s {tmp_path} 0",
        "chmod 0 .",
        "true",
        "chmod 0 .; touch f",
    ]
    look = "pwd; ls -A; stat -c %a .; test $PWD = $TERCEL_SANDBOX"
    lines = [line for bad in worse for line in (look, bad)] + [look]
    runner.launch([Launch(at % 2, 1, 0, at, Program(line=line)) for at, line in enumerate(2 * lines)])
    await recorder.until(lambda: len(recorder.reports) == 2 * len(lines))
    places = set()
    for at, line in enumerate(2 * lines):
        if line == look:
            report = recorder.reports[at]
            assert report.code == 0, report
            place, *entries, mode = text(report.out).split()
            assert (entries, mode) == ([], "700"), report
            places.add((at % 2, place))
    assert not {place for lane, place in places if lane == 0} & {place for lane, place in places if lane == 1}


async def test_what_tasks_leave_is_removed_and_links_are_not_followed(
    tmp_path: Path, recorder: Recorder
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("mine")
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    litter = f"ln -s {precious} link; ln -s {precious}/data d; mkdir a; ln -s {precious} a/b; chmod 0 a"
    runner.launch([shell(litter), shell(f"touch x; ln {precious}/data hard", attempt=2)])
    assert (await recorder.report(2)).code == 0
    await runner.stop()
    assert (precious / "data").read_text() == "mine"
    assert list((tmp_path / "worker" / "trash").iterdir()) == []
    assert list((tmp_path / "worker" / "sandboxes").iterdir()) == []


async def test_directories_are_for_the_owner_only(runner: SpawnerPool, tmp_path: Path) -> None:
    for name in ("sandboxes", "outputs", "trash"):
        assert (tmp_path / "worker" / name).stat().st_mode & 0o777 == 0o700


def axis(name: str, *values: str) -> Axis:
    return Axis(name=name, values=values)


NASTY = ("", "it's", 'say "hi"', "$HOME `id`", "two\nlines\n", "-n", "\\", "*", "ä€𝄞", "#")
SHOW = "import os, sys; print(ascii((sys.argv[1:], os.environ['TERCEL_POINT'])))"


@pytest.mark.parametrize(
    "program",
    [
        Program(argv=(sys.executable, "-c", SHOW, "{x}", "a{x}b{n}", "{task}")),
        Program(line=f'{sys.executable} -c "{SHOW}" {{x}} "a{{x}}b"{{n}} \'{{task}}\''),
    ],
    ids=["argv", "line"],
)
async def test_each_task_of_a_grid_gets_its_point_whatever_is_in_it(
    runner: SpawnerPool, recorder: Recorder, program: Program
) -> None:
    grid = Grid(axes=(axis("x", *NASTY), axis("n", "1", "2")))
    program = msgspec.structs.replace(program, grid=grid, template=True, env={"TERCEL_POINT": "mine"})
    runner.launch([Launch(task % 2, 3, task, 100 + task, program) for task in range(grid.count)])
    for task in range(grid.count):
        words, point = ast.literal_eval(text((await recorder.report(100 + task)).out))
        x, n = NASTY[task // 2], str(task % 2 + 1)
        assert words == [x, f"a{x}b{n}", str(task)]
        assert json.loads(point) == {"x": x, "n": n}


async def test_a_tasks_item_fills_the_template(runner: SpawnerPool, recorder: Recorder) -> None:
    items = ['{"a": "it\'s", "b": 0.10}', '{"a": [1, {"c": null}],\n "b": true}']
    program = Program(line="printf '%s|' {a} {b} \"$TERCEL_POINT\"", template=True)
    plain = Program(line='printf %s "${TERCEL_POINT-none}"')
    runner.launch([Launch(0, 3, task, task, program, item) for task, item in enumerate(items)])
    runner.launch([Launch(0, 4, 0, 9, plain)])
    assert text((await recorder.report(0)).out) == 'it\'s|0.10|{"a":"it\'s","b":0.10}|'
    assert text((await recorder.report(1)).out) == '[1,{"c":null}]|true|{"a":[1,{"c":null}],"b":true}|'
    assert text((await recorder.report(9)).out) == "none"


async def test_a_template_that_cannot_be_filled_is_refused_and_the_next_task_runs(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    program = Program(line="echo {a}", template=True)
    broken = Program(line="echo {a", template=True)
    runner.launch(
        [
            Launch(0, 3, 0, 1, program, '{"b": 1}'),
            Launch(0, 3, 1, 2, program, "no json"),
            Launch(0, 4, 0, 3, broken, '{"a": 1}'),
            Launch(0, 3, 2, 4, program, '{"a": 1}'),
        ]
    )
    for attempt in (1, 2, 3):
        assert (await recorder.report(attempt)).end is End.REFUSED
    assert text((await recorder.report(4)).out) == "1\n"


async def test_a_line_that_is_empty_once_filled_does_nothing(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(
        runner, recorder, Launch(0, 3, 0, 1, Program(line="{a:raw}", template=True), '{"a": ""}')
    )
    assert (report.end, report.code, report.err) == (End.EXITED, 0, None)
