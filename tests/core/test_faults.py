"""Every stage ends in success, in failure, or in a fault that names what must be there again: one table for all of it."""

import pytest

from tercel.core.blocking import DEFAULT_POLICY, fault_of, parse_rule, rule_for
from tercel.core.conditions import Fault, Place
from tercel.core.faults import PASSING, fault_at_worker, fault_of_hitch
from tercel.core.files import Hitch, Trouble
from tercel.core.model import JobSpec
from tercel.core.policies import parse_policy
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report
from tercel.core.states import Stage

pytestmark = [pytest.mark.T(2, 3), pytest.mark.must("a")]

INFO = WorkerInfo(node="n1", site="lab", dir="/work")
SPEC = JobSpec(argv=("x",), cwd="/data", env={"A": "1"})


def report(end: End, code: int = 0, errno: str = "", note: str = "") -> Report:
    return Report(1, 0, 1, end, code, 0.0, 1.0, 0.0, 0, note, errno=errno)


def fault(end: End, errno: str, spec: JobSpec = SPEC) -> Fault | None:
    return fault_at_worker(spec, report(end, errno=errno, note="said so"), "w1", INFO)


@pytest.mark.T(8)
@pytest.mark.parametrize(
    ("errno", "tester", "place", "where", "own"),
    [
        ("ENOSPC", "writable:/work", Place.WORKER, "w1", True),
        ("EDQUOT", "writable:/work", Place.WORKER, "w1", True),
        ("EROFS", "writable:/work", Place.WORKER, "w1", True),
        ("ENOENT", "dir:/data", Place.SITE, "lab", False),
        ("ESTALE", "dir:/data", Place.SITE, "lab", False),
        ("EACCES", "dir:/data", Place.SITE, "lab", False),
        ("ETIMEDOUT", "dir:/data", Place.SITE, "lab", False),
        ("EAGAIN", "command:true", Place.WORKER, "w1", True),
        ("EMFILE", "command:true", Place.WORKER, "w1", True),
    ],
)
@pytest.mark.parametrize("end", [End.REFUSED, End.INTERRUPTED])
def test_what_a_worker_could_not_do_names_what_it_lacks_and_where(
    end: End, errno: str, tester: str, place: Place, where: str, own: bool
) -> None:
    found = fault(end, errno)
    assert found is not None
    assert (found.tester, found.place, found.where, found.own) == (tester, place, where, own)
    assert found.policy == DEFAULT_POLICY
    assert found.context == (errno, "said so"), "what is known of it, gathered on the way up"


@pytest.mark.parametrize("errno", ["", "ENOEXEC", "E2BIG", "nonsense"])
def test_what_is_not_known_to_pass_is_no_fault(errno: str) -> None:
    assert fault(End.REFUSED, errno) is None


@pytest.mark.parametrize("end", [End.EXITED, End.SIGNALLED, End.TIMED_OUT, End.EXCEEDED, End.CANCELLED])
def test_an_attempt_that_ran_is_judged_by_rules_alone(end: End) -> None:
    assert fault(end, "ENOSPC") is None


def test_without_a_directory_of_the_job_none_can_be_lacking() -> None:
    assert fault(End.REFUSED, "ENOENT", JobSpec(argv=("x",))) is None


@pytest.mark.T(4)
@pytest.mark.parametrize(
    ("rule", "place", "where", "surroundings"),
    [
        ("exit:75 -> tcp:a:1", Place.SITE, "lab", ("", {})),
        ("exit:75 -> tcp:a:1", Place.WORKER, "w1", ("", {})),
        ("exit:75 -> tcp:a:1", Place.MANAGER, "", ("", {})),
        ("exit:75 -> command:./ok.sh", Place.SITE, "lab", ("/data", {"A": "1"})),
    ],
)
def test_a_rule_becomes_a_fault_with_all_that_makes_its_condition(
    rule: str, place: Place, where: str, surroundings: tuple[str, dict[str, str]]
) -> None:
    """Two that differ in any of it are two conditions; the exit code that showed it is none of it."""
    parsed = parse_rule(f"{rule} @{place.value}; every 1m for 3h")
    found = fault_of(SPEC, parsed, "w1", "lab")
    assert (found.place, found.where, found.policy) == (place, where, "every 1m for 3h")
    assert (found.cwd, found.env) == surroundings


@pytest.mark.T(7)
@pytest.mark.parametrize(
    ("text", "patience_s"), [("3h", 10_800.0), ("90s", 90.0), ("2d", 172_800.0), ("30m", 1800.0)]
)
def test_times_are_kept_in_the_unit_that_was_meant(text: str, patience_s: float) -> None:
    """Tapis stores three hours as 10,800,000 seconds."""
    assert parse_policy(f"every 10s for {text}").patience_s == patience_s


@pytest.mark.parametrize("code", [0, 1, 75])
def test_success_failure_and_fault_are_told_apart(code: int) -> None:
    spec = JobSpec(argv=("x",), block_on=(parse_rule("exit:75 -> tcp:a:1"),))
    assert (rule_for(spec, report(End.EXITED, code)) is not None) is (code == 75)


@pytest.mark.parametrize("url", ["", "tercel:", f"tercel:blake3:{'0' * 64}"])
@pytest.mark.parametrize("trouble", sorted(PASSING))
@pytest.mark.parametrize("stage", [Stage.STAGE_IN, Stage.STAGE_OUT])
def test_what_was_at_the_worker_or_at_the_manager_is_tried_again_for_there_is_nothing_to_look_at(
    stage: Stage, trouble: Trouble, url: str
) -> None:
    """A tester of an empty URL, or of what only the manager has, would never say that it is there again."""
    found = fault_of_hitch(Hitch(stage, trouble, url, "said so"), "w1", INFO)
    assert found is not None
    assert (found.tester, found.place) == ("worker:true", Place.HERE)
