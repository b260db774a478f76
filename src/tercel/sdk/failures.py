"""What a future raises when its function did not even get to raise something itself.

    TercelError
      +- TaskFailed             killed, over its time limit, crashed, impossible to run
           +- DependencyFailed  never begun, because a value that it needs will never be there

All can be pickled, so that they may be passed on.
"""

from tercel.core.errors import TercelError


class TaskFailed(TercelError):
    """`task_id` as in 37.4, and what happened, in words."""

    def __init__(self, task_id: str, what: str) -> None:
        super().__init__(f"task {task_id} {what}; what it wrote: tercel logs {task_id}")
        self.task_id = task_id
        self.what = what

    def __reduce__(self) -> tuple[type["TaskFailed"], tuple[str, str]]:
        return type(self), (self.task_id, self.what)


class DependencyFailed(TaskFailed):
    """A task whose value was an argument of this one failed or was cancelled."""


class RemoteTraceback(Exception):
    """Where on the worker an exception was raised, as its cause: so that Python shows it above the exception."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
