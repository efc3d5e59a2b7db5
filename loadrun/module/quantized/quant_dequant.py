"""From real numbers to quantized ones and back."""

from __future__ import annotations

from typing import Any

from ...imperative import TensorLike, as_tensor
from .module import QuantizedModule

__all__ = ["DequantStub", "QuantStub"]


class QuantStub(QuantizedModule):
    """Real numbers to a quantized dtype."""

    def __init__(self, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inp: TensorLike) -> Any:
        """Take any float32 tensor."""
        return as_tensor(inp).astype(self.output_dtype)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Any:
        """Convert a module with fake quantization."""
        return cls(qat_module.get_activation_dtype(), name=qat_module.name)


class DequantStub(QuantizedModule):
    """Quantized numbers to float32."""

    def forward(self, inp: Any) -> Any:
        """Take any quantized tensor."""
        return inp.astype("float32")

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Any:
        """Convert a module with fake quantization."""
        return cls(name=qat_module.name)
