"""Devices, where code written for MegEngine looks for them: ``megengine.device``.

>>> get_device_count("gpu"), is_cuda_available()
(0, False)
"""

from typing import Any

from ..tensors.device import Device as CompNode
from ..tensors.device import get_default_device, get_device_count, is_cuda_available, set_default_device
from .absent import listed, refusing

__all__ = [
    "CompNode",
    "coalesce_free_memory",
    "get_default_device",
    "get_device_count",
    "is_atlas_available",
    "is_cambricon_available",
    "is_cuda_available",
    "is_rocm_available",
    "reset_max_memory_stats",
    "set_default_device",
    "set_prealloc_config",
    "what_is_xpu",
    *listed(__name__),
]


def is_rocm_available() -> bool:
    """Return whether AMD's GPUs compute: never."""
    return False


def is_cambricon_available() -> bool:
    """Return whether Cambricon's chips compute: never."""
    return False


def is_atlas_available() -> bool:
    """Return whether Huawei's chips compute: never."""
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


__getattr__ = refusing(__name__)
