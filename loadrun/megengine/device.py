"""Devices, where code written for MegEngine looks for them: ``megengine.device``.

>>> get_device_count("gpu"), is_cuda_available()
(0, False)
"""

from ..tensors.switches import get_default_device, get_device_count, is_cuda_available, set_default_device
from .absent import absent

__all__ = ["get_default_device", "get_device_count", "is_cuda_available", "set_default_device"]

__getattr__ = absent(__name__)
