"""Operators that work element by element, reductions, casts and quantization."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch  # optional
import torch.nn.functional as F

from .registry import Node, kernel

__all__ = ["DTYPES", "axes_of"]

Tensor = Any
DTYPES: dict[int, Any] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
"""torch's dtypes by ONNX's numbers."""
_WHOLE = {torch.uint8: (0, 255), torch.int8: (-128, 127), torch.int32: (-(2**31), 2**31 - 1)}

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name.lower())
        for name in (
            *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp"),
            *(
                "Floor",
                "IsNaN",
                "Log",
                "Neg",
                "Relu",
                "Round",
                "Sigmoid",
                "Sign",
                "Sin",
                "Sinh",
                "Sqrt",
                "Tan",
            ),
            "Tanh",
        )
    },
    "Reciprocal": torch.reciprocal,
    "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not,
    "Identity": lambda x: x,
    "Softplus": lambda x: F.softplus(x, threshold=1000),
    "HardSwish": lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1),
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Equal": torch.eq,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}


def _register() -> None:
    for name, unary in _UNARY.items():
        kernel(name)(lambda node, x, unary=unary: unary(x))
    for name, binary in _BINARY.items():
        kernel(name)(lambda node, x, y, binary=binary: binary(x, y))


_register()


@kernel("Div")
def div(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Quotients, of integers toward zero."""
    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


@kernel("Mod")
def mod(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Remainders with the dividend's sign (fmod=1) or the divisor's."""
    return torch.fmod(x, y) if node.get("fmod", 0) else torch.remainder(x, y)


@kernel("Pow")
def power(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Powers, in the base's dtype."""
    return torch.pow(x, y).to(x.dtype)


@kernel("Max", "Min")
def extreme(node: Node, *xs: Tensor) -> Tensor:
    """Compute the largest or smallest of several; NaN wins."""
    return reduce(torch.maximum if node.op == "Max" else torch.minimum, xs)


@kernel("Sum")
def total(node: Node, *xs: Tensor) -> Tensor:
    """Compute the sum of several."""
    return reduce(torch.add, xs)


@kernel("Clip")
def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Values between two bounds; NaN stays."""
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@kernel("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    """Negative values times a slope."""
    return F.leaky_relu(x, node.get("alpha", 0.01))


@kernel("PRelu")
def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    """Negative values times slopes."""
    return torch.where(x < 0, x * slope, x)


@kernel("Gelu")
def gelu(node: Node, x: Tensor) -> Tensor:
    """Compute the Gaussian error linear unit."""
    return F.gelu(x, approximate=node.get("approximate", "none"))


@kernel("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    """Compute a line between 0 and 1."""
    return torch.clamp(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1)


@kernel("IsInf")
def is_inf(node: Node, x: Tensor) -> Tensor:
    """Tell where infinities are."""
    result = torch.isinf(x)
    if not node.get("detect_negative", 1):
        result &= x > 0
    if not node.get("detect_positive", 1):
        result &= x < 0
    return result


@kernel("BitShift")
def bit_shift(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Bits moved to the left or right."""
    return (
        torch.bitwise_left_shift(x, y) if node.get("direction") == "LEFT" else torch.bitwise_right_shift(x, y)
    )


@kernel("Where")
def where(node: Node, mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Choose one of two values for each element."""
    return torch.where(mask, x, y)


@kernel("Cast")
def cast(node: Node, x: Tensor) -> Tensor:
    """Another dtype; fractions are cut off."""
    return x.to(DTYPES[node.get("to")])


@kernel("Softmax")
def softmax(node: Node, x: Tensor) -> Tensor:
    """Shares of exponentials along an axis."""
    return torch.softmax(x, node.get("axis", -1))


@kernel("LogSoftmax")
def log_softmax(node: Node, x: Tensor) -> Tensor:
    """Compute the logarithm of `softmax`."""
    return torch.log_softmax(x, node.get("axis", -1))


@kernel("CumSum")
def cumsum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    """Compute running sums."""
    dim = int(axis)
    backward = node.get("reverse", 0)
    x = torch.flip(x, (dim,)) if backward else x
    result = torch.cumsum(x, dim, dtype=x.dtype)
    if node.get("exclusive", 0):
        result = result - x
    return torch.flip(result, (dim,)) if backward else result


def axes_of(node: Node, x: Tensor, axes: Tensor | None) -> tuple[int, ...]:
    """Return the axes of a reduction: an input in newer opsets, an attribute in older ones, else all."""
    result = node.get("axes") if axes is None else axes.reshape(-1).tolist()
    return tuple(int(a) % x.dim() for a in result) if result else tuple(range(x.dim()))


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return torch.sum(x, axes, keep, dtype=x.dtype)


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.mean(x, axes, keep)
    count = 1
    for a in axes:
        count *= x.shape[a]
    return torch.div(torch.sum(x, axes, keep), count, rounding_mode="trunc").to(x.dtype)


def _prod(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for a in sorted(axes, reverse=True):
        x = torch.prod(x, a, keep, dtype=x.dtype)
    return x


_REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...], bool], Tensor]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": _prod,
    "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceL1": lambda x, axes, keep: _sum(torch.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: torch.sqrt(_sum(x * x, axes, keep)),
}


@kernel(*_REDUCTIONS)
def reduction(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Compute sums and their relatives along axes."""
    none = axes is not None and not axes.numel()
    if none and node.get("noop_with_empty_axes", 0):
        return x
    return _REDUCTIONS[node.op](x, axes_of(node, x, axes), bool(node.get("keepdims", 1)))


def _along(value: Tensor, x: Tensor, axis: int) -> Tensor:
    """Shape a scale or zero point that is one number, or one along an axis."""
    if value.dim() == 0 or value.numel() == 1:
        return value.reshape(())
    return value.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])


@kernel("DequantizeLinear")
def dequantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Compute the numbers that stored integers stand for."""
    axis = node.get("axis", 1)
    real = x.to(torch.int32)
    if zero is not None:
        real = real - _along(zero.to(torch.int32), x, axis)
    return real.to(scale.dtype) * _along(scale, x, axis)


@kernel("QuantizeLinear")
def quantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Store numbers as integers, halves to even."""
    axis = node.get("axis", 1)
    kind = torch.uint8 if zero is None else zero.dtype
    whole = torch.round(x / _along(scale, x, axis))
    if zero is not None:
        whole = whole + _along(zero, x, axis).to(whole.dtype)
    low, high = _WHOLE[kind]
    return torch.clamp(torch.nan_to_num(whole, 0.0, float(high), float(low)), low, high).to(kind)
