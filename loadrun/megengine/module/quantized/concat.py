"""`Concat` of quantized tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ....tensors import Tensor, TensorLike, as_tensor
from ....tensors.dtypes import DTypeLike
from ... import functional as F
from .module import QuantizedModule

if TYPE_CHECKING:
    from ..qat import concat as QAT


class Concat(QuantizedModule):
    """`Concat` of tensors that are first converted to one quantized dtype."""

    def __init__(self, dtype: DTypeLike, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inps: Iterable[TensorLike], axis: int = 0) -> Tensor:
        """Take quantized tensors of one shape but along `axis`."""
        return F.concat([as_tensor(x).astype(self.output_dtype) for x in inps], axis)

    @classmethod
    def from_qat_module(cls, qat_module: QAT.Concat) -> Concat:
        """Convert a module with fake quantization."""
        return cls(qat_module.get_activation_dtype(), name=qat_module.name)
