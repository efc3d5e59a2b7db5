"""Costs of modules and operators: operations, and how far they look around.

Source of semantics: MegEngine ``utils/module_stats.py``; an operation is a multiplication with its addition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from .adaptive_pooling import AdaptiveAvgPool2d, AdaptiveMaxPool2d
from .batch_matmul_activation import BatchMatMulActivation
from .batchnorm import _BatchNorm
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose2d, LocalConv2d
from .conv_special import DeformableConv2d
from .linear import Linear
from .normalization import GroupNorm, InstanceNorm, LayerNorm
from .pooling import AvgPool2d, MaxPool2d

__all__ = [
    "disable_receptive_field",
    "enable_receptive_field",
    "flops_adaptivePool",
    "flops_batchmatmul",
    "flops_convNd",
    "flops_convNdTranspose",
    "flops_linear",
    "flops_norm",
    "flops_pool",
    "get_op_stats",
    "preprocess_receptive_field",
    "receptive_fields",
    "register_flops",
    "register_receptive_field",
]

C = TypeVar("C", bound=Callable[..., Any])
Row = dict[str, Any]
_flops: dict[type[Any], Callable[..., Any]] = {}
_fields: dict[type[Any], Callable[..., Any]] = {}
_receptive_field = False


def register_flops(*modules: type[Any]) -> Callable[[C], C]:
    """Decorate the function that gives the operations of some classes from ``(module, inputs, outputs)``."""
    return _registered(_flops, modules)


def register_receptive_field(*modules: type[Any]) -> Callable[[C], C]:
    """Decorate the function that gives receptive field and stride of classes from ``(module, inputs, outputs)``."""
    return _registered(_fields, modules)


def _registered(table: dict[type[Any], Callable[..., Any]], modules: Sequence[type[Any]]) -> Callable[[C], C]:
    def register(function: C) -> C:
        table.update(dict.fromkeys(modules, function))
        return function

    return register


def receptive_fields() -> bool:
    """Return whether `get_op_stats` looks at receptive fields."""
    return _receptive_field


def enable_receptive_field() -> None:
    """Let `get_op_stats` look at receptive fields too."""
    global _receptive_field
    _receptive_field = True


def disable_receptive_field() -> None:
    """Let `get_op_stats` leave receptive fields out."""
    global _receptive_field
    _receptive_field = False


@register_flops(Conv1d, Conv2d, Conv3d, LocalConv2d, DeformableConv2d)
def flops_convNd(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Operations of a convolution: each output element sums over its window, and the bias."""
    window = float(module.in_channels // module.groups) * float(np.prod(module.kernel_size))
    return prod(outputs[0].shape) * (window + (module.bias is not None))


@register_flops(ConvTranspose2d)
def flops_convNdTranspose(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Operations of a transposed convolution: each input element goes to its window."""
    window = int(module.out_channels // module.groups * np.prod(module.kernel_size))
    return prod(inputs[0].shape) * window + prod(outputs[0].shape) * (module.bias is not None)


@register_flops(_BatchNorm, GroupNorm, LayerNorm, InstanceNorm)
def flops_norm(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Operations of a normalization: seven an element."""
    return prod(inputs[0].shape) * 7


@register_flops(AvgPool2d, MaxPool2d)
def flops_pool(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Operations of a pooling: each output element looks at its window."""
    size = module.kernel_size
    window = prod(size) if isinstance(size, tuple) else size**2
    return prod(outputs[0].shape) * int(window)


@register_flops(AdaptiveAvgPool2d, AdaptiveMaxPool2d)
def flops_adaptivePool(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Operations of an adaptive pooling, as MegEngine counts them, whatever the size of the output is."""
    sides = []
    for size in inputs[0].shape[2:4]:
        stride = float(size // (size - 1)) if size > 1 else 0.0
        sides.append(size - (size - 1) * stride)
    return float(prod(outputs[0].shape) * sides[0] * sides[1])


@register_flops(Linear)
def flops_linear(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Operations of a linear layer."""
    bias = module.out_features if module.bias is not None else 0
    return prod(outputs[0].shape) * int(module.in_features) + int(bias)


@register_flops(BatchMatMulActivation)
def flops_batchmatmul(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Operations of a matrix product for each sample."""
    batch, n, p = inputs[0].shape
    columns = module.weight.shape[2]
    return int(n * (p + (module.bias is not None)) * columns * batch)


def preprocess_receptive_field(
    module: Any, inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return receptive field and stride of what comes in: the largest of the inputs' owners."""
    owners = [i.owner for i in inputs]

    def largest(name: str) -> tuple[int, int]:
        pairs = [getattr(o, name, (1, 1)) for o in owners]
        return max(f[0] for f in pairs), max(f[1] for f in pairs)

    return largest("_rf"), largest("_stride")


def _passed_on(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Give an operator the receptive field of what comes in."""
    field, stride = preprocess_receptive_field(module, inputs, outputs) if inputs else ((1, 1), (1, 1))
    module._rf, module._stride = field, stride


def get_op_stats(module: Any, inputs: Sequence[Any], outputs: Any) -> Row | None:
    """Return shapes, operations and, where it is enabled, the receptive field of a module or operator.

    Returns:
        None for a class that nothing is registered for.
    """
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    row: Row = {"input_shapes": [i.shape for i in inputs], "output_shapes": [o.shape for o in outputs]}
    count = _of(_flops, module)
    if count is not None:
        row["flops_num"] = count(module, inputs, outputs)
    field = _of(_fields, module)
    if field is not None:
        row["receptive_field"], row["stride"] = field(module, inputs, outputs)
    elif _receptive_field:
        _passed_on(module, inputs, outputs)
    return row if count is not None or field is not None else None


def _of(table: dict[type[Any], Callable[..., Any]], module: Any) -> Callable[..., Any] | None:
    return next((f for kind, f in table.items() if isinstance(module, kind)), None)
