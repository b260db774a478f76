"""Options as they stand on a line: `-c 2`, `-c2`, `--mem 4G`, `--mem=4G`. For #TERCEL lines and the command line alike."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tercel.core.errors import UsageError
from tercel.sdk.files.key import Key
from tercel.sdk.files.keys import BY_FLAG
from tercel.sdk.files.kinds import Flag, unknown, without_field
from tercel.sdk.files.sources import Given, Source, Words


class Option(NamedTuple):
    flag: str
    """As it was written: -c, --mem."""
    value: str | None
    """None: none was written with it."""

    def __str__(self) -> str:
        if self.value is None:
            return self.flag
        return f"{self.flag}={self.value}" if self.flag.startswith("--") else f"{self.flag} {self.value}"


def split_options(words: Iterable[str], alone: Iterable[str]) -> Iterator[Option | str]:
    """Options with their values, and the words that belong to none. `alone`: options that take no value."""
    lonely = frozenset(alone)
    left = iter(words)
    waiting: str | None = None
    for word in left:
        if waiting is not None and not _is_option(word):
            yield Option(waiting, word)
            waiting = None
            continue
        if waiting is not None:
            yield Option(waiting, None)
            waiting = None
        flag, equals, value = word.partition("=") if word.startswith("--") else (word[:2], "", word[2:])
        if not _is_option(word):
            yield word
        elif equals or value:
            yield Option(flag, value)
        elif flag in lonely:
            yield Option(flag, None)
        else:
            waiting = flag
    if waiting is not None:
        yield Option(waiting, None)


def _is_option(word: str) -> bool:
    """A negative number is not one."""
    return len(word) > 1 and word.startswith("-") and not word[1].isdigit()


ALONE = tuple(flag for flag, key in BY_FLAG.items() if isinstance(key.kind, Flag))


def read_options(words: Iterable[str], source: Source, before: Words | None = None) -> Words:
    """What options of the table of keys say, on top of what was said before. Raises UsageError for others."""
    found = dict(before or {})
    for option in split_options(words, ALONE):
        if isinstance(option, str):
            raise source.wrong((), f"{option!r} is not an option")
        key = BY_FLAG.get(option.flag)
        if key is None:
            mistake = unknown((), "option", option.flag, BY_FLAG)
            raise source.wrong((), mistake.text)
        add_option(found, key, option, source)
    return found


def add_option(words: Words, key: Key, option: Option, source: Source) -> None:
    """One more option; of what may be repeated, values are put together, else the last one counts."""
    value = option_value(key, option, source)
    before = words.get(key.name)
    if before is not None and key.repeatable:
        if isinstance(value, list):
            assert isinstance(before.value, list)
            value = [*before.value, *value]
        else:
            assert isinstance(before.value, Mapping) and isinstance(value, Mapping)
            value = {**before.value, **value}
    words[key.name] = Given(value, source, (option.flag,))


def option_value(key: Key, option: Option, source: Source) -> object:
    path = (option.flag,)
    if isinstance(key.kind, Flag):
        if option.value is not None:
            raise source.wrong(path, "takes no value")
        return True
    if option.value is None:
        raise source.wrong(path, f"needs a value: {option.flag} {key.metavar}")
    try:
        return key.from_text(option.value)
    except UsageError as error:
        raise source.wrong(path, without_field(error)) from None
