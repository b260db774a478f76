"""Throttles of a real manager, as the command line says them."""

import pytest

from tests.lab import RECORD, Lab
from tests.processes import eventually


@pytest.mark.T(10)
@pytest.mark.parametrize("with_worker", [False, True])
async def test_so_many_start_and_the_others_say_until_when_they_wait(lab: Lab, with_worker: bool) -> None:
    """A day long, so that nothing more starts however slow the machine is."""
    throttle = ("--throttle", "tapis", "--throttle", "starts=2/1d")
    if with_worker:
        await lab.up(*throttle, "--cpus", "4")
    else:
        await lab.manager_up(*throttle)
        lab.worker("w", 4)
        await lab.workers_online(1)
    id = await lab.submit(lab.shell(RECORD, array="0-9"))

    async def two_are_done() -> bool:
        view = await lab.ask(lambda client: client.job(id))
        return view is not None and view.counts.finished >= 2

    await eventually(two_are_done, "two have finished")
    told = "starts are throttled: 2 per 86400 s in all, 8 per 2 s on one node; the next goes in 24 h"
    assert told in lab.ok("explain", str(id))
    assert lab.runs() == {f"{id}.0": 1, f"{id}.1": 1}
