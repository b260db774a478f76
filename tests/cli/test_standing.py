"""pool, worker quarantine, release and tag, reserve: what they ask for, and what they print."""

import time
from typing import Any

import msgspec
import pytest

from tercel.core.presence import WorkerState
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import POOL, FakeManager, problem


def worker(id: str, **more: Any) -> api.WorkerView:
    return msgspec.structs.replace(POOL.workers[0], id=id, since=time.time() - 90, **more)


def reservation(**more: Any) -> api.ReservationView:
    now = time.time()
    fields: dict[str, Any] = {
        "id": 4,
        "owner": "ada",
        "where": "",
        "queue": "vision",
        "user": "",
        "since": now,
        "until": now + 43_200.5,
        "lend": False,
        "workers": ["w1", "w2"],
    }
    return api.ReservationView(**(fields | more))


def says_pool(manager: FakeManager, *workers: api.WorkerView) -> None:
    manager.says("GET", "/v1/pool", api.Pool(workers=list(workers), online=len(workers), cpus=2.0))


# -- pool -------------------------------------------------------------------------------------------------


def test_pool_shows_what_workers_are_only_where_one_has_something_to_show(
    tercel: Tercel, manager: FakeManager
) -> None:
    says_pool(manager, worker("w1"))
    assert tercel("pool").out.splitlines() == [
        "WORKER  NODE  STATE  FOR       CPUS  MEMORY   RUNNING  QUEUED  DONE",
        "w1      vm    busy   1 m 30 s  2     8.0 GiB        2       1     7",
    ]
    says_pool(
        manager,
        worker("w1", cpus_all=4.0, site="lab1", tags=["STAR", "gpu"], resources={"gpus": 2.0}),
        worker("w2", quarantined="by ada", faults={"failed": 14, "lost": 1}, time_left_s=7200.0),
        worker("w3", unhealthy="its disk is full", reservation=4),
        worker("w4", reservation=4, note="odd"),
    )
    told = [line.split() for line in tercel("pool").out.splitlines()]
    assert " ".join(told[0]).endswith("MEMORY RESOURCES SITE TAGS LEFT RUNNING QUEUED DONE FAULTS NOTE")
    assert " ".join(told[1]).endswith("2 of 4 8.0 GiB gpus=2 lab1 STAR,gpu 2 1 7")
    assert told[2][2] == "quarantined"
    assert " ".join(told[2]).endswith("2 h 2 1 7 14 failed, 1 lost")
    assert told[3][2] == "unhealthy"
    assert told[4][2:4] == ["busy,", "reserved"]


def test_pool_why_says_why_workers_take_nothing_also_those_that_are_gone(
    tercel: Tercel, manager: FakeManager
) -> None:
    gone = worker("w9", state=WorkerState.OFFLINE, why="left 3 h ago")
    says_pool(manager, worker("w1"), worker("w2", why="unhealthy: its disk is full"), gone)
    assert tercel("pool", "--why").out.splitlines()[-3:] == [
        "WORKER  WHY",
        "w2      unhealthy: its disk is full",
        "w9      left 3 h ago",
    ]
    says_pool(manager, worker("w1"))
    assert tercel("pool", "--why").out.splitlines()[-1] == "all workers take tasks"
    assert tercel("pool", "--why", "--json").json["workers"][0]["why"] == ""


# -- quarantine and tags ----------------------------------------------------------------------------------


def test_workers_are_quarantined_with_a_reason_and_released(tercel: Tercel, manager: FakeManager) -> None:
    for name in ("w1", "w2"):
        manager.says("POST", f"/v1/workers/{name}/quarantine", api.Counted(count=1))
    manager.says("POST", "/v1/workers/w1/release", api.Counted(count=1), api.Counted(count=0))
    done = tercel("worker", "quarantine", "w1", "w2", "--reason", "loud")
    assert done.out.startswith("2 workers will take no more tasks; `tercel worker release w1 w2` lets them")
    assert manager.requests[-1].json() == {"reason": "loud"}
    assert tercel("worker", "release", "w1").out == "1 worker released\n"
    assert tercel("worker", "release", "w1").out == "none of them was in quarantine\n"
    assert tercel("worker", "quarantine", "--json", "w1").json["quarantined"] == ["w1"]
    manager.says("POST", "/v1/workers/w%3Bid/quarantine", api.Counted(count=1))
    assert "`tercel worker release 'w;id'` lets it" in tercel("worker", "quarantine", "w;id").out


@pytest.mark.parametrize(
    "words",
    [
        ("+gpu", "-old", "w1"),
        ("w1", "+gpu", "-old"),
        ("w1", "--add", "gpu", "--remove", "old"),
        ("-q", "w1", "+gpu", "--remove=old"),
    ],
)
def test_tags_are_added_with_a_plus_and_taken_with_a_minus(
    tercel: Tercel, manager: FakeManager, words: tuple[str, ...]
) -> None:
    manager.says("POST", "/v1/workers/w1/tags", api.Tags(tags=["gpu"]))
    assert tercel("worker", "tag", *words).out == "w1: gpu\n"
    assert manager.requests[-1].json() == {"add": ["gpu"], "remove": ["old"]}


def test_tags_are_shown_if_none_is_to_change(tercel: Tercel, manager: FakeManager) -> None:
    says_pool(manager, worker("w1", tags=["a", "b"]), worker("w2"))
    assert tercel("worker", "tag", "w1").out == "w1: a, b\n"
    assert tercel("worker", "tag", "w2").out == "w2: no tags\n"
    assert tercel("worker", "tag", "w3").code == 2


def test_a_tag_without_its_sign_is_no_tag(tercel: Tercel, manager: FakeManager) -> None:
    done = tercel("worker", "tag", "w1", "gpu")
    assert (done.code, "write +gpu or -gpu" in done.err, manager.requests) == (2, True, [])
    assert tercel("worker", "tag", "w1", "+a,b").code == 2


# -- reservations -----------------------------------------------------------------------------------------


def test_workers_are_reserved_for_a_time(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/reservations", reservation(), reservation(workers=[]))
    words = ("--where", 'worker.site == "lab1"', "--queue", "vision", "--for", "12h", "--lend")
    done = tercel("reserve", *words)
    assert done.out == "reservation 4 for 12 h; 2 workers: w1, w2\n"
    assert manager.requests[-1].json() == {
        "where": 'worker.site == "lab1"',
        "queue": "vision",
        "user": "",
        "for_s": 43_200.0,
        "lend": True,
    }
    assert "no worker is connected that it covers yet" in tercel("reserve", "create", *words).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "missing option '--for'"),
        (
            ("--queue", "lab", "--for", "1h"),
            "this would reserve all workers: say --all, or which with --where",
        ),
        (("--queue", "lab", "--for", "1h", "--all", "--where", "true"), "choose one"),
        (("--for", "1h"), "for whom? give --queue, --user or both"),
        (("--queue", "lab", "--for", "soon"), "is not a time"),
        (("--queue", "lab", "--for", "0s"), "must be longer"),
        (("--queue", "lab", "--for", "1h", "--where", "worker.sit == 'x'"), "did you mean worker.site?"),
    ],
)
def test_a_wrong_reservation_is_found_before_anybody_is_asked(
    tercel: Tercel, manager: FakeManager, words: tuple[str, ...], told: str
) -> None:
    done = tercel("reserve", *words)
    assert done.code == 2
    assert told in done.err
    assert manager.requests == []


def test_reservations_are_listed_and_ended(tercel: Tercel, manager: FakeManager) -> None:
    listed = api.ReservationList(
        reservations=[reservation(), reservation(id=5, user="bob", queue="", lend=True)]
    )
    manager.says("GET", "/v1/reservations", listed, api.ReservationList(reservations=[]))
    assert tercel("reserve", "list").out.splitlines() == [
        "ID  QUEUE   USER  LEFT  LENT        BY   WORKERS  WHERE",
        " 4  vision  any   12 h  no          ada        2  all workers",
        " 5  any     bob   12 h  while idle  ada        2  all workers",
    ]
    assert "no workers are reserved" in tercel("reserve", "list").err
    manager.says("DELETE", "/v1/reservations/4", api.Counted(count=1))
    manager.says("DELETE", "/v1/reservations/5", problem(404, "there is no reservation 5"))
    manager.says("GET", "/v1/reservations", listed)
    assert tercel("reserve", "end", "4", "4", "5").out == "2 reservations ended\n"


def test_if_one_of_several_reservations_is_not_there_none_is_ended(
    tercel: Tercel, manager: FakeManager
) -> None:
    manager.says("GET", "/v1/reservations", api.ReservationList(reservations=[reservation()]))
    done = tercel("reserve", "end", "4", "5", "6")
    assert (done.code, done.out) == (2, "")
    assert "there is no reservation 5, 6; nothing was ended: see `tercel reserve list`" in done.err
    assert [request.method for request in manager.requests] == ["GET"]


def test_what_may_not_be_as_it_was_meant_is_said_of_a_reservation(
    tercel: Tercel, manager: FakeManager
) -> None:
    manager.says("POST", "/v1/reservations", reservation(notes=["there is no queue vision so far"]))
    done = tercel("reserve", "--all", "--queue", "vision", "--for", "12h", "-q")
    assert done.out == "reservation 4 for 12 h; 2 workers: w1, w2\n"
    assert done.err == "tercel: there is no queue vision so far\n"
    assert manager.requests[-1].json()["where"] == ""
