"""What a worker says it has, as people write it: tags, and resources beside cores and memory.

--tag STAR                                 whatever tasks may ask for by name
--resource licence.matlab=2                countable: so many, parts allowed
--resource port=[8000,8001]                indexed: pieces with names, each for one task at a time
--resource gpus=auto | gpus=2 | gpus=[0,1]
"""

import math
import re
from collections.abc import Sequence

import msgspec

from tercel.core.errors import UsageError
from tercel.core.resources import WHOLE

MOST_TAGS = 10_000
MOST_RESOURCES = 1000
MOST_PIECES = 1000
MOST_AMOUNT = 1_000_000_000
NAME_MOST = 64
TAG_MOST = 100
GPUS = "gpus"
_NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_OWN_OPTIONS = {"cpus": "--cpus", "mem": "--mem", "memory": "--mem"}


class Offered(msgspec.Struct, frozen=True):
    amounts: dict[str, int] = {}
    """Countable ones, in thousandths."""
    pieces: dict[str, tuple[str, ...]] = {}
    gpus: int | tuple[str, ...] | None = None
    """So many, these, or (None) all that are found."""


def read_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Each once, in the order given. Raises UsageError."""
    for tag in tags:
        if not tag or len(tag) > TAG_MOST or not tag.isprintable() or re.search(r"[\s,]", tag):
            raise UsageError(
                f"tag {_shown(tag)}: write 1 to {TAG_MOST} visible characters without blanks and commas",
                "tag",
            )
    unique = tuple(dict.fromkeys(tags))
    if len(unique) > MOST_TAGS:
        raise UsageError(f"{len(unique):,} tags; a worker has at most {MOST_TAGS:,}", "tag")
    return unique


def read_resources(words: Sequence[str]) -> Offered:
    """Raises UsageError."""
    if len(words) > MOST_RESOURCES:
        raise UsageError(f"{len(words):,} resources; a worker has at most {MOST_RESOURCES:,}", "resource")
    amounts: dict[str, int] = {}
    pieces: dict[str, tuple[str, ...]] = {}
    gpus: int | tuple[str, ...] | None = None
    seen: set[str] = set()
    for word in words:
        name, equals, text = word.partition("=")
        _check_name(name, word, bool(equals))
        if name in seen:
            raise UsageError(f"resource {name} is given twice", "resource")
        seen.add(name)
        if name == GPUS:
            gpus = _read_gpus(text.strip())
        elif text.startswith("["):
            pieces[name] = _read_pieces(name, text)
        else:
            amounts[name] = _read_amount(name, text)
    return Offered(amounts, pieces, gpus)


def _check_name(name: str, word: str, has_amount: bool) -> None:
    if not has_amount or not _NAME.fullmatch(name) or len(name) > NAME_MOST:
        raise UsageError(
            f"resource {_shown(word)}: write NAME=AMOUNT or NAME=[a,b,c], the name at most {NAME_MOST} letters, digits "
            "and any of _ . - beginning with a letter",
            "resource",
        )
    if name in _OWN_OPTIONS:
        raise UsageError(f"resource {name}: say it with {_OWN_OPTIONS[name]}", "resource")


def _read_gpus(text: str) -> int | tuple[str, ...] | None:
    if text == "auto":
        return None
    if text.startswith("["):
        return _read_pieces(GPUS, text)
    if not (text.isascii() and text.isdigit()) or int(text[:10]) > MOST_PIECES:
        raise UsageError(
            f"gpus={_shown(text)}: write auto, a whole number, or their ids: gpus=[0,1]", "resource"
        )
    return int(text)


def _read_pieces(name: str, text: str) -> tuple[str, ...]:
    pieces = tuple(piece.strip() for piece in text.removeprefix("[").removesuffix("]").split(","))
    if not text.endswith("]") or any(not p.isprintable() or not 0 < len(p) <= NAME_MOST for p in pieces):
        raise UsageError(
            f"resource {name}={_shown(text)}: write its pieces as [a,b,c], each with a name of at most "
            f"{NAME_MOST} visible characters",
            "resource",
        )
    if len(set(pieces)) < len(pieces):
        raise UsageError(f"resource {name} has two pieces of one name", "resource")
    if len(pieces) > MOST_PIECES:
        raise UsageError(f"resource {name} has {len(pieces):,} pieces; at most {MOST_PIECES:,}", "resource")
    return pieces


def _read_amount(name: str, text: str) -> int:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 1 / WHOLE <= amount <= MOST_AMOUNT:  # also false of what is not a number
        raise UsageError(
            f"resource {name}={_shown(text)}: its amount is a number from 0.001 to {MOST_AMOUNT:,}",
            "resource",
        )
    return round(amount * WHOLE)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
