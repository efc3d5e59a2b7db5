"""Names of devices, as MegEngine writes them; whatever they say, the CPU computes."""

from __future__ import annotations

import re

__all__ = ["DEFAULT", "Device", "check_device"]

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
