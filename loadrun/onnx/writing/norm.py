"""Normalization: Softmax, LRN, and the norms, by ONNX's operator where only its result is read, else composed."""

import numpy as np

from ...graph import Opr, Var
from ...graph.params import BN, LRN, BNFwdMode, GeneralNorm, GroupNorm, LayerNorm, Softmax
from ...ops.formulas import FORMULAS
from ...ops.shape import axis_of
from ..encode import ElemType
from .formulas import written
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


@translation("LayerNorm")
def layer_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit LayerNormalization, or compose it before opset 17."""
    p, x = opr.get(LayerNorm), opr.inputs[0]
    if w.opset < 17:
        return written(w, opr, FORMULAS[opr.type])
    rank = w.rank(x)
    first = rank - int(p.normalized_dim)
    axes = list(range(first, rank))
    scale = w.float(opr.inputs[1]) if p.affine else w.const(np.ones(w.fixed(x, axes), np.float32))
    bias = w.float(opr.inputs[2]) if p.affine else ""
    out, mean, rstd = w.ops(
        "LayerNormalization", w.float(x), scale, bias, out=3, axis=first, epsilon=float(p.eps)
    )
    return [w.stored(out, w.dtype(x)), w.squeeze(mean, axes), w.squeeze(rstd, axes)]


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


@translation("InstanceNorm")
def instance_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit InstanceNormalization; compose mean and variance, and what has no weights."""
    p, x = opr.get(GroupNorm), opr.inputs[0]
    composed = written(w, opr, FORMULAS[opr.type])
    if not p.affine:
        return composed
    out = w.op("InstanceNormalization", *map(w.float, opr.inputs), epsilon=float(p.eps))
    return [w.stored(out, w.dtype(x)), *composed[1:]]


@translation("BatchNormV1")
def batch_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit BatchNormalization for inference with one number per channel; else compose it."""
    p, (x, *rest) = opr.get(BN), opr.inputs
    composed = written(w, opr, FORMULAS[opr.type])
    shape = w.fixed(rest[0])
    per_channel = shape[0] == shape[2] == shape[3] == 1 and shape[1] == w.shape(x)[1]
    if p.fwd_mode != BNFwdMode.INFERENCE or not per_channel:
        return composed
    vectors = [w.reshape(w.float(v), [-1]) if w.value(v) is None else _flat(w, v) for v in rest]
    out = w.op("BatchNormalization", w.float(x), *vectors, epsilon=float(p.epsilon))
    return [*composed[:-1], w.stored(out, w.dtype(x))]


def _flat(w: OnnxWriter, var: Var) -> str:
    value = w.value(var)
    assert value is not None
    return w.derived(var, "vector", np.ascontiguousarray(value.reshape(-1).astype(w.floating.numpy)))
