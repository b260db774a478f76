"""Attempts in containers: by podman, docker or apptainer (singularity), whichever a node has, in this order.

Whatever the engine, the command runs in the image with the sandbox at its own path, as the directory it starts in,
and with the job's and Tercel's variables. The image's entry point is not used: the command is the task's.

A container is named after its attempt. It is removed when the attempt is over, and if the attempt is ended the
container is what is ended. An engine's own fault (no such image, say) is never the task's.
"""

import os
import signal
from collections.abc import Iterable

from tercel.runners import trees
from tercel.runners.asking import Answer, ask
from tercel.runners.cgroups import CPU, MEMORY, PIDS
from tercel.runners.commands import Command, find_executable
from tercel.runners.guard import Limits, out_of_memory
from tercel.runners.isolation import PROBE_S, Conclusion, Isolation

ENGINES = ("podman", "docker", "apptainer", "singularity")
_OCI = ("podman", "docker")
REMOVE_S = 60.0
_ENGINE_FAULT, _NOT_RUNNABLE = 125, (126, 127)
_KILLED = 128 + int(signal.SIGKILL)
_PASSING = ("toomanyrequests", "too many requests", "try again")
"""In an engine's words: it will be otherwise in a while. (A registry that cannot be reached from a node may never be.)"""
_TERCEL_NAMES = (
    *(b"TERCEL_" + name for name in (b"JOB_ID", b"TASK_ID", b"ATTEMPT", b"NODE", b"SANDBOX", b"POINT")),
    b"SLURM_ARRAY_JOB_ID",
    b"SLURM_ARRAY_TASK_ID",
)
_MINDED = (b"PATH", b"HOME", b"TMPDIR", b"XDG_", b"LD_", b"DOCKER_", b"CONTAINER", b"BUILDAH_")
"""Variables (or how their names begin) that engines heed themselves."""

Variables = dict[bytes, bytes]


def found(search: bytes) -> list[tuple[str, bytes]]:
    """The engines there are, by name and path, in the order in which they are tried."""
    engines = []
    for name in ENGINES:
        try:
            engines.append((name, find_executable(name.encode(), search)))
        except OSError:
            continue
    return engines


def for_engine(own: Variables) -> Variables:
    """What of a job's variables the engine may be started with: it hands them on by name, out of other users' sight."""
    return {name: value for name, value in own.items() if not name.startswith(_MINDED)}


class Containers:
    """What a spawner knows of the node's engine; the attempts of a job are run by what `of` returns."""

    def __init__(self, node: str, lane: bytes, arguments: str, environment: Variables) -> None:
        """`arguments`: more for the engine, one per line; those before a line `run` stand before that word."""
        self.node = node
        self.lane = lane
        self.environment = environment
        words = [os.fsencode(word) for word in arguments.split("\n") if word]
        at = words.index(b"run") if b"run" in words else 0
        self.before, self.after = words[:at], words[at + 1 :] if at or words[:1] == [b"run"] else words

    def of(self, image: str, own: Variables, limits: Limits) -> Isolation:
        """Of a job with these variables of its own."""
        refusals = []
        for name, path in self._found():
            isolation: Isolation
            if name in _OCI:
                isolation = _Oci(self, name, path, image.encode(), own, limits)
            else:
                isolation = _Apptainer(self, path, image.encode(), own)
            if not (why := isolation.refusal()):
                return isolation
            refusals.append(why)
        none = f"{self.node} has no container engine ({', '.join(ENGINES)})"
        return _NoEngine("; ".join(refusals) or none)

    def _found(self) -> list[tuple[str, bytes]]:
        return found(self.environment.get(b"PATH", os.defpath.encode()))

    def remove_left(self, whole_worker: bool) -> None:
        """Of this lane, or of all lanes of its worker: what their spawners could not remove, killed as they were."""
        filters = [b"--filter", label(self.lane, b"label=tercel")]
        if not whole_worker:
            filters += [b"--filter", b"name=" + name_of(self.lane)]
        for name, path in self._found():
            if name in _OCI:
                self._remove([path, *self.before], filters)

    def _remove(self, start: list[bytes], filters: list[bytes]) -> None:
        left = ask([*start, b"ps", b"--all", b"--quiet", *filters], self.environment, PROBE_S)
        if not left.code and (ids := left.text.split()):
            ask([*start, b"kill", *map(str.encode, ids)], self.environment, REMOVE_S)
            ask([*start, b"rm", b"--force", *map(str.encode, ids)], self.environment, REMOVE_S)


class _NoEngine(Isolation):
    def __init__(self, why: str) -> None:
        self._why = why

    def refusal(self) -> str:
        return self._why


class _Oci(Isolation):
    """podman or docker: the engine makes the container's groups, so it is given the limits."""

    def __init__(
        self, node: Containers, name: str, path: bytes, image: bytes, own: Variables, limits: Limits
    ) -> None:
        self._node = node
        self._engine = name
        self._start = [path, *node.before]
        self._image = image
        self._own = own
        self._limits = limits
        self.holds = frozenset()
        self._container = b""
        self._refusal: str | None = None

    def refusal(self) -> str:
        if self._refusal is None:
            self._refusal = self._probe()
        return self._refusal

    def _probe(self) -> str:
        """Whether it answers, and what it can limit (an ordinary user's may not be able to)."""
        if self._engine == "podman":
            asked = "{{range .Host.CgroupControllers}}{{.}} {{end}}"
        else:
            asked = (
                "{{if .MemoryLimit}}memory {{end}}{{if .CPUCfsQuota}}cpu {{end}}{{if .PidsLimit}}pids{{end}}"
            )
        answer = self._ask(b"info", b"--format", asked.encode())
        if answer.code:
            return f"{self._engine} does not work on {self._node.node}: {_words(answer.text) or answer.code}"
        self.holds = frozenset(answer.last_line.split()) & {MEMORY, CPU, PIDS}
        return ""

    def _ask(self, *words: bytes) -> Answer:
        return ask([*self._start, *words], self._node.environment, PROBE_S)

    # -- running --------------------------------------------------------------------------------------------

    def command(self, command: Command, sandbox: bytes, cwd: bytes, attempt: int) -> Command:
        self._container = b"%s%d" % (name_of(self._node.lane), attempt)
        words = [*self._start, b"run", b"--name", self._container, b"--label", label(self._node.lane)]
        words += [b"--network", b"host", b"--entrypoint", b"", b"--workdir", cwd or sandbox]
        if self._engine == "podman":
            words += [b"--security-opt", b"label=disable"]
        elif os.getuid():
            words += [b"--user", b"%d:%d" % (os.getuid(), os.getgid())]
        for directory in filter(None, (sandbox, cwd)):
            words += [b"--mount", b"type=bind,source=%s,target=%s" % (directory, directory)]
        words += [*self._variables(), *self._limit_words(), *self._gpu_words(), *self._node.after]
        inside = Command([*words, self._image, *command.words])
        inside.path = self._start[0]
        return inside

    def _variables(self) -> Iterable[bytes]:
        """By name where the engine itself may have them too."""
        handed_on = for_engine(self._own)
        for name in (*_TERCEL_NAMES, *handed_on):
            yield from (b"--env", name)
        for name in self._own.keys() - handed_on.keys():
            yield from (b"--env", b"%s=%s" % (name, self._own[name]))

    def _limit_words(self) -> list[bytes]:
        limits, holds = self._limits, self.holds or frozenset()
        words: list[bytes] = []
        if limits.mem_bytes and MEMORY in holds:
            words += [b"--memory", b"%db" % limits.mem_bytes, b"--memory-swap", b"%db" % limits.mem_bytes]
        if limits.millicpus and CPU in holds:
            words += [b"--cpus", b"%.3f" % (limits.millicpus / 1000)]
        if limits.pids and PIDS in holds:
            words += [b"--pids-limit", b"%d" % limits.pids]
        return words

    def _gpu_words(self) -> list[bytes]:
        if not self._own.get(b"CUDA_VISIBLE_DEVICES"):
            return []
        if self._engine == "podman":
            return [b"--device", b"nvidia.com/gpu=all"]
        return [b"--gpus", b"all"]

    def terminate(self, pid: int) -> None:
        """The engine hands the signal to the container's first process. One that was not made yet ends with its client."""
        if self._ask(b"kill", b"--signal", b"TERM", self._container).code:
            trees.signal_all([pid], signal.SIGTERM)

    def warn(self, number: int) -> bool:
        """The container's first process. The kernel keeps a signal from it that it does not heed."""
        return not self._ask(b"kill", b"--signal", b"%d" % number, self._container).code

    # -- when it is over ------------------------------------------------------------------------------------

    def conclude(self, code: int, killed: bool, said: str) -> Conclusion | None:
        if killed:
            self._ask(b"kill", self._container)
        asked = b"{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}"
        seen = self._ask(b"inspect", b"--type", b"container", b"--format", asked, self._container)
        ask([*self._start, b"rm", b"--force", self._container], self._node.environment, REMOVE_S)
        if killed:
            return None
        status, _, rest = seen.last_line.partition(" ") if not seen.code else ("", "", "")
        if status in ("exited", "stopped", "removing", "dead"):
            return self._exited(code, rest.endswith("true"))
        if code in _NOT_RUNNABLE:
            return Conclusion("exited", code, _words(said))
        return fault(f"{self._engine} on {self._node.node}: {_words(said) or f'it ended with {code}'}")

    def _exited(self, code: int, starved: bool) -> Conclusion | None:
        """Not every engine notices that memory ran out; nobody but the kernel and we would kill a container."""
        mem_bytes = self._limits.mem_bytes
        if mem_bytes and self.holds and MEMORY in self.holds and (starved or code == _KILLED):
            excess = out_of_memory(mem_bytes)
            return Conclusion("exceeded", code, excess.note, excess)
        return None


class _Apptainer(Isolation):
    """Its containers are ordinary processes below it: they stay in the lane's groups, and its variables are theirs."""

    def __init__(self, node: Containers, path: bytes, image: bytes, own: Variables) -> None:
        self._node = node
        self._start = [path, *node.before]
        self._image = image
        self._own = own

    def command(self, command: Command, sandbox: bytes, cwd: bytes, attempt: int) -> Command:  # noqa: ARG002
        words = [*self._start, b"exec", b"--pwd", cwd or sandbox]
        for directory in filter(None, (sandbox, cwd)):
            words += [b"--bind", directory]
        if self._own.get(b"CUDA_VISIBLE_DEVICES"):
            words.append(b"--nv")
        inside = Command([*words, *self._node.after, self._image, *command.words])
        inside.path = self._start[0]
        return inside

    def conclude(self, code: int, killed: bool, said: str) -> Conclusion | None:
        words = _words(said)
        if code == 255 and not killed and words.startswith("FATAL:"):
            return fault(f"{os.fsdecode(self._start[0])} on {self._node.node}: {words}")
        return None


def label(lane: bytes, name: bytes = b"tercel") -> bytes:
    """Of the containers of one worker: its directory."""
    return name + b"=" + os.path.dirname(os.path.dirname(lane))  # noqa: PTH120


def name_of(lane: bytes) -> bytes:
    """How the names of a lane's containers begin; the attempt's number follows."""
    return b"tercel-%s-" % os.path.basename(lane)  # noqa: PTH119


def fault(words: str) -> Conclusion:
    """Of an engine. This node cannot run the job; or, if it may pass, any may try again."""
    passing = any(word in words.lower() for word in _PASSING)
    return Conclusion("interrupted" if passing else "refused", 0, words)


def _words(said: str) -> str:
    """The line that says what was wrong: the last that calls itself an error, or else the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if line.lower().startswith(("error", "fatal", "docker: "))]
    return (named or lines or [""])[-1]
