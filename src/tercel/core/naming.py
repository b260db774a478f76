"""What tasks name by what they print is bounded: `--block-on known`.

Each task may name something else: its own directory on one full disk, its own page of one server that is overloaded. Each would
be a condition with a probe and waves of its own. So there are a few per host, and few hosts, of each kind. A task that names
another one waits for one of those instead: it finds out anew when that has cleared, and names what it meets then.

What nobody waits for any more makes room for others.
"""

from collections.abc import Callable

HOSTS_MOST = 50
"""Of a kind of tester. Directories have no host: they are of one."""
EACH_MOST = 4
"""Pages of a host, or directories."""


class Named:
    """What the tasks of a job have named, at one place."""

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: dict[str, dict[str, list[str]]] = {}
        """By kind and host, those that were named longest ago first: testers."""

    def chosen(self, tester: str, task: int, is_waited_for: Callable[[str], bool]) -> str:
        """What a task that names this is to wait for."""
        kind, host = _parts(tester)
        hosts = self._hosts.setdefault(kind, {})
        testers = hosts.get(host)
        if testers is None:
            if len(hosts) >= HOSTS_MOST and (other := _room(hosts, is_waited_for)):
                return other
            testers = hosts[host] = []
        if tester in testers:
            return tester
        if len(testers) < EACH_MOST:
            testers.append(tester)
            return tester
        at = task % EACH_MOST
        if not is_waited_for(testers[at]):
            testers[at] = tester
        return testers[at]


def _room(hosts: dict[str, list[str]], is_waited_for: Callable[[str], bool]) -> str:
    """Forget the oldest host. If something of it is still waited for, it is the newest now, and that is returned."""
    oldest = next(iter(hosts))
    testers = hosts.pop(oldest)
    for tester in testers:
        if is_waited_for(tester):
            hosts[oldest] = testers
            return tester
    return ""


def _parts(tester: str) -> tuple[str, str]:
    """Kind and host: `https://store.lab/a<500` is of store.lab, `disk:/scratch>=1G` of no host."""
    kind, _, text = tester.partition(":")
    if text.startswith("/") and not text.startswith("//"):
        return kind, ""
    server = text.partition("//")[2] if "//" in text else text
    return kind, server.partition("/")[0].partition("<")[0]
