"""Workers that know themselves: pieces for one task at a time, nodes that are not fit, time that runs out."""

import os
import sys

import pytest

from tercel.worker.node import usable_cores
from tests.lab import HASTY, RECORD, Lab
from tests.processes import eventually
from tests.worker.driver import make_driver, with_compiler

ALONE = 'mkdir "gpu-$CUDA_VISIBLE_DEVICES" || exit 9; [ "$TERCEL_RESOURCE_GPUS" = "$CUDA_VISIBLE_DEVICES" ] || exit 8'
LEAVE = 'sleep 0.05; rmdir "gpu-$CUDA_VISIBLE_DEVICES"'
UNTIL_TOLD = "while [ ! -e go ]; do sleep 0.02; done"


@pytest.mark.must("a")
async def test_each_gpu_is_one_tasks_at_a_time_and_who_asked_for_none_sees_none(lab: Lab) -> None:
    await lab.manager_up()
    lab.worker("w", 8, "", "--resource", "gpus=[0,1]")
    await lab.workers_online(1)
    lab.ok("submit", "--gpus", "1", "--array", "0-19", f"{ALONE}; {LEAVE}")
    lab.ok("submit", 'echo "gpus: [$CUDA_VISIBLE_DEVICES]"')
    assert "20 finished" in lab.ok("wait", "1")
    lab.ok("wait", "2")
    assert lab.ok("logs", "2") == "gpus: []\n"


@with_compiler
def test_the_worker_inside_a_run_finds_its_gpus_by_itself(lab: Lab) -> None:
    make_driver(lab.root)
    driver = {"LD_LIBRARY_PATH": str(lab.root), "CUDA_VISIBLE_DEVICES": "1"}
    line = "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"
    assert lab.ok("run", "--gpus", "1", line, env=driver) == "1 PCI_BUS_ID\n"


async def test_pieces_of_other_resources_are_told_and_countable_ones_counted(lab: Lab) -> None:
    await lab.manager_up()
    lab.worker(
        "w", 8, "", "--resource", "port=[8000,8001]", "--resource", "licence.matlab=1", "--tag", "STAR"
    )
    await lab.workers_online(1)
    needs = ("--resource", "port=1", "--resource", "licence.matlab=1", "--requires", "STAR")
    lab.ok("submit", *needs, "--array", "0-5", "mkdir one || exit 9; echo $TERCEL_RESOURCE_PORT; rmdir one")
    assert "6 finished" in lab.ok("wait", "1")
    assert set(lab.ok("logs", "1").split()) <= {"8000", "8001"}


@pytest.mark.O(1)
async def test_an_unfit_node_takes_nothing_says_why_and_recovers(lab: Lab) -> None:
    await lab.manager_up()
    check = f"test -e {lab.work}/fit || {{ echo 'no scratch disk here'; exit 1; }}"
    worker = lab.worker("w", 2, "", "--health-check", check)
    await lab.workers_online(1)
    await worker.says("Taking no tasks: no scratch disk here.")
    lab.ok("submit", "--array", "0-3", RECORD)
    assert lab.runs() == {}
    (lab.work / "fit").touch()
    await worker.says("Taking tasks again")
    assert "4 finished" in lab.ok("wait", "1")


@pytest.mark.K(19)
async def test_what_outlasts_its_workers_time_is_warned_and_runs_again_without_blame(lab: Lab) -> None:
    await lab.manager_up()
    line = f"trap 'echo $TERCEL_ATTEMPT >> warned' USR1; {RECORD}; {UNTIL_TOLD}"
    lab.ok("submit", "--warn-signal", "USR1@2", line)
    short = lab.worker("short", 1, "", "--time-limit", "10s", *HASTY)
    await lab.ran("1.0")
    assert await short.ended() == 0
    assert "time is nearly up" in short.said
    assert len((lab.work / "warned").read_text().split()) == 1
    lab.worker("long", 1)
    await lab.workers_online(1)
    (lab.work / "go").touch()
    assert "1 finished" in lab.ok("wait", "1")
    task = lab.json("show", "1.0")
    assert [attempt["end"] for attempt in task["attempts"]] == ["interrupted", "exited"]
    assert task["attempts"][0]["note"] == "its worker's time was up"
    assert lab.runs() == {"1.0": 2}


@pytest.mark.B(13)
async def test_a_worker_that_heeds_its_node_gives_less_while_others_use_it(lab: Lab) -> None:
    for _ in range(os.cpu_count() or 1):
        lab.start(sys.executable, "-S", "-c", "while True: pass")
    await lab.manager_up()
    process = lab.start(
        *(
            sys.executable,
            "-m",
            "tercel",
            "worker",
            lab.url,
            "--dir",
            str(lab.worker_dir("w")),
            "--keep-free",
            "0",
        ),
        env={"TERCEL_TOKEN": lab.access().worker_token},
    )
    await process.says("Joined the manager")

    async def gives_less() -> bool:
        pool = await lab.ask(lambda client: client.pool())
        return pool is not None and pool.online == 1 and pool.cpus < usable_cores()

    await eventually(gives_less, "the pool has less than all cores")


@pytest.mark.must("d")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--resource", "licence=-1"), "resource licence='-1'"),
        (("--resource", "licence=nan"), "resource licence='nan'"),
        (("--resource", "a=1", "--resource", "a=2"), "given twice"),
        (("--tag", "two words"), "without blanks"),
        (("--tag", "bell\x07"), "without blanks"),
        (("--keep-free", "nan"), "--keep-free nan"),
        (("--keep-free", "-1"), "--keep-free -1"),
        (("--keep-free", "100000"), "leaves nothing to tasks"),
        (("--time-limit", "0s"), "needs some time"),
        (("--time-limit", "soon"), "not a time"),
        (("--cache-size", "lots"), "not a size"),
    ],
)
async def test_options_that_make_no_sense_are_told_and_nothing_joins(
    lab: Lab, words: tuple[str, ...], message: str
) -> None:
    done = lab.run("worker", "http://127.0.0.1:9", "--token", "x.y", "--dir", str(lab.root / "w"), *words)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert message in done.stderr


async def test_a_manager_whose_worker_would_give_nothing_does_not_start(lab: Lab) -> None:
    done = lab.run("up", "--port", str(lab.port), "--data", str(lab.data), "--keep-free", "1000")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "leaves nothing to tasks" in done.stderr
