"""What a worker says it has, as people write it: tags, and resources beside cores and memory.

--tag STAR                                 whatever tasks may ask for by name
--resource licence.matlab=2                countable: so many, parts allowed
--resource port=[8000,8001]                indexed: pieces with names, each for one task at a time
--resource gpus=auto | gpus=2 | gpus=[0,1]
"""

import math
from collections.abc import Sequence

import msgspec

from tercel.core.errors import UsageError
from tercel.core.placement import LEAST_AMOUNT, MAX_AMOUNT, MAX_RESOURCES, check_resource_name, check_tags
from tercel.core.resources import WHOLE

MOST_PIECES = 1000
NAME_MOST = 64
GPUS = "gpus"


class Offered(msgspec.Struct, frozen=True):
    amounts: dict[str, int] = {}
    """Countable ones, in thousandths."""
    pieces: dict[str, tuple[str, ...]] = {}
    gpus: int | tuple[str, ...] | None = None
    """So many, these, or (None) all that are found."""


def read_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Each once, in the order given. Raises UsageError."""
    check_tags(tags, "tag")
    return tuple(dict.fromkeys(tags))


def read_resources(words: Sequence[str]) -> Offered:
    """Raises UsageError."""
    if len(words) > MAX_RESOURCES:
        raise UsageError(f"{len(words):,} resources; a worker has at most {MAX_RESOURCES:,}", "resource")
    amounts: dict[str, int] = {}
    pieces: dict[str, tuple[str, ...]] = {}
    gpus: int | tuple[str, ...] | None = None
    seen: set[str] = set()
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"resource {_shown(word)}: write NAME=AMOUNT or NAME=[a,b,c]", "resource")
        if name != GPUS:
            check_resource_name(name, "resource")
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
    if not LEAST_AMOUNT <= amount <= MAX_AMOUNT:  # also false of what is not a number
        raise UsageError(
            f"resource {name}={_shown(text)}: its amount is a number from {LEAST_AMOUNT:g} to {MAX_AMOUNT:,.0f}",
            "resource",
        )
    return round(amount * WHOLE)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
