"""`Elemwise` of quantized tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....layers.modes import elemwise_multi_type
from ....tensors import Tensor, TensorLike
from ....tensors.dtypes import DTypeLike
from .module import QuantizedModule

if TYPE_CHECKING:
    from ..qat import elemwise as QAT


class Elemwise(QuantizedModule):
    """An elementwise mode that takes quantized tensors and rounds the real result.

    Args:
        method: the name of the mode: "add", "fuse_add_relu", ...
        dtype: the quantized dtype of the result.
    """

    def __init__(self, method: str, dtype: DTypeLike | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = f"q{method}"
        self.output_dtype = dtype

    def forward(self, *inps: TensorLike) -> Tensor:
        """Take as many quantized tensors as the mode has operands."""
        return elemwise_multi_type(*inps, mode=self.method, dtype=self.output_dtype)

    @classmethod
    def from_qat_module(cls, qat_module: QAT.Elemwise) -> Elemwise:
        """Convert a module with fake quantization."""
        return cls(qat_module.method, qat_module.get_activation_dtype(), name=qat_module.name)
