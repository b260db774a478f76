"""Rules for blocking: said through every door, they mean the same."""

from pathlib import Path
from typing import Any

import pytest

from tercel.core.errors import UsageError
from tercel.core.model import BlockRule
from tercel.sdk.files import Draft, read_file
from tercel.sdk.files.options import read_options
from tercel.sdk.files.sources import OptionSource
from tercel.sdk.jobs import command_submission

MEANT = (
    BlockRule(on="exit:75", tester="tcp:licence.lab:27000"),
    BlockRule(
        on="stderr:/Disk quota exceeded/", tester="command:./ok.sh", at="worker", policy="every 2m for 12h"
    ),
)
FIRST = "exit:75 -> tcp:licence.lab:27000"
SECOND = "stderr:/Disk quota exceeded/ -> command:./ok.sh @worker; every 2m for 12h"
TABLE = """{on = "stderr:/Disk quota exceeded/", tester = "command:./ok.sh", at = "worker", policy = "every 2m for 12h"}"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(name: str, text: str, *options: str) -> Draft:
    Path(name).write_text(text)
    [draft] = read_file(name, (), read_options(options, OptionSource()))
    return draft


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("job.toml", 'command = "true"', ("--block-on", FIRST, "--block-on", SECOND)),
        ("job.toml", f'command = "true"\nblock_on = ["{FIRST}", "{SECOND}"]', ()),
        ("job.toml", f'command = "true"\nblock_on = ["{FIRST}", {TABLE}]', ()),
        ("flow.toml", f'[step.a]\ncommand = "true"\nblock_on = ["{FIRST}", {TABLE}]', ()),
        ("job.sh", f"#!/bin/sh\n#TERCEL --block-on '{FIRST}' --block-on '{SECOND}'\ntrue\n", ()),
    ],
)
def test_options_files_and_directives_mean_the_same(name: str, text: str, options: tuple[str, ...]) -> None:
    assert read(name, text, *options).submission.block_on == MEANT


def test_one_rule_needs_no_list() -> None:
    assert read("job.toml", f'command = "true"\nblock_on = "{FIRST}"').submission.block_on == MEANT[:1]


def test_a_python_program_says_it_too() -> None:
    table = {name: getattr(MEANT[1], name) for name in MEANT[1].__struct_fields__}
    assert command_submission("true", block_on=[FIRST, table]).block_on == MEANT
    assert command_submission("true", block_on=FIRST).block_on == MEANT[:1]


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("'nonsense'", "job.toml:2: block_on: 'nonsense' is not a rule"),
        ("['exit:1 -> tcp:a:1', 'nonsense']", "job.toml:2: block_on[1]: 'nonsense' is not a rule"),
        ("[{on = 'exit:1'}]", "block_on[0]: exit:1: say what shows that it is mended"),
        (
            "[{on = 'never', tester = 'tcp:a:1'}]",
            "job.toml:2: block_on[0].on: 'never' is nothing that a rule",
        ),
        ("[{on = 'exit:1', tester = 'tcp:a:1', at = 'moon'}]", "block_on[0].at: 'moon' is not one of"),
        ("[{on = 'exit:1', tester = 'tcp:a:1', policy = 'x'}]", "block_on[0].policy: 'x' is not a policy"),
        ("[{on = 'exit:1', tester = 'tcp:a:1', when = 'x'}]", "there is no key 'when'"),
        ("[{on = 'exit:1', tester = ''}]", "say what shows"),
        ("[{on = 'start', tester = 'tcp:a:1', at = 'worker'}]", "start @worker"),
        ("['start -> tcp:a:1', 'start -> tcp:b:1']", "one rule for `start` at most"),
        ("7", "text or a list is needed, not a number"),
    ],
)
def test_a_wrong_rule_in_a_file_is_told_with_its_place(rules: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read("job.toml", f"command = 'x'\nblock_on = {rules}\n")
    assert says in str(caught.value)


@pytest.mark.parametrize("rules", ["nonsense", ["exit:1"], [{"on": "exit:1"}], 5])
def test_a_wrong_rule_of_a_program_is_told(rules: Any) -> None:
    with pytest.raises(UsageError) as caught:
        command_submission("true", block_on=rules)
    assert str(caught.value).startswith("block_on")
