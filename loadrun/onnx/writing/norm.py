"""Normalization: Softmax, LRN, and the norms, by ONNX's operator where only its result is read, else composed."""

import numpy as np

from ...graph import Opr, Var
from ...graph.params import BN, LRN, BNFwdMode, GeneralNorm, GroupNorm, LayerNorm, Softmax
from ...ops.shape import axis_of
from ..encode import ElemType
from .emitter import Dim, UnsupportedOprError
from .writer import OnnxWriter, translation


@translation("Softmax")
def softmax(w: OnnxWriter, opr: Opr) -> str:
    """Emit Softmax."""
    (x,) = opr.inputs
    rank = w.rank(x)
    return w.stored(w.softmax(w.float(x), axis_of(opr.get(Softmax).axis, rank), rank), w.dtype(x))


@translation("LRN")
def lrn(w: OnnxWriter, opr: Opr) -> str:
    """Emit LRN, whose alpha is divided by the size of the window."""
    p, (x,) = opr.get(LRN), opr.inputs
    if p.n > 2 * (w.shape(x)[1] or 2**30):
        size = 2 * w.fixed(x, [1])[0] + 1
    else:
        size = int(p.n)
    out = w.op("LRN", w.float(x), size=size, alpha=float(p.alpha * size), beta=float(p.beta), bias=float(p.k))
    return w.stored(out, w.dtype(x))


def _moments(w: OnnxWriter, x: str, axes: list[int]) -> tuple[str, str, str]:
    """Compute mean, deviation from it and variance over axes, which stay with size 1."""
    mean = w.reduce("ReduceMean", x, axes)
    gap = w.op("Sub", x, mean)
    return mean, gap, w.reduce("ReduceMean", w.op("Mul", gap, gap), axes)


def _affine(w: OnnxWriter, opr: Opr, x: str, used: bool) -> str:
    if not used:
        return x
    weight, bias = (w.float(v) for v in opr.inputs[1:3])
    return w.op("Add", w.op("Mul", x, weight), bias)


@translation("LayerNorm")
def layer_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit LayerNormalization, or compose it before opset 17."""
    p, x = opr.get(LayerNorm), opr.inputs[0]
    rank = w.rank(x)
    first, dtype = rank - int(p.normalized_dim), w.dtype(x)
    axes = list(range(first, rank))
    if w.opset >= 17:
        scale = w.float(opr.inputs[1]) if p.affine else _ones(w, x, axes)
        bias = w.float(opr.inputs[2]) if p.affine else ""
        out, mean, rstd = w.ops(
            "LayerNormalization", w.float(x), scale, bias, out=3, axis=first, epsilon=float(p.eps)
        )
    else:
        mean, gap, variance = _moments(w, w.float(x), axes)
        root = w.op("Sqrt", w.op("Add", variance, w.f32(p.eps)))
        rstd = w.op("Div", w.f32(1), root)
        out = _affine(w, opr, w.op("Div", gap, root), p.affine)
    return [w.stored(out, dtype), w.squeeze(mean, axes), w.squeeze(rstd, axes)]


def _ones(w: OnnxWriter, x: Var, axes: list[int]) -> str:
    return w.const(np.ones(w.fixed(x, axes), np.float32))


@translation("GeneralNorm")
def general_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Compose the normalization; as in MegEngine, the variance is a difference of two means in float64."""
    p, x = opr.get(GeneralNorm), opr.inputs[0]
    axes = list(range(int(p.axis_start), int(p.axis_end)))
    rank = w.rank(x)
    value = w.float(x)
    mean = w.cast(w.reduce("ReduceMean", w.cast(value, ElemType.DOUBLE), axes), ElemType.FLOAT)
    squares, product = (w.cast(w.op("Mul", v, v), ElemType.DOUBLE) for v in (value, mean))
    variance = w.op("Abs", w.op("Sub", w.reduce("ReduceMean", squares, axes), product))
    eps = w.const(np.float64(np.float32(p.eps)))
    root = w.cast(w.op("Sqrt", w.op("Add", variance, eps)), ElemType.FLOAT)
    out = w.op("Div", w.op("Sub", value, mean), root)
    if p.affine:
        behind = range(len(axes), len(axes) + rank - int(p.axis_end))
        weight, bias = (w.unsqueeze(w.float(v), list(behind)) for v in opr.inputs[1:3])
        out = w.op("Add", w.op("Mul", out, weight), bias)
    gone = axes[1:] if len(axes) == rank else axes
    return [w.stored(out, w.dtype(x)), w.squeeze(mean, gone), w.squeeze(w.op("Div", w.f32(1), root), gone)]


@translation("GroupNorm", "InstanceNorm")
def group_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit InstanceNormalization on groups as channels if only the result is read; compose mean and variance."""
    p, x = opr.get(GroupNorm), opr.inputs[0]
    n, channels, *space = w.dims(x)
    groups: Dim = channels if opr.type == "InstanceNorm" else int(p.group)
    if not isinstance(channels, int) or not isinstance(groups, int):
        raise UnsupportedOprError("a number of channels that changes")
    value = w.float(x)
    rows = w.reshape(value, [n, groups, -1])
    mean, gap, variance = _moments(w, rows, [2])
    if opr.type == "InstanceNorm" and p.affine:
        weight, bias = (w.float(v) for v in opr.inputs[1:3])
        out = w.op("InstanceNormalization", value, weight, bias, epsilon=float(p.eps))
    else:
        out = w.op("Div", gap, w.op("Sqrt", w.op("Add", variance, w.f32(p.eps))))
        out = w.reshape(out, [n, channels, *space])
        if p.affine:
            weight, bias = (w.unsqueeze(w.float(v), [1, 2]) for v in opr.inputs[1:3])
            out = w.op("Add", w.op("Mul", out, weight), bias)
    return [w.stored(out, w.dtype(x)), w.squeeze(mean, [2]), w.squeeze(variance, [2])]


@translation("BatchNormV1")
def batch_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit BatchNormalization for inference with one number per channel; else compose it."""
    p = opr.get(BN)
    x, scale, bias, *running = opr.inputs
    dtype = w.dtype(x)
    shape = w.fixed(scale)
    if p.fwd_mode == BNFwdMode.INFERENCE:
        return _inference(w, opr, p, shape)
    axes = [i for i, n in enumerate(shape) if n == 1]
    mean, gap, variance = _moments(w, w.float(x), axes)
    rstd = w.op("Div", w.f32(1), w.op("Sqrt", w.op("Add", variance, w.f32(p.epsilon))))
    out = w.op("Add", w.op("Mul", gap, w.op("Mul", w.float(scale), rstd)), w.float(bias))
    new = _running_statistics(w, opr, p, mean, variance, axes) if running else []
    nothing = w.const(np.zeros(0, np.uint8))
    kept = w.dtype(scale)
    return [*(w.stored(v, kept) for v in (*new, mean, rstd)), nothing, w.stored(out, dtype)]


def _running_statistics(
    w: OnnxWriter, opr: Opr, p: BN, mean: str, variance: str, axes: list[int]
) -> list[str]:
    """Move running statistics towards those of the batch."""
    count = 1.0
    for n in w.fixed(opr.inputs[0], axes):
        count *= n
    keep, take = w.f32(1 - p.avg_factor), w.f32(p.avg_factor)
    unbiased = w.op("Mul", variance, w.f32(count / (count - 1)))
    return [
        w.op("Add", w.op("Mul", keep, w.float(old)), w.op("Mul", take, new))
        for old, new in zip(opr.inputs[3:5], (mean, unbiased), strict=True)
    ]


def _inference(w: OnnxWriter, opr: Opr, p: BN, shape: tuple[int, ...]) -> list[str]:
    x, *rest = opr.inputs
    dtype = w.dtype(x)
    mean, variance = rest[2:4]
    rstd = w.op("Div", w.f32(1), w.op("Sqrt", w.op("Add", w.float(variance), w.f32(p.epsilon))))
    saved = [w.stored(v, w.dtype(mean)) for v in (w.float(mean), rstd)]
    if shape[0] == shape[2] == shape[3] == 1 and shape[1] == w.shape(x)[1]:
        vectors = [w.reshape(w.float(v), [-1]) if w.value(v) is None else _flat(w, v) for v in rest]
        out = w.op("BatchNormalization", w.float(x), *vectors, epsilon=float(p.epsilon))
    else:
        gap = w.op("Sub", w.float(x), w.float(mean))
        out = w.op("Add", w.op("Mul", gap, w.op("Mul", w.float(rest[0]), rstd)), w.float(rest[1]))
    nothing = w.const(np.zeros(0, np.uint8))
    return [*saved, nothing, w.stored(out, dtype)]


def _flat(w: OnnxWriter, var: Var) -> str:
    value = w.value(var)
    assert value is not None
    return w.derived(var, "vector", np.ascontiguousarray(value.reshape(-1).astype(w.floating.numpy)))
