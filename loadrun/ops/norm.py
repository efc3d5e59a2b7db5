"""Normalization: BatchNorm, LayerNorm, GeneralNorm, GroupNorm, InstanceNorm, Softmax and LRN.

Semantics of MegEngine's dnn kernels (naive, fallback softmax and x86 LRN). float16 and bfloat16 are computed in
float32 and rounded where MegEngine stores them; variances are biased, statistics float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array, DType, plain
from ..graph.params import BN, LRN, BNFwdMode, Format, GeneralNorm, GroupNorm, LayerNorm, Softmax
from .numeric.parallel import parallel, replaced, scratch
from .numeric.special import rounded, stored, sum_rounded
from .registry import Call, Shape, ShapeCall, kernel, per_output, same
from .shape import axis_of

_ROWS = 1 << 17
"""Elements that are normalized in one go, so that the passes over them stay in the processor's cache."""
_WIDE = 4096
"""einsum is the fastest way to sum up rows, but rounds with the length of the row: longer rows are cut."""


def _float(dtype: DType, what: str = "the input") -> None:
    if not dtype.is_float:
        raise ValueError(f"{what} must be Float32, Float16 or BFloat16, not {dtype}")


# ---- Softmax


def _softmax_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    _float(inputs[0])
    return (inputs[0],)


def _softmax_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = s.shape(0)
    axis_of(s.get(Softmax).axis, len(shape))
    return (shape,)


@kernel("Softmax", dtype=_softmax_dtype, shape=_softmax_shape, flops=per_output(5))
def softmax(c: Call, x: Array) -> Array:
    """Compute ``exp(x - max) / sum(exp(x - max))`` along one axis.

    MegEngine's float32 kernel starts its maximum at the smallest positive float, so it gives NaN for rows whose
    values are all below -87; here they have their true softmax.
    """
    axis = axis_of(c.get(Softmax).axis, x.ndim)
    dtype = c.inputs[0]
    if not x.size:
        return np.empty(x.shape, x.dtype)
    if dtype.name != "Float32":
        x = x.astype(np.float32, copy=False)
        y = rounded(np.exp(rounded(x - x.max(axis, keepdims=True), dtype)), dtype)
        return stored(y / sum_rounded(y, axis, dtype), dtype)
    y = c.reuse(x.shape)
    if axis == x.ndim - 1:
        softmax_rows(x.reshape(-1, x.shape[axis]), y.reshape(-1, x.shape[axis]))
        return y
    np.subtract(x, x.max(axis, keepdims=True), out=y)
    np.exp(y, out=y)
    y *= 1 / y.sum(axis, keepdims=True)
    return y


def softmax_rows(x: Array, y: Array) -> None:
    """Write the softmax of every row of a float32 matrix into `y`, which may be `x`."""

    def work(part: slice) -> None:
        rows = x[part]
        e = scratch("softmax", rows.shape)
        # One maximum for all rows is faster to find, and good enough unless far above a row's own.
        np.exp(np.subtract(rows, rows.max(), out=e), out=e)
        total = _row_sums(e)
        if not total.min() > 1e-6:
            np.exp(np.subtract(rows, rows.max(1, keepdims=True), out=e), out=e)
            total = _row_sums(e)
        np.multiply(e, (1 / total)[:, None], out=y[part])

    _by_rows(work, *x.shape)


def _by_rows(work: Callable[[slice], None], rows: int, width: int) -> None:
    """Call `work` on blocks of rows, side by side."""
    step = max(1, _ROWS // max(1, width))
    parallel(lambda i: work(slice(i * step, min(rows, (i + 1) * step))), -(-rows // step))


def _row_sums(x: Array) -> Array:
    return np.einsum("ij->i", x) if x.shape[1] <= _WIDE else x.sum(1)


def _row_squares(x: Array) -> Array:
    """Sum the squares."""
    total = np.einsum("ij,ij->i", x[:, :_WIDE], x[:, :_WIDE])
    for i in range(_WIDE, x.shape[1], _WIDE):
        part = x[:, i : i + _WIDE]
        total += np.einsum("ij,ij->i", part, part)
    return total


# ---- LayerNorm, GeneralNorm


def _affine_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    _float(inputs[0])
    for d in inputs[1:3]:
        if d != inputs[0]:
            raise ValueError(f"weight and bias must be {inputs[0]} like the input, not {d}")
    return (inputs[0], plain("Float32"), plain("Float32"))


def _affine_shapes(affine: bool, shapes: Sequence[Shape | None], want: Shape) -> None:
    """Raise unless weight and bias have the shape of what is normalized."""
    if not affine:
        return
    if len(shapes) != 2:
        raise ValueError(f"an affine normalization takes weight and bias, found {len(shapes)} more inputs")
    for what, shape in zip(("weight", "bias"), shapes, strict=True):
        if shape is not None and shape != want:
            raise ValueError(f"the {what} must have shape {list(want)}, found {list(shape)}")


def _layer_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = s.shape(0)
    rest = _layer_split(s.get(LayerNorm), shape)
    _affine_shapes(s.get(LayerNorm).affine, s.shapes[1:], shape[rest:])
    return shape, shape[:rest], shape[:rest]


def _layer_split(p: LayerNorm, shape: Shape) -> int:
    if not 0 < p.normalized_dim < len(shape):
        raise ValueError(
            f"normalized_dim {p.normalized_dim} must be at least 1 and below the {len(shape)} dimensions of the input"
        )
    rest = len(shape) - p.normalized_dim
    size = prod(shape[rest:])
    if p.normalized_size != size:
        raise ValueError(
            f"normalized_size is {p.normalized_size}, the last dimensions {list(shape[rest:])} hold {size}"
        )
    return rest


@kernel("LayerNorm", dtype=_affine_dtype, shape=_layer_shape, flops=per_output(8))
def layer_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array]:
    """Normalize over the last dimensions: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Returns:
        the normalized input, and mean and ``1 / sqrt(var + eps)`` in the shape of the leading dimensions.
    """
    p = c.get(LayerNorm)
    rest = _layer_split(p, x.shape)
    _affine_shapes(p.affine, [a.shape for a in affine], x.shape[rest:])
    dtype = c.inputs[0]
    outer = x.shape[:rest]
    rows = x.reshape(prod(outer), -1 if x.size else p.normalized_size)
    flat = [a.reshape(-1) for a in affine] if p.affine else []
    mean, rstd = (np.empty(len(rows), np.float32) for _ in range(2))
    if dtype.name == "Float32":
        y = c.reuse(x.shape)
        normalize_rows(rows, y.reshape(rows.shape), mean, rstd, p.eps, flat)
    else:
        y = _layer_norm_half(rows, mean, rstd, p.eps, flat, dtype).reshape(x.shape)
    return y, mean.reshape(outer), rstd.reshape(outer)


def normalize_rows(x: Array, y: Array, mean: Array, rstd: Array, eps: float, affine: Sequence[Array]) -> None:
    """Normalize every row of a float32 matrix into `y`, and write their means and 1 / deviations."""
    count, faster = np.float32(x.shape[1]), replaced("normalize_rows")

    def work(part: slice) -> None:
        if faster:
            faster(x[part], y[part], mean[part], rstd[part], eps, affine)
            return
        d, m, r = y[part], mean[part], rstd[part]
        np.divide(_row_sums(x[part]), count, out=m)
        np.subtract(x[part], m[:, None], out=d)
        np.divide(np.float32(1), np.sqrt(_row_squares(d) / count + np.float32(eps)), out=r)
        d *= r[:, None]
        if affine:
            d *= affine[0]
            d += affine[1]

    _by_rows(work, *x.shape)


def _layer_norm_half(
    x: Array, mean: Array, rstd: Array, eps: float, affine: Sequence[Array], dtype: DType
) -> Array:
    x = x.astype(np.float32, copy=False)
    count = np.float32(x.shape[1])
    mean[...] = rounded(_row_sums(x) / count, dtype)
    d = x - mean[:, None]
    std = rounded(np.sqrt(_row_squares(d) / count + np.float32(eps)), dtype)
    np.divide(np.float32(1), std, out=rstd)
    y = stored(d / std[:, None], dtype)
    if affine:
        weight, bias = (a.astype(np.float32, copy=False) for a in affine)
        y = stored(y * weight + bias, dtype)
    return y


def _general_split(p: GeneralNorm, shape: Shape) -> tuple[Shape, Shape, Shape]:
    """Return the shapes before, of and after the normalized axes."""
    if not p.axis_start < p.axis_end <= len(shape):
        raise ValueError(
            f"axes from {p.axis_start} up to {p.axis_end} cannot be normalized in an input of {len(shape)} dimensions"
        )
    return shape[: p.axis_start], shape[p.axis_start : p.axis_end], shape[p.axis_end :]


def _general_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = s.shape(0)
    before, normalized, after = _general_split(s.get(GeneralNorm), shape)
    _affine_shapes(s.get(GeneralNorm).affine, s.shapes[1:], normalized)
    return shape, (before + after) or (1,), (before + after) or (1,)


@kernel("GeneralNorm", dtype=_affine_dtype, shape=_general_shape, flops=per_output(8))
def general_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array]:
    """Normalize over the axes from `axis_start` up to, not including, `axis_end`.

    Sums are float64; the variance is ``|E[x^2] - E[x]^2|``, as MegEngine's naive kernel has it.

    Returns:
        the normalized input, and mean and ``1 / sqrt(var + eps)`` in the shape of the other axes.
    """
    p = c.get(GeneralNorm)
    before, normalized, after = _general_split(p, x.shape)
    _affine_shapes(p.affine, [a.shape for a in affine], normalized)
    dtype = c.inputs[0]
    a, b, n = (prod(s) for s in (before, normalized, after))
    cube = x.reshape(a, b, n).astype(np.float32, copy=False)
    mean = (cube.sum(1, dtype=np.float64) / np.float64(b)).astype(np.float32)
    var = np.abs((cube * cube).sum(1, dtype=np.float64) / np.float64(b) - mean * mean)
    std = np.sqrt(var + np.float32(p.eps)).astype(np.float32)
    y = stored((cube - mean[:, None]) / std[:, None], dtype)
    if p.affine:
        weight, bias = (v.reshape(b, 1).astype(np.float32, copy=False) for v in affine)
        y = stored(y * weight + bias, dtype)
    rest = (before + after) or (1,)
    return (
        y.reshape(x.shape),
        mean.reshape(rest),
        (1 / std.astype(np.float64)).astype(np.float32).reshape(rest),
    )


# ---- GroupNorm, InstanceNorm


def _groups(s: Call | ShapeCall, shape: Shape) -> int:
    p = s.get(GroupNorm)
    if len(shape) != 4:
        raise ValueError(f"the input must have 4 dimensions, found {list(shape)}")
    if p.format != Format.NCHW:
        raise ValueError(f"the input must be NCHW, not {p.format.name}")
    groups = shape[1] if s.opr.type == "InstanceNorm" else p.group
    if groups < 1 or shape[1] % groups:
        raise ValueError(f"{shape[1]} channels cannot be divided into {groups} groups")
    return groups


def _group_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = s.shape(0)
    groups = _groups(s, shape)
    _affine_shapes(s.get(GroupNorm).affine, s.shapes[1:], (shape[1],))
    return shape, (shape[0], groups), (shape[0], groups)


@kernel("GroupNorm", "InstanceNorm", dtype=_affine_dtype, shape=_group_shape, flops=per_output(8))
def group_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array]:
    """Normalize groups of channels of an NCHW input, each group of each image on its own.

    InstanceNorm has one channel a group, whatever its parameter says.

    Returns:
        the normalized input; mean and variance (not its inverse root) of shape [N, groups].
    """
    groups = _groups(c, x.shape)
    p = c.get(GroupNorm)
    _affine_shapes(p.affine, [a.shape for a in affine], x.shape[1:2])
    dtype = c.inputs[0]
    n, channels, height, width = x.shape
    count = channels // groups * height * width
    rows = x.reshape(n * groups, count).astype(np.float32, copy=False)
    total = np.float32(count)
    mean = rounded(_row_sums(rows) / total, dtype)
    y = rows - mean[:, None]
    var = _row_squares(y) / total
    rstd = 1 / rounded(np.sqrt(var + np.float32(p.eps)), dtype)
    if p.affine:
        weight, bias = (v.astype(np.float32, copy=False)[:, None] for v in affine)
        scale = rstd.reshape(n, groups, 1, 1) * weight.reshape(groups, -1, 1)
        planes = y.reshape(n, groups, channels // groups, height * width)
        planes *= scale
        planes += bias.reshape(groups, -1, 1)
    else:
        y *= rstd[:, None]
    return stored(y, dtype).reshape(x.shape), mean.reshape(n, groups), var.reshape(n, groups)


# ---- BatchNorm


def _batch_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    _float(inputs[0])
    _float(inputs[1], "the scale")
    if any(d != inputs[1] for d in inputs[2:]):
        raise ValueError(
            f"scale, bias, mean and variance must have one dtype, found {', '.join(map(str, inputs[1:]))}"
        )
    if inputs[0] != inputs[1] and (inputs[0].name, inputs[1].name) != ("Float16", "Float32"):
        raise ValueError(f"a {inputs[0]} input cannot be normalized with {inputs[1]} parameters")
    return (*[inputs[1]] * (len(opr.outputs) - 2), plain("Byte"), inputs[0])


def _batch_check(s: Call | ShapeCall, shapes: Sequence[Shape | None]) -> None:
    p = s.get(BN)
    if len(shapes) not in (3, 5) or (len(shapes) == 3 and p.fwd_mode == BNFwdMode.INFERENCE):
        raise ValueError(f"takes x, scale, bias, mean and variance, found {len(shapes)} inputs")
    x, scale = shapes[:2]
    if x is None or scale is None:
        return
    if len(x) != 4 or len(scale) != 4 or any(n not in (1, m) for n, m in zip(scale, x, strict=True)):
        raise ValueError(
            f"input and scale must have 4 dimensions, the scale's each 1 or the input's; "
            f"found {list(x)} and {list(scale)}"
        )
    for what, shape in zip(("bias", "mean", "variance"), shapes[2:], strict=False):
        if shape is not None and shape != scale:
            raise ValueError(f"the {what} must have the scale's shape {list(scale)}, found {list(shape)}")


def _batch_shape(s: ShapeCall) -> Sequence[Shape | None]:
    _batch_check(s, s.shapes)
    x, scale = s.shape(0), s.shape(1)
    return (*[scale] * (len(s.opr.outputs) - 2), (0,), x)


def _batch_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Count a difference, a product and a sum for each number; in training mean and variance as well."""
    return (3 if opr.get(BN).fwd_mode == BNFwdMode.INFERENCE else 8) * prod(inputs[0])


@kernel("BatchNormV1", dtype=_batch_dtype, shape=_batch_shape, flops=_batch_flops)
def batch_norm(c: Call, x: Array, scale: Array, bias: Array, *running: Array) -> tuple[Array, ...]:
    """Normalize over the batch; which axes share statistics follows from the scale's shape, as in MegEngine.

    Inference takes mean and variance as given. Training takes those of the batch and returns the running ones,
    moved by `avg_factor` towards the batch's (variance unbiased there).

    Returns:
        in training with 5 inputs the new running mean and variance; then mean and ``1 / sqrt(var + eps)`` that
        were used, an empty reserve and, last, the normalized input.
    """
    p = c.get(BN)
    _batch_check(c, [a.shape for a in (x, scale, bias, *running)])
    x_type, dtype = c.inputs[:2]
    wide = x.astype(np.float32, copy=False)
    eps = np.float32(p.epsilon)
    scale, bias = (a.astype(np.float32, copy=False) for a in (scale, bias))
    new: list[Array] = []
    if p.fwd_mode == BNFwdMode.INFERENCE:
        mean, var = (a.astype(np.float32) for a in running)
        y = wide - mean
    else:
        axes = tuple(i for i in range(4) if scale.shape[i] == 1)
        count = prod([x.shape[i] for i in axes])
        mean = rounded(wide.sum(axes, keepdims=True) / np.float32(count), dtype)
        y = wide - mean
        var = np.square(y).sum(axes, keepdims=True) / np.float32(count)
        if running:
            keep, take = 1 - p.avg_factor, p.avg_factor
            unbiased = var.astype(np.float64) * count / np.float64(count - 1)
            moved = (keep * running[0] + take * mean, keep * running[1] + take * unbiased)
            new = [stored(a.astype(np.float32), dtype) for a in moved]
    rstd = rounded(1 / np.sqrt(var + eps), dtype)
    if dtype.name == "Float32":
        y *= scale * rstd
        y += bias
    else:
        y = scale * (y * rstd) + bias
    saved = [stored(a, dtype) for a in (mean, rstd)]
    return (*new, *saved, np.empty(0, np.uint8), stored(y, x_type))


# ---- LRN


def _lrn_check(p: LRN, shape: Shape) -> None:
    if p.n % 2 == 0:
        raise ValueError(f"the window of {p.n} channels must be odd")
    if len(shape) != 4:
        raise ValueError(f"the input must have 4 dimensions, found {list(shape)}")


def _lrn_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    _float(inputs[0])
    return same(opr, inputs)


def _lrn_shape(s: ShapeCall) -> Sequence[Shape | None]:
    _lrn_check(s.get(LRN), s.shape(0))
    return (s.shape(0),)


def _lrn_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    window = min(opr.get(LRN).n, 2 * inputs[0][1])
    return (2 * window + 4) * prod(outputs[0])


@kernel("LRN", dtype=_lrn_dtype, shape=_lrn_shape, flops=_lrn_flops)
def lrn(c: Call, x: Array) -> Array:
    """Compute ``x * (k + alpha * sum)^-beta`` with the sum of squares over n channels around each one (NCHW)."""
    p = c.get(LRN)
    _lrn_check(p, x.shape)
    wide = x.astype(np.float32, copy=False)
    channels = x.shape[1]
    half = p.n // 2
    square = wide * wide
    if half >= channels - 1:
        total = np.broadcast_to(square.sum(1, keepdims=True), x.shape)
    else:
        total = square.copy()
        for i in range(1, half + 1):
            total[:, i:] += square[:, :-i]
            total[:, :-i] += square[:, i:]
    factor = np.float32(p.alpha) * total
    factor += np.float32(p.k)
    np.power(factor, np.float32(-p.beta), out=factor)
    factor *= wide
    return stored(factor, c.inputs[0])
