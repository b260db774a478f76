"""Some keys of job files, for jobs that there are: `mem=4G`, `env.SEED=7`, `fit:command=./fit2.sh`."""

from collections.abc import Iterable, Mapping

from tercel.core.errors import UsageError
from tercel.core.model import JobSpec
from tercel.sdk.files.directories import directory
from tercel.sdk.files.drafts import field_of
from tercel.sdk.files.items import read_items
from tercel.sdk.files.keys import BY_NAME
from tercel.sdk.files.kinds import Flag, unknown
from tercel.sdk.files.lines import read_lines
from tercel.sdk.files.options import Option, option_value
from tercel.sdk.files.sources import Given, OptionSource
from tercel.wire.api import ForkChange

TASKS = frozenset({"array", "sweep", "sweep_zip", "after", "hold"})
"""Keys that say which tasks there are, and what they wait for."""
_FLAGS = {"true": True, "false": False}


class _Source(OptionSource):
    """--set mem: …"""

    def wrong(self, path: tuple[str | int, ...], text: str) -> UsageError:
        return UsageError(f"--set {path[0]}: {text}" if path else text, "set")


def from_texts(settings: Iterable[str]) -> dict[str, object]:
    """KEY=VALUE, as people write it -> by key, its value. Of what may be repeated, values are put together."""
    found: dict[str, object] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {setting[:80]!r}: write KEY=VALUE", "set")
        found[name] = _joined(found.get(name), _value(name, text))
    return found


def _joined(before: object, value: object) -> object:
    """Lists and tables are only of keys that may be repeated."""
    if isinstance(before, list) and isinstance(value, list):
        return [*before, *value]
    return {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value


def changes_of(settings: Mapping[str, object]) -> list[ForkChange]:
    """Raises UsageError for keys that there are not, and values that they cannot have."""
    return [_change(name, value) for name, value in settings.items()]


def _split(name: str) -> tuple[str, str, str]:
    """`fit:env.SEED` -> (step, key, variable)"""
    step, _, key = name.rpartition(":")
    key, dot, variable = key.partition(".")
    if key not in BY_NAME:
        known = [*BY_NAME.keys() - TASKS]
        raise UsageError(f"--set {name[:80]}: {unknown((), 'key', key[:80], known).text}", "set")
    if dot and key != "env":
        raise UsageError(f"--set {name[:80]}: only variables have names, as in env.SEED", "set")
    if key in TASKS:
        raise UsageError(
            f"--set {name[:80]}: a fork has the tasks of its jobs, and their needs; `tercel clone` makes other ones",
            "set",
        )
    return step, key, variable


def _value(name: str, text: str) -> object:
    _, key, variable = _split(name)
    if variable:
        return text
    entry = BY_NAME[key]
    if isinstance(entry.kind, Flag):
        if text not in _FLAGS:
            raise UsageError(f"--set {name}: true or false is needed, not {text[:80]!r}", "set")
        return _FLAGS[text]
    return option_value(entry, Option(name, text), _Source())


def _change(name: str, value: object) -> ForkChange:
    step, key, variable = _split(name)
    given = Given({variable: value} if variable else value, _Source(), (name,))
    if key == "env" and not given.value:
        raise UsageError(f"--set {name}: no variable is given; write env.SEED=7", "set")
    fields = field_of(key, given)
    value = given.value
    try:
        match key, value:
            case "command", str() if not value.strip():
                raise UsageError("the command is empty")
            case "command", str():
                return ForkChange(step=step, fields=["argv", "line"], spec=JobSpec(line=value))
            case "command", list():
                return ForkChange(step=step, fields=["argv", "line"], spec=JobSpec(argv=tuple(value)))
            case "lines", list():
                return ForkChange(step=step, lines=value)
            case "lines_file", str():
                return ForkChange(step=step, lines=read_lines(value, given.source.base).lines)
            case "items_file", str():
                return ForkChange(step=step, items=read_items(value, given.source.base).lines)
            case "cwd", str():
                fields = {"cwd": directory(value)}
    except UsageError as error:
        raise given.source.wrong((name,), str(error)) from None
    return ForkChange(step=step, fields=list(fields), spec=JobSpec(**fields))  # type: ignore[arg-type]  # by their names
