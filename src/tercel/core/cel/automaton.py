"""Matches patterns in a time that grows with the length of the text alone.

    pattern -> Program: all the ways through it are followed at once (Thompson)
            -> Automaton: a state for each set of places where one can be in the program, and where each kind of character leads

The automaton is made whole when the expression is checked. A pattern that would need too many states is refused then,
so that nothing that is evaluated later can take long.
"""

from bisect import bisect_right
from functools import lru_cache
from typing import TypeAlias

from tercel.core.cel.patterns import WORD, Edge, Either, Letter, Repeat, Row, Shape, is_word, read_pattern

MAX_STEPS = 1000
"""Steps of a program."""
MAX_WORK = 100_000
"""Steps that may be looked at while the automaton is made: about a tenth of a second."""

Places: TypeAlias = frozenset[int]
_MATCHED = -1


@lru_cache(1000)
def automaton(pattern: str) -> "Automaton":
    """Raises ValueError."""
    return Automaton(Program(read_pattern(pattern)))


class Program:
    def __init__(self, shape: Shape) -> None:
        self.steps: list[Letter | Edge | tuple[int, ...] | None] = []
        """A character to read, an edge to be at, where to go on (any of these), or None: it has matched."""
        self.work = 0
        self.write(shape)
        self.steps.append(None)
        self.edges = {step.kind for step in self.steps if isinstance(step, Edge)}
        self.letters = {step for step in self.steps if isinstance(step, Letter)}

    def follow(self, places: Places, before: str, letter: str) -> Places | None:
        """Where the ways lead by this character (empty: the text's end); None if one has matched before it."""
        seen = set(places)
        waiting = list(places)
        after = {0}  # it may also begin at the next character
        while waiting:
            self.work += 1
            place = waiting.pop()
            step = self.steps[place]
            if step is None:
                return None
            if isinstance(step, Letter):
                if letter and step.fits(letter):
                    after.add(place + 1)
                continue
            if isinstance(step, Edge):
                step = (place + 1,) if _at_edge(step.kind, before, letter) else ()
            new = set(step) - seen
            seen |= new
            waiting.extend(new)
        return frozenset(after)

    def write(self, shape: Shape) -> None:
        # What is written may be empty and yet be repeated a thousand times a thousand times: work is counted too.
        self.work += 1
        if len(self.steps) >= MAX_STEPS or self.work > 4 * MAX_STEPS:
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


class Automaton:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.bounds, self.kinds, examples = _kinds(program)
        """Characters from one bound to the next are of one kind: the program does not tell them apart."""
        self.states: dict[tuple[Places, str], int] = {}
        self.table: list[list[int]] = []
        """By state and kind of character: the next state."""
        self.ends: list[bool] = []
        """By state: whether the pattern has matched if the text ends here."""
        waiting = [self.state(frozenset((0,)), "")]
        for places, before in waiting:
            row: list[int] = []
            for letter in examples:
                after = program.follow(places, before, letter)
                if program.work > MAX_WORK:
                    raise ValueError("it is too complicated")
                row.append(_MATCHED if after is None else self.number(after, letter, waiting))
            self.table.append(row)
            self.ends.append(program.follow(places, before, "") is None)

    def state(self, places: Places, letter: str) -> tuple[Places, str]:
        """What came before matters only to patterns that ask."""
        if {"b", "B"} & self.program.edges:
            before = letter and ("w" if is_word(letter) else " ")
        else:
            before = letter and " "
        state = (places, before if self.program.edges else "")
        self.states.setdefault(state, len(self.states))
        return state

    def number(self, places: Places, letter: str, waiting: list[tuple[Places, str]]) -> int:
        known = len(self.states)
        state = self.state(places, letter)
        if len(self.states) > known:
            waiting.append(state)
        return self.states[state]

    def matches(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        bounds, kinds, table = self.bounds, self.kinds, self.table
        state = 0
        for letter in text:
            state = table[state][kinds[bisect_right(bounds, letter) - 1]]
            if state == _MATCHED:
                return True
        return self.ends[state]


def _kinds(program: Program) -> tuple[list[str], list[int], list[str]]:
    """Where kinds of characters begin, which kind that is, and of each kind an example."""
    ranges = [each for letter in program.letters for each in letter.ranges]
    if {"b", "B"} & program.edges:
        ranges += WORD
    bounds = {"\0"}
    for low, high in ranges:
        bounds.add(low)
        if high < "\U0010ffff":
            bounds.add(chr(ord(high) + 1))
    ordered = sorted(bounds)
    letters = list(program.letters)
    found: dict[tuple[bool, ...], int] = {}
    examples: list[str] = []
    kinds: list[int] = []
    for letter in ordered:
        traits = (is_word(letter), *(each.fits(letter) for each in letters))
        if traits not in found:
            found[traits] = len(examples)
            examples.append(letter)
        kinds.append(found[traits])
    return ordered, kinds, examples


def _at_edge(kind: str, before: str, letter: str) -> bool:
    """`before`: empty at the beginning, `w` after a letter of a word; `letter`: empty at the end."""
    if kind == "^":
        return not before
    if kind == "$":
        return not letter
    return ((before == "w") != bool(letter and is_word(letter))) == (kind == "b")
