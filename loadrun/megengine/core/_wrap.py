"""Devices under the name of ``megengine.core._wrap``."""

from __future__ import annotations

from ...tensors.device import Device

__all__ = ["Device", "as_device"]


def as_device(obj: object) -> Device:
    """Return the device of a name, or the device that is given.

    >>> as_device("cpu0") == "cpu0:0"
    True
    """
    return Device(obj)
