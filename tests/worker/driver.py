"""A driver's library with two GPUs and the few functions of NVML that are asked: the real one cannot run everywhere."""

import shutil
import subprocess
from pathlib import Path

import pytest

with_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

FAKE_NVML = r"""
#include <string.h>
static int devices[2];
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInitWithFlags(unsigned flags) { return INIT; }
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &devices[index]; return 0; }
static int number_of(void *device) { return (int)((int *)device - devices); }
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    strncpy(name, number_of(device) ? "Fake 200" : "Fake 100", length); return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    strncpy(uuid, number_of(device) ? "GPU-bbbb" : "GPU-aaaa", length); return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory *told) {
    told->total = (number_of(device) + 1) * 8589934592ULL; told->free = told->used = 0; return 0;
}
const char *nvmlErrorString(int code) { return "the driver is not loaded"; }
"""


def make_driver(dir: Path, init: int = 0) -> None:
    """To be found by LD_LIBRARY_PATH; `init`: the code with which it answers when it is first asked."""
    source, library = dir / "nvml.c", dir / "libnvidia-ml.so.1"
    source.write_text(FAKE_NVML)
    subprocess.run(["cc", "-shared", "-fPIC", f"-DINIT={init}", "-o", library, source], check=True)
