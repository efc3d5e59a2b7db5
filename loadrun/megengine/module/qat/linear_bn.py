"""Fully connected layer and batch normalization with fake quantization (MegEngine's ``module/qat/linear_bn.py``)."""

from typing import Any

from ....tensors import Tensor
from .. import linear_bn as Float
from .folding import Folded


class LinearBn1d(Folded, Float.LinearBn1d):
    """`LinearBn1d` with fake quantization."""

    def _scale_shape(self) -> tuple[int, ...]:
        return (-1, 1)

    def _as_bias(self, value: Tensor) -> Tensor:
        return value.reshape((-1,))

    def _as_output(self, value: Tensor) -> Tensor:
        return value.reshape((1, -1))

    @classmethod
    def _arguments_of(cls, float_module: Any) -> dict[str, Any]:
        bn = ("eps", "momentum", "affine", "track_running_stats")
        return {**super()._arguments_of(float_module), **{n: getattr(float_module.bn, n) for n in bn}}


class LinearBnRelu1d(LinearBn1d):
    """`LinearBnRelu1d` with fake quantization."""

    _relu = True
