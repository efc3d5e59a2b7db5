"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence

from ...build import emit as e
from ...build.emit import summed
from ...graph import params as P
from ...tensors import Tensor
from ..call import CONTRIB, NodeCall, lower
from ..values import FLOAT, UnsupportedNodeError, Value
from .padding import pad_with
from .parts import M, cast, const_like, folded
from .reductions import mean
from .shapes import sliced

__all__ = ["per_channel", "rms_normalized", "standardized"]

_R = P.ReduceMode


def per_channel(v: Tensor, rank: int) -> Tensor:
    """A vector as (1, C, 1, ...)."""
    return folded(lambda t: e.reshape(t, (1, -1, *[1] * (rank - 2))), v)


def standardized(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / deviation of a float32 tensor, the mean, and one over the deviation."""
    middle = mean(x, list(axes))
    centred = e.elem(M.SUB, x, middle)
    variance = mean(e.elem(M.SQUARE, centred), list(axes))
    deviation = e.elem(M.SQRT, e.elem(M.ADD, variance, const_like(eps, variance)))
    inverse = e.elem(M.TRUE_DIV, const_like(1.0, deviation), deviation)
    return e.elem(M.TRUE_DIV, centred, deviation), middle, inverse


@lower("BatchNormalization")
def _batch_norm(c: NodeCall) -> Tensor | tuple[Tensor, ...]:
    x = c.t(0)
    kind = x._dtype
    wide = cast(x, "float32")
    eps = c.real("epsilon", 1e-5)
    given = [folded(lambda v: cast(v, "float32"), c.t(i)) for i in range(1, 5)]
    rank = max(x.ndim, 2)
    if c.opset < 9 and not c.number("spatial", 1):
        given = [e.add_axes(v, [0]) for v in given]
    else:
        given = [per_channel(v, rank) for v in given]
    scale, bias, middle, variance = given
    # Before version 14 a file says that it is trained by asking for the statistics.
    training = bool(c.number("training_mode")) if c.opset >= 14 else any(c.wanted[1:])
    if not training:
        factor = folded(
            lambda s, v: e.elem(M.TRUE_DIV, s, e.elem(M.SQRT, e.elem(M.ADD, v, const_like(eps, v)))),
            scale,
            variance,
        )
        shift = folded(lambda b, m, f: e.elem(M.SUB, b, e.elem(M.MUL, m, f)), bias, middle, factor)
        return cast(e.elem(M.ADD, e.elem(M.MUL, wide, factor), shift), kind)
    axes = [i for i in range(x.ndim) if i != 1]
    y, now, _ = standardized(wide, axes, eps)
    spread = mean(e.elem(M.SQUARE, e.elem(M.SUB, wide, now)), axes)
    keep = c.real("momentum", 0.9)
    running = []
    for i, (old, new) in enumerate(((middle, now), (variance, spread))):
        mixed = e.elem(
            M.ADD, e.elem(M.MUL, old, const_like(keep, old)), e.elem(M.MUL, new, const_like(1 - keep, new))
        )
        running.append(cast(e.flat(mixed), c.t(3 + i)._dtype))
    return (cast(e.elem(M.ADD, e.elem(M.MUL, y, scale), bias), kind), *running)


@lower("InstanceNormalization")
def _instance_norm(c: NodeCall) -> Tensor:
    x = c.t(0)
    wide = cast(x, "float32")
    y, _, _ = standardized(wide, range(2, x.ndim), c.real("epsilon", 1e-5))
    scale, bias = (per_channel(cast(c.t(i), "float32"), x.ndim) for i in (1, 2))
    return cast(e.elem(M.ADD, e.elem(M.MUL, y, scale), bias), x._dtype)


@lower("GroupNormalization")
def _group_norm(c: NodeCall) -> Tensor:
    x, scale, bias = c.t(0), cast(c.t(1), "float32"), cast(c.t(2), "float32")
    groups = c.number("num_groups")
    shape = x.shape
    if groups < 1 or int(shape[1]) % groups:
        raise UnsupportedNodeError(f"{int(shape[1])} channels in {groups} groups")
    parted = e.reshape(cast(x, "float32"), (shape[0], groups, -1))
    y, _, _ = standardized(parted, [2], c.real("epsilon", 1e-5))
    if c.opset < 21:
        each = [folded(lambda v: e.reshape(v, (1, -1, 1)), v) for v in (scale, bias)]
        y = e.reshape(e.elem(M.ADD, e.elem(M.MUL, y, each[0]), each[1]), shape)
        return cast(y, x._dtype)
    y = e.reshape(y, shape)
    y = e.elem(M.ADD, e.elem(M.MUL, y, per_channel(scale, x.ndim)), per_channel(bias, x.ndim))
    return cast(y, x._dtype)


@lower("LayerNormalization")
def _layer_norm(c: NodeCall) -> tuple[Tensor | Value, ...]:
    return _layer_normalized(c, c.t(0), c.t(1), c.maybe(2), c.number("axis", -1), c.real("epsilon", 1e-5))


def _layer_normalized(
    c: NodeCall, x: Tensor, scale: Tensor, bias: Tensor | None, axis: int, eps: float
) -> tuple[Tensor | Value, ...]:
    axes = list(range(axis + x.ndim if axis < 0 else axis, x.ndim))
    y, middle, inverse = standardized(cast(x, "float32"), axes, eps)
    y = e.elem(M.MUL, cast(y, x._dtype), scale)
    if bias is not None:
        y = e.elem(M.ADD, y, bias)
    return y, Value(FLOAT, middle), Value(FLOAT, inverse)


@lower("SkipLayerNormalization", domain=CONTRIB)
def _skip_layer_norm(c: NodeCall) -> tuple[Tensor | Value | None, ...]:
    total = e.elem(M.ADD, c.t(0), c.t(1))
    if c.has(4):
        total = e.elem(M.ADD, total, c.t(4))
    result = _layer_normalized(c, total, c.t(2), c.maybe(3), -1, c.real("epsilon", 1e-12))
    return (*result, total)


@lower("SkipSimplifiedLayerNormalization", domain=CONTRIB)
def _skip_simplified(c: NodeCall) -> tuple[Tensor | None, ...]:
    total = e.elem(M.ADD, c.t(0), c.t(1))
    if c.has(3):
        total = e.elem(M.ADD, total, c.t(3))
    y = rms_normalized(total, [total.ndim - 1], c.t(2), c.real("epsilon", 1e-12))
    return y, None, None, total


def rms_normalized(x: Tensor, axes: list[int], scale: Tensor, eps: float) -> Tensor:
    """x over its root mean square, times a scale."""
    wide = cast(x, "float32")
    square = mean(e.elem(M.SQUARE, wide), axes)
    root = e.elem(M.SQRT, e.elem(M.ADD, square, const_like(eps, square)))
    return e.elem(M.MUL, cast(e.elem(M.TRUE_DIV, wide, root), x._dtype), cast(scale, x._dtype))


@lower("RMSNormalization")
def _rms_norm(c: NodeCall) -> Tensor:
    x = c.t(0)
    axis = c.axis("axis", -1, x.ndim)
    return rms_normalized(x, list(range(axis, x.ndim)), c.t(1), c.real("epsilon", 1e-5))


@lower("SimplifiedLayerNormalization")
@lower("SimplifiedLayerNormalization", domain=CONTRIB)
def _simplified(c: NodeCall) -> Tensor:
    return _rms_norm(c)


@lower("LpNormalization")
def _lp_norm(c: NodeCall) -> Tensor:
    x = c.t(0)
    axis = c.axis("axis", -1, x.ndim)
    wide = cast(x, "float32")
    if c.number("p", 2) == 1:
        size = summed(e.elem(M.ABS, wide), [axis], True)
    else:
        size = e.elem(M.SQRT, summed(e.elem(M.SQUARE, wide), [axis], True))
    nothing = e.compare(P.ElemwiseMultiTypeMode.EQ, size, const_like(0, size))
    safe = e.where(nothing, const_like(1.0, size), size)
    return cast(e.elem(M.TRUE_DIV, wide, safe), x._dtype)


@lower("MeanVarianceNormalization")
def _mean_variance(c: NodeCall) -> Tensor:
    x = c.t(0)
    axes = c.ints("axes") or [0, 2, 3]
    wide = cast(x, "float32")
    centred = e.elem(M.SUB, wide, mean(wide, axes))
    spread = e.elem(M.SQRT, mean(e.elem(M.SQUARE, centred), axes))
    return cast(e.elem(M.TRUE_DIV, centred, e.elem(M.ADD, spread, const_like(1e-9, spread))), x._dtype)


@lower("LRN")
def _lrn(c: NodeCall) -> Tensor:
    """x / (bias + alpha / size * sum of squares of the channels around) ** beta."""
    x = cast(c.t(0), "float32")
    size = c.number("size")
    before = (size - 1) // 2
    widths = [(0, 0)] * x.ndim
    widths[1] = (before, size - 1 - before)
    square = pad_with(e.elem(M.SQUARE, x), widths, "constant")
    n = x._tuple_shape[1]
    total = sliced(square, 1, 0, n)
    for k in range(1, size):
        total = e.elem(M.ADD, total, sliced(square, 1, k, k + n))
    scale = e.elem(M.MUL, const_like(c.real("alpha", 1e-4) / size, total), total)
    base = e.elem(M.ADD, scale, const_like(c.real("bias", 1.0), scale))
    root = e.elem(M.POW, base, const_like(c.real("beta", 0.75), base))
    return cast(e.elem(M.TRUE_DIV, x, root), c.t(0)._dtype)
