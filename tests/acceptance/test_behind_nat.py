"""A worker behind NAT, in real network namespaces: it dials out, and comes back after every kind of break."""

import subprocess
import sys
from typing import Any

import pytest

from tests.acceptance.nat import WORKER, NatLab
from tests.lab import HASTY, RECORD, names
from tests.processes import Process, becomes

TASKS = 6
LISTEN = (
    "import socket; s = socket.create_server(('0.0.0.0', 9999)); print('listens', flush=True); s.accept()"
)
DIAL = f"import socket; socket.create_connection(('{WORKER}', 9999), timeout=3)"


async def start(lab: NatLab) -> Process:
    """A manager that listens beyond its own machine, for which a token must exist."""
    lab.ok("token", "create", "--role", "worker", "--data", str(lab.data))
    await lab.manager_up("--host", lab.host, "--heartbeat", "0.5s", "--grace", "1h")
    worker = lab.worker("w", 2, "", *HASTY)
    await online(lab, 1)
    return worker


async def online(lab: NatLab, count: int) -> None:
    await becomes(lambda: lab.json("pool")["online"] == count, f"{count} workers are connected")


async def counts(lab: NatLab, id: int, **wanted: int) -> None:
    def look() -> bool:
        found: dict[str, Any] = lab.json("show", str(id))["counts"]
        return all(found[state] == number for state, number in wanted.items())

    await becomes(look, f"job {id} has {wanted}")


@pytest.mark.must("d")
@pytest.mark.parametrize("how", ["cut", "drop", "reset"])
async def test_a_worker_behind_nat_recovers_by_itself(nat_lab: NatLab, how: str) -> None:
    lab = nat_lab
    worker = await start(lab)
    lab.watch_records()
    line = f"while [ ! -e go ]; do sleep 0.02; done; {RECORD}"
    id = lab.json("submit", "--array", f"0-{TASKS - 1}", line)["id"]
    await counts(lab, id, running=2)

    lab.network.break_link(how)
    await online(lab, 0)
    await worker.says("Lost the link")
    (lab.work / "go").touch()
    await lab.ran(f"{id}.0", f"{id}.1")
    assert lab.json("show", str(id))["counts"]["finished"] == 0
    lab.network.heal()
    lab.ok("wait", str(id))

    assert lab.runs() == dict.fromkeys(names(id, TASKS), 1)
    assert lab.store("SELECT count(*) FROM outcome WHERE state = 1") == [(TASKS,)]
    assert not lab.store("SELECT * FROM history")
    assert not lab.replaced_records()


@pytest.mark.must("d")
async def test_nobody_can_dial_a_worker_behind_nat(nat_lab: NatLab) -> None:
    """Something listens over there and cannot be reached, so whatever works, works by dialling out."""
    lab = nat_lab
    listener = lab.start(sys.executable, "-c", LISTEN, prefix=lab.worker_prefix)
    await listener.says("listens")
    dialled = subprocess.run(
        [*lab.prefix, sys.executable, "-c", DIAL], capture_output=True, text=True, check=False
    )
    assert dialled.returncode != 0
    assert "unreachable" in dialled.stderr or "timed out" in dialled.stderr, dialled.stderr

    await start(lab)
    assert lab.ok("submit", "--wait", "echo", "from", "behind").strip() == "1"
    assert lab.ok("logs", "1") == "from behind\n"
