"""Scripts that travel with their job: shown as people handed them in."""

from hypothesis import given
from hypothesis import strategies as st

from tercel.core.points import CommandTemplate
from tercel.core.scripts import in_template, starting, typed

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(TEXTS.filter(bool), TEXTS, st.lists(TEXTS))
def test_a_script_is_shown_by_its_name_and_arguments(name: str, text: str, arguments: list[str]) -> None:
    assert typed([*starting(name, text), *arguments]) == [name, *arguments]


@given(TEXTS)
def test_so_is_one_whose_arguments_have_holes(text: str) -> None:
    argv = [*map(in_template, starting("job.sh", text)), "{C}"]
    assert typed(argv) == ["job.sh", "{C}"]
    filled, _ = CommandTemplate(tuple(argv), "").command({"C": "0.1"}, 0)
    assert filled is not None
    assert filled[:5] == starting("job.sh", text)
    assert typed(filled) == ["job.sh", "0.1"]


@given(st.lists(TEXTS))
def test_other_commands_are_shown_as_they_are(argv: list[str]) -> None:
    assert typed(argv) == argv
    assert typed(["/bin/sh", "-c", "f=1; echo $f", *argv]) == ["/bin/sh", "-c", "f=1; echo $f", *argv]
