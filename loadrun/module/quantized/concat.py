"""`Concat` of quantized tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import functional as F
from .module import QuantizedModule

__all__ = ["Concat"]


class Concat(QuantizedModule):
    """`Concat` of tensors that are first converted to one quantized dtype."""

    def __init__(self, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inps: Iterable[Any], axis: int = 0) -> Any:
        """Take quantized tensors of one shape but along `axis`."""
        return F.concat([x.astype(self.output_dtype) for x in inps], axis)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Any:
        """Convert a module with fake quantization."""
        return cls(qat_module.get_activation_dtype(), name=qat_module.name)
