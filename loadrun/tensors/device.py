"""Names of devices, as MegEngine writes them; whatever they say, the CPU computes.

Names are checked and make no difference: every tensor is on the default device.
"""

from __future__ import annotations

import os
import re

from ..base.errors import UsageError

_PLAIN = r"(gpu|cpu|xpu|rocm|multithread)(\d+|x)(:\d+)?"
"""What MegEngine takes as the default device."""
_VALID = (
    r"([cg]pu|rocm)(\d+|x)(:(\d+|default))?|[cg]pu:(\d+|default)|xpu(\d+|x)?(:\d+)?"
    r"|multithread(x|\d+)(:\d+)?|multithread:default:\d+"
)
"""What MegEngine takes as the device of a tensor."""
_INVALID = "invalid"
"""The name of no device."""
_KINDS = ("cpu", "gpu", "rocm", "xpu")


class InvalidDeviceError(UsageError, RuntimeError, AssertionError):
    """No name of a device; MegEngine refuses it with one or the other of these."""


class Device(str):
    """The name of a device, equal to its short forms: what MegEngine calls ``CompNode``, and ``Device`` around it.

    Args:
        name: a name that MegEngine accepts, or a device. Without one it is invalid and computes nothing.

    Raises:
        InvalidDeviceError: no name of a device.

    >>> DEFAULT == "xpux", DEFAULT == "xpux:0", DEFAULT == "gpu0"
    (True, True, False)
    >>> Device("cpu0:1"), Device("cpu0").logical_name, Device("xpux").physical_name
    (CompNode("cpu0:1" from "cpu0:1"), 'cpu0:0', 'cpu0:0')
    """

    __slots__ = ()

    def __new__(cls, name: object = None) -> Device:
        """Return the device of a name."""
        if isinstance(name, Device):
            return name
        return str.__new__(cls, _INVALID if name is None or name == _INVALID else _full(name))

    @property
    def logical_name(self) -> str:
        """The name in full."""
        return str(self)

    @property
    def physical_name(self) -> str:
        """The device that computes: a CPU, whatever the name says."""
        kind, _, stream = str(self).partition(":")
        number = kind.lstrip("cgpurox")
        if not number.isdigit():
            number = "" if stream == "default" else "0"
        return str(self) if kind == _INVALID or kind.startswith("multi") else f"cpu{number}:{stream}"

    def to_c(self) -> Device:
        """Return the device itself: what MegEngine keeps in two layers is one here."""
        return self

    def __reduce__(self) -> tuple[type[Device], tuple[str]]:
        return Device, (str(self),)

    def __repr__(self) -> str:
        return f'CompNode("{self.physical_name}" from "{self}")'

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return NotImplemented
        if str.__eq__(self, other):
            return True
        return re.fullmatch(_VALID, other) is not None and str.__eq__(self, _full(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)


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


def _full(name: object) -> str:
    """Return a name with the numbers that MegEngine adds to it.

    Raises:
        InvalidDeviceError: no name of a device.
    """
    check_device(name)
    kind, _, stream = str(name).partition(":")
    if kind == "multithread":
        return str(name)
    if kind == "xpu" and not stream:
        kind = "xpux"
    elif kind.isalpha() and not kind.endswith("x") and stream != "default":
        kind += "0"
    return f"{kind}:{stream or 0}"


def check_place(name: object) -> None:
    """Accept the names that MegEngine accepts where a value is moved to and where a device becomes the default one.

    Raises:
        InvalidDeviceError: no such name.
    """
    if not isinstance(name, str) or not (isinstance(name, Device) or re.fullmatch(_PLAIN, name)):
        raise InvalidDeviceError(f"invalid device name {name}: expected for instance xpux, cpu0 or gpu0:1")


DEFAULT = str.__new__(Device, "xpux:0")
"""Any device: what MegEngine's tensors are on unless another is requested."""
_named = ["xpux"]
"""The device of all tensors, as it was set."""


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
    _named[0] = str(device)


def default_device() -> Device:
    """Return the device of tensors."""
    return Device(_named[0])
