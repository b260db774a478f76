"""What kinds there are, and what is said of those that are not."""

from pathlib import Path

import pytest

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers import conformance
from tercel.testers.contract import Surroundings
from tercel.testers.registry import Testers
from tests.testers.conftest import Install

pytestmark = [pytest.mark.T(8), pytest.mark.must("d")]

THIRD = (Path(__file__).parent / "third.py").read_text()
PATIENT = Surroundings(limit_s=60.0)


class QuotaTester:
    """As the manager gives one in: its own books answer it."""

    kind = "quota"
    place = Place.HERE
    summary = "there is room in a quota: quota:ada/gpu"

    def normalise(self, text: str) -> str:
        if "/" not in text:
            raise UsageError("quota: write OWNER/WHAT")
        return text.strip().lower()

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        raise AssertionError("is not asked here")


def test_an_unknown_kind_is_answered_with_the_nearest_and_all_there_are() -> None:
    with pytest.raises(UsageError, match="'tpc' is no kind of tester; did you mean tcp") as caught:
        Testers().normalise("tpc:licence.lab:27000")
    assert "? There are: command, database, dir, disk, dns" in str(caught.value)
    with pytest.raises(UsageError, match="'qqqq' is no kind of tester; there are: command, "):
        Testers().normalise("qqqq:x")


@pytest.mark.parametrize("text", ["", ":", "tcp", ":x", "tcp:  ", "x" * 5000])
def test_what_is_no_tester_at_all_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Testers().normalise(text)


async def test_asking_what_is_unknown_is_a_verdict_too(testers: Testers) -> None:
    for text in ("tpc:x", "", "tcp:nonsense", "disk:x", "time:soon", "database:x"):
        verdict = await testers.ask(text, PATIENT)
        assert not verdict.cleared and verdict.note, text


async def test_kinds_that_are_given_are_judged_here_and_asked_elsewhere() -> None:
    testers = Testers([QuotaTester()])
    assert testers.normalise("quota: Ada/GPU") == ("quota:ada/gpu", Place.HERE)
    with pytest.raises(UsageError, match="OWNER/WHAT"):
        testers.normalise("quota:ada")
    assert "not here" in (await testers.ask("quota:ada/gpu", PATIENT)).note
    assert "quota" in [row.kind for row in testers.kinds()]


def test_third_parties_are_named_without_being_imported(install: Install) -> None:
    install("broken", {"broken": "broken:Nothing"}, "raise RuntimeError('imported')")
    row = next(row for row in Testers().kinds() if row.kind == "broken")
    assert (row.place, row.origin) == (None, "broken")


def test_no_third_party_replaces_a_tester_that_is_built_in(install: Install) -> None:
    install("thief", {"tcp": "thief:X", "Bad Name": "thief:X"}, "")
    testers = Testers()
    assert testers.normalise("tcp:a:1") == ("tcp:a:1", Place.SITE)
    assert testers.problems() == [
        "'tcp' of thief is not used: Tercel has a tester of that kind itself",
        "'Bad Name' of thief is not a kind of tester: lower-case letters, digits and '-'",
    ]


async def test_one_that_cannot_be_imported_is_told_and_breaks_nothing_else(
    testers: Testers, install: Install
) -> None:
    install("broken", {"broken": "broken:X", "gone": "nowhere:X"}, "raise RuntimeError('no such library')")
    install("third", {"bad": "third:BadTester", "worse": "third:BadTester"}, THIRD)
    with pytest.raises(UsageError, match="cannot be imported: RuntimeError: no such library"):
        testers.normalise("broken:x")
    assert "ModuleNotFoundError" in (await testers.ask("gone:x", PATIENT)).note
    assert "registered as 'worse'" in (await testers.ask("worse:x", PATIENT)).note
    assert (await testers.ask("bad:ok x", PATIENT)).cleared
    assert [problem.split()[0] for problem in testers.problems()] == ["'broken'", "'gone'", "'worse'"]


async def test_a_third_party_judges_in_a_process_of_its_own(testers: Testers, install: Install) -> None:
    install("third", {"bad": "third:BadTester"}, THIRD)
    assert await testers.judge("bad: OK x ") == ("bad:ok x", Place.WORKER)
    for text, wrong in (
        ("exit", "its process ended"),
        ("raise", "its tester failed: RuntimeError: oops"),
        ("number", "its tester made no text of it"),
    ):
        with pytest.raises(UsageError, match=wrong):
            await testers.judge(f"bad:{text}")


async def test_one_that_hangs_while_judging_is_given_up(
    testers: Testers, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tercel.testers.registry.JUDGE_LIMIT_S", 1.5)
    install("third", {"bad": "third:BadTester"}, THIRD)
    with pytest.raises(UsageError, match=r"it did not answer within 1.5 s"):
        await testers.judge("bad:spin")


# -- what authors check their own with ----------------------------------------------------------------------


class Fine:
    kind = "fine"
    place = Place.SITE
    summary = "is fine: fine:x"

    def normalise(self, text: str) -> str:
        if not text.strip():
            raise UsageError("fine: of what?")
        return text.strip()

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        return Verdict(text == "yes", note=text)


class Prints(Fine):
    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        print("looking")
        return Verdict(text == "yes", note=text)


class Blocks(Fine):
    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        import time

        time.sleep(0.8)
        return Verdict(text == "yes", note=text)


class Grows(Fine):
    def normalise(self, text: str) -> str:
        return super().normalise(text) + "!"


class Accepts(Fine):
    def normalise(self, text: str) -> str:
        return text.strip()


class Stays(Fine):
    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        import asyncio

        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)
        return Verdict(text == "yes", note=text)


class Raises(Fine):
    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        raise OSError("down")


class Lies(Fine):
    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        return True  # type: ignore[return-value]


class Mute(Fine):
    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        return Verdict(text == "yes")


class Loud(Fine):
    kind = "Loud One"


def test_a_tester_as_it_should_be_has_no_problems() -> None:
    assert conformance.check(Fine(), "yes", "no") == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (Prints(), "wrote to stdout: b'looking"),
        (Blocks(), "kept others waiting for"),
        (Grows(), "who means the same must share a condition"),
        (Accepts(), "refuses nothing"),
        (Stays(), "does not end when it is cancelled"),
        (Raises(), "raised OSError: down"),
        (Lies(), "is not an answer as it should be"),
        (Mute(), "its note does not say why"),
        (Loud(), "kind: lower-case letters"),
    ],
)
def test_what_is_wrong_with_a_tester_is_told(wrong: Fine, told: str) -> None:
    problems = conformance.check(wrong, "yes", "no")
    assert any(told in problem for problem in problems), problems


def test_authors_check_theirs_on_the_command_line(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("third", {"bad": "third:BadTester"}, THIRD)
    assert conformance.main(["bad", "ok x"]) == 0
    assert capsys.readouterr().err == "bad: is as a tester should be\n"
    assert conformance.main(["bad", "ok x", "negative"]) == 1
    assert "is not an answer as it should be" in capsys.readouterr().err
    assert conformance.main(["nobody", "x"]) == 2
    assert conformance.main([]) == 2
