"""Where and how tasks run: said through every door, it means the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from tercel.core.errors import UsageError
from tercel.core.model import BlockRule, Keep
from tercel.sdk.decorator import Task, task
from tercel.sdk.files import Draft, read_file
from tercel.sdk.files.options import read_options
from tercel.sdk.files.sources import OptionSource
from tercel.sdk.jobs import command_submission
from tercel.sdk.options import CallOptions, with_resources

OPTIONS = (
    *("--gpus", "1", "--resource", "licence.matlab=2", "--resource", "slots", "--requires", "STAR,gpu"),
    *("--requires", "STAR", "--where", 'worker.os == "linux"', "--rank", "worker.speed", "--mem", "1G"),
    *("--mem-growth", "1.5", "--pids", "64", "--disk", "1G", "--isolate", "bwrap"),
    *(
        "--sandbox",
        "keep-on-failure",
        "--cleanup",
        "./wipe.sh",
        "--cleanup-limit",
        "2h",
        "--warn-signal",
        "usr1@120",
    ),
)
FILE = """
command = "true"
gpus = 1
requires = ["STAR", "gpu", "STAR"]
where = 'worker.os == "linux"'
rank = "worker.speed"
mem = "1G"
mem_growth = 1.5
pids = 64
disk = "1G"
isolate = "bwrap"
sandbox = "keep-on-failure"
cleanup = "./wipe.sh"
cleanup_limit = "2h"
warn_signal = "USR1@120"
[resources]
"licence.matlab" = 2
slots = 1
"""
MEANT: dict[str, Any] = {
    "gpus": 1,
    "resources": {"licence.matlab": 2, "slots": 1},
    "requires": ("STAR", "gpu"),
    "where": 'worker.os == "linux"',
    "rank": "worker.speed",
    "mem_bytes": 2**30,
    "mem_growth": 1.5,
    "pids": 64,
    "disk_bytes": 2**30,
    "isolate": "bwrap",
    "sandbox": Keep.KEEP_ON_FAILURE,
    "cleanup": "./wipe.sh",
    "cleanup_limit_s": 7200,
    "warn_signal": "USR1@120",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(name: str, text: str, *options: str) -> Draft:
    Path(name).write_text(text)
    [draft] = read_file(name, (), read_options(options, OptionSource()))
    return draft


def fields_of(thing: object) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in MEANT}


def test_options_files_and_directives_mean_the_same() -> None:
    quoted = " ".join(json.dumps(word) if word.startswith("-") else f"'{word}'" for word in OPTIONS)
    drafts = [
        read("job.toml", 'command = "true"', *OPTIONS),
        read("job.toml", FILE),
        read("job.sh", f"#!/bin/sh\n#TERCEL {quoted}\ntrue\n"),
    ]
    assert [fields_of(draft.submission) for draft in drafts] == [MEANT] * 3


def test_a_flows_steps_say_it_too() -> None:
    text = FILE.replace('command = "true"', '[step.a]\ncommand = "true"').replace(
        "[resources]", "[step.a.resources]"
    )
    assert fields_of(read("flow.toml", text).submission) == MEANT


def test_a_python_program_says_it_too() -> None:
    submission = command_submission(
        "true",
        mem="1G",
        gpus=1,
        resources={"licence.matlab": 2, "slots": 1},
        requires=["STAR", "gpu"],
        where='worker.os == "linux"',
        rank="worker.speed",
        mem_growth=1.5,
        pids=64,
        disk=2**30,
        isolate="bwrap",
        sandbox="keep-on-failure",
        cleanup="./wipe.sh",
        cleanup_limit=7200,
        warn_signal="USR1@120",
    )
    assert fields_of(submission) == MEANT


def test_calls_of_functions_say_it_among_their_resources() -> None:
    chosen = with_resources(CallOptions(), {"gpus": 1, "licence.matlab": 2, "requires": "STAR,gpu"})
    chosen = with_resources(
        chosen, {"resources": {"slots": 1}, "sandbox": "keep", "cleanup_limit": "2h", "disk": 5}
    )
    chosen = with_resources(chosen, {"block_on": "known"})
    assert chosen.fields() == {
        "gpus": 1,
        "resources": {"licence.matlab": 2, "slots": 1},
        "requires": ("STAR", "gpu"),
        "sandbox": Keep.KEEP,
        "cleanup_limit_s": 7200.0,
        "disk_bytes": 5,
        "block_on": (BlockRule(on="known"),),
    }
    assert hash(chosen) == hash(with_resources(chosen, {}))  # calls that ask for the same share a job

    @task(cpus=2, gpus=1, requires="STAR")
    def work() -> None: ...

    assert isinstance(work, Task)
    assert work.options == {"resources": {"cpus": 2, "gpus": 1, "requires": "STAR"}}


@pytest.mark.must("d")
@pytest.mark.parametrize(
    ("resources", "says"),
    [
        ({"cpu": 2}, "'cpu' is not a resource"),
        ({"gpus": "two"}, "gpus: a number is needed, not text"),
        ({"licence.matlab": -1}, "resources.licence.matlab: -1 is not between 0"),
        ({"requires": ["a b"]}, "requires.0: 'a b' is no tag"),
        ({"sandbox": "burn"}, "sandbox: 'burn' is not one of remove, keep, keep-on-failure"),
        ({"warn_signal": "KILL@1"}, "no task can heed KILL"),
    ],
)
def test_a_call_that_asks_for_nonsense_is_refused(resources: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        with_resources(CallOptions(), resources)
    assert says in str(caught.value)


@pytest.mark.must("d")
def test_a_mistake_in_an_expression_is_shown_with_its_place_in_file_and_expression() -> None:
    with pytest.raises(UsageError) as caught:
        read("job.toml", "command = 'x'\nwhere = 'worker.mem_free >= 8*GB && worker.os = 1'\n")
    first, expression, mark = str(caught.value).splitlines()
    assert first.startswith("job.toml:2: where: ") and "--where" not in first
    assert expression.strip() == "worker.mem_free >= 8*GB && worker.os = 1"
    assert set(mark.strip()) == {"^"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--resource", "licence.matlab=many"), "--resource: 'many' is not a number"),
        (("--resource", "=1"), "--resource: '' is no name"),
        (("--resource", "mem=1"), "--resource: memory has an option of its own"),
        (("--requires", "a,,b"), "--requires: '' is no tag"),
        (("--where", "worker.nosuch"), "--where: unknown attribute worker.nosuch"),
        (("--isolate", "jail"), "--isolate: 'jail' is not one of bwrap"),
        (("--isolate", "bwrap", "--container", "x"), "--isolate: a container is isolated as it is"),
        (("--cleanup-limit", "0s"), "--cleanup-limit: is 0; it must be between"),
        (("--warn-signal", "USR1"), "--warn-signal: 'USR1' is not NAME@SECONDS"),
    ],
)
def test_a_wrong_option_is_named(options: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read("job.toml", "command = 'x'", *options)
    assert says in str(caught.value)
