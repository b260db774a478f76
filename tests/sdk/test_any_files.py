"""Whatever stands in a file, it is read or refused with one message; nothing else happens."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tercel.core.errors import UsageError
from tercel.sdk.files import read_file
from tercel.sdk.files.flow import read_flow
from tercel.sdk.files.keys import KEYS
from tercel.sdk.files.toml import read_job

pytestmark = pytest.mark.must("e")
anywhere = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

PIECES = [
    *("#!/bin/sh\n", "#TERCEL ", "#SBATCH ", "--mem", "--array=", "-c", "-t", "--export=", "--dependency="),
    *(
        "afterok:1",
        "?",
        "'",
        '"',
        "\\",
        " ",
        "\n",
        "=",
        "[job]\n",
        "command",
        "queue",
        "[",
        "]",
        "{",
        "}",
        ",",
    ),
    *(
        "[[step]]\n",
        "name = 'a'\n",
        "needs = ['a']\n",
        "command = 'x {C}'\n",
        "sweep.C = ",
        "'''",
        '"""',
        "1",
    ),
    *("0-9", "#", "é", "\r\n", "--hold", "--retry-on=", "75:5"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(
    st.characters(codec="utf-8"), max_size=60
)


def reads(file: str) -> None:
    try:
        read_file(file)
    except UsageError as error:
        assert str(error)


@pytest.mark.parametrize("name", ["job.toml", "job.sh", "job"])
@anywhere
@given(text=texts)
def test_any_text_is_read_or_refused(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    reads(str(path))


@pytest.mark.parametrize("start", [b"", b"#!/bin/sh\n#TERCEL ", b"#SBATCH ", b"[job]\ncommand ="])
@anywhere
@given(data=st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(start: bytes, data: bytes, tmp_path: Path) -> None:
    for name in ("job.toml", "job.sh"):
        (tmp_path / name).write_bytes(start + data)
        reads(str(tmp_path / name))


TELLING = ["", "x", "4G", "1h", "0-9", "%3", "5%", "37", "afterok:1", "\0", "*", "\0*", "@\0", "@x"]
words = st.sampled_from([*TELLING, "0:1:0.1", "{C}", "{", "a=b", "skip", "same", "sandbox"])
scalars = words | st.integers() | st.floats() | st.booleans() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from([*(key.name for key in KEYS), "needs"])
tables = st.dictionaries(keys, values, max_size=4)


def without_stdin(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if not (name.endswith("_file") and value == "-")}


@anywhere
@given(table=tables, command=st.booleans())
def test_any_values_of_keys_are_read_or_refused(table: dict[str, Any], command: bool) -> None:
    document = without_stdin(table) | ({"command": "x"} if command else {})
    try:
        read_job("job.toml", "", document, {})
    except UsageError as error:
        assert str(error).startswith("job.toml:1: ")


@anywhere
@given(
    top=st.dictionaries(
        st.sampled_from(["name", "on_failure", "defaults", "x"]), values | tables, max_size=3
    ),
    step=values | st.lists(tables.map(without_stdin), max_size=3),
)
def test_any_values_of_a_flow_are_read_or_refused(top: dict[str, Any], step: Any) -> None:
    try:
        read_flow("flow.toml", "", {**top, "step": step}, {})
    except UsageError as error:
        assert str(error).startswith("flow.toml:1: ")
