"""Memory that was too little, with real processes: the task runs again with more, by itself or by hand."""

import re
import sys

import pytest

from tercel.core.states import TaskState
from tercel.wire.api import Submission
from tests.lab import HASTY, Lab

pytestmark = pytest.mark.must("c")

MB = 2**20
HUNGRY = f"""{sys.executable} -c 'import os, time
size = int(os.environ["TERCEL_TASK_ID"]) * 40 * {MB}
data = bytearray(size)
for at in range(0, size, 4096): data[at] = 1
time.sleep(0.5 if size else 0)'"""
"""Task 0 needs little, task 3 more than 120 MB."""


async def test_only_what_needs_more_memory_runs_again_with_more(lab: Lab) -> None:
    await lab.manager_up()
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(
        Submission(line=HUNGRY, array="0-3", mem_bytes=60 * MB, mem_growth=2.0, retries=0, key="k")
    )
    [view] = await lab.done([id])
    assert (view.counts.finished, view.counts.failed) == (4, 0)
    async with lab.client() as client:
        tasks = [await client.task(id, number) for number in range(4)]
    attempts = [[attempt.end for attempt in task.attempts] for task in tasks]
    assert attempts[:3] == [["exited"], ["exited"], ["exceeded", "exited"]]
    assert attempts[3] == ["exceeded", "exceeded", "exited"], "60 MB, 120 MB, 240 MB"
    # What waits at its worker when the job grows has the new limit, but is booked with the old one.
    assert re.search("of (60|120) MB", tasks[3].attempts[0].note)
    assert view.mem_bytes == 240 * MB


async def test_without_growth_it_fails_with_what_it_used_and_is_retried_with_more_by_hand(lab: Lab) -> None:
    await lab.manager_up()
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(Submission(line=HUNGRY, array="2", mem_bytes=60 * MB, key="k"))
    [view] = await lab.done([id])
    assert view.counts.failed == 1
    async with lab.client() as client:
        task = await client.task(id, 2)
    assert task.attempts[0].end == "exceeded"
    assert "of 60 MB" in task.why
    lab.ok("retry", str(id), "--with-mem", "200M")
    [view] = await lab.done([id])
    assert (view.counts.finished, view.mem_bytes) == (1, 200 * MB)
    async with lab.client() as client:
        assert (await client.task(id, 2)).state is TaskState.FINISHED
