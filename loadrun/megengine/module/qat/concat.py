"""`Concat` with fake quantization."""

from __future__ import annotations

from collections.abc import Iterable

from ....tensors import Tensor, TensorLike
from .. import concat as Float
from .module import QATModule


class Concat(Float.Concat, QATModule):
    """`Concat` with fake quantization of the result."""

    def forward(self, inps: Iterable[TensorLike], axis: int = 0) -> Tensor:
        """Take tensors of one shape but along `axis`."""
        return self.apply_quant_activation(super().forward(inps, axis))

    @classmethod
    def from_float_module(cls, float_module: Float.Concat) -> Concat:
        """Convert a float module."""
        return cls(name=float_module.name)
