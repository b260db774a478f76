"""A job's program, made ready once for all its attempts in a lane: arguments, environment, limits."""

import os

from tercel.runners.commands import SHELL, Command, find_executable
from tercel.runners.engines import Containers, for_engine
from tercel.runners.guard import Limits
from tercel.runners.isolation import Bubblewrap, Isolation
from tercel.runners.posix_spawn import Strings

_NUMBERED = (b"TERCEL_TASK_ID", b"SLURM_ARRAY_TASK_ID", b"TERCEL_ATTEMPT")
"""Variables that change with each attempt."""


class Program:
    """What a spawner knows of a job."""

    def __init__(
        self,
        containers: Containers,
        job: int,
        argv: list[str] | None,
        line: str,
        cwd: str,
        env: dict[str, str],
        task_id_argument: bool,
        time_limit_s: float,
        kill_grace_s: float,
        output_limit_bytes: int,
        limits: tuple[int, int, int, int],
        lane_env: dict[str, str],
        warning: tuple[int, float],
        isolate: str,
        container: str,
        keep: str,
        cleans: bool,
    ) -> None:
        """`lane_env`: variables that the lane has for it. `warning`: a signal, and how long before the time limit.

        `keep`: what becomes of the sandbox, as core.model.Keep. `cleans`: it is needed for the cleanup that follows.
        """
        self.job = job
        self.limits = Limits(*limits)
        self.warn_signal, self.warn_s = warning
        self.keep = keep
        self.cleans = cleans
        self.cwd = cwd.encode()
        self.time_limit_s = time_limit_s
        self.kill_grace_s = kill_grace_s
        self.output_limit_bytes = output_limit_bytes
        self._argv = argv
        self._line = line
        self._task_id_argument = task_id_argument
        self._common: Command | None = None
        """The same for all tasks, unless they have lines or arguments of their own."""
        own = {name.encode(): value.encode() for name, value in (*env.items(), *lane_env.items())}
        base_env = containers.environment
        variables = base_env | (for_engine(own) if container else own)
        self.isolation: Isolation | None = None
        """What its attempts run inside of, if anything."""
        if container:
            self.isolation = containers.of(container, own, self.limits)
        elif isolate:
            self.isolation = Bubblewrap(containers.node, containers.lane, variables, self.cwd)
        variables[b"TERCEL_JOB_ID"] = variables[b"SLURM_ARRAY_JOB_ID"] = b"%d" % job
        self._search = variables.get(b"PATH", os.defpath.encode())
        for name in (*_NUMBERED, b"TERCEL_SANDBOX", b"TERCEL_POINT"):
            variables.pop(name, None)
        self._variables = [b"%s=%s" % variable for variable in variables.items()]
        self._environment: Strings | None = None
        self._sandbox = b""
        """The one in _environment."""
        self._found: dict[bytes, bytes] = {}

    def environment(self, task: int, attempt: int, sandbox: bytes, point: str = "") -> Strings:
        """Good until the next call. Raises ValueError for variables that cannot be handed to a process."""
        if self._environment is None or sandbox != self._sandbox:
            fixed = [*self._variables, b"TERCEL_SANDBOX=" + sandbox]
            self._environment = Strings(fixed, [name + b"=" for name in _NUMBERED])
            self._sandbox = sandbox
        self._environment.number(task, task, attempt)
        if point:
            self._environment.add(b"TERCEL_POINT=" + point.encode())
        return self._environment

    def command(self, task: int, argv: list[str] | None, line: str) -> Command:
        """Of a task's own command if it has one, else the job's. Raises ValueError as Command does."""
        own = bool(line) or argv is not None
        if self._common is not None and not own:
            return self._common
        command = Command(self._words(task, argv if own else self._argv, line or self._line))
        if not own and not self._task_id_argument:
            self._common = command
        return command

    def _words(self, task: int, argv: list[str] | None, line: str) -> list[bytes]:
        """A line that needs a shell (it has no argv) gets one."""
        if argv is not None:
            words = [word.encode() for word in argv]
            return [*words, b"%d" % task] if self._task_id_argument else words
        if self._task_id_argument:
            line = f"{line.rstrip()} {task}"  # digits need no quoting
        return [SHELL, b"-c", line.encode()]

    def look_up(self, command: Command) -> None:
        """As a shell does, once per job and name. Raises FileNotFoundError or PermissionError."""
        name = command.words[0]
        if b"/" in name:
            command.path = name
            return
        if name not in self._found:
            self._found[name] = find_executable(name, self._search)
        command.path = self._found[name]

    def look_again(self, command: Command) -> bool:
        """Whether what was found earlier has moved, and is found elsewhere."""
        if self._found.pop(command.words[0], None) is None:
            return False
        self.look_up(command)
        return True
