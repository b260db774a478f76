"""What a value in a job file may be: each kind checks a value and describes itself as JSON schema.

The two are written side by side, so that an editor that follows the schema and the reader agree.
"""

import datetime
import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from tercel.core.errors import UsageError

Path = tuple[str | int, ...]
"""Keys and indexes from the top of a document to a value: ("step", 3, "env", "HOME")."""
Schema = dict[str, object]


class Mistake(Exception):
    """A value that cannot be used, by its place in the document."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(text)
        self.path = path
        self.text = text


def without_field(error: UsageError) -> str:
    """A complaint whose place is told otherwise: `mem 'x' is not a size` -> `'x' is not a size`."""
    text = str(error).removeprefix("--")  # what is wrong in an expression is told as of the option
    return text.removeprefix(f"{error.field} ").removeprefix(f"{error.field}: ")


class Kind(Protocol):
    @property
    def wanted(self) -> str:
        """`a number`: for the message that something else stands there."""
        ...

    def takes(self, value: object) -> bool:
        """Whether the value is of this type at all; whether it is a good one, `check` says."""
        ...

    def check(self, value: object, path: Path) -> None:
        """Raises Mistake. `value` is one that the kind takes."""
        ...

    def schema(self) -> Schema: ...


def check(kind: Kind, value: object, path: Path) -> None:
    """Raises Mistake if the value is not of the kind."""
    if not kind.takes(value):
        raise Mistake(path, f"{kind.wanted} is needed, not {named(value)}")
    kind.check(value, path)


def named(value: object) -> str:
    """What a value is, in the words of a file's author."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a table"
        case datetime.date() | datetime.time():
            return "a date"
    return type(value).__name__


def unknown(path: Path, what: str, name: str, known: Iterable[str]) -> Mistake:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return Mistake(path, f"there is no {what} {name!r}{hint}")


class Text(NamedTuple):
    pattern: str = ""
    """Only for editors: the reader parses the text by the rules of tercel.core, which say better what is wrong."""
    parse: Callable[[str], object] | None = None
    """Raises UsageError for a text that means nothing."""
    wanted: str = "text"
    enum: tuple[str, ...] = ()

    def takes(self, value: object) -> bool:
        return isinstance(value, str)

    def check(self, value: object, path: Path) -> None:
        assert isinstance(value, str)
        if self.parse is not None:
            try:
                self.parse(value)
            except UsageError as error:
                raise Mistake(path, without_field(error)) from None
        if self.enum and value not in self.enum:
            raise Mistake(path, f"{value!r} is not one of {', '.join(self.enum)}")

    def schema(self) -> Schema:
        schema: Schema = {"type": "string"}
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        if self.enum:
            schema["enum"] = list(self.enum)
        return schema


class Number(NamedTuple):
    least: float
    most: float
    whole: bool = False

    @property
    def wanted(self) -> str:
        return "a whole number" if self.whole else "a number"

    def takes(self, value: object) -> bool:
        if isinstance(value, bool):
            return False
        return isinstance(value, int) or (isinstance(value, float) and not self.whole)

    def check(self, value: object, path: Path) -> None:
        assert isinstance(value, int | float)
        if not self.least <= value <= self.most:  # also true of what is not a number
            shown = f"{value:g}" if isinstance(value, float) or abs(value) < 10**300 else "so large a number"
            raise Mistake(path, f"{shown} is not between {self.least:,} and {self.most:,}")

    def schema(self) -> Schema:
        kind = "integer" if self.whole else "number"
        return {"type": kind, "minimum": self.least, "maximum": self.most}


class Flag(NamedTuple):
    wanted: str = "true or false"

    def takes(self, value: object) -> bool:
        return isinstance(value, bool)

    def check(self, value: object, path: Path) -> None:
        pass

    def schema(self) -> Schema:
        return {"type": "boolean"}


class ListOf(NamedTuple):
    member: Kind
    least: int = 0
    wanted: str = "a list"

    def takes(self, value: object) -> bool:
        return isinstance(value, list)

    def check(self, value: object, path: Path) -> None:
        assert isinstance(value, list)
        if len(value) < self.least:
            raise Mistake(path, "the list is empty")
        for at, member in enumerate(value):
            check(self.member, member, (*path, at))

    def schema(self) -> Schema:
        schema: Schema = {"type": "array", "items": self.member.schema()}
        if self.least:
            schema["minItems"] = self.least
        return schema


class TableOf(NamedTuple):
    """Any names, values of one kind."""

    member: Kind
    names: str = ""
    """A pattern for editors: what the rules of tercel.core take as a name."""
    least: int = 0
    wanted: str = "a table"

    def takes(self, value: object) -> bool:
        return isinstance(value, dict)

    def check(self, value: object, path: Path) -> None:
        assert isinstance(value, dict)
        if len(value) < self.least:
            raise Mistake(path, "the table is empty")
        for name, member in value.items():
            check(self.member, member, (*path, name))

    def schema(self) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self.member.schema()}
        if self.names:
            schema["propertyNames"] = {"pattern": f"^(?:{self.names})$"}
        if self.least:
            schema["minProperties"] = self.least
        return schema


class Table(NamedTuple):
    """Known names, each with a kind of its own."""

    members: Mapping[str, tuple[Kind, str]]
    """Kinds and what the names mean."""
    required: tuple[str, ...] = ()
    what: str = "key"
    wanted: str = "a table"

    def takes(self, value: object) -> bool:
        return isinstance(value, dict)

    def check(self, value: object, path: Path) -> None:
        assert isinstance(value, dict)
        for name, member in value.items():
            if name not in self.members:
                raise unknown((*path, name), self.what, name, self.members)
            check(self.members[name][0], member, (*path, name))
        for name in self.required:
            if name not in value:
                raise Mistake(path, f"{name} is missing")

    def schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": {
                name: {**kind.schema(), "description": meaning}
                for name, (kind, meaning) in self.members.items()
            },
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(self.required)
        return schema


class AnyOf(NamedTuple):
    """The first kind that takes a value checks it."""

    kinds: tuple[Kind, ...]

    @property
    def wanted(self) -> str:
        return " or ".join(dict.fromkeys(kind.wanted for kind in self.kinds))

    def takes(self, value: object) -> bool:
        return any(kind.takes(value) for kind in self.kinds)

    def check(self, value: object, path: Path) -> None:
        next(kind for kind in self.kinds if kind.takes(value)).check(value, path)

    def schema(self) -> Schema:
        return {"anyOf": [kind.schema() for kind in self.kinds]}
