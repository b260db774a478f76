"""`--block-on known`: what real programs print says what must be there again. Nobody names a tester."""

import pytest

from tests.acceptance.outages import blocked, page_server, probed
from tests.lab import Lab

TELLS_URL = "curl -sSf -w '%{stderr}%{http_code} %{url_effective}\\n' "
SHOWS_COMMAND = "set -x; curl -sSf "


@pytest.mark.T(3, 4, 5, 6, 8)
@pytest.mark.parametrize("line", [TELLS_URL, SHOWS_COMMAND])
async def test_tasks_wait_for_a_page_as_long_as_it_answers_503_and_finish_when_it_is_there(
    lab: Lab, line: str
) -> None:
    await lab.up()
    with page_server() as pages:
        url = f"http://127.0.0.1:{pages.server_port}/data/x"
        rule = ("--block-on", "known; every 1s for 1h", "--retries", "1", "--array", "0-4")
        lab.ok("submit", *rule, "--", "sh", "-c", f"{line}'{url}?token=hunter2'")
        await blocked(lab, 1, 5)
        await probed(lab, 2)
        (row,) = lab.json("blocked")["conditions"]
        assert (row["tester"], row["tasks"]) == (f"{url}<500", 5), "the page, and nothing of its secrets"
        assert row["note"] == f"{url} answers 503"
        asked = list(pages.asked)
        assert asked.count(("curl", "/data/x?token=hunter2")) == 5, (
            "nobody was let go: it accepts connections"
        )
        assert asked.count(("tercel", "/data/x")) >= 2
        pages.status = 200
        (job,) = await lab.done([1])
    assert (job.counts.finished, job.counts.failed) == (5, 0)
    (row,) = lab.json("blocked", "--all")["conditions"]
    assert row["closed"] == "cleared"
    for task in range(5):
        attempts = lab.json("show", f"1.{task}")["attempts"]
        assert [(attempt["state"], attempt["blame"]) for attempt in attempts] == [
            ("blocked", "outside"),
            ("finished", ""),
        ]
    told = lab.ok("history", "1.0")
    assert f"blocked on {url}<500 (known): " in told
    assert "curl: (22) The requested URL returned error: 503" in told
    assert "hunter2" not in told


@pytest.mark.T(8)
async def test_a_page_that_is_not_there_is_the_tasks_own_failure(lab: Lab) -> None:
    await lab.up()
    with page_server() as pages:
        pages.status = 404
        url = f"http://127.0.0.1:{pages.server_port}/data/x"
        lab.ok("submit", "--block-on", "known", "--", "sh", "-c", f"{TELLS_URL}'{url}'")
        (job,) = await lab.done([1])
    assert job.counts.failed == 1
    assert lab.json("blocked", "--all")["conditions"] == []
