"""Sweeps and items through real processes: what a task is given is exactly its point, whatever happens meanwhile."""

import csv
import io
import json

import pytest

from tercel.core.grids import Axis, Grid, Rule, Span
from tercel.wire.api import Submission
from tests.lab import HASTY, Lab

NASTY = (
    "", " ", "it's", 'say "hi"', "$HOME", "`id`", "$(id)", "two\nlines\n", "-n", "--", "\\", "\\n", "'", '"', "*",
    "~", "#", "a;b|c&d >e", "if", "2", "A=b", "{x}", "%s", "\t", "ä€\U0001f985", "\x01\x1b[31m", "x" * 20_000,
)  # fmt: skip


@pytest.mark.must("a")
async def test_tasks_print_exactly_their_values_wherever_these_stand(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    grid = Grid(axes=(Axis(name="x", values=NASTY),))
    items = [json.dumps({"x": value}) for value in NASTY]
    show = "printf '%s|' {x} \"{x}\" '{x}' \"$TERCEL_POINT\""
    argv = ("printf", "%s|", "{x}", "a{x}", "{x}")
    async with lab.client() as client:
        ids = [
            (await client.submit(job)).id
            for job in (
                Submission(line=show, grid=grid, template=True),
                Submission(line=show, items=items, template=True),
                Submission(argv=argv, grid=grid, template=True),
                Submission(argv=argv, items=items, template=True),
            )
        ]
        await lab.done(ids)
        for id in ids:
            for task, value in enumerate(NASTY):
                out = b"".join([piece async for piece in client.logs(id, task)]).decode()
                view = await client.task(id, task)
                assert view.point == {"x": value}
                if id in ids[2:]:
                    assert out == f"{value}|a{value}|{value}|"
                else:
                    assert out.startswith(f"{value}|" * 3)
                    assert json.loads(out[len(value) * 3 + 3 : -1]) == {"x": value}


@pytest.mark.must("a")
@pytest.mark.B(9)
async def test_the_papers_grid_runs_its_thirty_commands_once_each(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    (lab.work / "svm").write_text('#!/bin/sh\necho "svm $*" >> ran\necho \'{"acc": 0.5}\'\n')
    (lab.work / "svm").chmod(0o755)
    (lab.work / "grid.txt").write_text(
        "svm -train -kernel rbf -C [1] -gamma [2]\n[1] 0.001, 0.01, 0.1, 1, 10, 100\n[2] 0 0.25 0.5 0.75 1\n"
    )
    path = f"PATH={lab.work}:{lab.env['PATH']}"
    assert lab.ok("sweep", "grid.txt", "--env", path, "--wait") == "1\n"
    expected = [
        f"svm -train -kernel rbf -C {C} -gamma {gamma}"
        for C in ("0.001", "0.01", "0.1", "1", "10", "100")
        for gamma in ("0", "0.25", "0.5", "0.75", "1")
    ]
    assert lab.runs() == dict.fromkeys(expected, 1)
    rows = list(csv.DictReader(io.StringIO(lab.ok("results", "last"))))
    assert [f"svm -train -kernel rbf -C {row['1']} -gamma {row['2']}" for row in rows] == expected
    assert {(row["state"], row["exit"], row["acc"]) for row in rows} == {("finished", "0", "0.5")}
    listed = lab.ok("list", "last", "--points", "-n", "2").splitlines()
    assert listed[2].split()[:5] == ["1.1", "0.001", "0.25", "finished", "0"]
    assert 'point   {"1":"0.01","2":"0"}' in lab.ok("show", "1.5")


async def test_a_sweep_and_items_survive_the_death_of_the_manager(lab: Lab) -> None:
    """What the worker was told, and what is still to be told after the restart, make one whole."""
    manager = await lab.manager_up("--grace", "60s")
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    wait = "while [ ! -e go ]; do sleep 0.02; done"
    span = Span(rule=Rule.TIMES, start="0.001", by="10", count=6)
    grid = Grid(axes=(Axis(name="C", span=span), Axis(name="k", values=("a b", "it's"))))
    items = [json.dumps({"C": number, "k": [number]}) for number in range(20)]
    line = f"{wait}; echo {{C}}/{{k}} >> ran"
    swept = await lab.submit(lab.shell(line, grid=grid, template=True, array="1-11"))
    listed = await lab.submit(lab.shell(line, items=items, template=True))
    await lab.running(swept, 2)
    manager.kill()
    (lab.work / "go").touch()
    await lab.manager_up("--grace", "60s")
    await lab.done([swept, listed])
    values = ("0.001", "0.01", "0.1", "1", "10", "100")
    points = [f"{C}/{k}" for C in values for k in ("a b", "it's")][1:]
    assert lab.runs() == dict.fromkeys([*points, *(f"{n}/[{n}]" for n in range(20))], 1)


async def test_run_takes_items_without_a_manager(lab: Lab) -> None:
    (lab.work / "items.json").write_text('[{"n": 1, "s": "a  b"},\n {"n": 2, "s": "$x"}]')
    done = lab.run("run", "--from-json", "items.json", "--", "printf", "%s=%s\\n", "{n}", "{s}")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["1=a  b", "2=$x"]


async def test_ten_million_points_are_accepted_at_once_and_the_last_runs(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    words = ("sweep", "echo {a} {b}", "a=1:10000", "b=0:0.999:0.001")
    assert lab.json(*words, "--dry-run")["count"] == 10_000_000
    lab.ok(*words, "--array", "9999998-9999999", "--wait")
    assert lab.ok("logs", "1.9999999") == "10000 0.999\n"
    lab.ok(*words)
    assert lab.json("show", "2")["tasks"] == 10_000_000
    assert lab.json("show", "2.9999999")["point"] == {"a": "10000", "b": "0.999"}
    lab.ok("cancel", "2")


@pytest.mark.must("e")
async def test_a_wrong_sweep_leaves_no_job(lab: Lab) -> None:
    await lab.up("--cpus", "1")
    (lab.work / "items.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    for words in (
        ("sweep", "run {x", "x=1"),
        ("sweep", "run {y}", "x=1"),
        ("sweep", "run {x}", "x="),
        ("sweep", "run {x}", "x=1:1000000000000000"),
        ("submit", "--from-json", "items.jsonl", "--", "run", "{a}"),
    ):
        done = lab.run(*words)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert lab.json("list", "--all")["jobs"] == []


async def test_four_mebibytes_of_values_reach_the_worker(lab: Lab) -> None:
    await lab.up("--cpus", "2")
    values = [f"{number:056}" for number in range(65_000)]
    (lab.work / "values.txt").write_text("\n".join(values))
    lab.ok("sweep", "x=@values.txt", "--array", "0,64999", "--wait", "--", "echo", "{x}")
    assert lab.ok("logs", "1.0") == f"{values[0]}\n"
    assert lab.ok("logs", "1.64999") == f"{values[-1]}\n"
    (lab.work / "values.txt").write_text("\n".join(values * 2))
    refused = lab.run("sweep", "x=@values.txt", "--", "echo", "{x}")
    assert (refused.returncode, "--from-json" in refused.stderr) == (2, True)
