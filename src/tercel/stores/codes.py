"""Small numbers for states, ends, blames and stages, in files of ours: never changed, never used again for something else."""

from tercel.core.reports import Blame, End
from tercel.core.states import Stage, TaskState

STATE_CODES = {
    TaskState.FINISHED: 1,
    TaskState.FAILED: 2,
    TaskState.CANCELLED: 3,
    TaskState.BLOCKED: 4,  # in history only
}
END_CODES = {
    End.EXITED: 1,
    End.SIGNALLED: 2,
    End.TIMED_OUT: 3,
    End.CANCELLED: 4,
    End.REFUSED: 5,
    End.INTERRUPTED: 6,
    End.SKIPPED: 7,
    End.EXCEEDED: 8,
    End.BLOCKED: 9,
    End.UNSTAGED: 10,
}
BLAME_CODES = {Blame.TASK: 1, Blame.WORKER: 2, Blame.NODE: 3, Blame.OUTSIDE: 4}
STAGE_CODES = {
    Stage.ADMISSION: 1,
    Stage.LAUNCH: 2,
    Stage.RUN: 3,
    Stage.STAGE_IN: 4,
    Stage.STAGE_OUT: 5,
    Stage.REGISTER: 6,
}
STATES = {code: state for state, code in STATE_CODES.items()}
ENDS = {code: end for end, code in END_CODES.items()}
BLAMES = {code: blame for blame, code in BLAME_CODES.items()}
STAGES = {code: stage for stage, code in STAGE_CODES.items()}
