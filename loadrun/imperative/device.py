"""Names of devices, as MegEngine writes them; whatever they say, the CPU computes."""

from __future__ import annotations

import os
import re

from ..errors import UsageError

__all__ = [
    "DEFAULT",
    "Device",
    "InvalidDeviceError",
    "check_device",
    "get_default_device",
    "get_device_count",
    "is_cuda_available",
    "placed",
    "set_default_device",
]

_PLAIN = re.compile(r"(gpu|cpu|xpu|rocm|multithread)(\d+|x)(:\d+)?")
"""What MegEngine takes as the default device."""
_VALID = re.compile(
    r"([cg]pu|rocm)(\d+|x)(:(\d+|default))?|[cg]pu:(\d+|default)|xpu(\d+|x)?(:\d+)?"
    r"|multithread(x|\d+)(:\d+)?|multithread:default:\d+"
)
"""What MegEngine takes as the device of a tensor."""
_KINDS = ("cpu", "gpu", "rocm", "xpu")


class InvalidDeviceError(UsageError, RuntimeError, AssertionError):
    """No name of a device; MegEngine refuses it with one or the other of these."""


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


_default = [DEFAULT]
"""The device of new tensors."""


def check_device(name: object) -> None:
    """Accept the names that MegEngine accepts.

    Raises:
        InvalidDeviceError: no such name.

    >>> check_device("cpu0")
    >>> check_device("cuda0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    loadrun.imperative.device.InvalidDeviceError: invalid device name cuda0: ...
    """
    if not isinstance(name, str) or not _VALID.fullmatch(name):
        raise InvalidDeviceError(
            f"invalid device name {name}: a device is cpu, gpu or xpu with a number or x, for instance xpux or cpu0"
        )


def placed(name: object) -> Device:
    """Return the device of a name that is accepted.

    >>> placed("cpu0") == "cpu0:0", str(placed("xpu"))
    (True, 'xpux:0')
    """
    check_device(name)
    text = "xpux" if name == "xpu" else str(name)
    return Device(text if ":" in text else f"{text}:0")


def is_cuda_available() -> bool:
    """Tell whether GPUs compute: never.

    >>> is_cuda_available()
    False
    """
    return False


def get_device_count(device_type: str) -> int:
    """Return how many devices of a kind there are: as many CPUs as the machine has, which xpu stands for too.

    Raises:
        InvalidDeviceError: there is no such kind.

    >>> get_device_count("cpu") == os.cpu_count(), get_device_count("gpu")
    (True, 0)
    """
    if device_type not in _KINDS:
        raise InvalidDeviceError(f"device must be one of {', '.join(_KINDS)}, found {device_type!r}")
    return (os.cpu_count() or 1) if device_type in ("cpu", "xpu") else 0


def get_default_device() -> str:
    """Return the device of new tensors, by the name that was set."""
    return str(_default[0]) if _default[0] is not DEFAULT else "xpux"


def set_default_device(device: str = "xpux") -> None:
    """Name the device of new tensors; the CPU computes all the same.

    Raises:
        InvalidDeviceError: no name of a device.
    """
    if not isinstance(device, str) or not _PLAIN.fullmatch(device):
        raise InvalidDeviceError(f"invalid device name {device}: expected for instance xpux, cpu0 or gpu0:1")
    _default[0] = DEFAULT if device == "xpux" else Device(device)


def default_device() -> Device:
    """Return the device of new tensors."""
    return placed(_default[0])
