"""The schemas for editors and the reader say the same of a file."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tercel.core.errors import UsageError
from tercel.sdk.files.flow import read_flow
from tercel.sdk.files.keys import KEYS
from tercel.sdk.files.schema import flow_schema, job_schema
from tercel.sdk.files.toml import read_job

VALUES: list[Any] = [
    *("", " ", "1", "x", "4G", "1.5GiB", "4 giraffes", "90s", "1h30m", "01:30:00", "2-12:00:00", "soon"),
    *("0-9", "0-99:2%10", "1,5,9", "0-", "5%", "100%", "101%", "0.5%", "10", "-1", "skip", "stop", "panic"),
    *("37", "0", "afterok:37:38", "afterany:1,aftercorr:2", "afterok:", "aftr:1", "37.0-9,12", "37_4", "1?2"),
    *(0, 1, 5, 300, -1, 0.5, 1e9 + 0.5, 2**60, True, False),
    *("known", "known; every 1m for 1d", ["known"], "exit:75 -> tcp:a:1", "known of all"),
    *([], ["x"], [""], [1], [37, "afterok:38"], ["x", 1], [[1]]),
    *({}, {"A": "x"}, {"A": 1}, {"A=B": "x"}, {"": "x"}, {"A": [1, "x", True]}, {"A": []}, {"A": "0:1:0.25"}),
    *([{"codes": [75]}], [{"codes": []}], [{"codes": [0]}], [{"retries": 1}], [{"codes": [75], "x": 1}]),
    *([{"source": "x", "name": "y"}], [{"source": 1}], [{"name": "x", "to": ["lfn:x"], "when": "always"}]),
    *([{"name": "x", "to": [], "when": "now"}], [{"name": "x", "to": "s3://b/", "optional": True}]),
    *([{"codes": [75], "retries": 5, "backoff": "30s"}], [{"codes": [75], "backoff": "soon"}], [{}]),
]
ROUGHER = {
    ("command", '[""]'),
    *((key, text) for key in ("kill_grace", "backoff") for text in ('"1h30m"', '"01:30:00"', '"2-12:00:00"')),
    ("cleanup_limit", '"0"'),
    *(("mem_growth", text) for text in ("0.5", "1")),
    *(("output_limit", text) for text in ('"4G"', '"1.5GiB"')),
    *(("outputs", text) for text in ('"known; every 1m for 1d"', '"exit:75 -> tcp:a:1"')),
}
"""What only the reader refuses."""


def reads(document: dict[str, Any]) -> bool:
    try:
        read_job("job.toml", "", document, {})
    except UsageError:
        return False
    return True


@pytest.mark.parametrize("name", [key.name for key in KEYS])
def test_editor_and_reader_take_the_same_values(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    validator = jsonschema_rs.Draft202012Validator(job_schema())
    for value in VALUES:
        if name in ("lines_file", "items_file", "where", "rank") and isinstance(value, str):
            continue  # whether there is such a file, or what an expression means, no schema knows
        document = {name: value} if name in ("command", "lines") else {"command": "true", name: value}
        if name == "sweep_zip":
            document["sweep"] = {"A": [1]}
        if name == "mem_growth":
            document["mem"] = "1G"
        if not reads(document) and validator.is_valid(document):
            assert (name, json.dumps(value)) in ROUGHER, value
        else:
            assert validator.is_valid(document) == reads(document), (name, value)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"name": "x"},
        {"command": "x", "cups": 1},
        {"command": "x", "lines": ["y"]},
        {"command": "x", "sweep_zip": True},
    ],
)
def test_editor_and_reader_refuse_the_same_files(document: dict[str, Any]) -> None:
    assert not reads(document)
    assert not jsonschema_rs.Draft202012Validator(job_schema()).is_valid(document)


A = {"name": "a", "command": "x"}


@pytest.mark.parametrize(
    ("document", "good"),
    [
        ({"step": [A]}, True),
        ({"step": {"a": {"command": "x"}, "b": {"command": "x", "needs": ["a"]}}}, True),
        ({"name": "n", "on_failure": "stop", "defaults": {"cpus": 2}, "step": [A]}, True),
        ({"step": [A, {"name": "b", "command": "x", "needs": "a"}]}, True),
        ({"step": [A, {"name": "b", "command": "x", "needs": [{"step": "a", "tasks": "same"}]}]}, True),
        ({"step": [A, {"name": "b", "command": "x", "needs": [{"step": "a", "tasks": "some"}]}]}, False),
        ({"step": [A, {"name": "b", "command": "x", "needs": [{"tasks": "same"}]}]}, False),
        ({"step": [A, {"name": "b", "command": "x", "needs": 1}]}, False),
        ({"step": []}, False),
        ({"step": {}}, False),
        ({"step": [{"command": "x"}]}, False),
        ({"step": {"a": {"name": "b", "command": "x"}}}, False),
        ({"step": [{**A, "cups": 1}]}, False),
        ({"step": [{**A, "mem": "4 giraffes"}]}, False),
        ({"step": [A], "defaults": {"name": "x"}}, False),
        ({"step": [A], "cpus": 2}, False),
        ({"step": [A], "on_failure": "panic"}, False),
    ],
)
def test_editor_and_reader_agree_on_flows(document: dict[str, Any], good: bool) -> None:
    assert jsonschema_rs.Draft202012Validator(flow_schema()).is_valid(document) is good
    try:
        read_flow("flow.toml", "", document, {})
    except UsageError:
        assert not good
    else:
        assert good
