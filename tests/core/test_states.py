"""The table of a task's life is whole, and the docs show it as it is."""

from pathlib import Path

import pytest

from tercel.core.states import (
    RESUMES,
    TERMINAL,
    TRANSITIONS,
    Stage,
    TaskEvent,
    TaskState,
    drawing,
    moves,
    next_state,
)

ROOT = Path(__file__).parents[2]


def test_every_state_can_be_reached_from_ready() -> None:
    reached, edge = {TaskState.READY}, [TaskState.READY]
    while edge:
        state = edge.pop()
        for before, _, after in moves():
            if before is state and after not in reached:
                reached.add(after)
                edge.append(after)
    assert reached == set(TaskState)


def test_every_event_moves_some_state() -> None:
    assert {event for _, event, _ in moves()} == set(TaskEvent)


@pytest.mark.T(1)
def test_a_terminal_state_is_left_only_by_retry() -> None:
    for (before, event), after in TRANSITIONS.items():
        if before in TERMINAL:
            assert event is TaskEvent.RETRY
            assert after is TaskState.READY


@pytest.mark.T(2)
def test_from_everywhere_an_end_can_be_reached() -> None:
    for state in TaskState:
        if state not in TERMINAL:
            assert any(after in TERMINAL for (before, _), after in TRANSITIONS.items() if before is state)


@pytest.mark.parametrize("state", [s for s in TaskState if s not in TERMINAL])
def test_whatever_is_not_over_can_be_cancelled(state: TaskState) -> None:
    assert next_state(state, TaskEvent.CANCEL) is TaskState.CANCELLED


@pytest.mark.parametrize("state", [s for s in TaskState if s not in TERMINAL])
def test_whatever_is_not_over_takes_a_report(state: TaskState) -> None:
    """An attempt of it may be under way somewhere, and given up on."""
    assert next_state(state, TaskEvent.FINISH) is TaskState.FINISHED
    assert next_state(state, TaskEvent.FAIL) is TaskState.FAILED
    stays = state in (TaskState.PAUSED, TaskState.WAITING)
    assert next_state(state, TaskEvent.TRY_AGAIN) is (state if stays else TaskState.READY)


@pytest.mark.T(2)
def test_only_the_tasks_own_doing_ends_it_as_failed_or_a_condition_that_is_given_up() -> None:
    assert {event for (_, event), after in TRANSITIONS.items() if after is TaskState.FAILED} == {
        TaskEvent.FAIL,
        TaskEvent.GIVE_UP,
    }
    assert {event for (_, event), after in TRANSITIONS.items() if after is TaskState.CANCELLED} == {
        TaskEvent.CANCEL,
        TaskEvent.SKIP,
    }


@pytest.mark.T(2)
def test_what_is_not_in_the_table_is_not_possible() -> None:
    for state in TaskState:
        for event in TaskEvent:
            assert next_state(state, event) == TRANSITIONS.get((state, event))
    assert next_state(TaskState.READY, TaskEvent.START) is None
    assert next_state(TaskState.RUNNING, TaskEvent.TAKE_BACK) is None


@pytest.mark.T(3)
def test_blocked_tasks_go_on_by_their_stage_and_by_nothing_else() -> None:
    """Each stage says in which state; none of them is under way or an end, where nobody could take it up."""
    assert set(RESUMES) == set(Stage)
    assert (TaskState.BLOCKED, TaskEvent.UNBLOCK) not in TRANSITIONS
    under_way = {TaskState.OFFERED, TaskState.RUNNING}
    assert not {*RESUMES.values()} & {*TERMINAL, *under_way, TaskState.BLOCKED}
    told = {
        after
        for before, event, after in moves()
        if event is TaskEvent.UNBLOCK and before is TaskState.BLOCKED
    }
    assert told == {*RESUMES.values()}


def test_the_drawing_shows_every_transition() -> None:
    arrows = {}
    for line in drawing().splitlines()[2:]:
        if "[*]" not in line:
            ends, _, events = line.strip().partition(": ")
            before, _, after = ends.partition(" --> ")
            arrows[before, after] = set(events.split(", "))
    for before, event, after in moves():
        assert event in arrows[before, after]
    assert sum(len(events) for events in arrows.values()) == len(list(moves()))
    for state in TERMINAL:
        assert f"{state} --> [*]" in drawing()
