"""Fully connected layers of quantized tensors (MegEngine's ``module/quantized/linear.py``)."""

from __future__ import annotations

from typing import Any

from ....tensors import Tensor, TensorLike, as_tensor
from ....tensors.dtypes import DTypeLike
from ... import functional as F
from .module import QuantizedModule, quantized_bias, stored


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

    def calc_linear_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """Return the product, rounded, then relu if `nonlinear_mode` is "relu"."""
        if nonlinear_mode not in ("identity", "relu"):
            raise AssertionError(f"nonlinear_mode must be identity or relu, found {nonlinear_mode!r}")
        y = F.linear(inp, self.weight, quantized_bias(self.bias, inp, self.weight))
        y = y if self.output_dtype is None else y.astype(self.output_dtype)
        return F.relu(y) if nonlinear_mode == "relu" else y

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features), quantized."""
        return self.calc_linear_quantized(as_tensor(inp))

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Linear:
        """Convert a module with fake quantization."""
        q = qat_module
        module = cls(dtype=q.get_activation_dtype(), name=q.name)
        module.weight = stored(q.weight, q.get_weight_dtype(), q.weight.name)
        if q.bias is not None:
            module.bias = stored(q.bias, name=q.bias.name)
        return module


class LinearRelu(Linear):
    """`LinearRelu` of quantized tensors."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features), quantized."""
        return self.calc_linear_quantized(as_tensor(inp), nonlinear_mode="relu")
