"""The package in docs/how-to/testers.md works as it stands there."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tercel.testers.contract import Surroundings
from tercel.testers.registry import Testers
from tests.testers.conftest import Install

pytestmark = pytest.mark.T(8)
GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "testers.md").read_text()


async def test_the_guides_tester_is_found_judged_and_asked(testers: Testers, install: Install) -> None:
    module, _ = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    target = re.search(r"^flexlm = \"(.*)\"$", GUIDE, re.MULTILINE)
    assert target is not None
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        install("tercel_flexlm", {"flexlm": target[1]}, module.replace("27000", str(taken.getsockname()[1])))
        text, _ = await testers.judge("flexlm: Matlab@127.0.0.1")
        verdict = await testers.ask(text, Surroundings(limit_s=60.0))
    assert text == "flexlm:matlab@127.0.0.1"
    assert not verdict.cleared and "127.0.0.1" in verdict.note


def test_the_guides_own_test_passes(tmp_path: Path) -> None:
    module, test = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "tercel_flexlm.py").write_text(module)
    (tmp_path / "check.py").write_text(test + "\ntest_it_is_as_a_tester_should_be()\n")
    path = [str(tmp_path), *sys.path]
    done = subprocess.run(
        [sys.executable, "check.py"], cwd=tmp_path, env={"PYTHONPATH": ":".join(path)}, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    "row", [row for row in Testers().kinds() if not row.origin], ids=lambda row: row.kind
)
def test_the_guide_names_every_kind(row: object) -> None:
    assert f"`{row.kind}:" in GUIDE  # type: ignore[attr-defined]
