"""A worker behind NAT: three network namespaces, and nothing touched outside of them. Needs root.

    [worker 10.99.1.2] ---- [router, masquerades] ---- [manager 10.99.2.1]
                       r0                         r1

The manager's side has no route to the worker's: it cannot be dialled. Clients run where the manager is.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.lab import Lab

MANAGER, WORKER = "10.99.2.1", "10.99.1.2"

_numbers = count()


def why_not() -> str:
    """Why no such network can be made here; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "iptables", "sysctl") if shutil.which(name) is None]
    return f"needs {' and '.join(missing)}" if missing else ""


class Network:
    def __init__(self) -> None:
        # Interface names have at most 15 characters, and other tests may run at the same time.
        self.name = f"tc{os.getpid() % 100_000}{chr(ord('a') + next(_numbers) % 26)}"
        self.worker, self.router, self.manager = (f"{self.name}{side}" for side in "wrm")

    def up(self) -> None:
        name, worker, router, manager = self.name, self.worker, self.router, self.manager
        for space in (worker, router, manager):
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
        for near, space, far in ((f"{name}w0", worker, f"{name}r0"), (f"{name}m0", manager, f"{name}r1")):
            _ip("link", "add", near, "netns", space, "type", "veth", "peer", "name", far, "netns", router)
        for space, address, device in (
            (worker, f"{WORKER}/24", f"{name}w0"),
            (router, "10.99.1.1/24", f"{name}r0"),
            (router, "10.99.2.2/24", f"{name}r1"),
            (manager, f"{MANAGER}/24", f"{name}m0"),
        ):
            _ip("-n", space, "addr", "add", address, "dev", device)
            _ip("-n", space, "link", "set", device, "up")
        _ip("-n", worker, "route", "add", "default", "via", "10.99.1.1")
        _run("ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        self._iptables(
            "-t", "nat", "-A", "POSTROUTING", "-s", "10.99.1.0/24", "-o", f"{name}r1", "-j", "MASQUERADE"
        )

    def down(self) -> None:
        for space in (self.worker, self.router, self.manager):
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)

    def break_link(self, how: str) -> None:
        """`cut`: no carrier. `drop`: packets vanish. `reset`: every packet is answered with a reset."""
        match how:
            case "cut":
                _ip("-n", self.router, "link", "set", f"{self.name}r0", "down")
            case "drop":
                self._iptables("-I", "FORWARD", "-j", "DROP")
            case "reset":
                self._iptables("-I", "FORWARD", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")

    def heal(self) -> None:
        _ip("-n", self.router, "link", "set", f"{self.name}r0", "up")
        self._iptables("-F", "FORWARD")

    def _iptables(self, *words: str) -> None:
        _run("ip", "netns", "exec", self.router, "iptables", "-w", *words)


class NatLab(Lab):
    """A lab whose manager and clients are on one side of the router, its workers on the other."""

    def __init__(self, root: Path, network: Network) -> None:
        super().__init__(root)
        self.network = network
        self.host = MANAGER
        self.prefix = ("ip", "netns", "exec", network.manager)
        self.worker_prefix = ("ip", "netns", "exec", network.worker)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)


@pytest.fixture
def nat_lab(tmp_path: Path) -> Iterator[NatLab]:
    if reason := why_not():
        pytest.skip(reason)
    network = Network()
    lab = NatLab(tmp_path, network)
    try:
        network.up()
        yield lab
    finally:
        print(lab.story())  # shown if the test failed
        lab.close()
        network.down()
