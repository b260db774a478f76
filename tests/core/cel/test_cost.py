"""No expression that is accepted takes much memory or time, whatever the workers are."""

import numpy
import pytest

from tercel.core.cel import ExpressionError, Missing, rank, where

pytestmark = pytest.mark.must("d")


def refusal(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        where(text)
    return str(caught.value)


def nested(first: str, joined: int, levels: int, condition: str, each: str = "{}") -> str:
    """Every level joins what the one before it made with itself, again and again."""
    text = condition
    for level in reversed(range(levels)):
        before = f"z{level - 1}" if level else first
        text = f"[{each.format('+'.join([before] * joined))}].exists(z{level},{text})"
    return text


# -- memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        nested("worker.kernel", 60, 5, "size(z4)>0"),
        nested("'abcdefgh'", 90, 3, "size(z2)>0"),
        nested("string(worker.mem)", 20, 5, "size(z4)>0"),
        nested("worker.tags[0]", 40, 4, "size(z3)>0"),
        nested("(worker.load > 1.0 ? 'a' : worker.name)", 40, 3, "size(z2)>0"),
        nested("string('aaaaaaaaaa')", 90, 3, "size(z2)>0"),
    ],
)
def test_text_that_could_become_long_is_refused(text: str) -> None:
    assert "--where: this could make text of up to " in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        nested("['a']", 60, 4, "size(z3)>0"),
        nested("worker.tags", 4, 2, "size(z1)>0"),
        "size(" + "+".join(["worker.tags"] * 7) + ") > 0",
    ],
)
def test_a_list_that_could_become_long_is_refused(text: str) -> None:
    assert "--where: this could make a list of up to " in refusal(text)


def test_the_join_that_makes_too_much_is_pointed_at() -> None:
    text = "size(" + "+".join(["worker.tags"] * 7) + ") > 0"
    assert refusal(text) == (
        "--where: this could make a list of up to 70,000 values; at most 65,536\n"
        f"  {text}\n"
        f"  {' ' * (text.rindex('+'))}^"
    )


@pytest.mark.parametrize(
    "text",
    [
        "worker.name + '/' + worker.node + '/' + worker.site != ''",
        "size(" + "+".join(["worker.name"] * 60) + ") == 180",
        "[worker.name + worker.name].exists(z, size(z + z) == 12)",
        "(worker.tags + ['a'] + ['b']).exists(t, t == 'b')",
    ],
)
def test_what_is_joined_within_the_limits_is_evaluated(text: str) -> None:
    given = {"worker.name": "w07", "worker.node": "n", "worker.site": "s", "worker.tags": ("gpu",)}
    assert where(text).evaluate(given) is True


class Exhausted(dict[str, object]):
    """Stands for a machine that has no more memory, or a stack that is full, just when this is read."""

    def __init__(self, error: type[Exception], given: dict[str, object]) -> None:
        super().__init__(given)
        self.error = error
        self.times = 0

    def __getitem__(self, name: str) -> object:
        self.times += 1
        raise self.error


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_an_evaluation_that_runs_out_of_memory_has_no_value(error: type[Exception]) -> None:
    given = Exhausted(error, {"worker.mem": 1})
    found = where("worker.mem > 1 || worker.mem > 2").evaluate(given)  # type: ignore[arg-type]
    assert found == Missing("", "it takes too much memory")
    assert given.times == 1, "it was tried again, which would only take as much again"


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_over_columns_what_runs_out_of_memory_has_no_value(error: type[Exception]) -> None:
    given = Exhausted(error, {"worker.mem": numpy.array([1, 2, 3])})
    found = rank("worker.mem + 1").over(given)  # type: ignore[arg-type]
    assert found.shape == (3,) and numpy.isnan(found).all()
