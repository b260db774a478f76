"""Items: JSON objects as points, and what stands in a command for each of their values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.errors import UsageError
from tercel.core.points import MAX_ITEM_BYTES, CommandTemplate, check_items, item_point, item_values, one_line

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=4)


@given(objects, st.sampled_from([None, 2]))
def test_a_text_stands_for_itself_and_all_else_as_compact_json(point: dict, indent: int | None) -> None:
    values = item_values(json.dumps(point, indent=indent))
    for name, value in point.items():
        if isinstance(value, str):
            assert values[name] == value
        else:
            assert json.loads(values[name]) == value
            assert "\n" not in values[name]


@given(objects, st.sampled_from([None, 2]))
def test_an_item_on_one_line_is_the_same_item(point: dict, indent: int | None) -> None:
    line = one_line(json.dumps(point, indent=indent))
    assert json.loads(line) == point
    assert "\n" not in line
    assert item_point(line) == point


def test_numbers_stand_as_they_were_written() -> None:
    values = item_values('{"a": 0.10, "b": 1e-5, "c": 12345678901234567890123, "d": [1.50, {"e": 2.0}]}')
    assert values == {"a": "0.10", "b": "1e-5", "c": "12345678901234567890123", "d": '[1.50,{"e":2.0}]'}


def test_a_name_of_an_item_may_be_one_that_no_sweep_could_have() -> None:
    template = CommandTemplate(["run", "{learning-rate}", "{größe}", "{task}"], "")
    assert template.command({"learning-rate": "1", "größe": "2", "task": "mine"}, 5)[0] == [
        "run",
        "1",
        "2",
        "mine",
    ]


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("item", "what"),
    [
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"x": 1', "not valid JSON"),
        ('{"x": NaN}', "not valid JSON"),
        ('{"x": "\\ud800"}', "not valid JSON"),
        ('{"x": "\ud800"}', "not valid JSON"),
        ('{"x": ' + "[" * 30_000 + "]" * 30_000 + "}", "not valid JSON"),
        ('{"x": "\\u0000"}', "NUL"),
        ('{"x": "' + "y" * MAX_ITEM_BYTES + '"}', "at most"),
        ('{"y": 1}', r"nothing is called 'x' in items\[1\]"),
    ],
)
def test_what_is_no_item_is_refused_with_its_number(item: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        check_items(["run", "{x}"], "", ['{"x": 1}', item], 127 * 1024)
