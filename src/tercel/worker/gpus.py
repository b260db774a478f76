"""GPUs of this node, as NVML tells, and which of them are given to tasks.

Ids are those that CUDA_VISIBLE_DEVICES takes: numbers in the order of the PCI bus (as nvidia-smi shows them, and as tasks
count them with CUDA_DEVICE_ORDER=PCI_BUS_ID) or UUIDs. Where the worker's own CUDA_VISIBLE_DEVICES leaves it some of them
only (a batch system's doing), the others are not its to give.
"""

import ctypes
import logging
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from tercel.core.errors import UsageError
from tercel.core.presence import Gpu

log = logging.getLogger("tercel.worker")

_LIBRARY = "libnvidia-ml.so.1"

Wanted = int | tuple[str, ...] | None
"""So many, these, or (None) all."""


class Found(Gpu, frozen=True, array_like=True):
    uuid: str = ""


def found() -> list[Found]:
    """All of the node. None where there is no driver."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return []
    nvml = import_module("pynvml")  # takes a while: not where there is nothing to ask
    try:
        nvml.nvmlInit()
        try:
            return [_ask(nvml, number) for number in range(nvml.nvmlDeviceGetCount())]
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        log.warning("The NVIDIA driver does not tell of its GPUs: %s. None is given to tasks.", error)
        return []


def _ask(nvml: ModuleType, number: int) -> Found:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    model = nvml.nvmlDeviceGetName(handle)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return Found(str(number), _text(model), int(memory.total), _text(uuid))


def _text(told: str | bytes) -> str:
    return told.decode(errors="replace") if isinstance(told, bytes) else told


def offered(wanted: Wanted, here: Sequence[Found], visible: str | None) -> tuple[Gpu, ...]:
    """Those that are given to tasks; `visible` is the worker's own CUDA_VISIBLE_DEVICES.

    Raises UsageError for more than there are. Where no driver is found (other makers' GPUs, say) so many, or these, are
    believed.
    """
    if isinstance(wanted, tuple):
        return tuple(_named(id, here) for id in wanted)
    mine = (
        [Gpu(gpu.id, gpu.model, gpu.mem_bytes) for gpu in here] if visible is None else _seen(visible, here)
    )
    if wanted is None:
        return tuple(mine)
    if not mine and visible is None:
        return tuple(Gpu(str(number)) for number in range(wanted))
    if wanted > len(mine):
        raise UsageError(f"gpus={wanted}: there are {len(mine)} here", "resource")
    return tuple(mine[:wanted])


def _named(id: str, here: Sequence[Found]) -> Gpu:
    known = _find(id, here)
    if known is None and here:
        raise UsageError(f"gpus: there is no GPU {id!r} here, but {len(here)}: see nvidia-smi", "resource")
    return Gpu(id, known.model, known.mem_bytes) if known is not None else Gpu(id)


def _seen(visible: str, here: Sequence[Found]) -> list[Gpu]:
    """As CUDA reads it: up to the first that is not there. Slices of one (MIG) are not looked into."""
    mine: list[Gpu] = []
    for id in map(str.strip, visible.split(",")):
        known = _find(id, here)
        if known is not None:
            mine.append(Gpu(id, known.model, known.mem_bytes))
        elif here and id.startswith("MIG-"):
            mine.append(Gpu(id))
        else:
            break
    return mine


def _find(id: str, here: Sequence[Found]) -> Found | None:
    for gpu in here:
        if id == gpu.id or (id.startswith("GPU-") and len(id) > len("GPU-") and gpu.uuid.startswith(id)):
            return gpu
    return None
