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


# -- time -------------------------------------------------------------------------------------------------

ZEROS = f"[{','.join(['0'] * 141)}]"
PATTERN = '!task.name.matches("a$")'
THIRTY = f"[{','.join(['{0}'] * 30)}]"


@pytest.mark.parametrize(
    "text",
    [
        f"{ZEROS}.all(a,{ZEROS}.all(b,{'&&'.join([PATTERN] * 10)}))",
        f"{ZEROS}.all(a,{ZEROS}.all(b,!task.name.matches('a$')))",
        f"{ZEROS}.all(a,{'&&'.join([PATTERN] * 10)})",
        f"{ZEROS}.all(a,{ZEROS}.all(b,{ZEROS}.all(c,a==b)))",
        "[1,2,3,4].all(a,[1,2,3,4].all(b,[1,2,3,4].all(c,[1,2,3,4].all(d,[1,2,3,4].all(e,'a' in worker.tags)))))",
        f"{ZEROS}.all(a,{ZEROS}.all(b,{'||'.join(['true'] * 50)}))",
        f"{ZEROS}.all(a,{ZEROS}.all(b,min({','.join(['a'] * 50)}) == 0))",
        f"{ZEROS}.all(a,{ZEROS}.all(b,size([{','.join(['a'] * 50)}]) == 0))",
        f"{ZEROS}.all(a,{'&&'.join(['worker.name.contains(worker.node)'] * 20)})",
        f"{ZEROS}.all(a,{'&&'.join(['worker.name < worker.node'] * 20)})",
        f"{ZEROS}.all(a,{'&&'.join(['double(worker.name) < 0.1'] * 20)})",
        nested("1", 1, 4, "z3 == z3", THIRTY),
        nested("1", 1, 4, "z3 in [z3]", THIRTY),
        "&&".join(["worker.tags == worker.tags"] * 100),
        "&&".join(["worker.tags.exists(t, t.matches('a'))"] * 3),
        "(worker.tags+worker.tags).exists(t, t.matches('a') || t.matches('b'))",
    ],
)
def test_what_could_take_very_long_is_refused(text: str) -> None:
    assert " could take very long: up to " in refusal(text)


def test_of_several_loops_that_are_too_much_together_the_longest_is_pointed_at() -> None:
    short, long = "worker.tags.exists(t, t == 'a')", "worker.tags.all(t, t.matches('a'))"
    text = f"{short} && {long} && {long} && {long}"
    message, line, carets = refusal(text).splitlines()
    assert message == (
        "--where: this could take very long: up to 380,004 steps; at most 300,000; 120,000 are of this loop"
    )
    assert carets.index("^") == line.index("all(") and carets.count("^") == len("all")


@pytest.mark.parametrize(
    "text",
    [
        "worker.tags.exists(t, t.startsWith('gpu'))",
        "worker.tags.exists(t, t.matches('gpu[0-9]+'))",
        "worker.tags.exists(t, t.matches('gpu[0-9]+')) && worker.tags.exists(t, t.matches('cuda.*'))",
        "worker.tags.exists(t, t.startsWith('gpu') && size(t) > 3 && !t.endsWith('x') && t.contains('7'))",
        "worker.tags.exists(t, t in ['a', 'b', 'gpu7'] || t == 'c' || t == 'd')",
        "['gpu7', 'x'].exists(a, worker.tags.exists(b, a == b)) && ['gpu7', 'cuda1'].all(a, a in worker.tags)",
        "worker.tags != ['a'] && worker.tags == worker.tags",
        f"{ZEROS}.all(a, {ZEROS[:41]}].all(b, a == b))",
        "&&".join(["!('a' in worker.tags)"] * 150),
        "&&".join(["worker.name.matches('w[0-9]+')"] * 120),
    ],
)
def test_what_is_not_much_work_is_evaluated(text: str) -> None:
    assert where(text).evaluate({"worker.name": "w07", "worker.tags": ("cuda1", "gpu7")}) is True
