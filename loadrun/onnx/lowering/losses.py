"""Losses and dropout."""

from __future__ import annotations

import numpy as np

from ...arrays.selection import along
from ...build import emit as e
from ...build.layers.activation import log_softmax
from ...build.random import seed_of_operator
from ...graph import params as P
from ...tensors import Tensor, apply
from ...tensors.access import dtype_of
from ..call import NodeCall, lower
from ..values import BOOL, Value
from . import M, cast, const_like
from .randomness import uniform

__all__: list[str] = []

_EQ = P.ElemwiseMultiTypeMode.EQ


def _negative_log_likelihood(c: NodeCall, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Compute -weight[t] * x[t] over classes in axis 1, summed, averaged by weight, or unreduced."""
    reduction = c.choice("reduction", "mean", "sum", "none")
    at = e.whole(target)
    counted: Tensor | None = None
    if "ignore_index" in c.attributes:
        ignored = e.compare(_EQ, at, const_like(c.number("ignore_index"), at))
        at = e.where(ignored, const_like(0, at), at)
        counted = cast(e.logical_not(ignored), dtype_of(x))
    taken = e.drop_axes(along(x, e.add_axes(at, [1]), 1), [1])
    loss = e.elem(M.NEGATE, taken)
    factor = counted
    if weight is not None:
        each = e.gather(weight, [(0, at)])
        factor = each if factor is None else e.elem(M.MUL, factor, each)
    if factor is not None:
        loss = e.elem(M.MUL, loss, factor)
    axes = list(range(loss.ndim))
    if reduction == "none":
        return loss
    total = e.reduce(loss, P.ReduceMode.SUM, axes)
    if reduction == "sum":
        return total
    if factor is None:
        return e.reduce(loss, P.ReduceMode.MEAN, axes)
    return e.elem(M.TRUE_DIV, total, e.reduce(factor, P.ReduceMode.SUM, axes))


@lower("NegativeLogLikelihoodLoss")
def _nll(c: NodeCall) -> Tensor:
    x = c.t(0)
    wide = e.real(x)
    weight = e.real(c.t(2)) if c.has(2) else None
    return cast(_negative_log_likelihood(c, wide, c.t(1), weight), dtype_of(x))


@lower("SoftmaxCrossEntropyLoss")
def _cross_entropy(c: NodeCall) -> tuple[Tensor, Tensor]:
    x = c.t(0)
    logs = log_softmax(e.real(x), 1)
    weight = e.real(c.t(2)) if c.has(2) else None
    loss = _negative_log_likelihood(c, logs, c.t(1), weight)
    return cast(loss, dtype_of(x)), cast(logs, dtype_of(x))


@lower("Dropout", foldable=False)
def _dropout(c: NodeCall) -> tuple[Value | Tensor, ...]:
    x = c.value(0)
    training = False
    ratio = c.real("ratio", 0.5)
    if c.opset >= 12:
        ratio = float(c.constant(1, "ratio").item()) if c.has(1) else 0.5
        training = bool(c.constant(2, "training mode").item()) if c.has(2) else False
    if training and ratio:
        seed = c.number("seed") or seed_of_operator()
        if len(c.wanted) > 1 and c.wanted[1]:
            drawn = uniform(tuple(x.shape), seed)
            stays = e.logical_not(e.compare(P.ElemwiseMultiTypeMode.LT, drawn, const_like(ratio, drawn)))
            scaled = e.elem(M.MUL, x.tensor, const_like(1 / (1 - ratio), x.tensor))
            return e.where(stays, scaled, const_like(0, x.tensor)), Value(BOOL, stays)
        param = P.Dropout(drop_prob=ratio, seed=seed)
        return (apply("Dropout", param, inputs=[x.tensor], n=2, scalar=False)[0],)
    # ONNX Runtime's masks are false before version 12, and have the type of the data before 10.
    kept, kind = c.opset >= 12, BOOL if c.opset >= 10 else x.kind
    if not x.rank:
        return x, Value(kind, array=np.array(kept))
    fill = const_like(int(kept), x.tensor)
    return x, Value(kind, e.full(cast(fill, "bool") if kind == BOOL else fill, x.shape))
