"""Settings that code written for MegEngine makes; what a numpy engine has no use for is kept and has no effect.

Attributes:
    benchmark_kernel: no effect.
    deterministic_kernel: no effect; results are the same in every run anyway.
    async_level: no effect; nothing is asynchronous.
    disable_memory_forwarding: no effect.
    _compute_mode: "float32" sums float16 products of convolutions and matrix products in float32, whatever the
        functions are told; "default" leaves it to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["async_level", "benchmark_kernel", "deterministic_kernel", "disable_memory_forwarding"]

benchmark_kernel: bool = False
deterministic_kernel: bool = False
async_level: int = 2
disable_memory_forwarding: bool = False
_compute_mode: str = "default"


def _reset(**values: Any) -> dict[str, Any]:
    """Set the values that are not None; what all of them were before."""
    before = {name: globals()[name] for name in values}
    globals().update({name: value for name, value in values.items() if value is not None})
    return before


@contextmanager
def _override(
    benchmark_kernel: bool | None = None,
    deterministic_kernel: bool | None = None,
    async_level: int | None = None,
    compute_mode: str | None = None,
) -> Iterator[None]:
    """Other settings inside a ``with`` block, or inside a function that this decorates.

    >>> from loadrun import config
    >>> with config._override(compute_mode="float32"):
    ...     config._compute_mode
    'float32'
    >>> config._compute_mode
    'default'
    """
    before = _reset(
        benchmark_kernel=benchmark_kernel,
        deterministic_kernel=deterministic_kernel,
        async_level=async_level,
        _compute_mode=compute_mode,
    )
    try:
        yield
    finally:
        _reset(**before)
