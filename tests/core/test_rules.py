"""What a submission and a queue may say about failure, waiting and sharing: every refusal, with its message."""

from typing import Any

import pytest

from tercel.core.errors import UsageError
from tercel.core.model import MAX_BACKOFF_S, After, Call, JobSpec, QueueRow, RetryRule
from tercel.core.rules import (
    MAX_CAP,
    MAX_NEEDS,
    MAX_RETRIES,
    MAX_RULES,
    MAX_WEIGHT,
    check_queue,
    check_rules,
    edges_of,
)

NAN, INFINITY = float("nan"), float("inf")


def rule(codes: tuple[int, ...] = (75,), retries: int = 1, backoff_s: float = 0.0) -> RetryRule:
    return RetryRule(codes=codes, retries=retries, backoff_s=backoff_s)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"backoff_s": MAX_BACKOFF_S},
        {"retry_rules": (rule((1, 255), 0), rule(retries=MAX_RETRIES, backoff_s=MAX_BACKOFF_S))},
        {"retry_rules": (rule(),) * MAX_RULES},
        {"max_fails": "0"},
        {"max_fails": "999999999"},
        {"max_fails": "0.5%"},
        {"max_fails": "100%"},
        {"queue": "lab_2.gpu@site+a-b"},
        {"queue": "q" * 64},
        {"after": (After(job=1), After(job=-1, tasks=((0, 0), (5, 9))))},
        {"after": (After(job=1),) * MAX_NEEDS},
    ],
)
def test_what_makes_sense_is_accepted(fields: dict[str, Any]) -> None:
    check_rules(JobSpec(argv=("x",), **fields))


QUEUE_NAME = "is no name for a queue: 1 to 64 of A-Z a-z 0-9 _ . @ + -, the first a letter or digit"
FAILS = "is neither a number of tasks (10) nor a share of them (5%)"


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"backoff_s": -1.0}, "backoff_s", "backoff_s is -1.0; it must be between 0 and 3600"),
        ({"backoff_s": 3600.5}, "backoff_s", "backoff_s is 3600.5; it must be between 0 and 3600"),
        ({"backoff_s": NAN}, "backoff_s", "backoff_s is nan; it must be between 0 and 3600"),
        ({"retry_rules": (rule(),) * 101}, "retry_rules", "at most 100 rules for retries"),
        ({"retry_rules": (rule(()),)}, "retry_rules[0]", "retry_rules[0] names no exit code"),
        (
            {"retry_rules": (rule(), rule((75, 0)))},
            "retry_rules[1]",
            "retry_rules[1]: 0 is not the exit code of a failure (1 to 255)",
        ),
        (
            {"retry_rules": (rule((256,)),)},
            "retry_rules[0]",
            "retry_rules[0]: 256 is not the exit code of a failure (1 to 255)",
        ),
        (
            {"retry_rules": (rule(retries=-1),)},
            "retry_rules[0].retries",
            "retry_rules[0].retries is -1; it must be between 0 and 1e+06",
        ),
        (
            {"retry_rules": (rule(backoff_s=INFINITY),)},
            "retry_rules[0].backoff_s",
            "retry_rules[0].backoff_s is inf; it must be between 0 and 3600",
        ),
        ({"max_fails": "-1"}, "max_fails", f"max_fails '-1' {FAILS}"),
        ({"max_fails": "many"}, "max_fails", f"max_fails 'many' {FAILS}"),
        ({"max_fails": "100.1%"}, "max_fails", f"max_fails '100.1%' {FAILS}"),
        ({"max_fails": "1" * 1000}, "max_fails", f"max_fails '{'1' * 40}' {FAILS}"),
        ({"queue": "-lab"}, "queue", f"'-lab' {QUEUE_NAME}"),
        ({"queue": "two words"}, "queue", f"'two words' {QUEUE_NAME}"),
        ({"queue": "q" * 65}, "queue", f"'{'q' * 65}' {QUEUE_NAME}"),
        ({"queue": "é" * 1000}, "queue", f"'{'é' * 80}' {QUEUE_NAME}"),
        ({"after": (After(job=1),) * 10_001}, "after", "a job waits for at most 10,000 others"),
        ({"after": (After(job=0),)}, "after[0]", "after[0]: jobs are numbered from 1"),
        (
            {"after": (After(job=1), After(job=1, tasks=((5, 4),)))},
            "after[1]",
            "after[1]: its tasks are not ranges of numbers",
        ),
        (
            {"after": (After(job=1, tasks=((-1, 4),)),)},
            "after[0]",
            "after[0]: its tasks are not ranges of numbers",
        ),
    ],
)
def test_what_makes_no_sense_in_a_job_is_refused_with_the_place(
    fields: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_rules(JobSpec(argv=("x",), **fields))
    assert (refused.value.field, str(refused.value)) == (field, message)


@pytest.mark.parametrize("digits", ["١٠", "٥%", "1\n"], ids=["arabic", "arabic share", "newline"])
def test_only_plain_digits_are_a_number_of_failures(digits: str) -> None:
    with pytest.raises(UsageError):
        check_rules(JobSpec(argv=("x",), max_fails=digits))


@pytest.mark.parametrize(
    ("text", "tasks", "most"),
    [
        ("", 10, None),
        ("3", 10, 3),
        ("20%", 10, 2),
        ("20%", 9, 1),
        ("0%", 9, 0),
        ("100%", 9, 9),
        ("0.57%", 10_000, 57),  # 0.57 * 10,000 is less than 5,700 to a computer
        ("1.1%", 100_000_000, 1_100_000),
    ],
)
def test_failures_that_are_borne(text: str, tasks: int, most: int | None) -> None:
    assert JobSpec(max_fails=text).most_fails(tasks) == most


# -- queues -------------------------------------------------------------------------------------------------


def test_a_queue_with_any_settings_that_make_sense_is_accepted() -> None:
    check_queue(QueueRow(name="lab"))
    check_queue(
        QueueRow(name="lab", weight=MAX_WEIGHT, max_running=MAX_CAP, max_queued=MAX_CAP, user_max=MAX_CAP)
    )
    check_queue(QueueRow(name="lab", weight=1e-9))


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        (QueueRow(name=""), "queue", f"'' {QUEUE_NAME}"),
        (QueueRow(name="a/b"), "queue", f"'a/b' {QUEUE_NAME}"),
        (QueueRow(name="q", weight=0), "weight", "weight is 0; it must be above 0 and at most 1e+06"),
        (QueueRow(name="q", weight=-1), "weight", "weight is -1; it must be above 0 and at most 1e+06"),
        (QueueRow(name="q", weight=2e6), "weight", "weight is 2e+06; it must be above 0 and at most 1e+06"),
        (QueueRow(name="q", weight=NAN), "weight", "weight is nan; it must be above 0 and at most 1e+06"),
        (
            QueueRow(name="q", max_running=-1),
            "max_running",
            "max_running is -1; it must be between 0 and 2.14748e+09",
        ),
        (
            QueueRow(name="q", max_queued=MAX_CAP + 1),
            "max_queued",
            "max_queued is 2147483649; it must be between 0 and 2.14748e+09",
        ),
        (QueueRow(name="q", user_max=-5), "user_max", "user_max is -5; it must be between 0 and 2.14748e+09"),
    ],
)
def test_what_makes_no_sense_in_a_queue_is_refused(row: QueueRow, field: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_queue(row)
    assert (refused.value.field, str(refused.value)) == (field, message)


# -- edges --------------------------------------------------------------------------------------------------


def test_edges_are_kept_by_task_with_what_calls_name() -> None:
    calls = [Call(b""), Call(b"", ("t7.4", "b" + "0" * 64)), Call(b"", ("t7.5",))]
    told = edges_of([(2, 0, 0, 1), (1, 9, 3, 3)], calls, [(0, 2)])
    assert told == ((1, 7, 4, 4), (1, 9, 3, 3), (2, 0, 0, 1), (2, 7, 5, 5))
    assert edges_of([], None, [(0, 2)]) == ()


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(3, 0, 0, 0)], "edges: [3, 0, 0, 0] is not [task, job, first, last]"),
        ([(0, -1, 0, 0)], "edges: [0, -1, 0, 0] is not [task, job, first, last]"),
        ([(0, 1, 2, 1)], "edges: [0, 1, 2, 1] is not [task, job, first, last]"),
        ([(0, 1, -1, 1)], "edges: [0, 1, -1, 1] is not [task, job, first, last]"),
        ([(0, 0, 7, 9)], "edges: task 0 needs task 7, which the job does not have"),
        ([(0, 0, 1, 9)], "edges: task 0 needs task 3, which the job does not have"),
        (
            [(0, 0, 1, 1), (1, 0, 2, 2), (2, 0, 0, 0)],
            "tasks of the job wait for one another in a circle: 0 -> 1 -> 2 -> 0",
        ),
        ([(1, 0, 0, 2)], "tasks of the job wait for one another in a circle: 1 -> 1"),
    ],
)
def test_edges_that_make_no_sense_are_refused(edges: list[tuple[int, int, int, int]], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        edges_of(edges, None, [(0, 2)])
    assert (refused.value.field, str(refused.value)) == ("edges", message)


@pytest.mark.must("e")
def test_a_long_circle_is_told_in_short() -> None:
    circle = [(task, 0, (task + 1) % 1000, (task + 1) % 1000) for task in range(1000)]
    with pytest.raises(UsageError) as refused:
        edges_of(circle, None, [(0, 999)])
    told = " -> ".join(map(str, range(11)))
    assert str(refused.value).endswith(f"in a circle: {told} -> … -> 0")


@pytest.mark.must("e")
def test_more_edges_than_a_job_may_have_are_refused_before_they_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tercel.core.rules.MAX_EDGES", 2)
    with pytest.raises(UsageError, match="3 edges; at most 2 per job"):
        edges_of([(0, 0, 1, 1)] * 3, None, [(0, 2)])


@pytest.mark.must("e")
def test_a_few_edges_that_stand_for_very_many_are_refused_as_well() -> None:
    with pytest.raises(UsageError, match="tasks need 12,000,000 others, counted one by one"):
        edges_of([(0, 7, 0, 5_999_999), (1, 7, 0, 5_999_999)], None, [(0, 2)])
