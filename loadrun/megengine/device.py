"""Devices, where code written for MegEngine looks for them: ``megengine.device``.

>>> get_device_count("gpu"), is_cuda_available()
(0, False)
"""

from typing import Any

from ..tensors.device import Device as CompNode
from ..tensors.device import get_default_device, get_device_count, is_cuda_available, set_default_device
from .absent import absent_function

__all__ = [
    "CompNode",
    "coalesce_free_memory",
    "get_allocated_memory",
    "get_cuda_compute_capability",
    "get_cuda_device_property",
    "get_cuda_driver_version",
    "get_cuda_version",
    "get_cudnn_version",
    "get_default_device",
    "get_device_count",
    "get_max_allocated_memory",
    "get_max_reserved_memory",
    "get_mem_status_bytes",
    "get_reserved_memory",
    "get_tensorrt_version",
    "is_atlas_available",
    "is_cambricon_available",
    "is_cuda_available",
    "is_rocm_available",
    "reset_max_memory_stats",
    "set_default_device",
    "set_prealloc_config",
    "what_is_xpu",
]

_NO_GPU = "there is no GPU; the CPU computes"
_NO_METER = "memory of devices is not counted; loadrun.engines.memory.MemoryMeter measures a run"

get_cuda_compute_capability = absent_function("get_cuda_compute_capability", _NO_GPU)
get_cuda_device_property = absent_function("get_cuda_device_property", _NO_GPU)
get_allocated_memory = absent_function("get_allocated_memory", _NO_METER)
get_reserved_memory = absent_function("get_reserved_memory", _NO_METER)
get_max_allocated_memory = absent_function("get_max_allocated_memory", _NO_METER)
get_max_reserved_memory = absent_function("get_max_reserved_memory", _NO_METER)
get_mem_status_bytes = absent_function("get_mem_status_bytes", _NO_METER)
get_cuda_version = absent_function("get_cuda_version", _NO_GPU)
get_cuda_driver_version = absent_function("get_cuda_driver_version", _NO_GPU)
get_cudnn_version = absent_function("get_cudnn_version", _NO_GPU)
get_tensorrt_version = absent_function("get_tensorrt_version", _NO_GPU)


def is_rocm_available() -> bool:
    """Tell whether AMD's GPUs compute: never."""
    return False


def is_cambricon_available() -> bool:
    """Tell whether Cambricon's chips compute: never."""
    return False


def is_atlas_available() -> bool:
    """Tell whether Huawei's chips compute: never."""
    return False


def what_is_xpu() -> str:
    """Return what xpu stands for: the CPU."""
    return "cpu"


def coalesce_free_memory() -> None:
    """Do nothing: memory is the operating system's."""


def reset_max_memory_stats(device: Any = None) -> None:
    """Do nothing: memory of devices is not counted."""


def set_prealloc_config(
    alignment: int = 1,
    min_req: int = 32 * 1024 * 1024,
    max_overhead: int = 0,
    growth_factor: float = 2.0,
    device_type: Any = None,
) -> None:
    """Do nothing: memory is the operating system's."""
