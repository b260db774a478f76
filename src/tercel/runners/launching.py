"""How a spawner starts an attempt: its sandbox, its limits, its command; and what is said if it cannot be."""

import errno
import os
from collections.abc import Callable

from tercel.runners import commands, programs, trees
from tercel.runners.bounds import Bounds
from tercel.runners.cgroups import Group
from tercel.runners.isolation import Isolation
from tercel.runners.pipes import Pipes
from tercel.runners.posix_spawn import Starter, Strings
from tercel.runners.reports import Config, Reports
from tercel.runners.run import Run
from tercel.runners.sandbox import Sandbox


class Launcher:
    def __init__(
        self,
        config: Config,
        sandbox: Sandbox,
        pipes: Pipes,
        starter: Starter,
        reports: Reports,
        meanwhile: Callable[[], None],
    ) -> None:
        """`meanwhile` is called between the pieces of what may take long."""
        self._config = config
        self._sandbox = sandbox
        self._pipes = pipes
        self._starter = starter
        self._reports = reports
        self._meanwhile = meanwhile
        self._program: programs.Program | None = None
        """The one that `bounds` are set for."""
        self.bounds = Bounds(Group(config.groups), config.number, own_processes=1)

    def start(self, run: Run) -> bool:
        """Whether it runs; if not, that is reported."""
        launch, program, sandbox = run.launch, run.launch.program, self._sandbox
        try:
            if not sandbox.ready:
                sandbox.prepare()
            if not program.cwd:
                os.chdir(sandbox.path)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            note = f"no sandbox on {self._config.node}: {reason}"
            self._reports.add(run, "interrupted", 0, note, commands.errno_name(error))
            return False
        if program.cwd and not self._enter(run, program.cwd):
            return False
        if program.isolation is not None and (why := program.isolation.refusal()):
            self._reports.add(run, "refused", 0, why)
            return False
        if launch.files is not None and launch.files[0] and not self._put_files(run):
            return False
        if program is not self._program:
            self._program = program
            self._bound(program)
        try:
            command = program.command(launch.task, launch.argv, launch.line)
            environment = program.environment(launch.task, launch.attempt, sandbox.path, launch.point)
        except ValueError as error:
            self._reports.add_not_started(run, 126, str(error))
            return False
        try:
            run.pid = self._execute(run, command, environment)
        except OSError as error:
            self._reports.add_not_started(run, *commands.why_not_started(error, command))
            return False
        return True

    def _put_files(self, run: Run) -> bool:
        from tercel.runners.run_files import put  # noqa: PLC0415  # 10 ms that only those with files pay

        self._sandbox.fill()
        fault = put(run, self._sandbox.path, self._config.node, self._meanwhile)
        if fault is not None:
            self._reports.add(run, *fault)
            return False
        run.begin()
        return True

    def _bound(self, program: programs.Program) -> None:
        """Before the first attempt of a job."""
        if program.isolation is None:
            self.bounds.apply(program.limits)
        else:
            self.bounds.apply(program.limits, program.isolation.holds, program.isolation.helpers)

    def _enter(self, run: Run, cwd: bytes) -> bool:
        try:
            os.chdir(cwd)
        except OSError as error:
            end = "refused" if error.errno in commands.NOT_A_DIRECTORY else "interrupted"
            where = f"directory {cwd.decode(errors='replace')} on {self._config.node}"
            note = f"cannot enter {where}: {os.strerror(error.errno or 0)}"
            self._reports.add(run, end, 0, note, commands.errno_name(error))
            return False
        return True

    def _execute(self, run: Run, command: commands.Command, environment: Strings) -> int:
        if not self._pipes.readers:
            self._pipes.open()
        program = run.launch.program
        if program.isolation is not None:
            command = self._inside(run, command, program.isolation)
        elif not command.path:
            program.look_up(command)
        if program.limits.watched:
            return self._execute_guarded(run, command, environment)
        return self._spawn(program, command, environment)

    def _inside(self, run: Run, command: commands.Command, isolation: Isolation) -> commands.Command:
        program = run.launch.program
        if isolation.looks_up:
            program.look_up(command)
        return isolation.command(command, self._sandbox.path, program.cwd, run.launch.attempt)

    def _execute_guarded(self, run: Run, command: commands.Command, environment: Strings) -> int:
        bounds = self.bounds
        run.guard = bounds.guard(own_tree, self._sandbox.path, run.begun)
        run.set_due()
        bounds.before_start()
        try:
            return self._spawn(run.launch.program, command, environment)
        finally:
            bounds.after_start()

    def _spawn(self, program: programs.Program, command: commands.Command, environment: Strings) -> int:
        out, err = self._pipes.writers
        try:
            return self._starter.start(command.path, command.arguments, environment, out, err)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                command = command.by_shell()
            elif error.errno != errno.ENOENT or not program.look_again(command):
                raise
        return self._starter.start(command.path, command.arguments, environment, out, err)


def own_tree() -> list[int]:
    """All that descends from this process belongs to the attempt under way."""
    return trees.descendants(os.getpid())
