"""When conditions are tested and given up; which ends of tasks mean what; how much goes through a throttle."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.blocking import (
    DEFAULT_POLICY,
    check_rule,
    check_rules,
    hint,
    parse_rule,
    patterns_of,
    policy_of,
    rule_for,
    trigger_of,
)
from tercel.core.errors import UsageError
from tercel.core.model import BlockRule, JobSpec
from tercel.core.policies import DEFAULT_STEPS, Policy, parse_policy
from tercel.core.reports import End, Report
from tercel.core.throttles import PROFILES, Rate, Rates, StartThrottle, Throttle, parse_rates


def times(text: str, most: int = 1000) -> list[float]:
    """When tests come if none clears, since the condition arose."""
    policy, found, now = parse_policy(text), [], 0.0
    while len(found) < most:
        now = min(now + policy.pause_s(len(found)), policy.patience_s)
        found.append(now)
        if policy.is_over(len(found), 0.0, now):
            return found
    return found


@pytest.mark.T(7)
def test_a_constant_policy_tests_at_its_interval_until_its_time_is_up() -> None:
    assert times("every 2m for 10m") == [120, 240, 360, 480, 600]


@pytest.mark.T(7)
def test_a_stepwise_policy_makes_so_many_tests_at_each_step_and_not_one_more() -> None:
    """Tapis makes one too many at each step, and loses its place at a restart: here it follows from the count."""
    assert times("every 10s x2, 20s x3, then 1m for 5m")[:8] == [10, 20, 40, 60, 80, 140, 200, 260]


@pytest.mark.T(7)
def test_the_default_policy_is_tapis_own() -> None:
    found = times(DEFAULT_POLICY)
    gaps = [after - before for before, after in zip([0.0, *found], found, strict=False)]
    assert gaps[:24] == [10.0] * 2 + [20.0] * 10 + [60.0] * 10 + [120.0] * 2
    assert found[-1] == 48 * 3600


@pytest.mark.T(7)
@pytest.mark.parametrize(
    ("text", "tests", "minutes"),
    [
        ("every 1m x5, then 2m at most 35 tests", 35, 65),
        ("every 1m x5, 2m x5, then 5m at most 13 tests", 13, 30),
        ("every 1m at most 3 tests", 3, 3),
    ],
)
def test_what_tapis_does_for_services_ssh_and_first_logins_can_be_said(
    text: str, tests: int, minutes: int
) -> None:
    """As docs/explanation/blocked.md says them."""
    found = times(text)
    assert (len(found), found[-1]) == (tests, minutes * 60.0)


@pytest.mark.T(7)
def test_a_policy_ends_after_so_many_tests() -> None:
    assert times("every 1m at most 15 tests") == [60.0 * n for n in range(1, 16)]


def test_a_backoff_doubles_up_to_its_longest_and_is_drawn_from_the_whole_of_it() -> None:
    policy = parse_policy("backoff 5s to 1m for 1d")
    assert [policy.pause_s(n, 1.0) for n in range(6)] == [5, 10, 20, 40, 60, 60]
    assert policy.pause_s(3, 0.25) == 10
    assert policy.pause_s(3, 0.0) == 1  # never more often than once a second


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a policy"),
        ("sometimes", "is not a policy"),
        ("every 2", "with a unit"),
        ("every 2m for 1m", "it would never be tested"),
        ("every 0.1s", "from 1 s to 7 days apart"),
        ("every 8d", "from 1 s to 7 days apart"),
        ("every 1m for 400d", "from 1 s to 366 days"),
        ("every 1m at most 0 tests", "must be 1 to"),
        ("every 1m, 2m", "how many times"),
        ("every 1m x0x", "is not a step"),
        ("backoff 10m to 5s", "shorter than the first"),
        ("backoff 5h to 10h for 1h", "would never be tested"),
        ("for", "is not a policy"),
        ("", "is not a policy"),
        ("every " + "1m x1, " * 30 + "1m", "at most 20 steps"),
    ],
)
def test_a_policy_that_never_tests_or_never_gives_up_or_means_nothing_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_policy(text)


def test_a_policy_may_say_only_how_long() -> None:
    assert parse_policy("for 3h") == Policy(steps=DEFAULT_STEPS, patience_s=10_800.0)
    assert parse_policy("at most 7 tests").tests_most == 7


@pytest.mark.T(9)
@pytest.mark.parametrize(
    ("text", "tests", "end"),
    [
        ("every 10s at most 4 tests", 0, 40.0),
        ("every 10s at most 4 tests", 3, 10.0),
        ("every 10s for 25s at most 4 tests", 0, 25.0),
        ("every 10s x2, then 1m at most 4 tests", 0, 140.0),
        ("every 10s for 1h", 5, 3600.0),
        ("every 1m for ever", 5, math.inf),
    ],
)
def test_when_it_gives_up_is_told_by_time_or_by_tests_whichever_is_first(
    text: str, tests: int, end: float
) -> None:
    policy = parse_policy(text)
    assert policy.ends_at(tests, 0.0, policy.pause_s(tests)) == end


@pytest.mark.parametrize(
    "tester", ["quota:user=ada<2", "time:22:00-06:00", "enabled:app=matlab", "worker:true"]
)
@pytest.mark.parametrize("policy", ["", "; every 1m", "; every 1m for ever"])
def test_what_waits_its_turn_is_never_given_up_unless_somebody_says_when(tester: str, policy: str) -> None:
    rule = parse_rule(f"start -> {tester}{policy}")
    check_rule(rule)
    assert parse_policy(policy_of(rule)).is_endless
    limited = parse_rule(f"start -> {tester}; every 1m for 2h")
    assert parse_policy(policy_of(limited)).patience_s == 7200.0


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("exit:75 -> tcp:a:1; every 1m for ever", "must be given up"),
        ("exit:75 -> command:./ok.sh; evry 2m for 12h", "looks like a policy"),
        ("exit:75 -> command:./ok.sh; backof 2m", "looks like a policy"),
        ("exit:75 -> tcp:a:1; each 2m for 12h", "looks like a policy"),
    ],
)
def test_a_policy_with_a_mistake_in_it_is_not_taken_for_a_command(rule: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_rule(parse_rule(rule))


def test_a_command_may_have_semicolons() -> None:
    for command in ("./a.sh; sleep 5s", "for i in 1 2; do ./x $i; done", "cd /x; ./ok.sh"):
        rule = parse_rule(f"exit:75 -> command:{command}")
        check_rule(rule)
        assert rule.tester == f"command:{command}"


def test_nobody_tries_to_log_in_for_ever() -> None:
    assert parse_policy(policy_of(parse_rule("exit:255 -> ssh-auth:ada@login.lab"))).tests_most == 15


# -- rules -------------------------------------------------------------------------------------------------


def report(end: End, code: int, matched: tuple[str, ...] = ()) -> Report:
    return Report(1, 0, 1, end, code, 0.0, 1.0, 0.0, 0, matched=matched)


def spec(*rules: str) -> JobSpec:
    return JobSpec(argv=("x",), block_on=tuple(parse_rule(rule) for rule in rules))


@pytest.mark.T(3)
@pytest.mark.parametrize(
    ("rule", "end", "code", "applies"),
    [
        ("exit:75 -> t:x", End.EXITED, 75, True),
        ("exit:75 -> t:x", End.EXITED, 76, False),
        ("exit:75 -> t:x", End.SIGNALLED, 75, False),
        ("exit:1,70-79 -> t:x", End.EXITED, 70, True),
        ("signal:USR2 -> t:x", End.SIGNALLED, 12, True),
        ("signal:SIGUSR2 -> t:x", End.SIGNALLED, 12, True),
        ("signal:12 -> t:x", End.EXITED, 12, False),
        ("timeout -> t:x", End.TIMED_OUT, 0, True),
        ("start -> t:x", End.EXITED, 1, False),
    ],
)
def test_a_rule_says_which_ends_are_not_the_tasks_fault(
    rule: str, end: End, code: int, applies: bool
) -> None:
    assert (rule_for(spec(rule), report(end, code)) is not None) is applies


def test_success_is_success_whatever_was_printed() -> None:
    rules = spec("stderr:/quota/ -> t:x")
    assert rule_for(rules, report(End.EXITED, 0, ("stderr:/quota/",))) is None
    assert rule_for(rules, report(End.EXITED, 1, ("stderr:/quota/",))) == rules.block_on[0]


def test_what_was_found_by_a_rule_that_is_no_more_counts_for_no_other() -> None:
    """The job was given other rules while the attempt ran."""
    found = report(End.EXITED, 1, ("stderr:/quota/",))
    assert rule_for(spec("stderr:/licence/ -> a:x"), found) is None
    revised = spec("stderr:/licence/ -> a:x", "stderr:/quota/ -> b:x")
    assert rule_for(revised, found) == revised.block_on[1]


def test_the_first_rule_that_applies_counts() -> None:
    rules = spec("exit:1 -> a:x", "output:/no licence/ -> b:x", "exit:1-9 -> c:x")
    assert rule_for(rules, report(End.EXITED, 1, ("output:/no licence/",))) == rules.block_on[0]
    assert rule_for(rules, report(End.EXITED, 2, ("output:/no licence/",))) == rules.block_on[1]
    assert rule_for(rules, report(End.EXITED, 2)) == rules.block_on[2]
    assert [stream for _, stream, _ in patterns_of(rules)] == ["out", "err"]
    assert {on for on, _, _ in patterns_of(rules)} == {"output:/no licence/"}


def test_a_command_may_have_semicolons_and_a_pattern_arrows() -> None:
    assert parse_rule("stderr:/a -> b/ -> command:cd x; ./y; z @worker; every 2m for 1h") == BlockRule(
        on="stderr:/a -> b/", tester="command:cd x; ./y; z", at="worker", policy="every 2m for 1h"
    )


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("", "is not a rule"),
        ("exit:75", "is not a rule"),
        ("exit:75 ->", "is not a rule"),
        ("exit:0 -> t:x", "1 to 255"),
        ("exit:256 -> t:x", "1 to 255"),
        ("exit:9-1 -> t:x", "1 to 255"),
        ("exit:a -> t:x", "is not an exit code"),
        ("exit:" + "9" * 5000 + " -> t:x", "is not an exit code"),
        ("signal:NONE -> t:x", "no such signal"),
        ("signal:99 -> t:x", "signals are 1 to 64"),
        ("stderr:/(/ -> t:x", "is not a pattern"),
        ("stderr:/(?=x)/ -> t:x", "is not a pattern"),
        ("weather -> t:x", "nothing that a rule can begin with"),
        ("exit:1 -> t:x @moon", "@manager, @site or @worker"),
        ("start -> t:x @worker", "before it starts"),
        ("exit:1 -> t:x; every 9", "with a unit"),
    ],
)
def test_a_malformed_rule_is_refused_with_what_is_wrong(rule: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_rules([parse_rule(rule)])


def test_there_is_one_rule_for_the_start_and_not_very_many_in_all() -> None:
    with pytest.raises(UsageError, match="one rule for `start`"):
        check_rules([BlockRule(on="start", tester="t:x")] * 2)
    with pytest.raises(UsageError, match="at most 50 rules"):
        check_rules([BlockRule(on="exit:1", tester="t:x")] * 51)


@given(st.text(max_size=60))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    try:
        rule = parse_rule(text)
        check_rules([rule])
    except UsageError:
        return
    trigger_of(rule.on)


def test_a_failure_says_how_it_can_be_declared_recoverable() -> None:
    assert hint(report(End.EXITED, 75)) == "if this is not its fault: --block-on 'exit:75 -> TESTER'"
    assert hint(report(End.SIGNALLED, 9)) == "if this is not its fault: --block-on 'signal:9 -> TESTER'"
    assert hint(report(End.EXITED, 0)) == ""


# -- throttles ---------------------------------------------------------------------------------------------


@pytest.mark.T(10, 11)
@given(st.lists(st.floats(0, 5), max_size=60), st.integers(1, 5), st.floats(0.1, 3))
def test_no_window_ever_sees_more_than_its_rate(gaps: list[float], most: int, window_s: float) -> None:
    throttle: Throttle[str] = Throttle(Rate(most, window_s))
    now, granted = 0.0, []
    for gap in gaps:
        now += gap
        slot = throttle.next_slot("k", now)
        assert (slot == now) is (throttle.room("k", now) > 0)
        if slot == now:
            throttle.take("k", 1, now)
            granted.append(now)
        else:
            assert now < slot <= now + window_s  # the next free one, not some time
    for at in granted:
        assert sum(other <= at < other + window_s for other in granted) <= most


def test_keys_do_not_share_their_rate() -> None:
    throttle: Throttle[str] = Throttle(Rate(2, 1.0))
    throttle.take("a", 2, 0.0)
    assert (throttle.room("a", 0.0), throttle.room("b", 0.0)) == (0, 2)
    throttle.give_back("a", 1)
    assert throttle.room("a", 0.0) == 1


def test_what_bounds_all_bounds_each_node_and_says_when_to_come_again() -> None:
    throttle = StartThrottle(parse_rates(["starts=3/2s", "launches=2/2s"]))
    assert throttle.room("n1", 0.0) == 2
    throttle.take("n1", 2, 0.0)
    assert throttle.room("n1", 0.5) == 0
    assert throttle.next_at == 2.0
    assert throttle.room("n2", 0.5) == 1


def test_a_profile_has_the_papers_settings() -> None:
    assert parse_rates(["tapis"]) == parse_rates(PROFILES["tapis"])
    assert parse_rates(["tapis"]).starts == Rate(10, 2.0)
    assert parse_rates(["tapis"]).launches == Rate(8, 2.0)
    assert parse_rates(["tapis", "starts=0/1s"]).starts.most == 0
    assert parse_rates([]) == Rates()


@pytest.mark.must("e")
@pytest.mark.parametrize(
    "text",
    ["", "starts", "starts=x/2s", "sleeps=1/s", "starts=1/0s", "starts=1/2 parsecs", "starts=9999999/s"],
)
def test_a_throttle_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"throttle|at most|is not a time"):
        parse_rates([text])
