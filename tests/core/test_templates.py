"""Templates put any text into a command, and the program gets exactly that text."""

import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tercel.core.errors import UsageError
from tercel.core.points import CommandTemplate
from tercel.core.templates import from_brackets, line_template, word_template

NASTY = [
    "",
    " ",
    "it's",
    'say "hi"',
    "$HOME",
    "`id`",
    "$(id)",
    "a\nb\n",
    "-n",
    "--",
    "\\",
    "\\\\n",
    "'",
    "''",
    '"',
    "*",
    "~",
    "~root",
    "#no comment",
    "a;b|c&d",
    "if",
    "2",
    "A=b",
    "!!",
    "{1,2}",
    "1..3",
    "\t",
    "é\u2028\U0001f600",
    "\x01\x1b[31m",
    "%s%n",
    "\r\n",
]
texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(alphabet="'\"\\$`!#~*? \n\t-=<>|&;(){}[]ab1", max_size=12),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
)
PLACES: list[tuple[str, Callable[[str], list[str]]]] = [
    ("{x}", lambda x: [x]),
    ('"{x}"', lambda x: [x]),
    ("'{x}'", lambda x: [x]),
    ("{x} {x}", lambda x: [x, x]),
    ("{x}{x}", lambda x: [x + x]),
    ("a{x}b", lambda x: [f"a{x}b"]),
    ("--k={x}", lambda x: [f"--k={x}"]),
    ("{x}=1", lambda x: [f"{x}=1"]),
    ("~{x}", lambda x: [f"~{x}"]),
    ("{{{x}}}", lambda x: [f"{{{x}}}"]),
    ("-- {x}>/dev/stdout", lambda x: ["--", x]),
    ("'a \"{x}' \"b'{x}\"", lambda x: [f'a "{x}', f"b'{x}"]),
    ('"\\\\{x}\\$"', lambda x: [f"\\{x}$"]),
    ("\\\\{x}", lambda x: [f"\\{x}"]),
    ("{x}/'{x}'/\"{x}\"", lambda x: [f"{x}/{x}/{x}"]),
    ('"${{none:-}}{x}" $(:) {x}', lambda x: [x, x]),
    ("a#{x} # it's a comment", lambda x: [f"a#{x}"]),
]
"""Arguments with holes, and what a program should get."""


def arguments_by_shell(lines: list[str], shell: Sequence[str] = ("/bin/sh",)) -> list[list[str]]:
    """What /bin/sh gives a program, for each line of arguments; one process for all."""
    show = "show() { printf '%s\\0' $# \"$@\"; }\n"
    script = show + "\n".join(f"show {line}" for line in lines)
    done = subprocess.run([*shell, "-c", script], capture_output=True, check=True)
    assert not done.stderr
    words = iter(done.stdout.decode().split("\0"))
    return [[next(words) for _ in range(int(next(words)))] for _ in lines]


@pytest.mark.must("a")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), texts), min_size=20, max_size=40))
def test_a_program_gets_exactly_the_value_wherever_in_a_shell_line_it_stands(cases: list) -> None:
    lines = [line_template(template).filled({"x": value}) for (template, _), value in cases]
    assert arguments_by_shell(lines) == [expected(value) for (_, expected), value in cases]


@pytest.mark.parametrize("shell", [["/bin/sh"], ["bash"], ["bash", "--posix"]], ids=" ".join)
def test_every_nasty_value_survives_in_every_place_and_shell(shell: list[str]) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip("not here")
    cases = [(place, value) for place in PLACES for value in NASTY]
    lines = [line_template(template).filled({"x": value}) for (template, _), value in cases]
    assert arguments_by_shell(lines, shell) == [expected(value) for (_, expected), value in cases]


WORDS = [*"$\\'\"#{}()a1_~=- \n`;|&:!^,.", "$a", "${a", "$(", "case a in a)", "if", "'", '"', "esac"]
literals = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)


def printed(directory: Path, shell: str, line: str) -> str:
    """What is printed by a line that can do nothing but print."""
    show = "show() { for each; do printf '<%s>' \"$each\"; done; }\n"
    done = subprocess.run(
        [shell, "-c", f"{show}show {line}"],
        capture_output=True,
        cwd=directory,
        env={"PATH": "/nowhere"},
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.decode()


@pytest.mark.must("a")
@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(literals, literals, st.sampled_from(NASTY))
def test_in_any_line_that_is_accepted_a_nasty_value_stands_where_a_harmless_one_did(
    tmp_path: Path, shell: str, before: str, after: str, value: str
) -> None:
    assume("$$" not in before + after)  # the shell's process id, which differs
    template = "{x}".join(text.replace("{", "{{").replace("}", "}}") for text in (before, after))
    harmless = "Q7Q"
    try:
        read = line_template(template)
    except UsageError:
        assume(False)
    shown = printed(tmp_path, shell, read.filled({"x": harmless}))
    assume(harmless in shown)
    assert printed(tmp_path, shell, read.filled({"x": value})) == shown.replace(harmless, value)


@pytest.mark.must("a")
@given(st.sampled_from(["{x}", "'{x}'", "a {x} '{x}'"]), texts)
def test_shlex_reads_the_value_back_outside_quotes_and_in_single_ones(template: str, value: str) -> None:
    words = shlex.split(line_template(template).filled({"x": value}))
    assert words == {"{x}": [value], "'{x}'": [value]}.get(template, ["a", value, value])


@given(texts)
def test_a_word_of_an_argv_takes_the_value_as_it_is(value: str) -> None:
    assert word_template("a'{x}\"{{{x:raw}}}").filled({"x": value}) == f"a'{value}\"{{{value}}}"


@given(st.text(max_size=30), st.text(max_size=30))
def test_doubled_braces_are_braces(before: str, after: str) -> None:
    doubled = (before.replace("{", "{{").replace("}", "}}"), after.replace("{", "{{").replace("}", "}}"))
    assert word_template("{x}".join(doubled)).filled({"x": "1"}) == f"{before}1{after}"


@pytest.mark.parametrize("value", ["0.001", "rbf", "data/a_1.csv", "1e-5", "a:b", "-3", "user@host", "+5%"])
def test_plain_values_stay_as_people_would_write_them(value: str) -> None:
    assert line_template("run -k {k} --k={k}").filled({"k": value}) == f"run -k {value} --k={value}"


def test_a_word_of_the_shells_grammar_is_quoted() -> None:
    assert line_template("{x} a").filled({"x": "if"}) == "'if' a"
    assert line_template("i{x} a").filled({"x": "f"}) == "i'f' a"
    assert line_template("echo {n}>file").filled({"n": "2"}) == "echo '2'>file"


def test_raw_is_not_quoted() -> None:
    assert line_template("a {x:raw} $({x:raw})").filled({"x": "*.c | wc"}) == "a *.c | wc $(*.c | wc)"


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("svm {C", "an unclosed {"),
        ("svm C}", "without its {"),
        ("svm {}", "without a name"),
        ("svm {:raw}", "without a name"),
        ("awk '{print $1}' x", "'print $1' is not a name"),
        ("svm { C }", "is not a name"),
        ("svm {C:x}", "may be :raw"),
    ],
)
def test_what_is_no_template_is_refused_with_its_place(template: str, what: str) -> None:
    for read in (line_template, word_template):
        with pytest.raises(UsageError, match="at character") as refused:
            read(template)
        assert what in str(refused.value)


def test_an_unknown_name_is_told_with_its_place_and_with_those_that_exist() -> None:
    with pytest.raises(
        UsageError, match=r"nothing is called 'D' in the sweep \(there is C, g\).*at character 12"
    ):
        line_template("svm -C {C} {D}").check_names(["g", "C"], "the sweep")
    line_template("svm {task}").check_names([], "the sweep")


@pytest.mark.parametrize(
    "template",
    [
        "echo $(ls {x})",
        'echo "$(ls "{x}")"',
        "echo `ls {x}`",
        "echo $((1 + {x}))",
        "echo ${{y:-{x}}}",
        "echo ${x}",
        "echo $a{x}",
        'echo "$a_1{x}"',
        "echo $1{x}",
        'echo "${x}"',
        "echo \\{x}",
        'echo "\\{x}"',
        "true # {x}",
        "#{x}",
        "cat <<E\n{x}\nE",
        "echo $'{x}'",
        "echo $'\\'' {x}",
        'echo "$(case a in a) echo {x};; esac)"',
        'echo "$(case a in a) :;; esac) {x}"',
        'echo "${{y:-\'}}{x}"',
    ],
)
def test_a_hole_where_no_quoting_is_surely_right_is_refused(template: str) -> None:
    with pytest.raises(UsageError, match="TERCEL_POINT"):
        line_template(template)


@pytest.mark.parametrize(
    "template",
    [
        "echo $(date) {x}",
        'echo "$(date "+%s")" {x}',
        "a=`date` ; echo {x}",
        "echo $(( (1) + 2)) {x}",
        "echo ${{HOME}} '{x}'",
        "true # it's fine\necho {x}",
        "case a in a) echo {x};; esac",
        '(cd /; echo "{x}")',
        "echo a#'b' {x}",
        "echo 'a<<b' {x}",
        "echo $a/{x}",
        'echo "$a-{x}"',
        "echo $?{x}",
    ],
)
def test_holes_outside_of_such_places_are_filled(template: str) -> None:
    filled = line_template(template).filled({"x": "it's $x"})
    done = subprocess.run(["/bin/sh", "-c", filled], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip("\n").endswith("it's $x")


def test_brackets_are_holes_and_braces_are_braces() -> None:
    assert from_brackets("awk '{print $1}' [1] [ -f x ] [12]") == "awk '{{print $1}}' {1} [ -f x ] {12}"


@given(st.text(alphabet="[]{}12a ", max_size=20))
def test_brackets_keep_all_other_text(text: str) -> None:
    filled = word_template(from_brackets(text)).filled(Same())
    assert filled == text


class Same(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"[{name}]"


def test_the_tasks_number_can_stand_in_any_template() -> None:
    assert CommandTemplate(["run", "{task}", "{x}"], "").command({"x": "1"}, 7) == (["run", "7", "1"], "")
    assert CommandTemplate([], "run {task} {x}").command({"x": "a b"}, 7) == (None, "run 7 'a b'")
