"""Fully connected layers of quantized tensors (MegEngine's ``module/quantized/linear.py``)."""

from __future__ import annotations

from typing import Any

from ....tensors import Tensor, TensorLike, as_tensor
from ....tensors.dtypes import DTypeLike
from ... import functional as F
from .module import QuantizedModule, from_qat, quantized_bias


class Linear(QuantizedModule):
    """`Linear` of quantized tensors.

    Args:
        dtype: the quantized dtype of the result; without one it is qint32.

    Attributes:
        weight: (out_features, in_features), quantized; None in a new module.
        bias: (out_features,), float32, or None.
    """

    def __init__(self, dtype: DTypeLike | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weight: Any = None
        self.bias: Any = None
        self.output_dtype = dtype

    _relu = False

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features), quantized, to the product, rounded, and relu of it where the class says so."""
        inp = as_tensor(inp)
        y = F.linear(inp, self.weight, quantized_bias(self.bias, inp, self.weight))
        y = y if self.output_dtype is None else y.astype(self.output_dtype)
        return F.relu(y) if self._relu else y

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Linear:
        """Convert a module with fake quantization."""
        new = cls(dtype=qat_module.get_activation_dtype(), name=qat_module.name)
        module: Linear = from_qat(new, qat_module)
        return module


class LinearRelu(Linear):
    """`LinearRelu` of quantized tensors."""

    _relu = True
