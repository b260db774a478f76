"""flow.toml: a graph of jobs. Steps with needs, in a file that is submitted as a whole or not at all.

name = "study"
on_failure = "skip"            # what a failed task means for the steps that need it; each step may say otherwise
[defaults]                     # keys of every step
[[step]]                       # or [step.prep]
name = "prep"
command = "./prep.sh"
[[step]]
name = "fit"
needs = ["prep"]               # after all of it; {step = "prep", tasks = "same"}: task i after task i
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from tercel.core.errors import UsageError
from tercel.core.model import After
from tercel.sdk.files.directories import directory
from tercel.sdk.files.drafts import Draft, lay_over, make_draft
from tercel.sdk.files.keys import BY_NAME, KEYS, WHAT_IS_RUN, members
from tercel.sdk.files.kinds import AnyOf, ListOf, Mistake, Path, Table, TableOf, Text, check, named, unknown
from tercel.sdk.files.sources import Given, TomlSource, Words
from tercel.sdk.files.toml import words_of

ALL, SAME = "all", "same"

_NEED = AnyOf(
    (
        Text(),
        Table(
            {
                "step": (Text(), "The step to come after."),
                "tasks": (Text(enum=(ALL, SAME)), "After all of its tasks, or task i after task i (same)."),
            },
            required=("step",),
        ),
    )
)
NEEDS = AnyOf((ListOf(_NEED), Text()))
_NEEDS_HELP = "Steps that this one comes after."
STEP = Table({**members(KEYS), "needs": (NEEDS, _NEEDS_HELP)}, required=("name",))
NAMED_STEP = Table({**members(key for key in KEYS if key.name != "name"), "needs": (NEEDS, _NEEDS_HELP)})
DEFAULTS = Table(members(key for key in KEYS if key.name != "name"))
FLOW = Table(
    {
        "name": (BY_NAME["name"].kind, "The flow's name; its jobs are called NAME/STEP."),
        "on_failure": (BY_NAME["on_failure"].kind, BY_NAME["on_failure"].help),
        "defaults": (DEFAULTS, "Keys of every step that does not have them itself."),
        "step": (AnyOf((ListOf(STEP, least=1), TableOf(NAMED_STEP, least=1))), "The jobs of the flow."),
    },
    required=("step",),
)
"""Only for the schema: the reader goes step by step, so that 100,000 of them are checked once."""
_TOP = frozenset({"name", "on_failure", "defaults", "step"})
_OF_STEP = frozenset({"needs"})


class _Step(NamedTuple):
    name: str
    table: dict[str, object]
    path: Path


class _Need(NamedTuple):
    step: int
    tasks: str
    path: Path


def read_flow(file: str, text: str, document: dict[str, object], above: Words) -> list[Draft]:
    """A draft per step, each after those it needs. Raises UsageError; `above` counts more than what the file says."""
    source = TomlSource(file, text)
    try:
        return _read(document, source, above)
    except Mistake as mistake:
        raise source.wrong(mistake.path, mistake.text) from None


def _read(document: dict[str, object], source: TomlSource, above: Words) -> list[Draft]:
    for name in WHAT_IS_RUN | {"items_file", "sweep"}:
        if name in above:
            raise above[name].source.wrong(above[name].path, "a flow's steps bring commands of their own")
    for name in document:
        if name not in _TOP:
            near = "; what holds for every step stands in [defaults]" if name in BY_NAME else ""
            raise Mistake((name,), str(unknown((name,), "key of a flow", name, _TOP)) + near)
    steps = _steps(document["step"])
    source.names = {step.path: ("step", step.name) for step in steps}
    index = {step.name: at for at, step in enumerate(steps)}
    needs = [_needs(step, index) for step in steps]
    order = _sorted(steps, needs)
    below = _below(document, source)
    prefix = _prefix(document, above)
    place = {at: position for position, at in enumerate(order)}
    drafts: list[Draft] = []
    for at in order:
        words = lay_over(
            lay_over(below, words_of(steps[at].table, source, steps[at].path, known=_OF_STEP)), above
        )
        words["name"] = Given(prefix + steps[at].name, source, (*steps[at].path, "name"))
        draft = make_draft(words, _StepSource(source, steps[at].path))
        drafts.append(
            _after(
                steps[at].name, draft, [need._replace(step=place[need.step]) for need in needs[at]], drafts
            )
        )
    return drafts


class _StepSource:
    """What is missing in a step is missing at its header."""

    def __init__(self, source: TomlSource, path: Path) -> None:
        self._source = source
        self._path = path
        self.base = source.base

    def wrong(self, path: Path, text: str) -> UsageError:
        return self._source.wrong((*self._path, *path), text)


def _below(document: dict[str, object], source: TomlSource) -> Words:
    """What holds for every step."""
    defaults = document.get("defaults", {})
    if not isinstance(defaults, dict):
        raise Mistake(("defaults",), f"a table is needed, not {named(defaults)}")
    if "name" in defaults:
        raise Mistake(("defaults", "name"), "each step has a name of its own")
    words = words_of(defaults, source, ("defaults",))
    words.setdefault("cwd", Given(directory("."), source, ()))  # once, not for each step
    if "on_failure" in document:
        words.setdefault("on_failure", Given(document["on_failure"], source, ("on_failure",)))
    return words


def _prefix(document: dict[str, object], above: Words) -> str:
    name = document.get("name", "")
    check(BY_NAME["name"].kind, name, ("name",))
    if "name" in above:
        name = above["name"].value
    return f"{name}/" if name else ""


# -- steps ------------------------------------------------------------------------------------------------


def _steps(value: object) -> list[_Step]:
    match value:
        case list():
            steps = [_step(table, ("step", at)) for at, table in enumerate(value)]
        case dict():
            steps = [_named_step(name, table) for name, table in value.items()]
        case _:
            raise Mistake(("step",), "steps are tables: [[step]] or [step.NAME]")
    if not steps:
        raise Mistake(("step",), "there are no steps")
    seen: dict[str, _Step] = {}
    for step in steps:
        if seen.setdefault(step.name, step) is not step:
            raise Mistake((*step.path, "name"), f"there is a step {step.name!r} already")
    return steps


def _step(table: object, path: Path) -> _Step:
    if not isinstance(table, dict):
        raise Mistake(path, "steps are tables: [[step]] or [step.NAME]")
    if "name" not in table:
        raise Mistake(path, "name is missing: other steps and people call a step by it")
    name = table["name"]
    check(BY_NAME["name"].kind, name, (*path, "name"))
    if not name.strip():
        raise Mistake((*path, "name"), "the name is empty")
    return _Step(name, table, path)


def _named_step(name: str, table: object) -> _Step:
    if not isinstance(table, dict):
        raise Mistake(("step", name), "steps are tables: [[step]] or [step.NAME]")
    if "name" in table:
        raise Mistake(("step", name, "name"), f"the step is called {name!r} already, by its header")
    return _Step(name, table, ("step", name))


def _needs(step: _Step, index: Mapping[str, int]) -> list[_Need]:
    value = step.table.get("needs", [])
    path = (*step.path, "needs")
    check(NEEDS, value, path)
    found: dict[int, _Need] = {}
    for at, one in enumerate(value if isinstance(value, list) else [value]):
        here = (*path, at)
        name, tasks = (one["step"], one.get("tasks", ALL)) if isinstance(one, dict) else (one, ALL)
        if name not in index:
            raise unknown(here, "step", name, index)
        if index[name] in found:
            raise Mistake(here, f"{name!r} is needed twice")
        found[index[name]] = _Need(index[name], tasks, here)
    return list(found.values())


def _sorted(steps: Sequence[_Step], needs: Sequence[Sequence[_Need]]) -> list[int]:
    """Indexes so that each step follows what it needs; otherwise in the file's order. Raises Mistake for a cycle.

    Depth first without recursion: a chain of 100,000 steps is as good as any other graph.
    """
    order: list[int] = []
    state = [0] * len(steps)  # 0: not seen, 1: on the trail, 2: placed
    for start in range(len(steps)):
        trail = [(start, iter(needs[start]))] if not state[start] else []
        state[start] = state[start] or 1
        while trail:
            at, rest = trail[-1]
            need = next(rest, None)
            if need is None:
                state[at] = 2
                order.append(at)
                trail.pop()
            elif state[need.step] == 1:
                raise Mistake(need.path, _cycle(steps, [at for at, _ in trail], need.step))
            elif state[need.step] == 0:
                state[need.step] = 1
                trail.append((need.step, iter(needs[need.step])))
    return order


MOST_NAMED = 20


def _cycle(steps: Sequence[_Step], trail: Sequence[int], back: int) -> str:
    names = [steps[at].name for at in trail[trail.index(back) :]]
    shown = [*names[:MOST_NAMED], "…"] if len(names) > MOST_NAMED else names
    return f"steps need one another in a circle: {' -> '.join([*shown, names[0]])}"


def _after(name: str, draft: Draft, needs: Sequence[_Need], earlier: Sequence[Draft]) -> Draft:
    """The step's draft with what it needs added; the steps that it needs are among the earlier ones."""
    afters = list(draft.submission.after)
    for need in needs:
        other = earlier[need.step]
        if need.tasks == SAME and list(other.ranges) != list(draft.ranges):
            raise Mistake(
                need.path,
                f"task i can only follow task i if both steps have the same task numbers: "
                f"{other.step!r} has {_numbers(other)}, {name!r} has {_numbers(draft)}",
            )
        afters.append(After(job=-(need.step + 1), each=need.tasks == SAME))
    submission = msgspec.structs.replace(draft.submission, after=tuple(afters))
    return draft._replace(submission=submission, needs=[(need.step, need.tasks) for need in needs], step=name)


def _numbers(draft: Draft) -> str:
    first, last = draft.ranges[0][0], draft.ranges[-1][1]
    return f"{draft.tasks:,} ({first}-{last})" if draft.tasks > 1 else f"1 ({first})"
