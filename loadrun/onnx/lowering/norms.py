"""Normalizations."""

from __future__ import annotations

from ...build import emit as e
from ...build.emit import summed
from ...build.layers import norm as build
from ...build.layers.sizes import per_channel
from ...graph import params as P
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ..call import CONTRIB, NodeCall, lower
from ..values import FLOAT, UnsupportedNodeError, Value
from . import M, cast, const_like, folded

__all__: list[str] = []


@lower("BatchNormalization")
def _batch_norm(c: NodeCall) -> Tensor | tuple[Tensor, ...]:
    x = c.t(0)
    eps = c.real("epsilon", 1e-5)
    scale, bias, middle, variance = (c.t(i) for i in range(1, 5))
    # Before version 14, a file asks for the statistics to say that it is training.
    training = c.flag("training_mode") if c.opset >= 14 else any(c.wanted[1:])
    whole = x.ndim == 1 or (c.opset < 9 and not c.flag("spatial", 1))
    if not training and not whole:
        return build.batch_norm(x, middle, variance, scale, bias, eps)
    scale, bias, middle, variance = (
        folded(lambda v: e.real(v), v) if whole else per_channel(e.real(v), x.ndim)
        for v in (scale, bias, middle, variance)
    )
    wide = e.real(x)
    if not training:
        return cast(build.rescaled(wide, middle, variance, scale, bias, eps), dtype_of(x))
    axes = [i for i in range(x.ndim) if i != 1]
    y, now, inverse = build.standardized(wide, axes, eps)
    spread = e.mean(e.elem(M.SQUARE, e.elem(M.SUB, wide, now)), axes)
    keep = c.real("momentum", 0.9)
    running = []
    for i, (old, new) in enumerate(((middle, now), (variance, spread))):
        mixed = e.elem(
            M.ADD, e.elem(M.MUL, old, const_like(keep, old)), e.elem(M.MUL, new, const_like(1 - keep, new))
        )
        running.append(cast(e.flat(mixed), dtype_of(c.t(3 + i))))
    if len(c.wanted) > 3:
        # What versions before 14 save for gradients, as ONNX Runtime does.
        running += [cast(e.flat(v), dtype_of(c.t(3))) for v in (now, inverse)]
    return (cast(e.elem(M.ADD, e.elem(M.MUL, y, scale), bias), dtype_of(x)), *running)


@lower("InstanceNormalization")
def _instance_norm(c: NodeCall) -> Tensor:
    return build.group_norm(c.t(0), 0, c.t(1), c.t(2), c.real("epsilon", 1e-5))


@lower("GroupNormalization")
def _group_norm(c: NodeCall) -> Tensor:
    x, scale, bias = c.t(0), c.t(1), c.t(2)
    channels, groups = static_shape(x)[1], c.number("num_groups")
    if groups < 1 or channels % groups:
        raise UnsupportedNodeError(f"{channels} channels in {groups} groups")
    if c.opset < 21:
        # One number for each group.
        scale, bias = (
            folded(lambda v: e.flat(e.broadcast(e.reshape(v, (-1, 1)), (groups, channels // groups))), v)
            for v in (scale, bias)
        )
    return build.group_norm(x, groups, scale, bias, c.real("epsilon", 1e-5))


@lower("LayerNormalization")
def _layer_norm(c: NodeCall) -> tuple[Tensor | Value, ...]:
    x, scale = _normalized(c)
    axis = c.axis("axis", -1, x.ndim)
    y, *rest = _layer_normalized(x, scale, c.maybe(2), axis, c.real("epsilon", 1e-5))
    return cast(y, dtype_of(c.t(1))), *rest


def _normalized(c: NodeCall) -> tuple[Tensor, Tensor]:
    """Return the input and the scale, both in float32 where their types differ: the result has that of the scale."""
    x, scale = c.t(0), c.t(1)
    return (x, scale) if dtype_of(x) == dtype_of(scale) else (e.real(x), e.real(scale))


def _layer_normalized(
    x: Tensor, scale: Tensor, bias: Tensor | None, axis: int, eps: float
) -> tuple[Tensor, Value, Value]:
    y, middle, inverse = build.layer_norm(x, axis, scale, bias, eps)
    return y, Value(FLOAT, middle), Value(FLOAT, inverse)


def _total(c: NodeCall, bias: int) -> Tensor:
    """Add the first two inputs and maybe a bias; numbers of 16 bits in float32, which are normalized unrounded."""
    total = e.elem(M.ADD, e.real(c.t(0)), e.real(c.t(1)))
    if static_shape(total) != static_shape(c.t(0)):
        shapes = [list(static_shape(c.t(i))) for i in (0, 1)]
        raise UnsupportedNodeError(f"its skip is {shapes[1]}, which does not fit {shapes[0]}")
    return e.elem(M.ADD, total, e.real(c.t(bias))) if c.has(bias) else total


@lower("SkipLayerNormalization", domain=CONTRIB)
def _skip_layer_norm(c: NodeCall) -> tuple[Tensor | Value | None, ...]:
    total, kind = _total(c, 4), dtype_of(c.t(0))
    scale, bias = e.real(c.t(2)), e.real(c.t(3)) if c.has(3) else None
    y, *rest = _layer_normalized(total, scale, bias, total.ndim - 1, c.real("epsilon", 1e-12))
    return cast(y, kind), *rest, cast(total, kind)


@lower("SkipSimplifiedLayerNormalization", domain=CONTRIB)
def _skip_simplified(c: NodeCall) -> tuple[Tensor | None, ...]:
    total, kind = _total(c, 3), dtype_of(c.t(0))
    y = build.rms_norm(total, [total.ndim - 1], e.real(c.t(2)), c.real("epsilon", 1e-12))
    return cast(y, kind), None, None, cast(total, kind)


@lower("RMSNormalization")
def _rms_norm(c: NodeCall) -> Tensor:
    x, scale = _normalized(c)
    axis = c.axis("axis", -1, x.ndim)
    y = build.rms_norm(x, list(range(axis, x.ndim)), scale, c.real("epsilon", 1e-5))
    return cast(y, dtype_of(c.t(1)))


@lower("SimplifiedLayerNormalization")
@lower("SimplifiedLayerNormalization", domain=CONTRIB)
def _simplified(c: NodeCall) -> Tensor:
    return _rms_norm(c)


@lower("LpNormalization")
def _lp_norm(c: NodeCall) -> Tensor:
    x = c.t(0)
    axis = c.axis("axis", -1, x.ndim)
    wide, p = e.real(x), c.number("p", 2)
    if p not in (1, 2):
        raise UnsupportedNodeError(f"its p is {p}, expected 1 or 2")
    if p == 1:
        size = summed(e.elem(M.ABS, wide), [axis], True)
    else:
        size = e.elem(M.SQRT, summed(e.elem(M.SQUARE, wide), [axis], True))
    nothing = e.compare(P.ElemwiseMultiTypeMode.EQ, size, const_like(0, size))
    safe = e.where(nothing, const_like(1.0, size), size)
    return cast(e.elem(M.TRUE_DIV, wide, safe), dtype_of(x))


@lower("MeanVarianceNormalization")
def _mean_variance(c: NodeCall) -> Tensor:
    x = c.t(0)
    axes = c.ints("axes") or [0, 2, 3]
    if c.opset < 9:
        # ONNX Runtime's operator from before ONNX had one.
        axes = [i for i in range(min(x.ndim, 4)) if i != 1 or c.flag("across_channels")]
    wide = e.real(x)
    centred = e.elem(M.SUB, wide, e.mean(wide, axes))
    if c.opset < 9 and not c.flag("normalize_variance", 1):
        return cast(centred, dtype_of(x))
    spread = e.elem(M.SQRT, e.mean(e.elem(M.SQUARE, centred), axes))
    return cast(e.elem(M.TRUE_DIV, centred, e.elem(M.ADD, spread, const_like(1e-9, spread))), dtype_of(x))


@lower("LRN")
def _lrn(c: NodeCall) -> Tensor:
    size = c.number("size")
    alpha, beta, k = (c.real(n, v) for n, v in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return build.local_response_norm(c.t(0), size, alpha / size, beta, k)
