"""Every example of docs/how-to/python.md, run as a user would: saved to a file, beside a manager that is up."""

import re
import sys
from pathlib import Path

import pytest

from tests.lab import Lab

GUIDE = Path(__file__).parents[2] / "docs/how-to/python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
SAID = ("2470 ", "6\n6\n[0, 2, 4, 6, 8]\n", "249500250000\n4 ['0\\n', '1\\n', '2\\n', '3\\n']\n")


@pytest.mark.parametrize(
    ("example", "said"), list(zip(EXAMPLES, SAID, strict=True)), ids=["graph", "task", "client"]
)
async def test_the_examples_of_the_guide_run(lab: Lab, example: str, said: str) -> None:
    script = lab.root / "example.py"
    script.write_text(example)
    if "Client" in example:
        await lab.up("--cpus", "2")
    process = lab.start(sys.executable, str(script))
    assert process.popen.wait(60) == 0, process.said
    assert process.wrote.startswith(said)
