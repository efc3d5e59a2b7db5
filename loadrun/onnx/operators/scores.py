"""What the models of ai.onnx.ml share: rows of features, transformed scores, labels of classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...arrays.names import np
from ...graph.composite import NodeTypes, OutRule
from ...graph.dtypes import Array, DType, plain
from . import operator
from .common import one_of, refuse_unless

F = TypeVar("F", bound=Callable[..., Any])

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def row_operator(name: str, *, since: int = 1, out: Sequence[OutRule] = ("Float32",)) -> Callable[[F], F]:
    """Register the definition of an operator that gives a row for every row of features; one row tells the shape."""

    def register(function: F) -> F:
        def shape(x: Array, **attributes: Any) -> list[tuple[int, ...]]:
            result = function(np.zeros((1, *x.shape[1:]) if x.ndim > 1 else x.shape, x.dtype), **attributes)
            results = result if isinstance(result, tuple) else (result,)
            return [(x.shape[0] if x.ndim > 1 else 1, *r.shape[1:]) for r in results]

        return operator(name, domain="ai.onnx.ml", since=since, out=out, shape=shape)(function)

    return register


def as_rows(x: Array) -> Array:
    """Return features (N, F) as floats; a vector is one row."""
    refuse_unless(x.ndim in (1, 2), f"its input has {x.ndim} axes, expected rows of features")
    x = x if x.dtype.kind == "f" else x.astype(np.float32)
    return x if x.ndim == 2 else x[None]


def logistic(x: Array) -> Array:
    """Compute 1 / (1 + exp(-x)), whose exponents are never positive."""
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1) / (1 + power)


def probit(x: Array) -> Array:
    """Compute the normal quantile, with the inverse error function as ONNX Runtime approximates it."""
    y = 2 * x - 1
    log = np.log((1 - y) * (1 + y))
    v = 2 / (math.pi * 0.147) + 0.5 * log
    root = math.sqrt(2) * np.sqrt(np.sqrt(v * v - log / 0.147) - v)
    return np.where(y < 0, -root, root)


def transformed(scores: Array, how: str) -> Array:
    """Transform scores (N, C) of two classes or more."""
    one_of("post_transform", how, *TRANSFORMS)
    if how == "NONE":
        return scores
    if how == "PROBIT":
        return probit(scores)
    if how == "LOGISTIC":
        return logistic(scores)
    most = scores.max(1, keepdims=True)
    power = np.exp(scores - most)
    if how == "SOFTMAX":
        return power / power.sum(1, keepdims=True)
    # Scores of 0 stay 0.
    apart = np.abs(scores) > 1e-7
    total = np.where(apart, power, 0).sum(1, keepdims=True)
    return np.where(apart, power, scores * np.exp(-most)) / total


def of_both(scores: Array, others: Array, how: str) -> Array:
    """Transform the scores (N, 1) of the second of two classes, beside those of the first."""
    refuse_unless(how != "PROBIT", "with post_transform PROBIT the score of its second class is undefined")
    if how == "LOGISTIC":
        return logistic(np.concatenate([-scores, scores], 1))
    return np.concatenate([others, scores], 1)


def label_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    """Return the type of labels: text where the node has such."""
    return plain("String" if attributes.get("classlabels_strings") else "Int64")


def chosen(at: Array, numbers: Sequence[int], texts: Sequence[str]) -> Array:
    """Return the labels of classes by their index."""
    return np.take(np.array(texts, object) if texts else np.array(numbers, np.int64), at)
