"""37 · 37.99 · 37.0-9 · 37.0-9,12 · 1-5 · last · all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.errors import UsageError
from tercel.core.selectors import MAX_ID, MAX_JOBS_IN_RANGE, Selector, parse_selector, parse_tasks, task_name


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("37", Selector(37, 37)),
        (" 37 ", Selector(37, 37)),
        ("1-5", Selector(1, 5)),
        ("37.99", Selector(37, 37, ((99, 99),))),
        ("37.0-9", Selector(37, 37, ((0, 9),))),
        ("37.0-9,12", Selector(37, 37, ((0, 9), (12, 12)))),
        ("37.12,0-9,10,11", Selector(37, 37, ((0, 12),))),
        ("last", Selector(word="last")),
        ("last.0-9,12", Selector(word="last", tasks=((0, 9), (12, 12)))),
        ("all", Selector(word="all")),
    ],
)
def test_what_people_write_is_understood(text: str, selected: Selector) -> None:
    assert parse_selector(text) == selected


@pytest.mark.must("f")
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "-",
        "5-1",
        "1-",
        "1.",
        ".1",
        "1.5-2",
        "1.-",
        "1.2-",
        "1.,",
        "1.2,,3",
        "1.2.3",
        "1-2.3",
        "Last",
        "first",
        "all.0",
        "last.",
        "1 2",
        "1\0",
        "1.2\0",
        "٣",
        "1.٣",
        "1e3",
        "0x1",
        "9" * 17,
        "1." + "9" * 17,
        f"{MAX_ID}-{MAX_ID + 1}",
        f"0-{MAX_JOBS_IN_RANGE}",
        "1" * 100_000,
    ],
)
def test_what_selects_nothing_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_selector(text)
    assert caught.value.field in ("select", "tasks")
    assert len(str(caught.value)) < 300


@settings(max_examples=500)
@given(st.text(max_size=40) | st.text(alphabet="0123456789.,- ", max_size=20))
def test_any_text_is_either_understood_or_refused(text: str) -> None:
    try:
        chosen = parse_selector(text)
    except UsageError:
        return
    assert chosen.word or 0 <= chosen.first <= chosen.last
    assert chosen.tasks is None or all(first <= last for first, last in chosen.tasks)


@given(
    st.integers(0, 10**9),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), min_size=1, max_size=9),
)
def test_ranges_of_tasks_mean_their_members(job: int, parts: list[tuple[int, int]]) -> None:
    text = ",".join(f"{first}-{first + more}" if more else f"{first}" for first, more in parts)
    wanted = {number for first, more in parts for number in range(first, first + more + 1)}
    tasks = parse_tasks(text)
    assert {number for first, last in tasks for number in range(first, last + 1)} == wanted
    assert parse_selector(f"{job}.{text}") == Selector(job, job, tuple(tasks))


def test_a_tasks_name_selects_it() -> None:
    assert parse_selector(task_name(37, 99)) == Selector(37, 37, ((99, 99),))
