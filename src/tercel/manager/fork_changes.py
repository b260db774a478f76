"""What is another in the copies of a fork: which change is of which job, and whether the job can be so."""

from collections.abc import Sequence

import msgspec

from tercel.core.commands import check_spec
from tercel.core.errors import UsageError
from tercel.core.model import JobRow, JobSpec
from tercel.core.rules import check_rules
from tercel.stores.snapshot.contract import Reading
from tercel.stores.snapshot.records import CallsPart, LinesPart
from tercel.wire.api_forks import Fork, ForkChange

SETTABLE = frozenset(JobSpec.__struct_fields__) - {"function", "grid", "template", "array", "after", "hold"}
"""Not what makes another set of tasks, nor what they wait for: those of a fork are those of its jobs."""
ONE_JOBS = frozenset({"argv", "line", "name"})
"""Fields that nobody wants alike in several jobs."""
replace = msgspec.structs.replace


class Change(msgspec.Struct):
    """All that is to be another in the copy of one job."""

    fields: dict[str, object] = {}
    env: dict[str, str] = {}
    """Added to the job's own."""
    texts: list[str] | None = None
    """Lines, or items, in the place of its own."""

    def spec(self, old: JobSpec) -> JobSpec:
        fields = dict(self.fields)
        if self.env:
            fields["env"] = {**old.env, **self.env}
        return replace(old, **fields)


def changed_by(asked: Fork, rows: Sequence[JobRow]) -> list[Change]:
    """For each job. Raises UsageError for what belongs to none, or cannot be set."""
    found = {row.id: Change() for row in rows}
    if asked.name:
        if len(rows) > 1:
            raise UsageError(
                f"{len(rows)} jobs are forked, and one name is given: say whose, as in --set fit:name=…",
                "name",
            )
        found[rows[0].id].fields["name"] = asked.name
    if asked.queue:
        for change in found.values():
            change.fields["queue"] = asked.queue
    for number, wish in enumerate(asked.changes):
        where = f"changes[{number}]"
        _check_fields(wish, where)
        for row in _meant(wish, rows, where):
            _add(found[row.id], wish, row, where)
    return [found[row.id] for row in rows]


def _check_fields(wish: ForkChange, where: str) -> None:
    for name in wish.fields:
        if name not in SETTABLE:
            raise UsageError(
                f"{name[:80]!r} cannot be set in a fork: its tasks, and what they need, are those of its jobs; "
                "`tercel clone` makes other ones",
                f"{where}.fields",
            )
    if not wish.fields and wish.lines is None and wish.items is None:
        raise UsageError("a change changes nothing: name fields, or give lines", f"{where}.fields")


def _meant(wish: ForkChange, rows: Sequence[JobRow], where: str) -> list[JobRow]:
    if not wish.step:
        alone = ONE_JOBS.intersection(wish.fields) or wish.lines is not None or wish.items is not None
        if alone and len(rows) > 1:
            names = ", ".join(row.spec.name or str(row.id) for row in rows[:10])
            raise UsageError(
                f"{len(rows)} jobs are forked: say whose this is, as in --set fit:command=… ({names})",
                f"{where}.step",
            )
        return list(rows)
    meant = [row for row in rows if wish.step in (row.spec.name, str(row.id))]
    # A flow that has a name gives it to its jobs: `fit` of `study` is the job study/fit.
    meant = meant or [row for row in rows if row.spec.name.rpartition("/")[2] == wish.step]
    if len(meant) > 1:
        told = ", ".join(str(row.id) for row in meant[:10])
        raise UsageError(
            f"several jobs are called {wish.step[:80]!r}: write the number of one ({told})", f"{where}.step"
        )
    if not meant:
        names = ", ".join(row.spec.name or str(row.id) for row in rows[:10])
        raise UsageError(f"no job {wish.step[:80]!r} is forked: there is {names}", f"{where}.step")
    return meant


def _add(change: Change, wish: ForkChange, row: JobRow, where: str) -> None:
    listed = row.has_lines and not row.spec.template
    if {"argv", "line"}.intersection(wish.fields):
        if listed or row.spec.function is not None:
            what = "a list of lines: set lines_file" if listed else "of a Python function, which stays"
            raise UsageError(f"job {row.id} has no command, it is {what}", f"{where}.fields")
        change.fields |= {"argv": wish.spec.argv, "line": wish.spec.line}
    for name in wish.fields:
        if name == "env":
            change.env |= wish.spec.env
        else:
            change.fields[name] = getattr(wish.spec, name)
    texts = wish.lines if wish.lines is not None else wish.items
    if texts is None:
        return
    if not row.has_lines or listed is not (wish.lines is not None):
        kind = "lines" if wish.lines is not None else "items"
        raise UsageError(f"job {row.id} is not one of {kind}", f"{where}.{kind}")
    if len(texts) != row.task_count:
        raise UsageError(
            f"job {row.id} has {row.task_count:,} tasks, and here are {len(texts):,}: a fork has the tasks of its "
            "job; submit another one, as it has others",
            f"{where}.{'lines' if listed else 'items'}",
        )
    change.texts = texts


def check_changed(reading: Reading, row: JobRow, spec: JobSpec, change: Change) -> None:
    """As a submission is checked. Costs the lines, so it is done beside the loop."""
    if spec == row.spec and change.texts is None:
        return
    try:
        check_rules(replace(spec, after=()))
        if not row.has_lines and spec.function is None:
            check_spec(spec)
        for part in reading.parts(row.id):
            if isinstance(part, CallsPart):
                check_spec(spec, calls=part.calls)
            elif not isinstance(part, LinesPart):
                break
            else:
                texts = part.lines
                if change.texts is not None:
                    texts = change.texts[part.first : part.first + len(texts)]
                check_spec(spec, None if spec.template else texts, items=texts if spec.template else None)
    except UsageError as error:
        raise type(error)(f"the copy of job {row.id}: {error}", "changes") from None
