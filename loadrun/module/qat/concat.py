"""`Concat` with fake quantization."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import concat as Float
from .module import QATModule

__all__ = ["Concat"]


class Concat(Float.Concat, QATModule):
    """`Concat` with fake quantization of the result."""

    def forward(self, inps: Iterable[Any], axis: int = 0) -> Any:
        """Take tensors of one shape but along `axis`."""
        return self.apply_quant_activation(super().forward(inps, axis))

    @classmethod
    def from_float_module(cls, float_module: Any) -> Any:
        """Convert a float module."""
        return cls(name=float_module.name)
