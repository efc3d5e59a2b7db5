"""Losses and dropout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays.names import np
from ...graph.composite import Known, NodeTypes
from ...graph.dtypes import Array, DType, plain
from ...ops.numeric.stream import Stream
from . import operator
from .common import one_of


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """Compute -weight[t] * x[t] over classes in axis 1, summed, averaged by weight, or unreduced."""
    one_of("reduction", reduction, "mean", "sum", "none")
    counted = None if ignore_index is None else target != ignore_index
    at = target if counted is None else np.where(counted, target, 0)
    loss = -np.squeeze(np.take_along_axis(x, np.expand_dims(at, 1), 1), 1)
    factor = None if weight is None else np.take(weight, at)
    if counted is not None:
        factor = counted.astype(x.dtype) if factor is None else np.where(counted, factor, 0).astype(x.dtype)
    loss = loss if factor is None else loss * factor
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if factor is None else loss.sum() / factor.sum()


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    """Compute the negative log-likelihood of softmax over axis 1, and the logarithms of softmax."""
    away = x - x.max(1, keepdims=True)
    logs = away - np.log(np.exp(away).sum(1, keepdims=True))
    loss = negative_log_likelihood(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    return loss, logs


def _with_mask(x: Array, *others: Array | None, **attributes: object) -> list[tuple[int, ...]]:
    return [x.shape, x.shape]


@operator("Dropout", since=12, out=(0, "Bool"), shape=_with_mask)
def dropout(
    x: Array,
    ratio: Known | None = None,
    training: Known | None = None,
    *,
    seed: int | None = None,
    stream: Stream | None = None,
) -> tuple[Array, Array]:
    """Return the input; while training, random elements become 0 and the others grow. The mask tells who stays."""
    if training is None or not training.item():
        return x, np.ones(x.shape, bool)
    rate = 0.5 if ratio is None else float(ratio.item())
    if not rate:
        return x, np.ones(x.shape, bool)
    source = Stream(seed or 0) if stream is None else stream
    stays = source.uniform("UniformRNGV1", x.shape) >= rate
    return np.where(stays, x * (1 / (1 - rate)), 0).astype(x.dtype), stays


def _mask_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    like = types.inputs[0]
    assert like is not None
    return plain("Bool") if types.opset >= 10 else like


@operator("Dropout", since=7, out=(0, _mask_type), shape=_with_mask)
def dropout_7(x: Array, *, ratio: float = 0.5, types: NodeTypes) -> tuple[Array, Array]:
    """Return the input, and a mask that ONNX Runtime fills with zeros."""
    return x, np.zeros(x.shape, bool if types.opset >= 10 else x.dtype)


@operator("Dropout", out=(0, _mask_type), shape=_with_mask)
def dropout_1(x: Array, *, is_test: int = 0, ratio: float = 0.5, types: NodeTypes) -> tuple[Array, Array]:
    """Return the input, and a mask that ONNX Runtime fills with zeros."""
    return dropout_7(x, ratio=ratio, types=types)
