"""Settings under the name of ``megengine.config``; what a numpy engine has no use for is kept and has no effect.

Attributes:
    benchmark_kernel: no effect.
    benchmark_with_subprocess: no effect.
    deterministic_kernel: no effect; results are the same in every run anyway.
    async_level: 0, 1 or 2; no effect, as nothing is asynchronous.
    disable_memory_forwarding: no effect.
    _compute_mode: "float32" sums float16 products of convolutions and matrix products in float32, whatever the
        functions are told; "default" leaves it to them.
"""

from __future__ import annotations

from ..tensors.switches import forward
from ..tensors.switches import override as _override  # noqa: F401

__all__ = [
    "async_level",
    "benchmark_kernel",
    "benchmark_with_subprocess",
    "deterministic_kernel",
    "disable_memory_forwarding",
]

benchmark_kernel: bool
benchmark_with_subprocess: bool
deterministic_kernel: bool
async_level: int
disable_memory_forwarding: bool
_compute_mode: str

forward(__name__, {**{name: name for name in __all__}, "_compute_mode": "compute_mode"})
