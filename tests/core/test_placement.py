"""What may be asked for about where and how tasks run: every door goes through these rules."""

import math
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.commands import check_spec
from tercel.core.errors import UsageError
from tercel.core.model import Call, Function, JobSpec, Needs
from tercel.core.placement import MAX_AMOUNT, SIGNALS, check_placement, parse_warning


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": 0},
        {"gpus": 0.5},
        {"gpus": 1},
        {"gpus": 8.0},
        {"gpus": MAX_AMOUNT},
        {"resources": {"licence.matlab": 1, "slots": 0.001, "none": 0}},
        {"pids": 64, "disk_bytes": 2**30},
        {"requires": ("STAR", "Python3.11", "STAR", "größer")},
        {"requires": tuple(f"tag{number}" for number in range(10_000))},
        {"requires": ("same",) * 20_000},
        {"where": 'worker.mem_free >= 8*GB && worker.os == "linux"', "rank": "10*worker.speed"},
        {"mem_growth": 1.5, "mem_bytes": 1},
        {"isolate": "bwrap"},
        {"container": "docker.io/library/python:3.12"},
        {"cleanup": "./wipe.sh --all | tee log", "cleanup_limit_s": 1},
        {"warn_signal": "USR1@120"},
        {"warn_signal": "SIGTERM@0.5"},
    ],
)
def test_what_makes_sense_is_taken(fields: dict[str, Any]) -> None:
    check_spec(JobSpec(argv=("true",), **fields))


@pytest.mark.must("d")
@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"gpus": -1}, "gpus", "gpus is -1"),
        ({"gpus": math.nan}, "gpus", "gpus is nan"),
        ({"gpus": math.inf}, "gpus", "gpus is inf"),
        ({"gpus": 0.0001}, "gpus", "between 0.001"),
        ({"gpus": 1.5}, "gpus", "whole ones"),
        ({"gpus": 2e9}, "gpus", "1e+09"),
        ({"resources": {"licence.matlab": -1}}, "resources", "licence.matlab is -1"),
        ({"resources": {"x": math.nan}}, "resources", "x is nan"),
        ({"resources": {"x": 1e-9}}, "resources", "x is 1e-09"),
        ({"resources": {"": 1}}, "resources", "'' is no name"),
        ({"resources": {"1x": 1}}, "resources", "'1x' is no name"),
        ({"resources": {"a b": 1}}, "resources", "'a b' is no name"),
        ({"resources": {"x" * 65: 1}}, "resources", "is no name"),
        ({"resources": {"cpus": 1}}, "resources", "an option of its own"),
        ({"resources": {"mem": 1}}, "resources", "an option of its own"),
        ({"resources": {"gpus": 1}}, "resources", "an option of its own"),
        ({"resources": {f"r{number}": 1 for number in range(1001)}}, "resources", "at most 1,000"),
        ({"pids": -1}, "pids", "pids is -1"),
        ({"disk_bytes": -1}, "disk_bytes", "disk_bytes is -1"),
        ({"requires": ("",)}, "requires", "'' is no tag"),
        ({"requires": ("a b",)}, "requires", "'a b' is no tag"),
        ({"requires": ("a,b",)}, "requires", "'a,b' is no tag"),
        ({"requires": ("a\nb",)}, "requires", "is no tag"),
        ({"requires": ("a" * 101,)}, "requires", "is no tag"),
        ({"requires": tuple(f"{number}" for number in range(10_001))}, "requires", "at most 10,000"),
        ({"where": "worker.mem_free >="}, "where", "ends too early"),
        ({"where": "worker.nosuch == 1"}, "where", "worker.nosuch"),
        ({"where": "1"}, "where", "true or false"),
        ({"where": "x" * 10_001}, "where", "at most 4,096"),
        ({"rank": "worker.os"}, "rank", "must be a number"),
        ({"mem_growth": -1}, "mem_growth", "mem_growth is -1"),
        ({"mem_growth": math.nan}, "mem_growth", "mem_growth is nan"),
        ({"mem_growth": 1000}, "mem_growth", "between 0 and 100"),
        ({"mem_growth": 1.0, "mem_bytes": 1}, "mem_growth", "must be above 1"),
        ({"mem_growth": 0.5, "mem_bytes": 1}, "mem_growth", "must be above 1"),
        ({"mem_growth": 1.5}, "mem_growth", "mem_growth needs mem"),
        ({"isolate": "jail"}, "isolate", "'jail' is not known; there is bwrap"),
        ({"container": "--privileged"}, "container", "not the name of an image"),
        ({"container": "a b"}, "container", "not the name of an image"),
        ({"container": "x", "isolate": "bwrap"}, "isolate", "leave isolate out"),
        ({"cleanup": "  "}, "cleanup", "blank"),
        ({"cleanup": "a\0b"}, "cleanup", "NUL"),
        ({"cleanup": "x" * 65_537}, "cleanup", "at most 65,536"),
        ({"cleanup_limit_s": 0}, "cleanup_limit_s", "cleanup_limit_s is 0"),
        ({"cleanup_limit_s": math.inf}, "cleanup_limit_s", "is inf"),
        ({"warn_signal": "USR1"}, "warn_signal", "not NAME@SECONDS"),
        ({"warn_signal": "@60"}, "warn_signal", "not NAME@SECONDS"),
        ({"warn_signal": "USR1@soon"}, "warn_signal", "not NAME@SECONDS"),
        ({"warn_signal": "USR1@0"}, "warn_signal", "between"),
        ({"warn_signal": "KILL@60"}, "warn_signal", "no task can heed KILL"),
        ({"warn_signal": "STOP@60"}, "warn_signal", "no task can heed STOP"),
        ({"warn_signal": "NOSUCH@60"}, "warn_signal", "no signal NOSUCH"),
    ],
)
def test_what_makes_none_is_refused_with_the_field_named(
    fields: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(JobSpec(argv=("true",), **fields))
    assert caught.value.field == field
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400 or field == "where"  # the expression is shown, with the place in it


@pytest.mark.parametrize("fields", [{"isolate": "bwrap"}, {"container": "image"}])
def test_a_function_is_not_called_in_a_container(fields: dict[str, Any]) -> None:
    spec = JobSpec(function=Function(code=b"x"), **fields)
    with pytest.raises(UsageError, match="functions are called by the worker's own Python"):
        check_spec(spec, calls=[Call(b"x")])


def test_every_signal_that_a_task_may_be_warned_by_is_one() -> None:
    known = {member.name.removeprefix("SIG") for member in signal.Signals}
    assert known >= SIGNALS
    assert parse_warning("SIGUSR1@120") == parse_warning("USR1@120") == ("USR1", 120.0)


def test_amounts_are_counted_in_thousandths_and_by_name() -> None:
    spec = JobSpec(argv=("x",), cpus=0.5, gpus=0.25, resources={"z": 2, "a": 0.001, "none": 0})
    assert spec.needs == Needs(500, 0, "", (("a", 1), ("gpus", 250), ("z", 2000)))


texts = st.text(max_size=20)


@given(
    gpus=st.floats(),
    resources=st.dictionaries(texts, st.floats(), max_size=3),
    requires=st.lists(texts, max_size=3),
    words=st.lists(texts, min_size=6, max_size=6),
)
def test_anything_is_taken_or_refused(
    gpus: float, resources: dict[str, float], requires: list[str], words: list[str]
) -> None:
    where, rank, isolate, container, cleanup, warn_signal = words
    spec = JobSpec(
        gpus=gpus,
        resources=resources,
        requires=tuple(requires),
        where=where,
        rank=rank,
        isolate=isolate,
        container=container,
        cleanup=cleanup,
        warn_signal=warn_signal,
    )
    try:
        check_placement(spec)
    except UsageError as error:
        assert error.field in JobSpec.__struct_fields__
