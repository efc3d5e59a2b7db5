"""`Elemwise` of quantized tensors."""

from __future__ import annotations

from typing import Any

from ...functional.modes import elemwise_multi_type
from .module import QuantizedModule

__all__ = ["Elemwise"]


class Elemwise(QuantizedModule):
    """An elementwise mode that takes quantized tensors and rounds the real result.

    Args:
        method: the name of the mode: "add", "fuse_add_relu", ...
        dtype: the quantized dtype of the result.
    """

    def __init__(self, method: str, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = f"q{method}"
        self.output_dtype = dtype

    def forward(self, *inps: Any) -> Any:
        """Take as many quantized tensors as the mode has operands."""
        return elemwise_multi_type(*inps, mode=self.method, dtype=self.output_dtype)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Any:
        """Convert a module with fake quantization."""
        return cls(qat_module.method, qat_module.get_activation_dtype(), name=qat_module.name)
