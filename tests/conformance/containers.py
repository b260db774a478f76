"""Whether this machine can isolate tasks, and an image to run them in (nothing is fetched for it)."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conformance.runners import WAIT_S


@functools.cache
def bwrap_works() -> bool:
    probe = "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --unshare-pid true"
    return shutil.which("bwrap") is not None and subprocess.run(probe.split(), check=False).returncode == 0


needs_bwrap = pytest.mark.skipif(not bwrap_works(), reason="bwrap is not installed, or may not be used here")

IMAGE = "tercel-test/busybox:1"
ARGS = (
    "--cgroup-manager=cgroupfs --runtime runc run --ulimit nofile=1024:2048 --ulimit nproc=1000:1000"
    if os.geteuid() == 0 and shutil.which("runc")
    else ""
)
"""What this kind of machine (control groups of both versions, no CAP_SYS_RESOURCE) needs."""


def podman(*words: str, **options: object) -> "subprocess.CompletedProcess[str]":
    before = ARGS.split(" run ")[0].split()
    return subprocess.run(
        ["podman", *before, *words], check=False, capture_output=True, text=True, timeout=WAIT_S, **options
    )  # type: ignore[call-overload]


@functools.cache
def has_image() -> bool:
    busybox = Path("/bin/busybox")
    if shutil.which("podman") is None or not busybox.exists():
        return False
    made = subprocess.run(
        "mkdir -p $D/bin $D/tmp && cp /bin/busybox $D/bin/ && /bin/busybox --install -s $D/bin 2>/dev/null;"
        "for a in sh sleep cat env awk touch; do ln -sf busybox $D/bin/$a; done;"
        f"tar -C $D -c . | podman import - {IMAGE}; rm -rf $D",
        shell=True,
        check=False,
        capture_output=True,
        env=os.environ | {"D": f"/tmp/tercel-test-image-{os.getpid()}"},
        timeout=WAIT_S,
    )
    return (
        made.returncode == 0
        and podman("run", "--rm", *ARGS.split()[4:], IMAGE, "sh", "-c", ":").returncode == 0
    )
