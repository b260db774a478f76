"""How a lane's process is started: where it works, what it is told on its command line, what it inherits."""

import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

import tercel
from tercel.runners import cgroups
from tercel.runners.cgroups import Places
from tercel.runners.engines import Containers
from tercel.wire.messages import INLINE_OUTPUT_BYTES, SEGMENT_BYTES

_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from tercel.runners.spawner import main; main()"
_OWN_VARIABLES = "TERCEL_"
"""Variables of the worker that begin so (its token is one) are not for tasks."""
CONTAINERS = "containers"
"""A file that is there while some may be: those of a worker that was killed are removed at the next start."""
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
"""How many this process might open when it began. A manager in it raises its own limit; tasks keep this one, for some
programs slow down or break at a high one.
"""


class Directories(msgspec.Struct, frozen=True):
    """Where a spawner works."""

    lane: Path
    """Its own; its sandbox is in it."""
    trash: Path
    outputs: Path
    number: int = 0
    """The lane's."""
    groups: Places = {}
    """Control groups for it, made when they are needed."""
    container_args: str = ""
    """For the container engine, one per line."""


def own_environment() -> dict[str, str]:
    """This process's, without what is not for tasks."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}


def limit_files(pid: int) -> None:
    """Before it is given anything to run, so that tasks have it too."""
    if resource.getrlimit(resource.RLIMIT_NOFILE) != _FILES:
        with suppress(OSError):  # it died at once, which is noticed elsewhere; or it may not be done here
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _FILES)


def containers_of(directories: Directories, node: str) -> Containers:
    """As its spawner has them."""
    environment = {os.fsencode(name): os.fsencode(value) for name, value in own_environment().items()}
    return Containers(node, os.fsencode(directories.lane), directories.container_args, environment)


def config_words(directories: Directories, node: str) -> list[str]:
    """What Config is made of, on both sides."""
    places = [str(directories.lane), str(directories.trash), str(directories.outputs)]
    sizes = [str(INLINE_OUTPUT_BYTES), str(SEGMENT_BYTES)]
    groups = cgroups.as_text(directories.groups)
    return [*places, node, *sizes, str(directories.number), groups, directories.container_args]


def start_spawner(fd: int, directories: Directories, node: str) -> "subprocess.Popen[bytes]":
    source = Path(tercel.__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, source, str(fd), *config_words(directories, node)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(fd,),
        env=own_environment(),
        start_new_session=True,
    )
