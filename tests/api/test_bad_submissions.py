"""Submissions that make no sense: each gets a problem that names the field, and nothing changes."""

import io
import json
from typing import Any

import msgspec
import pytest

from tercel.core.commands import MAX_ARGV_BYTES, MAX_ENV_BYTES, MAX_LINE_BYTES, MAX_NAME
from tests.api.house import House

pytestmark = [pytest.mark.must("f"), pytest.mark.asyncio(loop_scope="module")]


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


NOT_JSON = {
    "nothing": b"",
    "no JSON": b"run my job please",
    "half of it": b'{"argv": ["true"',
    "two of them": b'{"argv": ["true"]} {"argv": ["true"]}',
    "UTF-16": '{"argv": ["true"]}'.encode("utf-16"),
    "broken UTF-8": b'{"argv": ["\xff\xfe"]}',
    "a lone surrogate, escaped": b'{"argv": ["\\ud800"]}',
    "a lone surrogate, encoded": _raw('{"argv": ["\ud800"]}'),
    "NUL": b"\x00",
    "NaN": b'{"argv": ["true"], "cpus": NaN}',
    "Infinity": b'{"argv": ["true"], "time_limit_s": Infinity}',
    "minus Infinity": b'{"argv": ["true"], "time_limit_s": -Infinity}',
    "a trailing comma": b'{"argv": ["true"],}',
    "a comment": b'{"argv": ["true"]} // please',
    "hexadecimal": b'{"argv": ["true"], "retries": 0x10}',
    "msgpack": msgspec.msgpack.encode({"argv": ["true"]}),
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "deep arrays": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "deep, inside a field": b'{"env": ' + b'{"a":' * 200_000,
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/cancel", "/v1/retry", "/v1/tokens"])
async def test_a_body_that_is_not_json_is_refused(standing: House, path: str, body: bytes) -> None:
    answer = await standing.ask("POST", path, body=body)
    assert answer.status == 400
    assert answer.problem.field


TRUE = {"argv": ["true"]}
AXIS = {"name": "a", "values": ["1", "2"]}


def span(start: str, by: str, rule: str = "plus", count: int = 100_000_000) -> dict[str, Any]:
    return {"name": "n", "span": {"rule": rule, "start": start, "by": by, "count": count}}


WRONG_FIELDS: list[tuple[str, dict[str, Any]]] = [
    # types
    ("argv", {"argv": "true"}),
    ("argv[0]", {"argv": [1]}),
    ("argv[0]", {"argv": [None]}),
    ("argv", {"argv": {"0": "true"}}),
    ("line", {"line": ["true"]}),
    ("lines", {"lines": "true"}),
    ("lines[1]", {"lines": ["true", 2]}),
    ("name", {**TRUE, "name": 7}),
    ("name", {**TRUE, "name": None}),
    ("cpus", {**TRUE, "cpus": "2"}),
    ("mem_bytes", {**TRUE, "mem_bytes": "2G"}),
    ("mem_bytes", {**TRUE, "mem_bytes": 1.5}),
    ("retries", {**TRUE, "retries": True}),
    ("priority", {**TRUE, "priority": [1]}),
    ("env", {**TRUE, "env": ["A=1"]}),
    ("env[...]", {**TRUE, "env": {"A": 1}}),
    ("task_id_argument", {**TRUE, "task_id_argument": "yes"}),
    ("key", {**TRUE, "key": 1}),
    # fields that are not there
    ("foo", {**TRUE, "foo": 1}),
    ("id", {**TRUE, "id": 1}),
    ("owner", {**TRUE, "owner": "root"}),
    ("Argv", {"Argv": ["true"]}),
    # commands
    ("argv", {}),
    ("argv", {"argv": []}),
    ("argv", {"argv": [""]}),
    ("argv", {"argv": ["   "]}),
    ("argv", {"line": ""}),
    ("line", {"line": " \t"}),
    ("lines", {"lines": []}),
    ("lines[1]", {"lines": ["true", ""]}),
    ("line", {**TRUE, "line": "true"}),
    ("lines", {**TRUE, "lines": ["true"]}),
    ("array", {"lines": ["true"], "array": "0-1"}),
    # NUL bytes
    ("argv", {"argv": ["tr\0ue"]}),
    ("line", {"line": "echo \0"}),
    ("lines[0]", {"lines": ["\0"]}),
    ("name", {**TRUE, "name": "\0"}),
    ("cwd", {**TRUE, "cwd": "/tmp/\0"}),
    ("key", {**TRUE, "key": "\0"}),
    ("env", {**TRUE, "env": {"A": "\0"}}),
    ("env", {**TRUE, "env": {"A\0": "x"}}),
    # huge
    ("argv", {"argv": ["x" * (MAX_ARGV_BYTES + 1)]}),
    ("argv", {"argv": ["x"] * MAX_ARGV_BYTES}),
    ("argv", {"argv": ["é" * (MAX_ARGV_BYTES // 2 + 1)]}),
    ("line", {"line": "x" * (MAX_LINE_BYTES + 1)}),
    ("lines[0]", {"lines": ["x" * (MAX_LINE_BYTES + 1)]}),
    ("name", {**TRUE, "name": "x" * (MAX_NAME + 1)}),
    ("cwd", {**TRUE, "cwd": "/" + "x" * 4096}),
    ("key", {**TRUE, "key": "k" * 201}),
    ("env", {**TRUE, "env": {"A": "x" * (MAX_ENV_BYTES + 1)}}),
    ("env", {**TRUE, "env": {"A" * (MAX_ENV_BYTES + 1): "x"}}),
    ("env", {**TRUE, "env": {f"A{i}": "x" * 1000 for i in range(200)}}),
    # absurd numbers
    ("cpus", {**TRUE, "cpus": 0}),
    ("cpus", {**TRUE, "cpus": -1}),
    ("cpus", {**TRUE, "cpus": 0.0001}),
    ("cpus", {**TRUE, "cpus": 1e300}),
    ("cpus", {**TRUE, "cpus": 10**400}),
    ("mem_bytes", {**TRUE, "mem_bytes": -1}),
    ("mem_bytes", {**TRUE, "mem_bytes": 2**63}),
    ("mem_bytes", {**TRUE, "mem_bytes": 10**400}),
    ("time_limit_s", {**TRUE, "time_limit_s": -0.1}),
    ("time_limit_s", {**TRUE, "time_limit_s": 1e12}),
    ("kill_grace_s", {**TRUE, "kill_grace_s": 1e9}),
    ("kill_grace_s", {**TRUE, "kill_grace_s": -1}),
    ("priority", {**TRUE, "priority": -1}),
    ("priority", {**TRUE, "priority": 2**32}),
    ("retries", {**TRUE, "retries": -1}),
    ("retries", {**TRUE, "retries": 2**64}),
    ("output_limit_bytes", {**TRUE, "output_limit_bytes": -1}),
    ("output_limit_bytes", {**TRUE, "output_limit_bytes": 2**62}),
    # arrays
    ("array", {**TRUE, "array": "0-999999999999"}),
    ("array", {**TRUE, "array": "0-1000000000"}),
    ("array", {**TRUE, "array": "0-99%0"}),
    ("array", {**TRUE, "array": "0-99%-1"}),
    ("array", {**TRUE, "array": "0-99%"}),
    ("array", {**TRUE, "array": "0-99%1%2"}),
    ("array", {**TRUE, "array": "0-99%" + "0" * 11 + "1" + "9" * 5000}),
    ("array", {**TRUE, "array": "0-99%" + "9" * 5000}),
    ("array", {**TRUE, "array": "9-0"}),
    ("array", {**TRUE, "array": "0-9:0"}),
    ("array", {**TRUE, "array": "-1"}),
    ("array", {**TRUE, "array": "0-"}),
    ("array", {**TRUE, "array": ","}),
    ("array", {**TRUE, "array": "1,,2"}),
    ("array", {**TRUE, "array": "1;2"}),
    ("array", {**TRUE, "array": "1.5"}),
    ("array", {**TRUE, "array": "٣"}),
    ("array", {**TRUE, "array": "0x10"}),
    ("array", {**TRUE, "array": "9" * 5000}),
    ("array", {**TRUE, "array": "0-2000000000:2"}),
    # environment and directory
    ("env", {**TRUE, "env": {"A=B": "x"}}),
    ("env", {**TRUE, "env": {"=": "x"}}),
    ("env", {**TRUE, "env": {"": "x"}}),
    ("cwd", {**TRUE, "cwd": "here"}),
    ("cwd", {**TRUE, "cwd": "../../etc"}),
    # templates, grids, items
    ("template", {**TRUE, "template": True}),
    ("grid", {**TRUE, "grid": {"axes": []}}),
    ("grid.axes", {**TRUE, "grid": {}}),
    ("grid.axes[0].foo", {**TRUE, "grid": {"axes": [{"name": "a", "foo": 1}]}}),
    ("grid", {**TRUE, "grid": {"axes": [{"name": "a"}]}}),
    ("grid", {**TRUE, "grid": {"axes": [{"name": "", "values": ["1"]}]}}),
    ("grid", {**TRUE, "grid": {"axes": [{"name": "a", "values": ["\0"]}]}}),
    ("grid", {**TRUE, "grid": {"axes": [AXIS, AXIS]}}),
    ("grid", {**TRUE, "grid": {"axes": [{**AXIS, "name": name} for name in "ab"] + [span("1", "1")]}}),
    ("grid.axes[0].span.start", {**TRUE, "grid": {"axes": [span("NaN", "1")]}}),
    ("grid.axes[0].span.by", {**TRUE, "grid": {"axes": [span("1", "1e99999999")]}}),
    ("grid", {**TRUE, "grid": {"axes": [span("1", "2", rule="times", count=10**9)]}}),
    ("grid", {**TRUE, "grid": {"axes": [span("1", "1", count=10**15)]}}),
    ("grid", {**TRUE, "grid": {"axes": [span("1", "1", count=10**30)]}}),
    ("grid", {"lines": ["true"], "grid": {"axes": [AXIS]}}),
    ("argv", {"argv": ["x", "{b}"], "grid": {"axes": [AXIS]}}),
    ("line", {"line": "x {a", "grid": {"axes": [AXIS]}}),
    ("line", {"line": "x $({a})", "grid": {"axes": [AXIS]}}),
    ("array", {**TRUE, "array": "0-2", "grid": {"axes": [AXIS]}}),
    ("items", {**TRUE, "items": []}),
    ("items", {"items": ["{}"], "lines": ["true"]}),
    ("items", {**TRUE, "items": ["{}"], "grid": {"axes": [AXIS]}}),
    ("items[1]", {**TRUE, "items": ["{}", "[]"]}),
    ("items[1]", {**TRUE, "items": ["{}", "{"]}),
    ("items[1]", {**TRUE, "items": ["{}", '{"a":' + "[" * 20_000 + "]" * 20_000 + "}"]}),
    ("items[0]", {**TRUE, "items": ['{"a": "\\u0000"}']}),
    ("items[0]", {**TRUE, "items": ['{"a": "' + "x" * 70_000 + '"}']}),
    ("items[0]", {"line": "x {a} {a} {a}", "items": ['{"a": "' + "x" * 50_000 + '"}']}),
    ("argv", {"argv": ["x", "{a}"], "items": ['{"a": 1}', '{"b": 1}']}),
    ("array", {**TRUE, "items": ["{}"], "array": "0"}),
    # inputs and outputs
    ("inputs[0].source", {**TRUE, "inputs": [{}]}),
    ("inputs[0].to", {**TRUE, "inputs": [{"source": "lfn:a", "to": "b"}]}),
    ("inputs[1]", {**TRUE, "inputs": [{"source": "lfn:a"}, {"source": "lfn:b", "name": "../b"}]}),
    ("inputs[0]", {**TRUE, "inputs": [{"source": "data/mine"}]}),
    ("inputs[0]", {**TRUE, "inputs": [{"source": "https://me:pw@h/x"}]}),
    ("inputs[0]", {**TRUE, "inputs": [{"source": "lfn:a", "digest": "sha1:00"}]}),
    ("inputs", {**TRUE, "inputs": [{"source": "lfn:a"}, {"source": "lfn:b/a"}]}),
    ("cwd", {**TRUE, "inputs": [{"source": "lfn:a"}], "cwd": "/tmp"}),
    ("outputs[0].to", {**TRUE, "outputs": [{"name": "x"}]}),
    ("outputs[0]", {**TRUE, "outputs": [{"name": "x", "to": []}]}),
    ("outputs[0].when", {**TRUE, "outputs": [{"name": "x", "to": ["lfn:x"], "when": "now"}]}),
    ("outputs[0]", {**TRUE, "outputs": [{"name": "x", "to": ["lfn:x"]}], "array": "0-1"}),
    (
        "items[1]",
        {
            **TRUE,
            "items": ['{"a": "x"}', '{"a": "../x"}'],
            "outputs": [{"name": "{a}", "to": ["lfn:{task}"]}],
        },
    ),
]


@pytest.mark.parametrize(
    ("field", "submission"),
    WRONG_FIELDS,
    ids=[f"{i}-{field}" for i, (field, _) in enumerate(WRONG_FIELDS)],
)
async def test_a_submission_that_makes_no_sense_is_refused_by_the_field_that_is_wrong(
    standing: House, field: str, submission: dict[str, Any]
) -> None:
    body = json.dumps(submission).encode()  # it writes numbers that msgspec would not
    answer = await standing.ask("POST", "/v1/jobs", body=body)
    assert answer.status == 400
    assert answer.problem.field == field, answer


async def test_ten_million_ranges_are_refused_at_once(standing: House) -> None:
    body = io.BytesIO(b'{"argv": ["true"], "array": "' + b"5," * 10_000_000 + b'5"}')
    answer = await standing.ask("POST", "/v1/jobs", body=body)
    assert answer.status == 400
    assert answer.problem.field == "array"


async def test_a_million_million_tasks_are_refused_in_words(standing: House) -> None:
    answer = await standing.ask("POST", "/v1/jobs", json={**TRUE, "array": "0-999999999999"})
    assert answer.status == 400
    assert "2,147,483,647" in answer.problem.detail


async def test_an_unknown_field_of_five_megabytes_is_not_repeated_in_the_answer(standing: House) -> None:
    body = io.BytesIO(b'{"argv": ["true"], "' + b"x" * 5_000_000 + b'": 1}')
    answer = await standing.ask("POST", "/v1/jobs", body=body)
    assert answer.status == 400
    assert len(answer.body) < 5000
    assert answer.problem.field.startswith("xxx")


async def test_a_variable_with_a_name_of_a_megabyte_is_not_repeated_in_the_answer(standing: House) -> None:
    body = io.BytesIO(json.dumps({**TRUE, "env": {"=" * 1_000_000: "x"}}).encode())
    answer = await standing.ask("POST", "/v1/jobs", body=body)
    assert answer.status == 400
    assert len(answer.body) < 5000


# -- what is at the edge of what is allowed ---------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="function")
async def test_what_is_just_within_the_limits_is_taken(house: House) -> None:
    for fields in (
        {"argv": ["x" * MAX_ARGV_BYTES]},
        {"line": "x" * MAX_LINE_BYTES},
        {"argv": ["true"], "name": "x" * MAX_NAME},
        {"argv": ["true"], "env": {"A": "x" * (MAX_ENV_BYTES - 2)}},
        {"argv": ["true"], "cpus": 0.001},
        {"argv": ["true"], "cpus": 1_000_000},
        {"argv": ["true"], "mem_bytes": 2**60},
        {"argv": ["true"], "priority": 2**32 - 1},
        {"argv": ["true"], "array": "0-99999999"},
        {"argv": ["true"], "array": "2147483647"},
        {"argv": ["true"], "array": "0-19998:2"},
        {"argv": ["true"], "array": "5,1-3,2-4%1"},
        {"argv": ["true"], "key": "k" * 200},
    ):
        await house.submit(**fields)
    await house.sound()
    assert (await house.status()).jobs == 13
