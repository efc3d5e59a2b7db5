"""Settings under the name of ``megengine.dtr``, which are kept and have no effect.

``ReferenceEngine(dtr=DTRConfig(...))`` runs a dump in less memory.

Attributes:
    eviction_threshold: bytes, or a text such as "5GB".
    evictee_minimum_size: bytes, or such a text.
    enable_sqrt_sampling: true or false.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

from ..base.errors import UsageError

__all__ = ["disable", "enable", "enable_sqrt_sampling", "evictee_minimum_size", "eviction_threshold"]

eviction_threshold: Any
evictee_minimum_size: Any
enable_sqrt_sampling: Any
_values: dict[str, Any] = {
    "eviction_threshold": 0,
    "evictee_minimum_size": 1 << 20,
    "enable_sqrt_sampling": False,
}
_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def enable() -> None:
    """Do nothing; eager values are freed when nobody holds them."""


def disable() -> None:
    """Do nothing."""


def _size_in_bytes(value: Any) -> int:
    """Return a size in bytes.

    >>> _size_in_bytes("5GB"), _size_in_bytes(3)
    (5368709120, 3)
    """
    if not isinstance(value, str):
        return int(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?B?)", value.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"a size is a number with B, KB, MB or GB, found {value!r}")
    return int(float(match[1]) * _UNITS[match[2]])


def _setting(name: str) -> property:
    def read(module: ModuleType) -> Any:
        return _values[name]

    def write(module: ModuleType, value: Any) -> None:
        _values[name] = bool(value) if name == "enable_sqrt_sampling" else _size_in_bytes(value)

    return property(read, write)


sys.modules[__name__].__class__ = type("Settings", (ModuleType,), {name: _setting(name) for name in _values})
