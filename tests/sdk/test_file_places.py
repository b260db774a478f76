"""The line of every key in a TOML file, whatever stands in its strings, comments and lists."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tercel.sdk.files.kinds import Path
from tercel.sdk.files.places import Places

DOCUMENT = '''\
# [not.a.header]
name = "x = 1 # no comment" # [[nor]] = this
text = """
[inside]
key = 1
""""
other = \'\'\'
[[inside]] ' ''
\'\'\'
when = 1979-05-27 07:32:00 # a blank in a value
list = [ # comment ]
  1,
  [ "]", {a = 1, "b c" = 2} ],
]
a.b . "c.d" = 1

[env]
HOME = "/h"
'q.r' = ""
empty = {}

[[step]]
name = "one"
  [step.env]
  X = "1"
[[step.retry]]
codes = [1,
   2]
[[step]]
"name" = "two"
[step.env.deep]
X = "2"
'''


def lines(text: str, *paths: Path) -> list[int]:
    places = Places(text)
    return [places.line(path) for path in paths]


def test_keys_are_found_beside_strings_comments_and_lists_that_look_like_them() -> None:
    tomllib.loads(DOCUMENT)
    top = lines(DOCUMENT, ("name",), ("text",), ("other",), ("when",), ("list",), ("a", "b", "c.d"))
    assert top == [2, 3, 7, 10, 11, 15]
    assert lines(DOCUMENT, ("list", 0), ("list", 1), ("list", 1, 1, "b c")) == [12, 13, 13]
    assert lines(DOCUMENT, ("env",), ("env", "HOME"), ("env", "q.r"), ("env", "empty")) == [17, 18, 19, 20]


def test_tables_in_arrays_are_told_apart() -> None:
    assert lines(DOCUMENT, ("step", 0), ("step", 0, "name"), ("step", 0, "env", "X")) == [22, 23, 25]
    assert lines(DOCUMENT, ("step", 0, "retry", 0, "codes"), ("step", 0, "retry", 0, "codes", 1)) == [27, 28]
    assert lines(DOCUMENT, ("step", 1), ("step", 1, "name"), ("step", 1, "env", "deep", "X")) == [29, 30, 32]


def test_what_has_no_place_is_found_at_what_surrounds_it() -> None:
    assert lines(DOCUMENT, ("env", "PATH"), ("step", 1, "mem"), ("nothing",), ()) == [17, 29, 1, 1]


# -- against tomllib --------------------------------------------------------------------------------------

keys = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=6),
)
STRANGE = ["[x]", "a = 1", "#", "'", '"', "'''", '"""', "]", "}", ",", "\\", "\n", "\r\n", "\t", "é"]
texts = st.lists(st.sampled_from([*STRANGE, "word", " "]), max_size=6).map("".join)
values = st.recursive(
    st.one_of(st.integers(-(10**9), 10**9), st.booleans(), texts, st.floats(allow_nan=False, width=32)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=8,
)
documents = st.dictionaries(
    keys, values | st.lists(st.dictionaries(keys, values, max_size=3), min_size=1, max_size=3), max_size=5
)


class Writer:
    """Writes a document as TOML and notes on which line each key was written."""

    def __init__(self, draw: Any) -> None:
        self.text = ""
        self.lines: dict[Path, int] = {}
        self._draw = draw

    def one_of(self, *options: str) -> str:
        return str(self._draw(st.sampled_from(options)))

    def here(self, path: Path) -> None:
        self.lines.setdefault(path, self.text.count("\n") + 1)

    def blank(self) -> str:
        return self.one_of("", " ", "\n", " # [x] = 'y'\n", "\t\r\n")

    def table(self, table: dict[str, Any], path: Path) -> None:
        """Simple values first: what follows a header belongs to it."""
        tables = {k: v for k, v in table.items() if isinstance(v, dict) or is_tables(v)}
        inline = {k for k in tables if self.one_of("inline", "header") == "inline"}
        for key, value in table.items():
            if key not in tables or key in inline:
                self.text += self.one_of("", "\n", "# a = [\n", "  ")
                self.here((*path, key))
                self.text += f"{self.key(key)}{self.one_of('', ' ')}= "
                self.value(value, (*path, key))
                self.text += self.one_of("\n", " # end ]\n")
        for key, value in tables.items():
            if key in inline:
                continue
            for at, member in enumerate(value if isinstance(value, list) else [value]):
                many = isinstance(value, list)
                self.here((*path, key))
                where = (*path, key, at) if many else (*path, key)
                self.here(where)
                name = ".".join(self.key(part) for part in (*path, key) if isinstance(part, str))
                self.text += (f"[[{name}]]" if many else f"[ {name} ]") + self.one_of("\n", " # c\n")
                self.table(member, where)

    def value(self, value: Any, path: Path) -> None:
        if isinstance(value, list):
            self.text += "["
            for at, member in enumerate(value):
                self.text += ("," if at else "") + self.blank()
                self.here((*path, at))
                self.value(member, (*path, at))
                self.text += self.blank()
            self.text += "]"
        elif isinstance(value, dict):
            self.text += "{"
            for at, (key, member) in enumerate(value.items()):
                self.text += ", " if at else " "
                self.here((*path, key))
                self.text += f"{self.key(key)} = "
                self.value(member, (*path, key))
            self.text += " }"
        elif isinstance(value, str):
            self.text += self.string(value)
        else:
            self.text += str(value).lower()

    def key(self, key: str) -> str:
        bare = key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
        return key if bare else basic(key)

    def string(self, value: str) -> str:
        forms = [basic(value)]
        if "\n" not in value and "\r" not in value and "'" not in value:
            forms.append(f"'{value}'")
        if "'''" not in value and "\r" not in value and not value.endswith("'"):
            forms.append(f"'''\n{value}'''")
        escaped = value.replace("\\", "\\\\").replace('"""', '""\\"').replace("\r", "\\r")
        if not escaped.endswith('"'):
            forms.append(f'"""{escaped}"""' if not value.startswith("\n") else f'"""\n{escaped}"""')
        return self.one_of(*forms)


def is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(member, dict) for member in value)


def basic(text: str) -> str:
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(named.get(char, char) for char in text) + '"'


@given(documents, st.data())
def test_every_key_of_any_document_is_on_the_line_where_it_was_written(
    document: dict[str, Any], data: st.DataObject
) -> None:
    writer = Writer(data.draw)
    writer.table(document, ())
    assert tomllib.loads(writer.text) == document, "the test's own writer is wrong"
    places = Places(writer.text)
    assert {path: places.line(path) for path in writer.lines} == writer.lines
