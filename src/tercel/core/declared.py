"""What each task of a job reads and leaves: its declarations with the holes filled, and checked again then.

A point's value may be anything (`../../etc/passwd`, `a/b`, a URL with a login): what it makes of a declaration is held
to the same rules as what people write.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from tercel.core.errors import UsageError
from tercel.core.files import ALGORITHMS, LFN, Input, Output, When, is_digest
from tercel.core.intervals import Range
from tercel.core.locating import (
    Form,
    canonical,
    check_destination,
    check_path,
    check_source,
    form_of,
    is_pattern,
    last_part,
    placed,
)
from tercel.core.model import JobSpec, Program
from tercel.core.points import item_values
from tercel.core.templates import TASK, Template, word_template

JOB = "job"
MAX_DECLARED = 10_000
MAX_TEXT_BYTES = 2**20
"""Of all declarations of a job: they travel to every worker that runs a task of it."""
MOST_TRIED, MOST_TRIED_ITEMS = 10_000, 1_000_000
"""So many declarations are filled when a sweep, or a list of items, is handed in; of larger ones, the rest as their turn
comes."""

_GLOB = re.compile(r"([*?[])")


class Wanted(NamedTuple):
    """A file that a task finds in its directory."""

    source: str
    name: str
    digest: str


class Leaving(NamedTuple):
    """What a task leaves, and where it goes."""

    pattern: str
    """In its directory. Signs of patterns that a value brought are quoted: `[*]`."""
    to: tuple[str, ...]
    """URLs, the best first; none: it is kept at the manager. See `locating.placed` for those that end with /."""
    name: str
    """`lfn:…`: what it is registered as (likewise, if it ends with /); empty: by its URL."""
    optional: bool
    when: When


class _Input(NamedTuple):
    source: Template
    name: Template
    digest: str
    field: str


class _Output(NamedTuple):
    pattern: Template
    to: tuple[Template, ...]
    optional: bool
    when: When
    field: str


class Declared:
    """Of all tasks of a job. Made once for them; raises UsageError for what is no template.

    `uploads`: inputs may be paths of the submitter, who has not uploaded them yet.
    """

    def __init__(self, job: Program | JobSpec, *, uploads: bool = False) -> None:
        self._grid = job.grid
        self._uploads = uploads
        self._inputs = [_input(one, f"inputs[{at}]") for at, one in enumerate(job.inputs)]
        self._outputs = [_output(one, f"outputs[{at}]") for at, one in enumerate(job.outputs)]
        holes = {hole.name for template in self._templates() for hole in template.holes}
        self.pointed = holes - {JOB, TASK}
        """Names that a task's point must have."""
        self.same = not holes
        """Whether all tasks have the same."""
        self._fixed: dict[str, Wanted | Leaving] = {}
        """Those without holes, once they were checked, by field."""

    def inputs_of(self, job: int, task: int, item: str = "") -> list[Wanted]:
        """Of a task; `item` is its line in a job of items. Raises UsageError if its values make no places of them."""
        values = self._values(job, task, item) if self._inputs else {}
        found = [self._brought(one, values) for one in self._inputs]
        _check_apart([one.name for one in found], "have the same name in a task's directory", "inputs")
        return found

    def outputs_of(self, job: int, task: int, item: str = "") -> list[Leaving]:
        values = self._values(job, task, item) if self._outputs else {}
        quoted = {name: _GLOB.sub(r"[\1]", value) for name, value in values.items()}
        found = [self._left(one, values, quoted) for one in self._outputs]
        files = [place for one in found for place in (*one.to[:1], one.name) if not place.endswith("/")]
        _check_apart([place for place in files if place], "have the same destination", "outputs")
        return found

    def check_names(self, known: Collection[str]) -> None:
        """Raises UsageError for holes that nothing fills, and for names that mean two things."""
        for template in self._templates():
            template.check_names({JOB, *known}, "this job")
            for hole in template.holes:
                if hole.name in (JOB, TASK) and hole.name in known:
                    raise UsageError(
                        f"{{{hole.name}}} is the {hole.name}'s number here, and a value of the same name is in the points: "
                        "give that another name",
                        "inputs" if self._inputs else "outputs",
                    )

    def check_shared(self) -> None:
        """Of several tasks: refuses outputs with which each would replace the one before."""
        for one in self._outputs:
            for place in one.to:
                into = place.filled(_Anything()).endswith("/")
                parts = [place, one.pattern] if into else [place]
                alone = {hole.name for part in parts for hole in part.holes} - {JOB}
                if not alone and not (into and is_pattern(one.pattern.literal)):
                    raise UsageError(
                        f"every task would write {place.filled(_Anything())!r}, and only the last would be kept: put "
                        "{task} into it",
                        one.field,
                    )

    def _templates(self) -> Iterable[Template]:
        for one in self._inputs:
            yield one.source
            yield one.name
        for other in self._outputs:
            yield other.pattern
            yield from other.to

    def _values(self, job: int, task: int, item: str) -> Mapping[str, str]:
        own = {JOB: str(job), TASK: str(task)}
        if not self.pointed:
            return own
        try:
            values = self._grid.point(task) if self._grid is not None else item_values(item)
        except (IndexError, msgspec.DecodeError) as error:
            raise UsageError(f"task {task} has no point for its inputs and outputs: {error!r}") from None
        return values | own

    def _brought(self, one: _Input, values: Mapping[str, str]) -> Wanted:
        if isinstance(fixed := self._fixed.get(one.field), Wanted):
            return fixed
        source = canonical(_filled(one.source, values, one.field))
        name = _filled(one.name, values, one.field) or last_part(source)
        if not name and form_of(source) is not Form.LOCAL:
            raise UsageError(f"{one.field} has no name at its source: write SOURCE -> NAME", one.field)
        check_source(source, one.field, uploads=self._uploads)
        check_path(name, one.field)
        wanted = Wanted(source, name, one.digest)
        if not one.source.holes and not one.name.holes:
            self._fixed[one.field] = wanted
        return wanted

    def _left(self, one: _Output, values: Mapping[str, str], quoted: Mapping[str, str]) -> Leaving:
        if isinstance(fixed := self._fixed.get(one.field), Leaving):
            return fixed
        leaving = _filled_output(one, values, quoted)
        if not any(template.holes for template in (one.pattern, *one.to)):
            self._fixed[one.field] = leaving
        return leaving


class _Anything(dict[str, str]):
    """Stands in for all values, as they were written."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def _input(one: Input, field: str) -> _Input:
    if not one.source:
        raise UsageError(f"{field} has no source", field)
    if one.digest and not is_digest(one.digest):
        raise UsageError(
            f"{field}: {one.digest[:80]!r} is no digest; write {', '.join(ALGORITHMS)}, a colon and hex digits",
            field,
        )
    return _Input(word_template(one.source, field), word_template(one.name, field), one.digest, field)


def _output(one: Output, field: str) -> _Output:
    if not one.to:
        raise UsageError(f"{field} ({one.name[:80]!r}) goes nowhere: give a URL, or lfn:NAME", field)
    to = tuple(word_template(place, field) for place in one.to)
    return _Output(word_template(one.name, field), to, one.optional, one.when, field)


def _filled_output(one: _Output, values: Mapping[str, str], quoted: Mapping[str, str]) -> Leaving:
    pattern = _filled(one.pattern, quoted, one.field)
    check_path(pattern, one.field)
    places = [_filled(place, values, one.field) for place in one.to]
    for place in places:
        check_destination(place, one.field)
        if is_pattern(one.pattern.literal) and not place.endswith("/"):
            raise UsageError(
                f"{pattern[:80]!r} may be several files, and {place[:80]!r} is one: end it with / for a directory",
                one.field,
            )
    names = [place for place in places if place.startswith(LFN)]
    if len(names) > 1:
        raise UsageError(
            f"{pattern[:80]!r} has {len(names)} names: a file is registered under one", one.field
        )
    to = tuple(place for place in places if not place.startswith(LFN))
    return Leaving(pattern, to, names[0] if names else "", one.optional, one.when)


def _filled(template: Template, values: Mapping[str, str], field: str) -> str:
    try:
        return template.filled(values)
    except KeyError as error:
        raise UsageError(f"{field}: nothing is called {error} in the task's point", field) from None


def _check_apart(places: Sequence[str], what: str, field: str) -> None:
    if len(set(places)) < len(places):
        twice = Counter(places).most_common(1)[0][0]
        raise UsageError(f"two {field} {what}: {twice[:200]!r}; give one of them another", field)


# -- what is allowed --------------------------------------------------------------------------------------


def check_data(
    spec: JobSpec, ranges: Sequence[Range], items: Sequence[str] | None, *, uploads: bool = False
) -> None:
    """Of a job with these tasks. Raises UsageError."""
    if not spec.inputs and not spec.outputs:
        return
    field = "inputs" if spec.inputs else "outputs"
    _check_sizes(spec)
    if spec.function is not None:
        raise UsageError(f"{field} are of commands: a function gets its data by its arguments", field)
    if spec.cwd:
        raise UsageError(
            f"{field} are in a task's own directory, and cwd is another: leave cwd out, or make it the sandbox",
            "cwd",
        )
    declared = Declared(spec, uploads=uploads)
    if spec.grid is not None or items is None:
        declared.check_names(spec.grid.names if spec.grid is not None else ())
    if sum(last - first + 1 for first, last in ranges) > 1:
        declared.check_shared()
    declarations = len(spec.inputs) + len(spec.outputs)
    tasks = (task for first, last in ranges for task in range(first, last + 1))
    if items is not None and not declared.same:
        _check_items(declared, items[: max(MOST_TRIED_ITEMS // declarations, 1)])
        return
    most = MOST_TRIED // declarations if declared.pointed else 1
    places: dict[str, int] = {}
    for task in islice(tasks, max(most, 1)):
        declared.inputs_of(1, task)
        _check_own(declared.outputs_of(1, task), task, places)


def _check_own(leavings: Sequence[Leaving], task: int, places: dict[str, int]) -> None:
    """Refuses a place that another task has. `places`: those of the tasks before; this one's are added."""
    for leaving in leavings:
        for place in (*leaving.to[:1], leaving.name):
            if not place or (place.endswith("/") and is_pattern(leaving.pattern)):
                continue
            whole = placed(place, leaving.pattern, leaving.pattern)
            if places.setdefault(whole, task) != task:
                raise UsageError(
                    f"tasks {places[whole]} and {task} would both write {whole[:200]!r}, and only the last would be kept: "
                    "put {task} into it",
                    "outputs",
                )


def _check_items(declared: Declared, items: Sequence[str]) -> None:
    places: dict[str, int] = {}
    for number, item in enumerate(items):
        try:
            values = item_values(item)
            if not declared.pointed <= values.keys() or not {JOB, TASK}.isdisjoint(values):
                declared.check_names(values)
            declared.inputs_of(1, number, item)
            _check_own(declared.outputs_of(1, number, item), number, places)
        except UsageError as error:
            raise UsageError(f"items[{number}]: {error}", f"items[{number}]") from None


def _check_sizes(spec: JobSpec) -> None:
    for field, count in (("inputs", len(spec.inputs)), ("outputs", len(spec.outputs))):
        if count > MAX_DECLARED:
            raise UsageError(
                f"{count:,} {field}; at most {MAX_DECLARED:,} per job: a pattern, or an archive, names many",
                field,
            )
    texts = [text for one in spec.inputs for text in (one.source, one.name, one.digest)]
    texts += [text for one in spec.outputs for text in (one.name, *one.to)]
    size = sum(len(text.encode(errors="surrogatepass")) for text in texts)
    if size > MAX_TEXT_BYTES:
        field = "inputs" if spec.inputs else "outputs"
        raise UsageError(
            f"inputs and outputs are {size:,} bytes of text; at most {MAX_TEXT_BYTES:,} per job", field
        )
