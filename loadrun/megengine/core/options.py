"""Options of MegEngine's compiled part, which are kept and have no effect."""

from __future__ import annotations

from ...base.errors import UsageError

__all__ = ["get_option", "set_option"]

_values = {
    "async_level": 2,
    "enable_drop": 0,
    "max_recompute_time": 1,
    "catch_worker_execption": 1,
    "enable_host_compute": 1,
    "disable_memory_forwarding": 0,
    "enable_dtr_auto_drop": 0,
    "enable_dtr_sqrt_sampling": 0,
    "dtr_eviction_threshold": 0,
    "dtr_evictee_minimum_size": 1 << 20,
    "record_computing_path": 0,
}


def _check_option(name: str) -> None:
    if name not in _values:
        raise UsageError(f"there is no option {name!r}; expected one of {', '.join(_values)}")


def get_option(name: str) -> int:
    """Return an option.

    Raises:
        UsageError: there is none of that name.

    >>> get_option("async_level")
    2
    """
    _check_option(name)
    return _values[name]


def set_option(name: str, value: int) -> None:
    """Set an option, which has no effect.

    Raises:
        UsageError: there is none of that name.
        TypeError: the value is not an integer.
    """
    _check_option(name)
    if not isinstance(value, int):
        raise TypeError(f"the option {name} is a whole number, found {value!r}")
    _values[name] = int(value)
