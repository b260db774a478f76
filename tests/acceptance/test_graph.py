"""Flows of steps that need one another, as people run them, and whatever is killed meanwhile."""

import json
import random
import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tercel.core.states import TaskState
from tercel.wire.api import JobView
from tests.lab import HASTY, Lab
from tests.processes import Process, becomes

SEED = 3
LAYERS, PER_LAYER = 20, 50
"""1,000 steps."""
OPTIONS = ("--heartbeat", "1s", "--grace", "120s")

STEP = """#!/bin/sh
# NAME NEED...: nothing of it may run before what it needs.
name=$1; shift
for need; do [ -e "done/$need" ] || { echo "$name.$TERCEL_TASK_ID before $need" >> wrong; exit 9; }; done
[ "$name.$TERCEL_TASK_ID" != "$BAD" ] || [ -e mended ] || exit 1
sleep 0.01
echo "$name.$TERCEL_TASK_ID" >> ran
: > "done/$name.$TERCEL_TASK_ID"
"""


class Step(NamedTuple):
    name: str
    layer: int
    tasks: int
    needs: list[str]
    same: bool
    """Task i after task i of what it needs."""


class Graph:
    """Layers of steps, every one with needs in the layer before; some of three tasks, some of those task by task.

    What is further down is more urgent: a step that does not wait for all its needs runs before them.
    """

    def __init__(self, rng: random.Random) -> None:
        self.steps: dict[str, Step] = {}
        for layer in range(LAYERS):
            for number in range(PER_LAYER):
                self._add(rng, layer, number)

    def _add(self, rng: random.Random, layer: int, number: int) -> None:
        name = f"s{layer}_{number}"
        wide = number < 10
        before = [f"s{layer - 1}_{other}" for other in range(PER_LAYER)] if layer else []
        same = wide and layer > 0 and number < 5
        needs = [before[number]] if same else rng.sample(before, rng.randint(1, 3)) if layer else []
        self.steps[name] = Step(name, layer, 3 if wide else 1, needs, same)

    def toml(self) -> Iterator[str]:
        yield 'name = "layers"\n'
        for step in self.steps.values():
            files = [f"{need}.$TERCEL_TASK_ID" for need in step.needs] if step.same else self._all_of(step)
            needs = [
                f'{{step = "{need}", tasks = "same"}}' if step.same else f'"{need}"' for need in step.needs
            ]
            yield f'[step.{step.name}]\ncommand = "./step.sh {step.name} {" ".join(files)}"\n'
            yield f"needs = [{', '.join(needs)}]\npriority = {LAYERS - step.layer}\n"
            if step.tasks > 1:
                yield f'array = "0-{step.tasks - 1}"\n'

    def _all_of(self, step: Step) -> list[str]:
        return [f"{need}.{task}" for need in step.needs for task in range(self.steps[need].tasks)]

    @property
    def tasks(self) -> set[str]:
        return {f"{step.name}.{task}" for step in self.steps.values() for task in range(step.tasks)}

    def behind(self, bad: str) -> set[str]:
        """The tasks that cannot run if this one fails, by going through all of them in order."""
        lost = {bad}
        for step in self.steps.values():
            for task in range(step.tasks):
                files = [f"{need}.{task}" for need in step.needs] if step.same else self._all_of(step)
                if lost & set(files):
                    lost.add(f"{step.name}.{task}")
        return lost - {bad}


def ran(lab: Lab) -> list[str]:
    path = lab.work / "ran"
    return path.read_text().splitlines() if path.exists() else []


async def jobs(lab: Lab) -> dict[str, JobView]:
    """By the names of their steps."""
    async with lab.client() as client:
        found = (await client.jobs(all=True, limit=1000)).jobs
    return {job.name.partition("/")[2]: job for job in found}


async def in_state(lab: Lab, state: TaskState) -> set[str]:
    async with lab.client() as client:
        found = set()
        for name, job in (await jobs(lab)).items():
            if getattr(job.counts, state):
                tasks = (await client.tasks(job.id, state=state)).tasks
                found |= {f"{name}.{task.task}" for task in tasks}
        return found


@pytest.mark.must("c")
@pytest.mark.timeout(300)
async def test_a_graph_of_1000_steps_survives_two_kills_of_the_manager(lab: Lab) -> None:
    graph = Graph(random.Random(SEED))
    bad = "s10_2.1"
    behind = graph.behind(bad)
    assert len(graph.steps) == 1000
    assert 10 < len(behind) < len(graph.tasks) // 2
    wrong = lab.work / "wrong"
    (lab.work / "done").mkdir()
    script = lab.work / "step.sh"
    script.write_text(STEP.replace("$BAD", bad))
    script.chmod(0o755)
    (lab.work / "flow.toml").write_text("".join(graph.toml()))

    manager = await lab.manager_up(*OPTIONS)
    lab.watch_records()
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    assert lab.ok("submit", "-q", "flow.toml").strip() == "1-1000"
    for part in (0.25, 0.6):
        enough = part * (len(graph.tasks) - len(behind))
        await becomes(
            lambda e=enough: len(ran(lab)) > e or wrong.exists(),  # type: ignore[misc]
            f"{part:.0%} of the graph has run",
        )
        manager.kill()
        assert len(ran(lab)) < len(graph.tasks) - len(behind) - 1, "it was in the middle"
        manager = await lab.manager_up(*OPTIONS)
    assert lab.run("wait", "1-1000").returncode == 1

    assert not wrong.exists(), wrong.read_text()
    assert sorted(ran(lab)) == sorted(graph.tasks - behind - {bad}), "each of them, and none twice"
    assert await in_state(lab, TaskState.FAILED) == {bad}
    assert await in_state(lab, TaskState.CANCELLED) == behind
    failed = (await jobs(lab))["s10_2"].id
    last = max(behind, key=lambda task: int(task[1:].partition("_")[0]))
    id = (await jobs(lab))[last.partition(".")[0]].id
    assert (
        lab.ok("explain", f"{id}.{last.partition('.')[2]}")
        .strip()
        .endswith(f"skipped: it needs {failed}.1, which failed")
    )
    assert lab.store("SELECT count(*), count(DISTINCT job * 1000 + task) FROM outcome") == [
        (len(graph.tasks) - len(behind),) * 2
    ]
    assert not lab.replaced_records()

    (lab.work / "mended").touch()
    assert lab.ok("retry", str(failed)) == "1 task will run again\n"
    assert lab.run("wait", "1-1000").returncode == 0
    assert not wrong.exists(), wrong.read_text()
    assert sorted(ran(lab)) == sorted(graph.tasks)
    assert await in_state(lab, TaskState.FINISHED) == graph.tasks


# -- tercel run flow.toml ---------------------------------------------------------------------------------

UNTIL_TOLD = "touch begun; while [ ! -e go ]; do sleep 0.02; done"


def write_flow(lab: Lab, text: str) -> None:
    (lab.work / "flow.toml").write_text(text)


def test_a_step_that_fails_stops_the_flow_if_it_says_so(lab: Lab) -> None:
    write_flow(
        lab,
        f"""
        on_failure = "stop"
        [step.slow]
        command = "{UNTIL_TOLD}"
        [step.bad]
        command = "while [ ! -e begun ]; do sleep 0.02; done; echo no good >&2; exit 3"
        [step.last]
        command = "touch last"
        needs = ["slow"]
        """,
    )
    done = lab.run("run", "flow.toml")
    assert done.returncode == 1
    assert "3 jobs, 3 tasks: 1-3" in done.stderr
    assert "1 failed, 2 cancelled" in done.stderr
    assert "2.0 failed: exited with code 3: no good" in done.stderr
    assert not (lab.work / "last").exists()
    assert not lab.left()


def test_only_what_is_behind_a_failure_is_skipped(lab: Lab) -> None:
    write_flow(
        lab,
        """
        [step.fit]
        command = "echo fit $TERCEL_TASK_ID; [ $TERCEL_TASK_ID != 1 ]"
        array = "0-2"
        [step.score]
        command = "echo score $TERCEL_TASK_ID"
        array = "0-2"
        needs = [{step = "fit", tasks = "same"}]
        [step.report]
        command = "echo report"
        needs = ["score"]
        """,
    )
    done = lab.run("run", "flow.toml")
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["fit 0", "fit 1", "fit 2", "score 0", "score 2"]
    assert "4 finished, 1 failed, 2 cancelled" in done.stderr


async def test_ctrl_c_cancels_the_whole_flow(lab: Lab) -> None:
    await lab.up("--cpus", "1")
    write_flow(
        lab,
        f"""
        [step.first]
        command = "{UNTIL_TOLD}"
        [step.beside]
        command = "touch beside"
        [step.last]
        command = "touch last"
        needs = ["first"]
        """,
    )
    run = lab.tercel("run", "flow.toml")
    await becomes(lambda: (lab.work / "begun").exists(), "the first step runs")
    run.signal(signal.SIGINT)
    assert await run.ended() == 130
    assert "cancelling job 1-3; Ctrl-C again leaves at once" in run.said
    async with lab.client() as client:
        for id in (1, 2, 3):
            task = await client.task(id, 0)
            assert task.state is TaskState.CANCELLED
            assert "Ctrl-C" in task.why, task.why
    assert not (lab.work / "last").exists()
    assert not (lab.work / "beside").exists()


def test_run_of_a_flow_tells_programs_each_jobs_end(lab: Lab) -> None:
    write_flow(
        lab,
        """
        name = "study"
        [step.good]
        command = "echo out"
        [step.bad]
        command = "exit 3"
        [step.behind]
        command = "true"
        needs = ["bad"]
        """,
    )
    done = lab.run("run", "--json", "flow.toml")
    assert done.returncode == 1
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "submitted"
    assert [(job["id"], job["name"]) for job in events[0]["jobs"]] == [
        (1, "study/good"),
        (2, "study/bad"),
        (3, "study/behind"),
    ]
    [output] = [event for event in events if event["event"] == "output"]
    assert (output["id"], output["stdout"]) == ("1.0", "out\n")
    ended = {event["id"]: event for event in events if event["event"] == "ended"}
    assert {id: event["exit_code"] for id, event in ended.items()} == {1: 0, 2: 1, 3: 1}
    assert (ended[2]["counts"]["failed"], ended[3]["counts"]["cancelled"]) == (1, 1)
    assert {event["schema"] for event in events} == {1}


# -- every attempt stays visible --------------------------------------------------------------------------


async def test_a_task_whose_worker_was_killed_runs_again_and_show_tells_both_attempts(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "1s")
    victim: Process = lab.worker("victim", 1, "", *HASTY)
    await lab.workers_online(1)
    assert lab.ok("submit", "-q", "--retries", "0", UNTIL_TOLD).strip() == "1"
    await lab.running(1, 1)
    victim.kill()
    lab.worker("other", 1, "", *HASTY)
    await becomes(lambda: len(lab.worker_processes("other")) > 0, "it runs elsewhere")
    (lab.work / "go").touch()
    assert lab.run("wait", "1").returncode == 0

    task = json.loads(lab.ok("show", "1.0", "--json"))
    lost, counted = task["attempts"]
    assert (lost["worker"], lost["end"], lost["state"]) == (
        lab.worker_id("victim"),
        "interrupted",
        "cancelled",
    )
    assert (counted["worker"], counted["end"], counted["state"]) == (
        lab.worker_id("other"),
        "exited",
        "finished",
    )
    assert lost["wall_s"] > 0
    assert lost["note"]
    shown = lab.ok("show", "1.0")
    assert lab.worker_id("victim") in shown
    assert lost["note"][:40] in shown
