"""From real numbers to quantized ones and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....tensors import Tensor, TensorLike, as_tensor
from ....tensors.dtypes import DTypeLike
from .module import QuantizedModule

if TYPE_CHECKING:
    from ..qat import quant_dequant as QAT


class QuantStub(QuantizedModule):
    """Real numbers to a quantized dtype."""

    def __init__(self, dtype: DTypeLike | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inp: TensorLike) -> Tensor:
        """Take any float32 tensor."""
        return as_tensor(inp).astype(self.output_dtype)

    @classmethod
    def from_qat_module(cls, qat_module: QAT.QuantStub) -> QuantStub:
        """Convert a module with fake quantization."""
        return cls(qat_module.get_activation_dtype(), name=qat_module.name)


class DequantStub(QuantizedModule):
    """Quantized numbers to float32."""

    def forward(self, inp: Any) -> Tensor:
        """Take any quantized tensor."""
        return inp.astype("float32")

    @classmethod
    def from_qat_module(cls, qat_module: QAT.DequantStub) -> DequantStub:
        """Convert a module with fake quantization."""
        return cls(name=qat_module.name)
