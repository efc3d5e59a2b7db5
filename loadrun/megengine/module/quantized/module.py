"""Base of the quantized modules (MegEngine's ``module/quantized/module.py``)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ....tensors import Parameter, Tensor
from ....tensors.dtypes import DTypeLike
from ....tensors.quantized_dtypes import get_scale, qint32
from ..module import Module


class QuantizedModule(Module):
    """A module of quantized tensors, which cannot be trained.

    Raises:
        ValueError: it is called while training; ``eval()`` comes first.
    """

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module."""
        if self.training:
            raise ValueError("quantized module only support inference: call eval() first")
        return super().__call__(*inputs, **kwargs)

    def __repr__(self) -> str:
        return f"Quantized.{super().__repr__()}"

    @classmethod
    @abstractmethod
    def from_qat_module(cls, qat_module: Any) -> Any:
        """Convert a module with fake quantization."""


def stored(value: Tensor, dtype: DTypeLike | None = None, name: str = "") -> Parameter:
    """Return a value as a parameter, quantized if a dtype is given."""
    return Parameter(value if dtype is None else value.astype(dtype), name=name)


def filled(module: Any, q: Any, layer: Any) -> Any:
    """Return a new module with the weight and bias to which `layer` and the normalization of `q` are folded.

    Args:
        module: the new module.
        q: a module with fake quantization.
        layer: the layer in `q`, whose parameters give theirs names.
    """
    weight, bias = q.fold_weight_bias(q.bn.running_mean, q.bn.running_var)
    module.weight = stored(weight, q.get_weight_dtype(), layer.weight.name)
    module.bias = stored(bias, name="" if layer.bias is None else layer.bias.name)
    return module


def quantized_bias(bias: Tensor | None, inp: Tensor, weight: Tensor) -> Tensor | None:
    """Return a bias as the integers to which products of input and weight are added."""
    if bias is None:
        return None
    return bias.astype(qint32(get_scale(inp.dtype) * get_scale(weight.dtype)))
