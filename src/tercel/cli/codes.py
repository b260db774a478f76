"""Exit codes of every command, and what went wrong first."""

OK = 0
TASK_FAILED = 1
"""A task failed, or was cancelled: not everything was done."""
USAGE = 2
UNREACHABLE = 3
"""No manager can serve the request now: nobody answers, or its disk is full. Also if stdout's disk is."""
BUG = 70
INTERRUPTED = 130
NO_READER = 141
TERMINATED = 143


def first_cause(error: BaseException) -> BaseException:
    """Out of the groups that concurrent parts wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
