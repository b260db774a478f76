"""flow.toml -> jobs in an order in which each follows what it needs."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.errors import UsageError
from tercel.core.model import After, OnFailure
from tercel.sdk.files import Draft, read_file
from tercel.sdk.files.flow import read_flow
from tercel.sdk.files.toml import load

STUDY = """\
name = "study"
on_failure = "stop"

[defaults]
cpus = 2
retries = 1
env.A = "1"

[[step]]
name = "fit"
needs = [{step = "prep", tasks = "same"}, "data"]
command = "./fit.sh"
array = "0-9"
on_failure = "run"
env.B = "2"

[[step]]
name = "prep"
command = "./prep.sh"
array = "0-9"
cpus = 1

[[step]]
name = "data"
lines = ["a", "b"]
after = "37"

[[step]]
name = "merge"
command = "./merge.sh"
needs = "fit"
"""


def read(text: str) -> list[Draft]:
    return read_flow("flow.toml", text, load("flow.toml", text), {})


def complaint(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(text)
    return str(caught.value)


def by_name(drafts: list[Draft]) -> dict[str, Draft]:
    return {draft.submission.name.rpartition("/")[2]: draft for draft in drafts}


def test_steps_become_jobs_each_after_what_it_needs() -> None:
    drafts = read(STUDY)
    assert [draft.submission.name for draft in drafts] == [
        "study/prep",
        "study/data",
        "study/fit",
        "study/merge",
    ]
    assert [draft.needs for draft in drafts] == [[], [], [(0, "same"), (1, "all")], [(2, "all")]]
    assert [draft.submission.after for draft in drafts] == [
        (),
        (After(job=37),),
        (After(job=-1, each=True), After(job=-2)),
        (After(job=-3),),
    ]


def test_steps_have_the_flows_keys_where_they_have_none_of_their_own() -> None:
    steps = by_name(read(STUDY))
    assert [steps[name].submission.cpus for name in ("prep", "fit")] == [1, 2]
    assert {draft.submission.retries for draft in steps.values()} == {1}
    assert steps["fit"].submission.env == {"A": "1", "B": "2"}
    assert steps["fit"].submission.on_failure == OnFailure.RUN
    assert steps["merge"].submission.on_failure == OnFailure.STOP


def test_steps_may_be_named_by_their_headers() -> None:
    drafts = read('[step.a]\ncommand = "x"\n[step."b c"]\ncommand = "y"\nneeds = ["a"]\n')
    assert [(draft.submission.name, draft.needs) for draft in drafts] == [("a", []), ("b c", [(0, "all")])]


def test_a_step_may_say_itself_what_is_run_where_the_defaults_do() -> None:
    drafts = read('[defaults]\ncommand = "x"\n[[step]]\nname = "a"\n[[step]]\nname = "b"\nlines = ["y"]\n')
    assert [(draft.submission.line, draft.submission.lines) for draft in drafts] == [("x", None), ("", ["y"])]


def test_a_file_with_steps_is_a_flow(tmp_path: Path) -> None:
    path = tmp_path / "any.toml"
    path.write_text(STUDY)
    assert len(read_file(str(path))) == 4


# -- what is wrong ----------------------------------------------------------------------------------------


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        (
            '"data"]',
            '"date"]',
            "flow.toml:11: step.fit.needs[1]: there is no step 'date'; did you mean 'data'?",
        ),
        ('"same"', '"some"', "flow.toml:11: step.fit.needs[0].tasks: 'some' is not one of all, same"),
        ('step = "prep", ', "", "flow.toml:11: step.fit.needs[0]: step is missing"),
        ('"data"]', '"prep"]', "flow.toml:11: step.fit.needs[1]: 'prep' is needed twice"),
        (
            'needs = "fit"',
            'needs = "merge"',
            "flow.toml:31: step.merge.needs[0]: steps need one another in a circle: merge -> merge",
        ),
        ('after = "37"', 'needs = ["merge"]', "in a circle: fit -> data -> merge -> fit"),
        ('array = "0-9"\ncpus', 'array = "0-8"\ncpus', "'prep' has 9 (0-8), 'fit' has 10 (0-9)"),
        ('name = "data"', 'name = "fit"', "flow.toml:24: step[2].name: there is a step 'fit' already"),
        ('name = "data"', "", "flow.toml:23: step[2]: name is missing"),
        ('name = "data"', "name = 3", "flow.toml:24: step[2].name: text is needed, not a number"),
        ('name = "data"', 'name = " "', "flow.toml:24: step[2].name: the name is empty"),
        ('lines = ["a", "b"]', "", "flow.toml:23: step.data: nothing to run"),
        ("cpus = 1", "mem = 'x'", "flow.toml:21: step.prep.mem: 'x' is not a size"),
        (
            "cpus = 1",
            "cups = 1",
            "flow.toml:21: step.prep.cups: there is no key 'cups'; did you mean 'cpus'?",
        ),
        ("cpus = 2", "mem = 'x'", "flow.toml:5: defaults.mem: 'x' is not a size"),
        ("cpus = 2", "name = 'x'", "flow.toml:5: defaults.name: each step has a name of its own"),
        (
            'name = "study"',
            "cpus = 2",
            "flow.toml:1: cpus: there is no key of a flow 'cpus'; what holds for every step stands in [defaults]",
        ),
        ('"stop"', '"panic"', "flow.toml:2: on_failure: 'panic' is not one of skip, stop, run"),
        ('name = "study"', "name = 3", "flow.toml:1: name: text is needed, not a number"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_step(was: str, becomes: str, says: str) -> None:
    assert was in STUDY
    assert says in complaint(STUDY.replace(was, becomes, 1))


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("step = []", "flow.toml:1: step: there are no steps"),
        ("step = 3", "flow.toml:1: step: steps are tables: [[step]] or [step.NAME]"),
        ("step = [1]", "flow.toml:1: step[0]: steps are tables: [[step]] or [step.NAME]"),
        ("[step]\na = 1", "flow.toml:2: step.a: steps are tables: [[step]] or [step.NAME]"),
        ("[step.a]\nname = 'b'", "flow.toml:2: step.a.name: the step is called 'a' already, by its header"),
        ("defaults = 1\n[step.a]\ncommand = 'x'", "flow.toml:1: defaults: a table is needed, not a number"),
        (
            "[step.a]\ncommand = 'x'\nneeds = 1",
            "flow.toml:3: step.a.needs: a list or text is needed, not a number",
        ),
    ],
)
def test_what_is_no_flow_is_refused(text: str, says: str) -> None:
    assert complaint(text) == says


def test_a_long_cycle_is_named_by_its_beginning() -> None:
    steps = "".join(f'[step.s{i}]\ncommand = "x"\nneeds = ["s{(i + 1) % 5000}"]\n' for i in range(5000))
    message = complaint(steps)
    assert "s0 -> s1 -> s2" in message
    assert message.endswith("… -> s0")
    assert len(message) < 400


def test_a_chain_of_many_steps_is_no_deeper_than_any_other_flow() -> None:
    """Written last step first, so that a recursive walk would be 20,000 calls deep."""
    steps = "".join(f'[step.s{i}]\ncommand = "x"\nneeds = ["s{i - 1}"]\n' for i in range(20_000, 0, -1))
    drafts = read(steps + "[step.s0]\ncommand = 'x'\n")
    assert [draft.submission.name for draft in drafts] == [f"s{i}" for i in range(20_001)]


any_pairs = st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)
downward = st.permutations(range(12)).flatmap(
    lambda ranks: any_pairs.map(lambda pairs: {pair for pair in pairs if ranks[pair[0]] > ranks[pair[1]]})
)
"""Needs that go down in some order of the steps: these make no cycle."""


@given(any_pairs | downward)
def test_any_graph_is_ordered_or_its_cycle_is_named(pairs: set[tuple[int, int]]) -> None:
    needs: dict[int, list[int]] = {step: [] for step in range(12)}
    for step, other in pairs:
        needs[step].append(other)
    text = "".join(
        f'[step.s{step}]\ncommand = "x"\nneeds = {[f"s{other}" for other in others]}\n'
        for step, others in needs.items()
    )
    if has_cycle(needs):
        cycle = complaint(text).partition("circle: ")[2].split(" -> ")
        assert cycle[0] == cycle[-1]
        for step, other in pairwise(cycle):
            assert int(other[1:]) in needs[int(step[1:])]
        return
    drafts = read(text)
    assert sorted(draft.submission.name for draft in drafts) == sorted(f"s{step}" for step in needs)
    for position, draft in enumerate(drafts):
        wanted = {f"s{other}" for other in needs[int(draft.submission.name[1:])]}
        assert {drafts[at].submission.name for at, _ in draft.needs} == wanted
        assert all(at < position for at, _ in draft.needs)
        assert [-after.job - 1 for after in draft.submission.after] == [at for at, _ in draft.needs]


def has_cycle(needs: dict[int, list[int]]) -> bool:
    """By taking away what needs nothing, until nothing is left or nothing can be taken."""
    left = {step: set(others) for step, others in needs.items()}
    while left:
        free = {step for step, others in left.items() if not others}
        if not free:
            return True
        left = {step: others - free for step, others in left.items() if step not in free}
    return False
