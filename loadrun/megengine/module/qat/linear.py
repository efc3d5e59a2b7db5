"""Fully connected layers with fake quantization (MegEngine's ``module/qat/linear.py``)."""

from typing import Any

from .. import linear as Float
from .module import QATWeighted


class Linear(QATWeighted, Float.Linear):
    """`Linear` with fake quantization."""

    @classmethod
    def from_float_module(cls, float_module: Any) -> Any:
        """Convert a float module; as in MegEngine, its mode of computing is not taken along."""
        module = cls(float_module.in_features, float_module.out_features, name=float_module.name)
        module.weight, module.bias = float_module.weight, float_module.bias
        return module


class LinearRelu(Linear):
    """`LinearRelu` with fake quantization."""

    _relu = True
