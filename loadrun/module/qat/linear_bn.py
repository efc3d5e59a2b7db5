"""Fully connected layer and batch normalization with fake quantization (MegEngine's ``module/qat/linear_bn.py``)."""

from __future__ import annotations

from typing import Any

from ... import functional as F
from .. import linear_bn as Float
from .folding import Folding
from .module import QATModule

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class _LinearBnActivation1d(Float._LinearBnActivation1d, QATModule):
    def _folded(self, fold: Folding) -> Any:
        return self.linear.weight * fold.scale.reshape((-1, 1))

    def fold_weight_bias(self, bn_mean: Any, bn_var: Any) -> tuple[Any, Any]:
        """Weight, rounded, and bias of the layer that does both."""
        fold = Folding.of(self.bn, bn_mean, bn_var)
        return self.apply_quant_weight(self._folded(fold)), fold.bias(self.linear.bias).reshape((-1,))

    def calc_linear_bn_qat(self, inp: Any, approx: bool = True) -> Any:
        """The layer with the running statistics in its rounded weight.

        While training, the scale is taken out of the result again and the batch's statistics are used.
        """
        fold = Folding.of(self.bn, self.bn.running_mean, self.bn.running_var)
        weight = self.apply_quant_weight(self._folded(fold))
        if not (self.training and approx):
            bias = self.apply_quant_bias(fold.bias(self.linear.bias).reshape((-1,)), inp, weight)
            return self.linear.calc_linear(inp, weight, bias)
        plain = self.linear.calc_linear(inp, weight, None) / fold.scale.reshape((1, -1))
        return self.bn(plain if self.linear.bias is None else plain + self.linear.bias.reshape((1, -1)))

    @classmethod
    def from_float_module(cls, float_module: Any) -> Any:
        """The module that a float one becomes."""
        f, bn = float_module.linear, float_module.bn
        made = cls(
            f.in_features,
            f.out_features,
            f.bias is not None,
            f.compute_mode,
            bn.eps,
            bn.momentum,
            bn.affine,
            bn.track_running_stats,
            name=float_module.name,
        )
        made.linear.weight, made.linear.bias, made.bn = f.weight, f.bias, bn
        return made


class LinearBn1d(_LinearBnActivation1d):
    """`LinearBn1d` with fake quantization."""

    def forward(self, inp: Any) -> Any:
        """(N, in_features)."""
        return self.apply_quant_activation(self.calc_linear_bn_qat(inp))


class LinearBnRelu1d(_LinearBnActivation1d):
    """`LinearBnRelu1d` with fake quantization."""

    def forward(self, inp: Any) -> Any:
        """(N, in_features)."""
        return self.apply_quant_activation(F.relu(self.calc_linear_bn_qat(inp)))
