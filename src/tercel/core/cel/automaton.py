"""Matches patterns in a time that grows with the length of the text alone.

A pattern becomes a small program; all the ways through it are followed at once, character by character (Thompson). What
a set of places in the program becomes at a character is remembered, so that the next text costs a lookup for each.
"""

from functools import lru_cache
from typing import TypeAlias

from tercel.core.cel.patterns import Edge, Either, Letter, Repeat, Row, Shape, is_word, read_pattern

MAX_PROGRAM = 1000
"""Steps of a program: `(a{30}){30}` is not far from it."""
MAX_REMEMBERED = 5000

Places: TypeAlias = frozenset[int]


@lru_cache(1000)
def automaton(pattern: str) -> "Automaton":
    """Raises ValueError."""
    return Automaton(*read_pattern(pattern))


class Automaton:
    def __init__(self, shape: Shape, folded: bool) -> None:
        self.folded = folded
        self.steps: list[Letter | Edge | tuple[int, ...] | None] = []
        """A character to read, an edge to be at, where to go on (any of these), or None: it has matched."""
        self.work = 0
        self.write(shape)
        self.steps.append(None)
        self.remembered: dict[tuple[Places, str, str], Places | None] = {}

    def matches(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        places: Places | None = frozenset((0,))
        before = ""
        for letter in (*text, ""):
            assert places is not None
            kind = before and ("w" if is_word(before) else " ")
            memo = (places, kind, letter)
            if memo not in self.remembered:
                if len(self.remembered) >= MAX_REMEMBERED:
                    self.remembered.clear()
                self.remembered[memo] = self.step(places, kind, letter)
            places = self.remembered[memo]
            if places is None:
                return True
            before = letter
        return False

    def step(self, places: Places, before: str, letter: str) -> Places | None:
        """Where the ways lead by this character (empty: the text's end); None if one has matched before it."""
        seen = set(places)
        waiting = list(places)
        after = {0}  # it may also begin at the next character
        while waiting:
            place = waiting.pop()
            step = self.steps[place]
            if step is None:
                return None
            if isinstance(step, Letter):
                if letter and self.fits(step, letter):
                    after.add(place + 1)
                continue
            if isinstance(step, Edge):
                step = (place + 1,) if _at_edge(step.kind, before, letter) else ()
            new = set(step) - seen
            seen |= new
            waiting.extend(new)
        return frozenset(after)

    def fits(self, step: Letter, letter: str) -> bool:
        if not self.folded:
            return step.fits(letter)
        ways = {letter, letter.lower(), letter.upper()}
        return any(Letter(step.ranges).fits(way) for way in ways if len(way) == 1) != step.others

    # -- writing the program ------------------------------------------------------------------------------

    def write(self, shape: Shape) -> None:
        # What is written may be empty and yet be repeated a thousand times a thousand times: work is counted too.
        self.work += 1
        if len(self.steps) >= MAX_PROGRAM or self.work > 4 * MAX_PROGRAM:
            raise ValueError("it repeats too much")
        match shape:
            case Letter() | Edge():
                self.steps.append(shape)
            case Row(parts):
                for part in parts:
                    self.write(part)
            case Either(choices):
                self.write_either(choices)
            case Repeat(of, least, most):
                for _ in range(least):
                    self.write(of)
                if most is None:
                    self.write_loop(of)
                else:
                    self.write_options(of, most - least)

    def write_either(self, choices: tuple[Shape, ...]) -> None:
        fork = len(self.steps)
        self.steps.append(())
        begins: list[int] = []
        ends: list[int] = []
        for choice in choices:
            begins.append(len(self.steps))
            self.write(choice)
            ends.append(len(self.steps))
            self.steps.append(())
        self.steps[fork] = tuple(begins)
        for end in ends:
            self.steps[end] = (len(self.steps),)

    def write_loop(self, of: Shape) -> None:
        fork = len(self.steps)
        self.steps.append(())
        self.write(of)
        self.steps.append((fork,))
        self.steps[fork] = (fork + 1, len(self.steps))

    def write_options(self, of: Shape, times: int) -> None:
        forks: list[int] = []
        for _ in range(times):
            forks.append(len(self.steps))
            self.steps.append(())
            self.write(of)
        for fork in forks:
            self.steps[fork] = (fork + 1, len(self.steps))


def _at_edge(kind: str, before: str, letter: str) -> bool:
    """`before`: empty at the beginning, `w` after a letter of a word; `letter`: empty at the end."""
    if kind == "^":
        return not before
    if kind == "$":
        return not letter
    return ((before == "w") != bool(letter and is_word(letter))) == (kind == "b")
