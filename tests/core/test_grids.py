"""Grids: what people write for values, and every point of a sweep in its order, made when it is needed."""

import itertools
import sys
from collections.abc import Sequence
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.errors import UsageError
from tercel.core.grids import MAX_VALUES_BYTES, Axis, Grid, Rule, Span, check_grid
from tercel.core.gridtext import Outside, natural, parse_axis, parse_grid_file
from tercel.core.model import MAX_TASKS
from tercel.core.points import CommandTemplate, as_json, check_sweep

FILES = {"seeds.txt": ["1", "22", "a b"], "empty.txt": []}
NAMES = {"data/*.csv": ["data/b.csv", "data/a10.csv", "data/a9.csv"], "a[*]?": ["a*b"]}
OUTSIDE = Outside(FILES.__getitem__, lambda pattern: NAMES.get(pattern, []))


def values(text: str) -> list[str]:
    axis = parse_axis(text, OUTSIDE)
    check_grid(Grid(axes=(axis,)), MAX_TASKS)
    return [axis.value(index) for index in range(axis.count)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C=0.001,0.01,1", ["0.001", "0.01", "1"]),
        ("C=a", ["a"]),
        ("C=1.50", ["1.50"]),
        ("C= a, b", [" a", " b"]),
        (r"C=a\,b,c\:d,\@e,f\*,g\?,h\\,i\j", ["a,b", "c:d", "@e", "f*", "g?", "h\\", r"i\j"]),
        (r"C=\\,\\", ["\\", "\\"]),
        ("C=a:b,http://x", ["a:b", "http://x"]),
        ("g=0:1:0.25", ["0", "0.25", "0.5", "0.75", "1"]),
        ("g=0:1:0.1", ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]),
        ("g=0:1:0.4", ["0", "0.4", "0.8"]),
        ("n=1:4", ["1", "2", "3", "4"]),
        ("n=3:1", ["3", "2", "1"]),
        ("n=5:5", ["5"]),
        ("n=5:0:-2", ["5", "3", "1"]),
        ("n=-1:1:0.5", ["-1", "-0.5", "0", "0.5", "1"]),
        ("n=+1:2.:.5", ["1", "1.5", "2"]),
        ("n=1e-3:3e-3:1E-3", ["0.001", "0.002", "0.003"]),
        ("C=0.001:100:x10", ["0.001", "0.01", "0.1", "1", "10", "100"]),
        ("C=1:10:x2", ["1", "2", "4", "8"]),
        ("C=8:1:x0.5", ["8", "4", "2", "1"]),
        ("C=-1:-100:x10", ["-1", "-10", "-100"]),
        ("C=3:3:x10", ["3"]),
        ("C=0.001:100:log6", ["0.001", "0.01", "0.1", "1", "10", "100"]),
        ("C=1:2:log3", ["1", "1.4142135623731", "2"]),
        ("C=7:7:log1", ["7"]),
        ("x=0:1:lin5", ["0", "0.25", "0.5", "0.75", "1"]),
        ("x=0:1:lin4", ["0", "0.333333333333333", "0.666666666666667", "1"]),
        ("x=1:-1:lin3", ["1", "0", "-1"]),
        ("x=a,1:3,b", ["a", "1", "2", "3", "b"]),
        ("seed=@seeds.txt", ["1", "22", "a b"]),
        ("seed=0,@seeds.txt", ["0", "1", "22", "a b"]),
        ("f=data/*.csv", ["data/a9.csv", "data/a10.csv", "data/b.csv"]),
        (r"f=a\*?", ["a*b"]),
        ("x=1e20:3e20:1e20", ["100000000000000000000", "200000000000000000000", "300000000000000000000"]),
        ("x=1e-30:1e-29:x10", ["1e-30", "1e-29"]),
    ],
)
def test_values_are_read_as_people_mean_them(text: str, expected: list[str]) -> None:
    assert values(text) == expected


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("C", "not NAME=VALUES"),
        ("=1", "no name"),
        ("C=", "no values"),
        ("C=1,,2", "empty value"),
        ("C=1,", "empty value"),
        ("a-b=1", "not a name"),
        ("1a=1", "not a name"),
        ("task=1", "the task's number"),
        ("g=0:1:0", "leads nowhere"),
        ("g=0:1:-1", "does not lead"),
        ("g=1:0:0.5", "does not lead"),
        ("g=nan:1", "cannot begin at nan"),
        ("g=-inf:1", "cannot begin at -inf"),
        ("g=0:nan", "not a range"),
        ("g=0:1:nan", "not a number"),
        ("g=1:2:3:4", "not a range"),
        ("g=12:30pm", "not a range"),
        ("g=1:10:x1", "not by 1"),
        ("g=1:10:x-2", "more than 0"),
        ("g=0:10:x2", "same sign"),
        ("g=10:1:x2", "does not lead"),
        ("g=1:10:x", "after x"),
        ("g=0:1:log3", "same sign"),
        ("g=1:2:log0", "how many"),
        ("g=1:2:logx", "how many"),
        ("g=1:2:lin1", "both ends"),
        ("g=0:1e30", "more than"),
        ("g=1:1e90:x1.0000000000000000001", "more than"),
        ("g=0:1e9,5", "must stand alone"),
        ("s=@empty.txt", "no values"),
        ("f=nothing*", "no file fits"),
        ("f=a\0b", "NUL"),
        ("f=\ud800", "is no text"),
        ("f=" + "x" * 70_000, "bytes long"),
        ("n=1:1000000000", "1,000,000,000 points"),
    ],
)
def test_what_gives_no_values_is_refused(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        values(text)


def grid(*texts: str, zipped: bool = False) -> Grid:
    return Grid(axes=tuple(parse_axis(text, OUTSIDE) for text in texts), zipped=zipped)


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (Grid(axes=()), "at least one name"),
        (Grid(axes=tuple(Axis(name=f"a{n}", values=("1",)) for n in range(101))), "at most 100"),
        (grid("a=1", "a=2"), "a is given 2 times"),
        (grid("a=1,2", "b=1:3", zipped=True), "a has 2, b has 3"),
        (grid("a=1:1000000", "b=1:1000000", "c=1:1000"), r"1,000,000,000,000,000 points"),
        (Grid(axes=(Axis(name="a"),)), "a has no values"),
        (Grid(axes=(msgspec.structs.replace(parse_axis("a=1:2", OUTSIDE), values=("1",)),)), "both"),
        (
            Grid(axes=(Axis(name="a", span=Span(rule=Rule.PLUS, start="NaN", by="1", count=3)),)),
            "not a number",
        ),
        (Grid(axes=(Axis(name="a", span=Span(rule=Rule.PLUS, start="1", by="1", count=0)),)), "has 0 values"),
        (Grid(axes=(Axis(name="a", span=Span(rule=Rule.TIMES, start="1", by="2", count=10**8)),)), "beyond"),
        (Grid(axes=(Axis(name="a", span=Span(rule=Rule.LOG, start="0", by="2", count=2)),)), "same sign"),
    ],
)
def test_what_is_no_sweep_is_refused(wrong: Grid, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        check_grid(wrong, MAX_TASKS)


def test_listed_values_beyond_four_mebibytes_are_refused_with_a_way_out() -> None:
    fits = ("x" * 1016,) * (MAX_VALUES_BYTES // 1024)
    check_grid(Grid(axes=(Axis(name="a", values=fits),)), MAX_TASKS)
    with pytest.raises(UsageError, match="--from-json"):
        check_grid(Grid(axes=(Axis(name="a", values=(*fits, "")),)), MAX_TASKS)
    with pytest.raises(UsageError, match="--from-json"):
        parse_axis("a=" + ",".join(["1:400000"] * 50), OUTSIDE)


# -- points ------------------------------------------------------------------------------------------------

names = st.lists(st.from_regex("[a-z]{1,3}", fullmatch=True), min_size=1, max_size=4, unique=True)
spans = st.builds(
    lambda start, step, count: (start, step, count),
    st.decimals(-1000, 1000, places=3),
    st.decimals(-5, 5, places=2).filter(bool),
    st.integers(1, 6),
)


def axis_of(name: str, source: Sequence[str] | tuple[Decimal, Decimal, int]) -> tuple[Axis, list[str]]:
    """An axis, and its values reckoned out."""
    if isinstance(source, list):
        return Axis(name=name, values=tuple(source)), source
    start, step, count = source
    span = Span(rule=Rule.PLUS, start=format(start, "f"), by=format(step, "f"), count=count)
    reckoned = [Decimal(start) + step * index for index in range(count)]
    return Axis(name=name, span=span), [_plain(number) for number in reckoned]


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in {"-0", ""} else text


@pytest.mark.must("a")
@given(st.data(), names)
def test_lazy_expansion_is_the_product(data: st.DataObject, names: list[str]) -> None:
    sources = [data.draw(st.lists(st.text(max_size=3), min_size=1, max_size=4) | spans) for _ in names]
    built = [axis_of(name, source) for name, source in zip(names, sources, strict=True)]
    made = Grid(axes=tuple(axis for axis, _ in built))
    naive = [dict(zip(names, row, strict=True)) for row in itertools.product(*(texts for _, texts in built))]
    assert [made.point(number) for number in range(made.count)] == naive


@pytest.mark.must("a")
@given(st.data(), names, st.integers(1, 6))
def test_lazy_expansion_of_zipped_values_is_zip(data: st.DataObject, names: list[str], count: int) -> None:
    lists = [data.draw(st.lists(st.text(max_size=3), min_size=count, max_size=count)) for _ in names]
    made = Grid(
        axes=tuple(Axis(name=name, values=tuple(each)) for name, each in zip(names, lists, strict=True)),
        zipped=True,
    )
    naive = [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
    assert [made.point(number) for number in range(made.count)] == naive


@given(st.decimals(-100, 100, places=4), st.decimals(-100, 100, places=4), st.decimals("0.0001", 7, places=4))
def test_a_range_goes_from_end_to_end_in_exact_steps(start: Decimal, end: Decimal, size: Decimal) -> None:
    step = size if end >= start else -size
    found = [Decimal(text) for text in _first(parse_axis(f"x={start}:{end}:{step}", OUTSIDE), 50)]
    naive = []
    at = start
    while (at <= end if step > 0 else at >= end) and len(naive) < 50:
        naive.append(at)
        at += step
    assert found == naive


def _first(axis: Axis, most: int) -> list[str]:
    return [axis.value(index) for index in range(min(axis.count, most))]


@given(st.integers(1, 400), st.integers(2, 9), st.integers(1, 12))
def test_multiplying_is_exact_and_stops_in_time(start: int, factor: int, steps: int) -> None:
    end = start * factor**steps
    assert values(f"x={start}:{end}:x{factor}") == [str(start * factor**n) for n in range(steps + 1)]
    assert len(values(f"x={start}:{end - 1}:x{factor}")) == steps


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 50))
def test_log_spacing_has_both_ends_and_one_ratio(a: float, b: float, count: int) -> None:
    start, end = Decimal(a).quantize(Decimal("1e-7")), Decimal(b).quantize(Decimal("1e-7"))
    found = [float(text) for text in values(f"x={start}:{end}:log{count}")]
    assert (found[0], found[-1], len(found)) == (float(start), float(end), count)
    ratio = (float(end) / float(start)) ** (1 / (count - 1))
    for before, after in itertools.pairwise(found):
        assert after / before == pytest.approx(ratio, rel=1e-9)


def test_ten_million_points_take_no_room() -> None:
    made = grid("a=1:10000", "b=0:1:0.001001")
    assert made.count == 10_000 * 1000
    assert made.point(9_999_999) == {"a": "10000", "b": "0.999999"}
    assert len(msgspec.msgpack.encode(made)) < 200
    assert sum(map(sys.getsizeof, (made, *made.axes))) < 1000


def test_a_grid_survives_its_journey() -> None:
    made = grid("a=1:3", "b=x,y", "c=1:100:log3")
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(made), type=Grid) == made
    assert str(made) == "a (3) x b (2) x c (3)"


def test_numbers_of_a_rule_are_checked_as_they_come_in() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"rule": "plus", "start": "1e9999999", "by": "1", "count": 5}', type=Span)


def test_names_sort_as_people_count() -> None:
    assert sorted(["a10", "a9", "b", "10", "9", "a"], key=natural) == ["9", "10", "a", "a9", "a10", "b"]


@pytest.mark.must("e")
def test_a_point_that_no_program_could_be_started_with_is_refused() -> None:
    big = Grid(axes=tuple(Axis(name=name, values=("'" * 60_000, "1")) for name in "abc"))
    with pytest.raises(UsageError, match="the command of a point may be"):
        check_sweep([], "run {a}", big, 127 * 1024)
    with pytest.raises(UsageError, match="a point may be"):
        check_sweep(["run"], "", big, 127 * 1024)
    check_sweep(["run", "{a}"], "", Grid(axes=big.axes[:1]), 127 * 1024)


# -- Beanstalks' files -------------------------------------------------------------------------------------

PAPER = """\
svm -train -kernel rbf -C [1] -gamma [2]
[1] 0.001, 0.01, 0.1, 1, 10, 100
[2] 0 0.25 0.5 0.75 1
"""


@pytest.mark.B(9)
@pytest.mark.must("a")
def test_the_papers_grid_search_yields_its_thirty_commands() -> None:
    template, made = parse_grid_file(PAPER, "grid.txt")
    commands = [
        CommandTemplate([], template).command(made.point(task), task)[1] for task in range(made.count)
    ]
    assert commands == [
        f"svm -train -kernel rbf -C {C} -gamma {gamma}"
        for C in ("0.001", "0.01", "0.1", "1", "10", "100")
        for gamma in ("0", "0.25", "0.5", "0.75", "1")
    ]
    assert len(commands) == 30
    assert as_json(made.point(7)) == '{"1":"0.01","2":"0.5"}'


@pytest.mark.B(9)
def test_a_grid_file_may_have_comments_blank_lines_and_braces() -> None:
    template, made = parse_grid_file(
        "# a sweep\n\n  awk '{print [1]}' [ -f x ]\r\n\n# values\n[1]1 ,2,\t3\n", "g"
    )
    assert template == "awk '{{print {1}}}' [ -f x ]"
    assert made.axes == (Axis(name="1", values=("1", "2", "3")),)


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "g has no command"),
        ("# only\n", "g has no command"),
        ("svm [1]\n", "g has no values"),
        ("[1] 1 2\nsvm [1]\n", "g:1: the command comes first"),
        ("svm [1]\n\n0.1 0.2\n", "g:3: '0.1 0.2' does not say"),
        ("svm [1]\n[1] ,\n", r"g:2: \[1\] has no values"),
        ("svm [1]\n[1] 1\n[1] 2\n", r"g:3: \[1\] is given a second time"),
        ("# c\nsvm [1] [2]\n[1] 1\n", "g:2: .*nothing is called '2' in this file"),
        ("svm $([1])\n[1] 1\n", "g:1: .*quoting"),
    ],
)
def test_what_is_no_grid_file_is_refused_with_its_line(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        parse_grid_file(text, "g")
