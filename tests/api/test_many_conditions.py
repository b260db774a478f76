"""Ten thousand things are broken at once, some of them in a way that hangs whoever asks: each is tested all the same."""

import asyncio

import pytest

from tercel.core.conditions import Place, Verdict
from tercel.core.machine import Machine
from tercel.wire.messages import Offer, Probe, Probed, Reports
from tests.api.house import House, Scripted, done
from tests.processes import becomes
from tests.testers import servers

JOBS, EACH, HANG = 200, 50, 2
POLICY = "every 10s for 1d"


def rules(job: int, closed: int, silent: int) -> list[dict[str, str]]:
    """As many conditions as a job can have, tested by the manager and at the site in turn; some never get an answer."""
    found = []
    for number in range(EACH):
        tester = f"tcp:127.{1 + job % 250}.{1 + number}.1:{closed}"
        if number < 2 * HANG:
            tester = f"http://127.0.0.1:{silent}/{job}/{number}"
        at = (Place.MANAGER, Place.SITE)[number % 2]
        found.append({"on": f"exit:{number + 1}", "tester": tester, "at": at, "policy": POLICY})
    return found


async def meet_all(worker: Scripted) -> None:
    """Every task exits with a code of its own."""
    reported = 0
    while reported < JOBS * EACH:
        offers = await worker.until(lambda seen=reported: offered(worker) > seen and worker.all(Offer))
        reports = [
            done(offer.job, task, offer.first_attempt + task - offer.first, code=task + 1)
            for offer in offers
            for task in range(offer.first, offer.last + 1)
        ][reported:]
        await worker.say(Reports(reports))
        reported += len(reports)


def offered(worker: Scripted) -> int:
    return sum(offer.last - offer.first + 1 for offer in worker.all(Offer))


async def answer_all(worker: Scripted) -> None:
    """As one whose testers hang for some, and see for the others that nobody listens."""
    answered = 0
    while True:
        probes = await worker.until(lambda seen=answered: worker.all(Probe)[seen:])
        quick = [probe for probe in probes if probe.tester.startswith("tcp:")]
        await worker.say(
            *(Probed(probe.number, Verdict(False, note="connection refused")) for probe in quick)
        )
        answered += len(probes)


class Heard:
    """In which order the manager heard of its tests."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._on_tested = machine.on_tested
        self.answers: list[int] = []
        """The conditions that were tested, in this order."""
        machine.on_tested = self._note  # type: ignore[method-assign]

    def _note(self, number: int, verdict: Verdict, now: float) -> None:
        condition, _ = self._machine._probes.get(number, (None, ""))
        self._on_tested(number, verdict, now)
        if condition is not None:
            self.answers.append(condition.id)

    def overtaken(self, among: set[int]) -> list[tuple[int, int]]:
        """Who was tested once more than one that was due before it had been tested at all as often; and that one.

        They were opened in the order of their numbers and are tested at the same intervals. So whoever is passed by is late by
        a whole one: by its like, not by a clock, for this machine may have other things to do.
        """
        order = sorted(among)
        times = dict.fromkeys(order, 0)
        as_often: dict[int, int] = {}
        """Of the first so many each was tested so many times at least."""
        found = []
        for id in self.answers:
            if id not in times:
                continue
            times[id] += 1
            before = times[id] - 1
            reached = as_often.get(before, 0)
            while reached < len(order) and times[order[reached]] >= before:
                reached += 1
            as_often[before] = reached
            if reached < len(order) and order[reached] < id:
                found.append((id, order[reached]))
        return found


@pytest.mark.serial
@pytest.mark.must("d")
@pytest.mark.T(5)
async def test_10000_conditions_are_tested_on_time_while_some_testers_hang(house: House) -> None:
    worker = await house.worker(cpus=JOBS * EACH)
    heard = Heard(house.manager.machine)
    with servers.listening() as silent, servers.closed_port() as closed:
        for job in range(JOBS):
            await house.submit(array=f"0-{EACH - 1}", block_on=rules(job, closed, silent))
        answering = asyncio.create_task(answer_all(worker))
        await meet_all(worker)
        conditions = house.manager.machine.conditions
        await becomes(lambda: len(conditions) == JOBS * EACH, "each task waits for something else")
        quick = [one for one in conditions.values() if one.row.tester.startswith("tcp:")]
        assert len(quick) == JOBS * (EACH - 2 * HANG)
        await becomes(lambda: all(one.row.tests >= 2 for one in quick), "each of them was tested twice")
        assert {one.row.note.rpartition(": ")[2] for one in quick} == {"connection refused"}
        for place in (Place.MANAGER, Place.SITE):
            assert not heard.overtaken({one.id for one in quick if one.row.place is place})
        answering.cancel()
        probes = worker.all(Probe)
        assert len({probe.number for probe in probes}) == len(probes)
        at_site = [one for one in conditions.values() if one.row.place is Place.SITE]
        assert {probe.tester for probe in probes} >= {one.row.tester for one in at_site}
        assert len(conditions) == JOBS * EACH, "none was given up, and none is two"
