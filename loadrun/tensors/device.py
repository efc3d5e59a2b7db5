"""Names of devices, as MegEngine writes them; whatever they say, the CPU computes.

Names are checked and make no difference: every tensor is on the default device.
"""

import os
import re

from ..base.errors import UsageError

DEFAULT = "xpux:0"
"""Any device: what MegEngine's tensors are on unless another is requested."""
_PLAIN = r"(gpu|cpu|xpu|rocm|multithread)(\d+|x)(:\d+)?"
"""What MegEngine takes as the default device."""
_VALID = (
    r"([cg]pu|rocm)(\d+|x)(:(\d+|default))?|[cg]pu:(\d+|default)|xpu(\d+|x)?(:\d+)?"
    r"|multithread(x|\d+)(:\d+)?|multithread:default:\d+"
)
"""What MegEngine takes as the device of a tensor."""
_KINDS = ("cpu", "gpu", "rocm", "xpu")
_named = ["xpux"]
"""The device of all tensors, as it was set."""


class InvalidDeviceError(UsageError, RuntimeError, AssertionError):
    """No name of a device; MegEngine refuses it with one or the other of these."""


def check_device(name: object) -> None:
    """Accept None, and the names that MegEngine accepts.

    Raises:
        InvalidDeviceError: no such name.

    >>> check_device("cpu0")
    >>> check_device("cuda0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    loadrun.tensors.device.InvalidDeviceError: invalid device name cuda0: ...
    """
    if name is not None and (not isinstance(name, str) or not re.fullmatch(_VALID, name)):
        raise InvalidDeviceError(
            f"invalid device name {name}: a device is cpu, gpu or xpu with a number or x, for instance xpux or cpu0"
        )


def check_place(name: object) -> None:
    """Accept the names that MegEngine accepts where a value is moved to and where a device becomes the default one.

    Raises:
        InvalidDeviceError: no such name.
    """
    if not isinstance(name, str) or not re.fullmatch(_PLAIN, name):
        raise InvalidDeviceError(f"invalid device name {name}: expected for instance xpux, cpu0 or gpu0:1")


def is_cuda_available() -> bool:
    """Return whether GPUs compute: never.

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
    """Return the device of tensors, by the name that was set."""
    return _named[0]


def set_default_device(device: str = "xpux") -> None:
    """Name the device of tensors; the CPU computes all the same.

    Raises:
        InvalidDeviceError: no name of a device.
    """
    check_place(device)
    _named[0] = device
