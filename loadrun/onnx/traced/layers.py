"""Products, normalizations, quantization, recurrent layers, resizing and spectra by MegEngine's operators."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import params as P
from ...graph.dtypes import DType, plain
from ...layers import emit as e
from ...layers.emit import M
from ...layers.fourier import Pair, real_of_half, transform
from ...layers.shared import nn
from ...tensors import Tensor, apply1
from ...tensors.access import dtype_of, recorded_variable
from ...tensors.applying import type_cvt
from ..operators import common, kernels, linalg, norms, quantization, signal
from . import instead, operand
from .windows import STEPS, less, rescaled

__all__: list[str] = []


# Products


instead(kernels.matrix_product)(lambda x, y: np.matmul(x, y))


@instead("Gemm", since=7, halves=True)
def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Any:
    """Let the operator transpose its factors."""
    if (
        a.dtype.kind != "f"
        or (a.dtype == np.float16 and (alpha, beta) != (1.0, 1.0))
        or 0 in (*a.shape, *b.shape)
    ):
        return NotImplemented
    linalg.gemm_shape(a, b, c, transA=transA, transB=transB)
    mode = P.MatrixMulComputeMode
    param = P.MatrixMul(
        transposeA=bool(transA),
        transposeB=bool(transB),
        compute_mode=mode.FLOAT32 if a.dtype == np.float16 else mode.DEFAULT,
    )
    y = apply1("MatrixMulV2", param, inputs=[operand(a), operand(b)], scalar=False)
    if alpha != 1.0:
        y = e.elem(M.MUL, e.number(alpha, y), y)
    if c is None or beta == 0.0:
        return y
    added = operand(c if beta == 1.0 else (c * beta).astype(c.dtype))
    return e.elem(M.ADD, y, added)


@instead(linalg.integer_product)
def integer_product(x: Any, y: Any, x_zero: Any = None, y_zero: Any = None) -> Any:
    """Multiply 8-bit matrices: sums of 258 products are exact in float32; longer ones go byte by byte."""
    if x_zero is not None and x_zero.ndim == 1 and x_zero.shape[0] != 1:
        x_zero = x_zero[:, None]
    if x.shape[-1] <= 258:
        return np.matmul(less(x, x_zero), less(y, y_zero)).astype(np.int32)
    a, b = (v.astype(np.int16) for v in (x, y))
    a = a if x_zero is None else a - x_zero.astype(np.int16)
    b = b if y_zero is None else b - y_zero.astype(np.int16)
    return np.matmul(a.astype(np.int32), b.astype(np.int32))


# Integers


@instead("Pow", since=7)
def power(x: Any, y: Any) -> Any:
    """Raise integers to powers that data decide as floats; what is within rounding of a whole number is that."""
    if x.dtype.kind == "f" or isinstance(y, np.ndarray):
        return NotImplemented
    real = np.power(x.astype(np.float64), y.astype(np.float64))
    near = np.rint(real)
    if y.dtype.kind == "f":
        near = np.where(np.abs(real - near) <= 1e-6 * np.abs(near), near, real)
    return near.astype(x.dtype)


# Types


@instead(common.refuse_where)
def refuse_where(wrong: Any, why: str, error: type[Exception] = ValueError) -> None:
    """Refuse nothing: it depends on data, of which MegEngine does not complain."""


instead(kernels.exactly)(lambda x, want: x != 0 if want.kind == "b" else x.astype(want))


@instead(kernels.rounded)
def rounded(x: Any, kind: DType) -> Tensor:
    wide = operand(x)
    return type_cvt(type_cvt(wide, kind), dtype_of(wide))


instead(kernels.round_bfloat16)(lambda x: rounded(x, plain("BFloat16")))


# Normalizations


@instead(norms.by_statistics)
def by_statistics(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, epsilon: float) -> Any:
    parts: list[Any] = [
        np.ravel(v) if isinstance(v, np.ndarray) else None for v in (mean, variance, scale, bias)
    ]
    if all(v is not None and v.shape == x.shape[1:2] for v in parts) and x.dtype == np.float32:
        factor = parts[2] / np.sqrt(parts[1].astype(np.float64) + epsilon)
        folded = rescaled(x, factor, parts[3] - parts[0] * factor)
        if folded is not None:
            return folded
        if x.ndim == 4:
            middle, spread, factor, shift = map(operand, parts)
            return nn.batch_norm(operand(x), middle, spread, factor, shift, eps=epsilon)
    factor = scale / np.sqrt(variance + epsilon)
    return x * factor + (bias - mean * factor)


@instead(norms.layer_normalized)
def layer_normalized(x: Any, scale: Any, bias: Any, axes: Sequence[int], epsilon: float) -> Any:
    if list(axes) != list(range(axes[0], x.ndim)) or not x.size:
        return NotImplemented
    added = None if bias is None else operand(bias)
    return nn.layer_norm(operand(x), axes[0], operand(scale), added, epsilon)


@instead(norms.root_mean_square)
def root_mean_square(x: Any, scale: Any, axes: Sequence[int], epsilon: float) -> tuple[Any, Any]:
    root = np.sqrt((x * x).mean(tuple(axes), keepdims=True) + epsilon)
    return x / root * scale, 1 / root


@instead(norms.grouped)
def grouped(x: Any, groups: int, scale: Any, bias: Any, epsilon: float) -> Any:
    if groups < 1 or x.shape[1] % groups:
        return NotImplemented
    groups = 0 if groups == x.shape[1] else groups
    return nn.group_norm(operand(x), groups, operand(scale), operand(bias), epsilon)


@instead("LRN")
def lrn(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    return nn.local_response_norm(operand(x), size, alpha / size, beta, bias)


# Quantization

_HALF_WHOLE = 12582912.0
"""1.5 * 2 ** 23: float32 numbers that it is added to are rounded to whole ones, halves to even."""


@instead(quantization.rounded_to)
def rounded_to(quotient: Any, zero: Any, dtype: DType) -> Any:
    """Saturate and round by adding and subtracting a large number, which is exact for up to 16 bits.

    MegEngine would fold each sum into the one before it, but for the minimum and the ReLUs between them.
    """
    if not (zero is None or isinstance(zero, np.ndarray)) or dtype.bits > 16 or quotient.dtype != np.float32:
        return NotImplemented
    low, high = quantization.range_of(dtype)
    z = np.float32(0) if zero is None else zero.astype(np.float32)
    large = np.float32(_HALF_WHOLE)
    least = e.elem(M.MIN, operand(quotient), operand(np.asarray(high - z, np.float32)))
    shifted = e.elem(M.FUSE_ADD_RELU, least, e.number(float(large), least))
    steps = e.elem(M.FUSE_ADD_RELU, shifted, operand(np.asarray(z - low - large, np.float32)))
    whole = e.elem(M.ADD, steps, e.number(low, steps)) if low else steps
    STEPS[recorded_variable(whole)] = recorded_variable(steps), low
    return e.cast(whole, dtype.np)


@instead(quantization.dequantized)
def dequantized(x: Any, scale: Any, zero: Any = None) -> Any:
    if x.dtype.itemsize > 2 or scale.dtype != np.float32:
        return NotImplemented
    return less(x, zero) * scale


@instead(signal.transformed)
def transformed(x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    axis, n, shape = signal.dft_sizes(x, length, axis, inverse, onesided)
    turned = _fitted(np.moveaxis(x, axis, -2), n // 2 + 1 if inverse and onesided else n)
    parts = Pair(*(operand(turned[..., i]) for i in range(turned.shape[-1])))
    if inverse and onesided:
        y = e.add_axes(real_of_half(parts, n, turned.shape[-2]), [x.ndim - 1])
    else:
        pair = transform(parts, n, bins=shape[axis], inverse=bool(inverse), power=1.0 if inverse else 0.0)
        y = e.concat([e.add_axes(v, [x.ndim - 1]) for v in pair if v is not None], x.ndim - 1)
    return e.permute(y, _back(x.ndim, axis))


def _back(rank: int, axis: int) -> list[int]:
    """Return the order of axes that brings the last but one to its place."""
    order = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    return [order.index(i) for i in range(rank)]


def _fitted(x: Any, length: int) -> Any:
    """Cut or zero-pad the last axis but one."""
    short = length - x.shape[-2]
    if short > 0:
        return np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, short), (0, 0)])
    return x[..., :length, :]
