"""Fully connected layer and batch normalization with fake quantization (MegEngine's ``module/qat/linear_bn.py``)."""

from __future__ import annotations

from ....tensors import Tensor, TensorLike
from ... import functional as F
from .. import linear_bn as Float
from .folding import Folded


class _LinearBnActivation1d(Float._LinearBnActivation1d, Folded):
    _layer_name = "linear"

    def _scale_shape(self) -> tuple[int, ...]:
        return (-1, 1)

    def _as_bias(self, value: Tensor) -> Tensor:
        return value.reshape((-1,))

    def _as_output(self, value: Tensor) -> Tensor:
        return value.reshape((1, -1))

    def _calc(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        return self.linear.calc_linear(inp, weight, bias)

    def calc_linear_bn_qat(self, inp: TensorLike, approx: bool = True) -> Tensor:
        """Return the layer with the normalization in its rounded weight; `approx` counts while training."""
        return self._calc_bn_qat(inp, approx)

    @classmethod
    def from_float_module(cls, float_module: Float._LinearBnActivation1d) -> _LinearBnActivation1d:
        """Convert a float module."""
        f, bn = float_module.linear, float_module.bn
        settings = {n: getattr(bn, n) for n in ("eps", "momentum", "affine", "track_running_stats")}
        return cls._sharing(float_module, **f._settings(), **settings)


class LinearBn1d(_LinearBnActivation1d):
    """`LinearBn1d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features)."""
        return self.apply_quant_activation(self.calc_linear_bn_qat(inp))


class LinearBnRelu1d(_LinearBnActivation1d):
    """`LinearBnRelu1d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features)."""
        return self.apply_quant_activation(F.relu(self.calc_linear_bn_qat(inp)))
