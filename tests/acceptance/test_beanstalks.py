"""What a lab's queue is for, as the Beanstalks paper has it: a file of commands, a priority, a queue, and awaiting them all."""

from collections import Counter

import pytest

from tests.lab import Lab


@pytest.mark.B(2, 3, 6, 8)
@pytest.mark.K(16)
async def test_a_file_of_commands_goes_to_a_queue_and_every_return_is_awaited(lab: Lab) -> None:
    await lab.up("--cpus", "1")  # one task at a time, as a Kestrel worker
    lab.ok("queue", "create", "svm")
    log = lab.root / "log"
    padding = "x" * (65_536 - len(f"echo 2 >> {log} # "))
    commands = [f"echo 0 >> {log}", f"echo 1 >> {log}; exit 3", f"echo 2 >> {log} # {padding}"]
    assert len(commands[2]) == 65_536, "the longest that Beanstalks takes"
    (lab.root / "commands.txt").write_text("\n".join(commands) + "\n")
    done = lab.run(
        "submit", "--each-line", str(lab.root / "commands.txt"), "--priority", "7", "-p", "svm", "--wait"
    )
    assert done.returncode == 1
    assert "1.1 failed: exited with code 3" in done.stderr
    assert Counter(log.read_text().split()) == {"0": 1, "1": 1, "2": 1}, (
        "what failed is not run again by itself"
    )
    view = lab.json("show", "1")
    assert (view["queue"], view["priority"], view["counts"]["finished"]) == ("svm", 7, 2)
