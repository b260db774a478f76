"""The life of a task, as a table: an absent entry IS the error, and a refused transition changes nothing.

Each state says what is true in it. Tasks that are not under way exist only as members of interval sets; only a task
under way (`offered`, `staging_in`, `running`, `staging_out`) has a record of its own. The drawing in docs/reference/states.md is generated from
`moves`. A new task is ready; if it has needs that are not met, it waits at once.

What a blocked task goes on as depends on the stage in which it met its fault: that one event has a table of its own, RESUMES.

Cleanup is the worker's state, never the task's: a task is finished before cleanup starts.
"""

from collections.abc import Iterator
from enum import StrEnum


class TaskState(StrEnum):
    WAITING = "waiting"
    """For tasks that it needs, or for the end of a pause between two tries."""
    PAUSED = "paused"
    """Somebody holds it: it stays where it is until it is released."""
    BLOCKED = "blocked"
    """Something outside is broken: it waits, with others, for a condition that one probe watches."""
    READY = "ready"
    """Nothing but a worker with room is missing."""
    OFFERED = "offered"
    """A worker holds it under an attempt of its own and has not said that it runs."""
    STAGING_IN = "staging_in"
    """The worker said that it brings the files that the task reads."""
    RUNNING = "running"
    """The worker said that its process runs."""
    STAGING_OUT = "staging_out"
    """The worker said that its process has ended, and that it delivers the files that the task left."""
    FINISHED = "finished"
    """Its command ended with exit code 0. Terminal."""
    FAILED = "failed"
    """Its command ended otherwise, by its own doing, and no retry is left; or what blocked it did not clear. Terminal."""
    CANCELLED = "cancelled"
    """Somebody asked for its end. Terminal."""


class TaskEvent(StrEnum):
    WAIT = "wait"
    """Something that it needs has not ended, or its next try is not due."""
    MEET = "meet"
    """All it needs has ended as it should; or its next try is due."""
    SKIP = "skip"
    """Something that it needs will not end as it should."""
    HOLD = "hold"
    """Its owner or an admin asked."""
    RELEASE = "release"
    """Its owner or an admin asked."""
    BLOCK = "block"
    """A report: it could not go on for something outside; or that is to be looked at before it starts."""
    UNBLOCK = "unblock"
    """The condition has cleared, and it is its turn; or somebody asked."""
    GIVE_UP = "give up"
    """The condition did not clear in time; or somebody asked."""
    OFFER = "offer"
    """The manager gives it to a worker with room."""
    STAGE = "stage"
    """The worker brings what it reads."""
    START = "start"
    """The worker's process runs."""
    DELIVER = "deliver"
    """The worker delivers what it left."""
    FINISH = "finish"
    """A report: exit code 0."""
    FAIL = "fail"
    """A report: any other end that is the task's own doing, with no retry left."""
    TRY_AGAIN = "try again"
    """A report as for `fail`, with a retry left."""
    TAKE_BACK = "take back"
    """The worker gave it back unstarted."""
    LOSE = "lose"
    """The worker is gone, or could not run it for reasons of its own: nobody's retry is spent."""
    CANCEL = "cancel"
    """Its owner or an admin asked."""
    RETRY = "retry"
    """Its owner or an admin asked."""
    RECLAIM = "reclaim"
    """A worker thought lost is back and still has it."""


S, E = TaskState, TaskEvent

TRANSITIONS: dict[tuple[TaskState, TaskEvent], TaskState] = {
    (S.READY, E.WAIT): S.WAITING,
    (S.WAITING, E.MEET): S.READY,
    (S.WAITING, E.SKIP): S.CANCELLED,
    (S.WAITING, E.CANCEL): S.CANCELLED,
    (S.WAITING, E.HOLD): S.PAUSED,
    (S.READY, E.HOLD): S.PAUSED,
    (S.PAUSED, E.RELEASE): S.READY,
    (S.PAUSED, E.CANCEL): S.CANCELLED,
    (S.READY, E.BLOCK): S.BLOCKED,
    (S.BLOCKED, E.GIVE_UP): S.FAILED,
    (S.BLOCKED, E.CANCEL): S.CANCELLED,
    (S.BLOCKED, E.HOLD): S.PAUSED,
    (S.READY, E.OFFER): S.OFFERED,
    (S.READY, E.CANCEL): S.CANCELLED,
    (S.READY, E.RECLAIM): S.OFFERED,
    # The report of an attempt that was given up as lost: finished work is not redone.
    (S.READY, E.FINISH): S.FINISHED,
    (S.READY, E.FAIL): S.FAILED,
    (S.READY, E.TRY_AGAIN): S.READY,
    # The same of one that waits again, for what it needs is being run again.
    (S.WAITING, E.RECLAIM): S.OFFERED,
    (S.WAITING, E.FINISH): S.FINISHED,
    (S.WAITING, E.FAIL): S.FAILED,
    (S.WAITING, E.TRY_AGAIN): S.WAITING,
    # The same of one that was held after it was given up.
    (S.PAUSED, E.RECLAIM): S.OFFERED,
    (S.PAUSED, E.FINISH): S.FINISHED,
    (S.PAUSED, E.FAIL): S.FAILED,
    (S.PAUSED, E.TRY_AGAIN): S.PAUSED,
    # The same of one whose later attempt met what blocks it.
    (S.BLOCKED, E.RECLAIM): S.OFFERED,
    (S.BLOCKED, E.FINISH): S.FINISHED,
    (S.BLOCKED, E.FAIL): S.FAILED,
    (S.BLOCKED, E.TRY_AGAIN): S.READY,
    (S.OFFERED, E.START): S.RUNNING,
    (S.OFFERED, E.FINISH): S.FINISHED,
    (S.OFFERED, E.FAIL): S.FAILED,
    (S.OFFERED, E.TRY_AGAIN): S.READY,
    (S.OFFERED, E.BLOCK): S.BLOCKED,
    (S.OFFERED, E.TAKE_BACK): S.READY,
    (S.OFFERED, E.LOSE): S.READY,
    (S.OFFERED, E.CANCEL): S.CANCELLED,
    (S.OFFERED, E.STAGE): S.STAGING_IN,
    (S.OFFERED, E.DELIVER): S.STAGING_OUT,
    (S.STAGING_IN, E.START): S.RUNNING,
    (S.STAGING_IN, E.DELIVER): S.STAGING_OUT,
    (S.STAGING_IN, E.FINISH): S.FINISHED,
    (S.STAGING_IN, E.FAIL): S.FAILED,
    (S.STAGING_IN, E.TRY_AGAIN): S.READY,
    (S.STAGING_IN, E.BLOCK): S.BLOCKED,
    (S.STAGING_IN, E.TAKE_BACK): S.READY,
    (S.STAGING_IN, E.LOSE): S.READY,
    (S.STAGING_IN, E.CANCEL): S.CANCELLED,
    (S.RUNNING, E.DELIVER): S.STAGING_OUT,
    (S.STAGING_OUT, E.FINISH): S.FINISHED,
    (S.STAGING_OUT, E.FAIL): S.FAILED,
    (S.STAGING_OUT, E.TRY_AGAIN): S.READY,
    (S.STAGING_OUT, E.BLOCK): S.BLOCKED,
    (S.STAGING_OUT, E.LOSE): S.READY,
    (S.STAGING_OUT, E.CANCEL): S.CANCELLED,
    (S.RUNNING, E.FINISH): S.FINISHED,
    (S.RUNNING, E.FAIL): S.FAILED,
    (S.RUNNING, E.TRY_AGAIN): S.READY,
    (S.RUNNING, E.BLOCK): S.BLOCKED,
    (S.RUNNING, E.LOSE): S.READY,
    (S.RUNNING, E.CANCEL): S.CANCELLED,
    (S.FINISHED, E.RETRY): S.READY,
    (S.FAILED, E.RETRY): S.READY,
    (S.CANCELLED, E.RETRY): S.READY,
}


class Stage(StrEnum):
    """Of what is done for a task, one after the other."""

    ADMISSION = "admission"
    """Before it is tried: what a rule asks about first, or what others have just met again."""
    LAUNCH = "launch"
    """A worker could not begin it."""
    STAGE_IN = "stage-in"
    """A file that it reads could not be brought."""
    RUN = "run"
    """Its command ended so, or was ended."""
    STAGE_OUT = "stage-out"
    """A file that it left could not be delivered. It is kept at its worker, and delivered from there."""
    REGISTER = "register"
    """A file that it left, and that was delivered, could not be registered: its name is taken."""


RESUMES = {
    Stage.ADMISSION: S.READY,
    Stage.LAUNCH: S.READY,
    Stage.STAGE_IN: S.READY,
    Stage.RUN: S.READY,
    Stage.STAGE_OUT: S.STAGING_OUT,
    Stage.REGISTER: S.STAGING_OUT,
}
"""BLOCKED on UNBLOCK, by the stage in which the task met its fault. READY: it is begun anew, by any worker. STAGING_OUT: the worker
that keeps what it left goes on with that; if that worker is not there, the task is READY as well."""


def rests_as(stage: Stage) -> TaskState:
    """What a task that is let go is at first, and stays if nobody keeps what it left."""
    after = RESUMES[stage]
    return S.READY if after is S.STAGING_OUT else after


TERMINAL = frozenset({S.FINISHED, S.FAILED, S.CANCELLED})


class Checkpoint(StrEnum):
    """What a task can be rolled back to, in the order in which it comes to them."""

    ACCEPTED = "accepted"
    """Nothing of it is done."""
    STAGED = "staged"
    """Its inputs are at hand."""


def next_state(state: TaskState, event: TaskEvent) -> TaskState | None:
    """The state after `event`, or None where the table has no such entry."""
    return TRANSITIONS.get((state, event))


def moves() -> Iterator[tuple[TaskState, TaskEvent, TaskState]]:
    """Both tables: before, event, after."""
    for (before, event), after in TRANSITIONS.items():
        yield before, event, after
    for after in dict.fromkeys(RESUMES.values()):
        yield S.BLOCKED, E.UNBLOCK, after


def drawing() -> str:
    """The tables as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2", f"    [*] --> {S.READY}"]
    arrows: dict[tuple[TaskState, TaskState], list[str]] = {}
    for before, event, after in moves():
        arrows.setdefault((before, after), []).append(event)
    lines += [f"    {before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in TaskState if state in TERMINAL]
    return "\n".join(lines) + "\n"
