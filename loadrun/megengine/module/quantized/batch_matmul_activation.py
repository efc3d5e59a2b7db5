"""`BatchMatMulActivation` of quantized tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....tensors import Parameter, Tensor, TensorLike, as_tensor
from ....tensors.dtypes import DTypeLike
from ... import functional as F
from ...functional.quantized import batch_conv_bias_activation
from .. import batch_matmul_activation as Float
from .module import QuantizedModule, quantized_bias, stored

if TYPE_CHECKING:
    from ..qat import batch_matmul_activation as QAT


class BatchMatMulActivation(Float.BatchMatMulActivation, QuantizedModule):
    """`BatchMatMulActivation` of quantized tensors, computed as a convolution of windows of one element.

    Attributes:
        weight: (batch, out_features, in_features, 1, 1), quantized.
        bias: (1, out_features, 1, 1), float32.
    """

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch, in_features, out_features, bias, nonlinear_mode, **kwargs)
        self.output_dtype = dtype

    def calc_bmm_quantized(self, inp: Any) -> Tensor:
        """Return the products."""
        bias = quantized_bias(self.bias, inp, self.weight)
        assert bias is not None, "the convolution of quantized tensors takes a bias, found bias=False"
        result = batch_conv_bias_activation(
            F.expand_dims(inp, -1),
            self.weight,
            bias,
            dtype=self.output_dtype,
            nonlinear_mode=self.nonlinear_mode,
        )
        return F.squeeze(result, -1)

    @classmethod
    def from_qat_module(cls, qat_module: QAT.BatchMatMulActivation) -> BatchMatMulActivation:
        """Convert a module with fake quantization."""
        q = qat_module
        module = cls(
            q.batch,
            q.in_features,
            q.out_features,
            q.bias is not None,
            q.nonlinear_mode,
            dtype=q.get_activation_dtype(),
            name=q.name,
        )
        weight = q.weight.astype(q.get_weight_dtype()).reshape((*q.weight.shape, 1, 1))
        module.weight = stored(weight, name=q.weight.name)
        shape = (1, q.out_features, 1, 1)
        if q.bias is None:
            module.bias = Parameter(np.zeros(shape, np.float32))
        else:
            module.bias = stored(q.bias.reshape(shape), name=q.bias.name)
        return module

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (batch, in_features, columns), quantized."""
        return self.calc_bmm_quantized(as_tensor(inp))
