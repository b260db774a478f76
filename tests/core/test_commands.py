"""What people type: arrays, sizes, times, shell lines, and the limits of a submission."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core import commands
from tercel.core.commands import check_spec, parse_array, parse_size, parse_time, plain_argv
from tercel.core.errors import UsageError
from tercel.core.model import MAX_PRIORITY, MAX_TASKS, Call, Function, JobSpec

# -- arrays ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ranges", "limit"),
    [
        ("5", [(5, 5)], 0),
        ("0-99", [(0, 99)], 0),
        ("0-99%10", [(0, 99)], 10),
        ("0-9:5", [(0, 0), (5, 5)], 0),
        ("0-8:4%2", [(0, 0), (4, 4), (8, 8)], 2),
        ("9,1,2,0", [(0, 2), (9, 9)], 0),
        ("0-4,3-9", [(0, 9)], 0),
        (" 1 , 3 ", [(1, 1), (3, 3)], 0),
        ("0-99:1", [(0, 99)], 0),
        ("7-7:3", [(7, 7)], 0),
        ("0-99999999", [(0, 99_999_999)], 0),
    ],
)
def test_arrays_are_read_as_by_sbatch(text: str, ranges: list[tuple[int, int]], limit: int) -> None:
    assert parse_array(text) == (ranges, limit)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=6),
    st.integers(0, 9),
)
def test_an_array_means_the_union_of_its_parts(parts: list[tuple[int, int, int]], limit: int) -> None:
    text = ",".join(f"{first}-{first + more}:{step}" for first, more, step in parts)
    wanted = {number for first, more, step in parts for number in range(first, first + more + 1, step)}
    ranges, most = parse_array(f"{text}%{limit}" if limit else text)
    assert [n for first, last in ranges for n in range(first, last + 1)] == sorted(wanted)
    assert most == limit


@pytest.mark.must("f")
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "1,",
        "a",
        "-5",
        "5-",
        "5-1",
        "1.5",
        "1-2-3",
        "0-9:0",
        "0-9:-1",
        "0-9:",
        "5:2",
        "0-9%",
        "0-9%0",
        "0-9%-1",
        "0-9%x",
        "0-9%1,11",
        "0-9%%2",
        "0-9%" + "9" * 5000,
        "٠-٩",
        "0-9%٣",
        "0-2147483648",
        "9" * 5000,
        "0-999999999999",  # a template of 10^12 tasks
        "0-999999999999:7",
        f"0-{MAX_TASKS}",
        "0-2000000000:2",
        "0-199999:2,200000-399998:2",
        "0-999999:2",
        "0\0",
    ],
)
def test_a_bad_array_is_refused_with_the_field_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_array(text)
    assert caught.value.field == "array"
    assert len(str(caught.value)) < 400


def test_an_array_written_backwards_is_not_slower_than_one_written_forwards() -> None:
    """Both are sorted first; inserting at the front, one by one, took minutes for a submission of a few MB."""
    count = 100_000
    backwards = ",".join(str(number) for number in range(2 * count, 0, -2))
    ranges, _ = parse_array(backwards)
    assert len(ranges) == count
    assert ranges[0] == (2, 2)


@settings(max_examples=400)
@given(st.text(alphabet="0123456789-:,% ", max_size=14) | st.text(max_size=12))
def test_any_array_text_is_either_understood_or_refused(text: str) -> None:
    try:
        ranges, limit = parse_array(text)
    except UsageError as error:
        assert error.field == "array"
        return
    assert ranges
    assert limit >= 0


# -- sizes and times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500M", 500 * 2**20),
        ("2G", 2 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("64 kb", 64 * 2**10),
        ("10", 10 * 2**20),
        ("10B", 10),
        ("0", 0),
        ("1T", 2**40),
        ("0.5P", 2**49),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text, "mem") == size


@pytest.mark.must("f")
@pytest.mark.parametrize(
    "text", ["", "x", "-1G", "1X", "1 G B", "G", "1e3", "1.", ".5G", "٣G", "9" * 400 + "G", "1G\0", "1,5G"]
)
def test_a_bad_size_is_refused_with_the_field_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text, "mem")
    assert caught.value.field == "mem"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("10", 600),
        ("1:30", 90),
        ("01:30:00", 5400),
        ("2-12:00:00", 216_000),
        ("1-00:30", 88_200),
        (" 1H ", 3600),
    ],
)
def test_times_are_read_as_by_sbatch(text: str, seconds: float) -> None:
    assert parse_time(text, "time") == seconds


@pytest.mark.must("f")
@pytest.mark.parametrize(
    "text", ["", "x", "-5", "5x", "1h30", "1:2:3:4", "1-", "1:", ":30", "1:123", "٣s", "1h\0"]
)
def test_a_bad_time_is_refused_with_the_field_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_time(text, "time")
    assert caught.value.field == "time"


@given(st.text(max_size=20) | st.text(alphabet="0123456789.:-smhdKMGTPiB ", max_size=20))
def test_any_size_or_time_is_either_understood_or_refused(text: str) -> None:
    for parse in (parse_size, parse_time):
        try:
            assert parse(text, "field") >= 0
        except UsageError as error:
            assert error.field == "field"


@pytest.mark.must("f")
def test_an_absurd_time_is_read_and_then_refused_by_the_check() -> None:
    limit = parse_time("9" * 400 + "h", "time")
    with pytest.raises(UsageError) as caught:
        check_spec(JobSpec(argv=("x",), time_limit_s=limit), None)
    assert caught.value.field == "time_limit_s"


# -- lines that need no shell ------------------------------------------------------------------------------

SHELLS = [shell for shell in ("sh", "bash") if shutil.which(shell)]
PIECE = (
    st.sampled_from(
        ["a", "b1", "x=1", "--o=v", "-n", ".", ":", "%", "@", "+", "1,2", "if", "time", "'", '"', "''"]
    )
    | st.sampled_from(
        [" ", "  ", "\t", "'a b'", '"c d"', "'\"'", "a'b c'd", "$x", "*", "~", "#", "\\", ";", "|", "&"]
    )
    | st.sampled_from(
        ["{a,b}", "[a]", "?", "!", "(x)", "<f", ">f", "`x`", "é", "\n", "\r", "\x0b", "\xa0", "a+=b"]
    )
    | st.text(alphabet="abz09_./:,@%+=-", min_size=1, max_size=6)
)


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints its arguments, each followed by a NUL."""
    path = tmp_path_factory.mktemp("bin") / "show"
    path.write_text(
        f"#!{sys.executable} -IS\nimport os, sys\nos.write(1, ''.join(a + chr(0) for a in sys.argv[1:]).encode())\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("shell", SHELLS)
def test_a_line_started_without_a_shell_means_what_the_shell_would_make_of_it(shell: str, show: Path) -> None:
    """A few hundred lines, all shown to one real shell at once."""
    lines: list[str] = []

    @settings(max_examples=400, derandomize=True, deadline=None)
    @given(st.lists(PIECE, max_size=8).map("".join))
    def collect(rest: str) -> None:
        line = f"./show {rest}"
        if plain_argv(line) is not None:
            lines.append(line)

    collect()
    assert len(set(lines)) > 50, "some lines are plain"
    script = "\n".join(f"{line}\nprintf '\\001'" for line in lines)
    done = subprocess.run([shell, "-c", script], cwd=show.parent, capture_output=True, check=True)
    told = done.stdout.decode().split("\x01")[:-1]
    assert len(told) == len(lines)
    for line, words in zip(lines, told, strict=True):
        assert plain_argv(line) == ["./show", *words.split("\0")[:-1]], line


@pytest.mark.parametrize("shell", SHELLS)
@given(words=st.lists(st.text(alphabet="ab '\"=,%", max_size=5), max_size=5))
@settings(max_examples=60, deadline=None)
def test_quoted_words_come_through_unchanged(shell: str, show: Path, words: list[str]) -> None:
    line = shlex.join(["./show", *words])
    done = subprocess.run([shell, "-c", line], cwd=show.parent, capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words
    assert plain_argv(line) in (None, ["./show", *words])


DASH_BUILTINS = (
    ". : [ alias bg break cd chdir command continue echo eval exec exit export false fg getopts hash jobs kill local "
    "printf pwd read readonly return set shift test times trap true type ulimit umask unalias unset wait"
).split()
RESERVED = "! { } case do done elif else esac fi for if in then until while".split()


def test_no_word_that_only_a_shell_knows_is_started_directly() -> None:
    words = {*DASH_BUILTINS, *RESERVED}
    if shutil.which("bash"):
        listed = subprocess.run(
            ["bash", "-c", "compgen -b; compgen -k"], capture_output=True, text=True, check=True
        )
        words |= set(listed.stdout.split())
    for word in sorted(words - {"true", "false", "echo"}):
        assert plain_argv(f"{word} x") is None, word
        assert plain_argv(f"'{word}' x") is None, word


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("true", ["true"]),
        ("echo a  b", ["echo", "a", "b"]),
        ("echo 'a  b'", ["echo", "a  b"]),
        ("./fit.sh --x=1 data/5.csv", ["./fit.sh", "--x=1", "data/5.csv"]),
        ("echo -e x", None),  # shells differ in what they make of it
        ("X=1 ./fit.sh", None),
        ("X+=1 ./fit.sh", None),
        ("./fit.sh > out", None),
        ("./fit.sh; true", None),
        ("./fit.sh $X", None),
        ("./fit.sh *", None),
        ("./fit.sh 'a", None),
        ("cd x", None),
        ("", None),
        ("  ", None),
        ("''", [""]),
        ("a\nb", None),
        ("a\0b", None),
        ("é", None),
    ],
)
def test_plain_lines_are_told_from_shell_syntax(line: str, words: list[str] | None) -> None:
    assert plain_argv(line) == words


# -- submissions -------------------------------------------------------------------------------------------

RUN = {"argv": ("true",)}


@pytest.mark.parametrize(
    ("fields", "lines", "expected"),
    [
        (RUN, None, ([(0, 0)], 0)),
        ({"line": "a | b"}, None, ([(0, 0)], 0)),
        ({**RUN, "array": "3-5%2"}, None, ([(3, 5)], 2)),
        ({}, ["a", "b"], ([(0, 1)], 0)),
        ({**RUN, "cwd": "/data", "env": {"A": "b=c"}}, None, ([(0, 0)], 0)),
        ({**RUN, "cpus": 0.001, "priority": 0}, None, ([(0, 0)], 0)),
        ({**RUN, "priority": MAX_PRIORITY}, None, ([(0, 0)], 0)),
    ],
)
def test_good_submissions_pass(fields: dict, lines: list[str] | None, expected: object) -> None:
    assert check_spec(JobSpec(**fields), lines) == expected


@pytest.mark.must("f")
@pytest.mark.parametrize(
    ("fields", "lines", "field"),
    [
        ({}, None, "argv"),
        ({"argv": ("",)}, None, "argv"),
        ({"argv": ("  ", "x")}, None, "argv"),
        ({"argv": ("a\0b",)}, None, "argv"),
        ({"argv": ("x" * 2**20,)}, None, "argv"),
        ({"argv": ("x", *[""] * 1_000_000)}, None, "argv"),
        ({"argv": ("\ud800",)}, None, "argv"),
        ({**RUN, "line": "x"}, None, "line"),
        (RUN, ["x"], "lines"),
        ({"line": "x"}, ["x"], "lines"),
        ({"line": " "}, None, "line"),
        ({"line": "a\0"}, None, "line"),
        ({"line": "x" * 100_000}, None, "line"),
        ({"line": "é" * 40_000}, None, "line"),
        ({}, [], "lines"),
        ({}, ["a", ""], "lines[1]"),
        ({}, ["a", "b\0"], "lines[1]"),
        ({}, ["a", "b", "x" * 100_000], "lines[2]"),
        ({"array": "0-3"}, ["a"], "array"),
        ({**RUN, "array": "x"}, None, "array"),
        ({**RUN, "name": "x" * 257}, None, "name"),
        ({**RUN, "name": "a\0"}, None, "name"),
        ({**RUN, "cwd": "relative/path"}, None, "cwd"),
        ({**RUN, "cwd": "/a\0"}, None, "cwd"),
        ({**RUN, "cwd": "/" + "x" * 5000}, None, "cwd"),
        ({**RUN, "env": {"": "x"}}, None, "env"),
        ({**RUN, "env": {"A=B": "x"}}, None, "env"),
        ({**RUN, "env": {"A": "x\0"}}, None, "env"),
        ({**RUN, "env": {"A\0": "x"}}, None, "env"),
        ({**RUN, "env": {"A": "x" * 2**18}}, None, "env"),
        ({**RUN, "env": {f"A{n}": "x" * 60_000 for n in range(3)}}, None, "env"),
        ({**RUN, "env": {f"A{n}": "é" * 30_000 for n in range(3)}}, None, "env"),
        *[
            ({**RUN, "cpus": value}, None, "cpus")
            for value in (0, -1, 1e9, float("nan"), float("inf"), 0.0001)
        ],
        *[({**RUN, "mem_bytes": value}, None, "mem_bytes") for value in (-1, 2**61, 10**400)],
        *[({**RUN, "time_limit_s": value}, None, "time_limit_s") for value in (-1, 1e12, float("nan"))],
        *[({**RUN, "kill_grace_s": value}, None, "kill_grace_s") for value in (-0.1, 1e6, float("-inf"))],
        *[({**RUN, "priority": value}, None, "priority") for value in (-1, 2**32, -(10**400))],
        *[({**RUN, "retries": value}, None, "retries") for value in (-1, 10**9)],
        *[({**RUN, "output_limit_bytes": value}, None, "output_limit_bytes") for value in (-1, 2**40)],
    ],
)
def test_bad_submissions_are_refused_with_the_field_named(
    fields: dict, lines: list[str] | None, field: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(JobSpec(**fields), lines)
    assert caught.value.field == field
    assert 0 < len(str(caught.value)) < 400


@pytest.mark.must("f")
def test_a_number_too_large_for_any_machine_is_refused_like_any_other() -> None:
    spec = msgspec.json.decode(b'{"argv": ["x"], "mem_bytes": ' + b"9" * 400 + b"}", type=JobSpec)
    with pytest.raises(UsageError) as caught:
        check_spec(spec, None)
    assert caught.value.field == "mem_bytes"


@pytest.mark.parametrize("names", [("t1.0",), ("t1.0", "t1.1", "t1.2"), ("t1.0", "x" * 10_000)])
def test_a_call_names_all_values_that_it_has_or_none(names: tuple[str, ...]) -> None:
    spec, values = JobSpec(function=Function(code=b"x")), ("t5.0", "t5.1")
    check_spec(spec, calls=[Call(b"", values), Call(b"", values, ("t1.0", "t1.1"))])
    with pytest.raises(UsageError) as caught:
        check_spec(spec, calls=[Call(b"", values, names)])
    assert caught.value.field == "calls[0].names"


@pytest.mark.parametrize("argument", ["x" * (commands.MAX_ARGV_BYTES - 10)])
def test_what_passes_the_check_can_really_be_started(argument: str) -> None:
    check_spec(JobSpec(argv=("true", argument)), None)
    check_spec(JobSpec(argv=("true",), env={"A": argument}), None)
    subprocess.run(["true", argument], check=True, env={"A": argument, "PATH": "/usr/bin:/bin"})
