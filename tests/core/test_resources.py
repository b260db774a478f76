"""Countable and indexed resources: never more than there is, never a whole piece to two tasks."""

from hypothesis import given
from hypothesis import strategies as st

from tercel.core.model import Needs
from tercel.core.resources import WHOLE, Stock, Taken

CAPACITY = Needs(4000, 0, "", (("gpus", 3000), ("licence.matlab", 2000)))
INDICES = {"gpus": ("0", "1", "GPU-2")}


def stock() -> Stock:
    return Stock(CAPACITY, INDICES)


def test_whole_pieces_go_to_one_task_each() -> None:
    here = stock()
    first, second = here.take((("gpus", 1000),)), here.take((("gpus", 2000),))
    assert first == (("gpus", 1000, ("0",)),)
    assert second == (("gpus", 2000, ("1", "GPU-2")),)
    assert here.room((("gpus", 1),)) == 0
    here.give_back(first)
    assert here.take((("gpus", 500),)) == (("gpus", 500, ("0",)),)


def test_parts_of_a_piece_are_packed_so_that_whole_ones_stay_whole() -> None:
    here = stock()
    assert [here.take((("gpus", 400),))[0][2] for _ in range(3)] == [("0",), ("0",), ("1",)]
    assert here.room((("gpus", 1000),)) == 1


def test_parts_of_different_pieces_do_not_add_up() -> None:
    here = stock()
    assert here.slots((("gpus", 600),)) == 3
    for _ in range(3):
        here.take((("gpus", 600),))
    assert here.room((("gpus", 600),)) == 0
    assert here.room((("gpus", 400),)) == 3


def test_what_a_worker_has_not_has_no_room() -> None:
    assert stock().slots((("fpga", 1000),)) == 0
    assert stock().room((("gpus", 1000), ("fpga", 1000))) == 0
    assert stock().slots((("gpus", 4000),)) == 0


amounts = st.lists(
    st.tuples(st.sampled_from(["gpus", "licence.matlab"]), st.sampled_from([1, 300, 500, 1000, 2000])),
    min_size=1,
    max_size=2,
    unique_by=lambda entry: entry[0],
).map(lambda entries: tuple(sorted(entries)))


@given(st.lists(st.one_of(amounts, st.integers(0, 20)), max_size=60))
def test_nothing_is_taken_twice_whatever_comes_and_goes(
    steps: list[tuple[tuple[str, int], ...] | int],
) -> None:
    here = stock()
    held: list[Taken] = []
    for step in steps:
        if isinstance(step, int):
            if held:
                here.give_back(held.pop(step % len(held)))
        elif here.room(step) > 0:
            held.append(here.take(step))
            assert all(
                len(pieces) == -(-amount // WHOLE) for name, amount, pieces in held[-1] if name == "gpus"
            )
        for piece in INDICES["gpus"]:
            parts = [amount for taken in held for _, amount, pieces in taken if piece in pieces]
            assert sum(min(part, WHOLE) for part in parts) <= WHOLE
        licences = sum(amount for taken in held for name, amount, _ in taken if name == "licence.matlab")
        assert licences <= 2000
    for taken in held:
        here.give_back(taken)
    assert here.room((("gpus", 3000), ("licence.matlab", 2000))) == 1
