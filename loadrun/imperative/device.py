"""Names of devices, as MegEngine writes them; whatever they say, the CPU computes."""

from __future__ import annotations

import re

__all__ = [
    "DEFAULT",
    "Device",
    "check_device",
    "get_default_device",
    "get_device_count",
    "is_cuda_available",
    "set_default_device",
]

_VALID = re.compile(r"([cxg]pu|rocm|multithread)(x|\d+)(:\d+)?")


class Device(str):
    """The name of a device, equal to its short forms.

    >>> DEFAULT == "xpux", DEFAULT == "xpux:0", DEFAULT == "gpu0"
    (True, True, False)
    """

    __slots__ = ()

    @property
    def logical_name(self) -> str:
        """The name in full."""
        return str(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return NotImplemented
        return str.__eq__(self, other if ":" in other else f"{other}:0")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)


DEFAULT = Device("xpux:0")
"""Any device: what MegEngine's tensors are on unless another is asked for."""


def check_device(name: object) -> None:
    """Accept the names that MegEngine accepts.

    Raises:
        ValueError: no such name.

    >>> check_device("cpu0")
    """
    if not isinstance(name, str) or not _VALID.fullmatch(name):
        raise ValueError(
            f"invalid device name {name}: a device is cpu, gpu or xpu with a number or x, for instance xpux or cpu0"
        )


def is_cuda_available() -> bool:
    """Tell whether GPUs compute: never.

    >>> is_cuda_available()
    False
    """
    return False


def get_device_count(device_type: str) -> int:
    """Return how many devices of a kind there are: one CPU.

    >>> get_device_count("cpu"), get_device_count("gpu")
    (1, 0)
    """
    return int(device_type.lower() == "cpu")


def get_default_device() -> Device:
    """Return the device of new tensors."""
    return DEFAULT


def set_default_device(device: str = "xpux") -> None:
    """Accept what code for MegEngine asks for; the CPU computes all the same.

    Raises:
        ValueError: no name of a device.
    """
    check_device(device)
