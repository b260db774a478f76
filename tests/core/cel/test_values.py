"""What expressions evaluate to, one by one."""

import math
import subprocess
import sys

import numpy
import pytest

from tercel.core.attributes import ATTRIBUTES, BOOL, Of
from tercel.core.cel import ExpressionError, Missing, Value, comparison, rank, where

WORKER: dict[str, Value] = {
    "worker.name": "w07",
    "worker.os": "linux",
    "worker.python": "3.11.7",
    "worker.tags": ("gpu", "Python3.11"),
    "worker.cpus": 8,
    "worker.cpus_free": 3.5,
    "worker.mem": 64 * 2**30,
    "worker.mem_free": 12 * 2**30,
    "worker.load": 0.0,
    "worker.speed": 1.5,
    "worker.gpus": 0,
    "worker.tasks": 3,
    "worker.resource": {"licence.matlab": 2.0, "fpga": 1},
    "worker.cached_bytes": 100,
    "task.owner": "ada",
    "task.id": 7,
}


@pytest.mark.parametrize(
    "text",
    [
        'worker.mem_free >= 8*GB && worker.os == "linux"',
        "worker.mem_free == 12*GiB && 1*TB == 1024*GB && 1*MB == 1024*KB && KiB == 1024",
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 10 - 2 - 3 == 5 && 2 * 3 % 4 == 2",
        "7 / 2 == 3 && -7 / 2 == -3 && 7 % -3 == 1 && -7 % 3 == -1",
        "7 / 2.0 == 3.5 && 1 == 1.0 && 1 < 1.5 && 2 > 1.5",
        "worker.cpus / 2 == 4 && worker.cpus / 3 > 2.6 && 1 / worker.cpus == 0.125",
        "1.0 / 0.0 > 1e308 && -1.0 / 0.0 < 0.0 && 1.0 / -0.0 < 0.0 && 0.0 / 0.0 != 0.0 / 0.0",
        "1 < 2 == true && !false == true && -1 < 0 && - -1 == 1 && !!true",
        "true || false && false",
        "true ? true : false ? false : false",
        "(false ? 1 : 2) == 2 && (true ? 1 : 2.5) == 1",
        "'a' < 'b' && 'ab' + 'c' == \"abc\" && '' < 'a' && false < true",
        r"'\x41\u0042\U00000043\104\n\"' == " + "'ABCD\\n\"'",
        r"""r'\d' == '\\d' && R'\' == '\\' && '''a'b''' == "a'b" """,
        "'''a\nb''' == 'a\\nb'",
        "0x1F == 31 && 1e3 == 1000.0 && .5 == 0.5 && 1.5e-1 == 0.15",
        "1 == 1 // a comment\n && true",
        "'gpu' in worker.tags && !('x' in worker.tags) && worker.tags[0] == 'gpu' && size(worker.tags) == 2",
        "worker.tags.exists(t, t.startsWith('gp')) && worker.tags.all(t, size(t) > 2)",
        "['gpu', 'x'].exists(a, worker.tags.exists(b, a == b)) && [1, 2].all(a, [3].all(b, a < b))",
        "worker.tags == ['gpu', 'Python3.11'] && worker.tags != [] && worker.tags + ['a'] != worker.tags",
        "[1, 2] == [1.0, 2.0] && [[1], []] == [[1.0], []] && 1.0 in [1, 2] && !(1 in []) && [1, 2][1] == 2",
        "!([0.0/0.0] == [0.0/0.0]) && !(0.0/0.0 in [0.0/0.0]) && [true] == [true] && null == null",
        "worker.resource['licence.matlab'] >= 2 && worker.resource.fpga == 1 && size(worker.resource) == 2",
        "'fpga' in worker.resource && has(worker.resource.fpga) && !has(worker.resource.x)",
        "has(worker.mem) && !has(worker.gpu.mem) && !has(worker.time_left)",
        "!has(worker.gpu.mem) || worker.gpu.mem > 1",
        "worker.python.startsWith('3.11') && worker.python != '3.9' && worker.python == '3.11.7'",
        "worker.name.startsWith('w') && worker.name.endsWith('7') && worker.name.contains('0')",
        "worker.name.matches('^w[0-9]+$') && matches(worker.name, '0') && !worker.name.matches('^0')",
        "size('äö') == 2 && 'äö'.size() == 2 && worker.tags.size() == 2",
        "min(3, 1, 2) == 1 && max(1, 2.5) == 2.5 && min(1) == 1 && abs(-3) == 3 && abs(-1.5) == 1.5",
        "int(2.9) == 2 && int(-2.9) == -2 && int('-12') == -12 && int(5) == 5",
        "double('1e3') == 1000 && double(1) / 2 == 0.5 && double(1.5) == 1.5",
        "string(1) == '1' && string(1.5) == '1.5' && string(2.0) == '2' && string(true) == 'true' && string('a') == 'a'",
        "-9223372036854775808 < 0 && 9223372036854775807 > 0",
        "9007199254740993 != 9007199254740992.0",
        "task.owner == 'ada'",
    ],
)
def test_these_are_true(text: str) -> None:
    assert where(text).evaluate(WORKER) is True


@pytest.mark.parametrize(
    "text",
    [
        "false && 1/0 == 1",
        "1/0 == 1 && false",
        "worker.gpu.mem > 1 && false",
        "worker.gpu.mem > 1 && worker.mem > 1 && worker.os == 'x'",
        "!(worker.gpu.mem > 1 || true)",
        "!(true || worker.gpu.mem > 1)",
        "[0, 1].all(a, 1/a == 1 && a == 2)",
        "![0, 1].exists(a, 1/a == 1)",
        "false ? 1/0 == 1 : false",
        "worker.os == 'LINUX'",
    ],
)
def test_these_are_false_whatever_else_is_missing(text: str) -> None:
    assert where(text).evaluate(WORKER) is False


@pytest.mark.parametrize(
    ("text", "attribute", "reason"),
    [
        ("worker.gpu.mem >= 40*GB", "worker.gpu.mem", "no value"),
        ("worker.os == 'linux' && worker.gpu.mem >= 40*GB", "worker.gpu.mem", "no value"),
        ("worker.gpu.mem >= 40*GB && worker.time_left > 1", "worker.gpu.mem", "no value"),
        ("worker.gpu.mem > 1 || false", "worker.gpu.mem", "no value"),
        ("worker.gpu.mem > 1 ? true : true", "worker.gpu.mem", "no value"),
        ("worker.resource['x'] > 1", "worker.resource", "no such key: x"),
        ("worker.resource.worker > 1", "worker.resource", "no such key: worker"),
        ("worker.tags[2] == 'a'", "worker.tags", "no such place in the list: 2"),
        ("worker.tags[-1] == 'a'", "worker.tags", "no such place in the list: -1"),
        ("1 / worker.gpus > 0", "", "division by zero"),
        ("1 % 0 > 0", "", "division by zero"),
        ("9223372036854775807 + 1 > 0", "", "integer overflow"),
        ("-9223372036854775808 - 1 < 0", "", "integer overflow"),
        ("-(-9223372036854775808) > 0", "", "integer overflow"),
        ("-9223372036854775808 / -1 > 0", "", "integer overflow"),
        ("abs(-9223372036854775808) > 0", "", "integer overflow"),
        ("worker.mem * worker.mem > 0", "", "integer overflow"),
        ("int(1e19) > 0", "", "integer overflow"),
        ("int(0.0/0.0) > 0", "", "NaN"),
        ("int('1.5') > 0", "", "not a whole number: '1.5'"),
        ("int('٣') > 0", "", "not a whole number: '٣'"),
        ("double('1_0') > 0", "", "not a number: '1_0'"),
        ("[1, 0].all(a, 1/a == 1)", "", "division by zero"),
    ],
)
def test_these_have_no_value(text: str, attribute: str, reason: str) -> None:
    found = where(text).evaluate(WORKER)
    assert found == Missing(attribute, reason)
    assert not found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("worker.cached_bytes + 10*worker.speed", 115.0),
        ("worker.cached_bytes", 100),
        ("-worker.load", 0.0),
        ("worker.tasks / 2", 1),
        ("1.0 / worker.load", Missing("", "infinite")),
        ("-1.0 / worker.load", Missing("", "infinite")),
        ("worker.load / worker.load", Missing("", "NaN")),
        ("double('nan')", Missing("", "NaN")),
        ("max(1.0, worker.load / worker.load)", Missing("", "NaN")),
        ("1e308 * 10", Missing("", "infinite")),
        ("has(worker.gpu.mem) ? worker.gpu.mem : 0", 0),
        ("worker.gpu.mem", Missing("worker.gpu.mem", "no value")),
        ("task.id % 4", 3),
    ],
)
def test_a_rank_is_a_finite_number(text: str, value: object) -> None:
    assert rank(text).evaluate(WORKER) == value


@pytest.mark.parametrize("wrong", ["much", (), None, {}, 10**400])
def test_a_value_of_the_wrong_kind_is_no_value(wrong: Value) -> None:
    """Whatever a worker says of itself: the manager goes on."""
    lying = dict.fromkeys(ATTRIBUTES, wrong)
    for text in [
        "worker.mem > 1",
        "worker.load * 2.0 > 1",
        "worker.name.contains('a')",
        "worker.tags[0] == ''",
    ]:
        found = where(f"{text} && true").evaluate(lying)
        assert isinstance(found, bool | Missing)
    assert where("worker.mem > 1 || true").evaluate(lying) is True
    assert isinstance(rank("worker.speed * 1.5").evaluate(lying), Missing)


# -- what is known about an expression --------------------------------------------------------------------


def test_an_expression_knows_what_it_reads() -> None:
    expression = where(
        "worker.os == 'linux' && has(worker.gpu.mem) && 'a' in worker.resource && worker.resource.b > worker.resource['c']"
    )
    assert expression.attributes == {"worker.os", "worker.gpu.mem", "worker.resource"}
    assert expression.keys == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "live", "pair", "per_task"),
    [
        ("worker.speed + task.mem", False, False, False),
        ("worker.mem_free", True, False, False),
        ("worker.cached_bytes", False, True, False),
        ("task.id / (worker.load + 1)", True, False, True),
        ("[1].exists(worker_mem, worker_mem == 1) ? 1 : 2", False, False, False),
    ],
)
def test_an_expression_knows_how_long_its_value_holds(
    text: str, live: bool, pair: bool, per_task: bool
) -> None:
    expression = rank(text)
    assert (expression.live, expression.pair, expression.per_task) == (live, pair, per_task)


def test_the_clauses_are_what_stands_between_the_outermost_ands() -> None:
    expression = where(
        "worker.gpu.mem >= 40*GB && (worker.os == 'a' || true) && (worker.load < 1.0 && !false)"
    )
    assert [clause.text for clause in expression.clauses] == [
        "worker.gpu.mem >= 40*GB",
        "(worker.os == 'a' || true)",
        "worker.load < 1.0",
        "!false",
    ]
    alone = where("worker.os == 'a' || true && false")
    assert alone.clauses == (alone,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker.gpu.mem >= 40*GB", ("worker.gpu.mem", ">=", 42949672960)),
        ("40*GB <= worker.gpu.mem", ("worker.gpu.mem", ">=", 42949672960)),
        ("1.5 > worker.load", ("worker.load", "<", 1.5)),
        ("'linux' == worker.os", ("worker.os", "==", "linux")),
        ("worker.os != 'lin' + 'ux'", ("worker.os", "!=", "linux")),
        ("worker.tasks < (true ? 5 : 6)", ("worker.tasks", "<", 5)),
        ("worker.mem >= worker.mem_free", None),
        ("worker.mem + 1 >= 5", None),
        ("worker.mem >= 1/0", None),
        ("'gpu' in worker.tags", None),
        ("1 < 2", None),
        ("true", None),
    ],
)
def test_a_comparison_of_an_attribute_with_a_constant_is_recognised(text: str, expected: object) -> None:
    assert comparison(where(text)) == expected


def test_expressions_with_the_same_text_are_the_same() -> None:
    assert where("worker.mem > 1") is where("worker.mem > 1")
    assert where("worker.mem > 1", "only") == where("worker.mem > 1")
    assert hash(where("worker.mem > 1", "only")) == hash(where("worker.mem > 1"))
    assert where("worker.mem > 1") != where("worker.mem > 2")
    assert repr(where("true")) == "Expression('true')"


def test_every_attribute_can_be_asked_about() -> None:
    for name, attribute in ATTRIBUTES.items():
        assert attribute.name == name and attribute.doc
        assert rank(f"has({name}) ? 1 : 0").attributes == {name}
        if attribute.of in (Of.PAIR, Of.TASK):
            with pytest.raises(ExpressionError, match="asked once per job"):
                where(f"has({name})")
        else:
            assert where(f"has({name})").tree.type == BOOL


# -- over columns -----------------------------------------------------------------------------------------


def test_what_is_one_value_is_the_same_for_all() -> None:
    expression = rank("task.owner == 'ada' ? worker.cached_bytes * worker.speed : double(size(task.name))")
    assert expression.vectorisable
    columns = {"worker.cached_bytes": numpy.array([1, 2]), "worker.speed": 1.5, "task.name": "abc"}
    assert expression.over(columns | {"task.owner": "ada"}).tolist() == [1.5, 3.0]
    assert expression.over(columns | {"task.owner": "bob"}).tolist() == [3.0, 3.0]
    assert numpy.isnan(expression.over(columns)).all()


def test_columns_may_be_of_any_shape_that_fits() -> None:
    columns = {"worker.cached_bytes": numpy.array([[1], [2], [3]]), "worker.speed": numpy.array([10.0, 20.0])}
    found = rank("worker.cached_bytes + worker.speed").over(columns)
    assert found.tolist() == [[11.0, 21.0], [12.0, 22.0], [13.0, 23.0]]
    assert rank("1").over(columns).shape == (3, 2)
    assert rank("1").over({}).shape == ()


def test_a_condition_over_columns_is_one_or_zero() -> None:
    columns = {"worker.mem": numpy.array([1, 5, 9]), "worker.load": numpy.array([0.0, math.nan, math.nan])}
    found = where("worker.mem > 3 && worker.load < 1.0").over(columns)
    assert found[0] == 0.0 and numpy.isnan(found[1:]).all()
    assert where("worker.mem < 9").over(columns).tolist() == [1.0, 1.0, 0.0]


def test_a_map_is_given_as_a_map_of_columns() -> None:
    columns = {"worker.resource": {"fpga": numpy.array([1.0, math.nan])}}
    assert where("'fpga' in worker.resource").over(columns).tolist() == [1.0, 0.0]
    assert rank("has(worker.resource.fpga) ? worker.resource.fpga : 7").over(columns).tolist() == [1.0, 7.0]
    assert where("has(worker.resource.x)").over(columns).tolist() == [0.0, 0.0]
    assert numpy.isnan(rank("worker.resource.x").over(columns)).all()
    assert numpy.isnan(where("has(worker.resource.x)").over({}))


@pytest.mark.parametrize(
    "text",
    ["worker.os == 'linux'", "'a' in worker.tags", "worker.resource[worker.os] > 1", "has(worker.gpu.model)"],
)
def test_columns_are_of_numbers_only(text: str) -> None:
    expression = where(text)
    assert not expression.vectorisable
    words = numpy.array(["linux", "a"])
    columns = dict.fromkeys(expression.attributes, words)
    with pytest.raises(TypeError):
        expression.over(columns)


def test_numbers_given_as_text_are_refused_over_columns() -> None:
    with pytest.raises(TypeError, match=r"worker\.mem must be numbers"):
        where("worker.mem > 1").over({"worker.mem": numpy.array(["a"])})
    with pytest.raises(TypeError, match="must be a map of columns"):
        where("worker.resource.x > 1").over({"worker.resource": numpy.array([1.0])})


def test_numpy_is_not_loaded_until_it_is_needed() -> None:
    program = (
        "import sys; from tercel.core.cel import where; where('worker.mem > 1').evaluate({});"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
