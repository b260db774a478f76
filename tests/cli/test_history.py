"""history, rollback and clean, as they are typed."""

import time
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.cli.asking import moment
from tercel.cli.commands.history import line
from tercel.core.errors import UsageError
from tercel.wire import api
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import FakeManager
from tests.cli.test_errors import one_line

NOW = 1_700_000_000.0
PART = api.RollbackPart(
    job=37,
    name="fit",
    tasks="0-4",
    failed=4,
    cancelled=0,
    finished=0,
    used=1,
    skipped=2,
    outputs=3,
)


def rolled(*, dry: bool = False, **more: Any) -> api.RolledBack:
    fields: dict[str, Any] = {
        "count": 7,
        "to": "accepted",
        "parts": [PART],
        "under_way": [],
        "hopeless": 0,
        "dry_run": dry,
    }
    return api.RolledBack(**fields | more)


def cleaned(dry: bool) -> api.Cleaned:
    return api.Cleaned(jobs=2, tasks=30, output_bytes=4096, conditions=1, notes=5, attempts=7, dry_run=dry)


# -- history ----------------------------------------------------------------------------------------------


def test_a_history_is_told_line_by_line_over_all_its_pages(tercel: Tercel, manager: FakeManager) -> None:
    first = api.History(
        id="37.4",
        events=[api.HistoryEvent(at=NOW, what="accepted", text="from ada")],
        more=True,
        next=1,
    )
    failed = api.HistoryEvent(
        at=NOW + 9, what="failed", text="exited with code 3", worker="n1", wall_s=2.0, blame="task"
    )
    last = api.History(id="37.4", events=[failed], more=False, next=2, now="failed")
    manager.says("GET", "/v1/jobs/37/tasks/4/history", first, last, first, last)
    done = tercel("history", "37.4")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].endswith("accepted     from ada")
    assert lines[1].endswith("failed       on n1, exited with code 3, after 2 s, [task's fault]")
    assert "now failed" in done.err
    assert [r.query.get("skip") for r in manager.asked("GET", "/v1/jobs/37/tasks/4/history")] == [None, ["1"]]
    told = tercel("--json", "history", "37.4").json_lines
    assert [event["what"] for event in told] == ["accepted", "failed"]
    assert {event["id"] for event in told} == {"37.4"}


def test_a_history_of_several_tasks_is_refused(tercel: Tercel, manager: FakeManager) -> None:
    done = tercel("history", "37.0-4")
    assert done.code == 2
    assert "'37.0-4' are several tasks: choose one, or the job" in done.err
    assert one_line(done.err)
    assert not manager.requests


def test_the_guide_shows_histories_as_they_are_printed() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "rollback.md").read_text()
    at = datetime(2026, 11, 16, 14, 2, 40).timestamp()
    blocked = "exited with code 75: blocked on tcp:licence.lab:27000 (exit:75)"
    for event in (
        api.HistoryEvent(at=at - 29, what="accepted", text="from ada"),
        api.HistoryEvent(at=at - 28, what="started", worker="n07"),
        api.HistoryEvent(at=at, what="blocked", worker="n07", text=blocked, wall_s=28.0, blame="outside"),
        api.HistoryEvent(at=at + 382, what="released", text="tcp:licence.lab:27000: cleared"),
        api.HistoryEvent(at=at + 382, what="started", worker="n11"),
        api.HistoryEvent(
            at=at + 530, what="failed", worker="n11", text="exited with code 1", wall_s=148.0, blame="task"
        ),
        api.HistoryEvent(at=at + 3447, what="rolled back", text="to accepted by ada: old calibration"),
    ):
        assert f"\n{line(event)}\n" in guide


def test_what_a_terminal_would_obey_is_not_told_to_it() -> None:
    event = api.HistoryEvent(at=0.0, what="\x1b]0;x\x07", worker="\x1b[2J", text="\u202e")
    assert line(event).isprintable()


# -- rollback ---------------------------------------------------------------------------------------------


def test_what_would_be_undone_is_listed_by_job(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/rollback", rolled(dry=True, under_way=["41.0"], hopeless=1))
    done = tercel("rollback", "37", "--dry-run")
    assert done.out.splitlines() == [
        "7 tasks would go back to accepted:",
        "  37.0-4 fit: 4 failed, 1 finished using what is undone, 2 skipped, to wait again; 3 pieces of output dropped",
    ]
    assert "41.0" in done.err
    assert "1 task stay" in done.err
    (request,) = manager.asked("POST", "/v1/rollback")
    assert request.json()["dry_run"] is True
    assert request.json()["states"] == []


def test_nothing_is_undone_that_nobody_agreed_to(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/rollback", rolled(dry=True))
    done = tercel("rollback", "37", "--all")
    assert done.code == 2
    assert "add --yes" in done.err
    assert len(manager.asked("POST", "/v1/rollback")) == 1


def test_who_agrees_gets_what_was_asked_for(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/rollback", rolled(dry=True), rolled())
    words = ["--cancelled", "--finished", "--to", "staged", "--since", "2h", "--only", "--yes"]
    done = tercel("rollback", "37.0-4", *words)
    assert done.out.startswith("7 tasks went back to accepted (since ")
    assert done.err == "tercel: nothing is staged yet, so: accepted\n"
    sent = manager.asked("POST", "/v1/rollback")[1].json()
    assert sent["states"] == ["cancelled", "finished"]
    assert (sent["to"], sent["only"], sent["dry_run"]) == ("staged", True, False)
    assert abs(time.time() - 7200 - sent["since"]) < 60


def test_what_is_under_way_is_told_before_anything_is_asked_for(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/rollback", rolled(dry=True, under_way=["41.0"]))
    done = tercel("rollback", "37", "--yes")
    assert done.code == 2
    assert "41.0 under way" in done.err
    assert len(manager.asked("POST", "/v1/rollback")) == 1


def test_what_is_under_way_alone_is_rolled_back_with_force(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/rollback", rolled(dry=True, count=0, parts=[], under_way=["37.0"]))
    done = tercel("rollback", "37.0", "--force", "--yes")
    assert done.code == 0
    assert [asked.json()["dry_run"] for asked in manager.asked("POST", "/v1/rollback")] == [True, False]
    assert tercel("rollback", "37.0", "--yes").code == 2
    assert tercel("rollback", "37.0", "--force", "--dry-run").out == ""


def test_of_named_tasks_that_have_not_ended_that_is_said(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/rollback", rolled(dry=True, count=0, parts=[]))
    assert "none of them has ended" in tercel("rollback", "37.0").err
    assert "--all chooses others" in tercel("rollback", "37").err


@pytest.mark.parametrize(
    "words",
    [
        ["rollback", "37", "--all", "--failed"],
        ["rollback", "37", "--to", "ran"],
        ["rollback", "37", "--since", "noon"],
        ["rollback", "37", "--since", "5"],
        ["rollback", "37..4"],
        ["clean"],
        ["clean", "--older", "soon"],
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(
    tercel: Tercel, manager: FakeManager, words: list[str]
) -> None:
    assert tercel(*words).code == 2
    assert not manager.requests


def test_moments_are_read_as_people_write_them() -> None:
    now = time.time()
    assert abs(now - 5400 - moment("1h30m", "since")) < 60
    assert abs(now - 7200 - moment("2h ago", "since")) < 60
    assert time.localtime(moment("00:00", "since"))[:5] == (*time.localtime()[:3], 0, 0)
    assert time.localtime(moment("2023-11-16T14:05", "since"))[:5] == (2023, 11, 16, 14, 5)
    assert moment("2023-11-16T14:05+00:00", "since") == 1700143500.0
    for wrong in ("", "25:00", "14", "-2h", "2026-13-01", "ago", "14:05 ago", "in 2h"):
        with pytest.raises(UsageError, match="is no time"):
            moment(wrong, "since")


def test_a_time_that_is_still_to_come_is_refused_and_not_taken_for_yesterdays(
    tercel: Tercel, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls(2026, 11, 16, 12, 0, tzinfo=tz)

    monkeypatch.setattr("tercel.cli.asking.datetime", Clock)
    for words in (["rollback", "37", "--since"], ["fork", "37", "--at"]):
        early = tercel(*words, "13:50")
        assert early.code == 2
        assert one_line(early.err)
        assert "it is not so late yet" in early.err
        assert "2026-11-15T13:50" in early.err
        assert "is yet to come" in tercel(*words, "2026-11-17").err
    assert not manager.requests
    assert moment("11:59", "since") == datetime(2026, 11, 16, 11, 59).timestamp()


def test_the_moment_that_was_taken_is_told(tercel: Tercel, manager: FakeManager) -> None:
    answers = [rolled(dry=True), rolled(dry=True), rolled(), rolled(dry=True, count=0, parts=[])]
    manager.says("POST", "/v1/rollback", *answers)
    since = ["rollback", "37", "--since", "2023-11-15T13:50"]
    first = "7 tasks would go back to accepted (since 2023-11-15 13:50:00):"
    assert tercel(*since, "--dry-run").out.splitlines()[0] == first
    assert "went back to accepted (since 2023-11-15 13:50:00):" in tercel(*since, "--yes").out
    assert tercel(*since, "--yes").out == "nothing to roll back since 2023-11-15 13:50:00\n"


def test_who_rolls_nothing_back_is_told_what_is_taken(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/rollback", *(3 * [rolled(dry=True, count=0, parts=[])]))
    assert "only failed tasks are taken: --cancelled" in tercel("rollback", "37", "--dry-run").err
    assert "`all` is the jobs that have not ended" in tercel("rollback", "all", "--dry-run").err
    assert tercel("rollback", "37", "--all", "--dry-run").err == ""


# -- clean ------------------------------------------------------------------------------------------------


def test_what_is_old_is_counted_before_it_is_removed(tercel: Tercel, manager: FakeManager) -> None:
    kept = msgspec.structs.replace(cleaned(False), note="snapshot @3 has them as they were")
    manager.says("POST", "/v1/clean", cleaned(True), cleaned(True), kept)
    assert tercel("clean", "--older", "30d", "--dry-run").out == (
        "would remove 2 jobs of 30 tasks with 4.0 KiB of output; 1 condition, 5 notes, 7 attempts of long histories\n"
    )
    done = tercel("clean", "--older", "30d", "--yes")
    assert done.out.startswith("removed 2 jobs of 30 tasks")
    assert "1 condition, 5 notes" in done.out
    assert "snapshot @3 has them as they were" in done.err
    sent = manager.asked("POST", "/v1/clean")[2].json()
    assert sent == {"older_s": 30 * 86400.0}, "as older managers take it, too"
    tercel("clean", "--older", "30d", "--yes", "--no-snapshot")
    assert manager.asked("POST", "/v1/clean")[-1].json()["snapshot"] is False


def test_scripts_must_agree_to_cleaning(tercel: Tercel, manager: FakeManager) -> None:
    manager.says("POST", "/v1/clean", cleaned(True))
    assert "add --yes" in tercel("clean", "--older", "30d").err
    assert len(manager.asked("POST", "/v1/clean")) == 1
