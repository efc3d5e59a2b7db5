"""The outputs of classifiers of ai.onnx.ml: transformed scores, and labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor, apply1
from ..call import NodeCall
from ..values import DOUBLE, INT64, Unheld, UnsupportedNodeError, Value
from . import M, const_like

__all__ = [
    "TRANSFORMS",
    "Labels",
    "as_rows",
    "first_largest",
    "labels_of",
    "larger",
    "logistic",
    "post_transform",
    "probit",
    "transformed",
]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_LT = P.ElemwiseMultiTypeMode.LT


def as_rows(c: NodeCall, *, wide: bool = False) -> Tensor:
    """Return the first input as float32 (N, F), or as the float64 that it is; a vector becomes one row."""
    x = c.t(0) if wide and c.kind(0) == DOUBLE else e.cast(c.t(0), "float32")
    if x.ndim == 1:
        return e.add_axes(x, [0])
    if x.ndim != 2:
        raise UnsupportedNodeError(f"its input has {x.ndim} axes, expected rows of features")
    return x


def post_transform(c: NodeCall) -> str:
    """Return the transform of scores that a node names."""
    name = c.text("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise UnsupportedNodeError(f"its post_transform is {name!r}, expected one of {', '.join(TRANSFORMS)}")
    return name


def larger(x: Tensor, value: float) -> Tensor:
    """Compare a tensor with a number: true where it is larger."""
    return e.compare(_LT, const_like(value, x), x)


def logistic(x: Tensor) -> Tensor:
    """Compute 1 / (1 + exp(-x))."""
    return e.elem(M.SIGMOID, x)


def probit(x: Tensor) -> Tensor:
    """Compute the normal quantile, with the inverse error function as ONNX Runtime approximates it."""

    def number(value: float) -> Tensor:
        return const_like(value, x)

    y = e.elem(M.SUB, e.elem(M.MUL, number(2), x), number(1))
    log = e.elem(M.LOG, e.elem(M.MUL, e.elem(M.SUB, number(1), y), e.elem(M.ADD, number(1), y)))
    v = e.elem(M.ADD, number(2 / (math.pi * 0.147)), e.elem(M.MUL, number(0.5), log))
    rest = e.elem(M.SUB, e.elem(M.SQUARE, v), e.elem(M.MUL, number(1 / 0.147), log))
    root = e.elem(M.SQRT, e.elem(M.SUB, e.elem(M.SQRT, rest), v))
    root = e.elem(M.MUL, number(math.sqrt(2)), root)
    return e.where(e.compare(_LT, y, number(0)), e.elem(M.NEGATE, root), root)


def transformed(scores: Tensor, how: str) -> Tensor:
    """Transform scores (N, C) of two classes or more."""
    if how == "PROBIT":
        return probit(scores)
    if how == "LOGISTIC":
        return logistic(scores)
    if how == "SOFTMAX":
        return apply1("Softmax", P.Softmax(axis=1), inputs=[scores], scalar=False)
    return _softmax_zero(scores) if how == "SOFTMAX_ZERO" else scores


def _softmax_zero(scores: Tensor) -> Tensor:
    """Compute softmax in which scores of 0 stay 0."""
    most = e.add_axes(e.reduce(scores, P.ReduceMode.MAX, [1]), [1])
    power = e.elem(M.EXP, e.elem(M.SUB, scores, most))
    apart = larger(e.elem(M.ABS, scores), 1e-7)
    zero = const_like(0, scores)
    total = e.add_axes(e.reduce(e.where(apart, power, zero), P.ReduceMode.SUM, [1]), [1])
    scaled = e.elem(M.MUL, scores, e.elem(M.EXP, e.elem(M.NEGATE, most)))
    return e.elem(M.TRUE_DIV, e.where(apart, power, scaled), total)


def first_largest(scores: Tensor) -> Tensor:
    """Return (N,) int32: the column of (N, C) with the largest value, the first among ties."""
    return e.drop_axes(apply1("Argmax", P.Axis(axis=1), inputs=[scores], scalar=False), [1])


class Labels:
    """The labels of a classifier.

    Attributes:
        count: how many classes there are; 0 if the node names none.
        numbers: the labels, None if they are text.
    """

    def __init__(self, numbers: Sequence[int] | None, texts: Sequence[str] | None) -> None:
        self.numbers = None if texts else [int(n) for n in numbers or ()]
        self.count = len(texts or numbers or ())

    def choose(self, at: Tensor) -> Value | Unheld:
        """Return the labels of classes by their index (N,) int32."""
        if self.numbers is None:
            return Unheld("holds labels of text, which MegEngine does not support")
        if self.numbers == list(range(self.count)):
            return Value(INT64, at)
        table = Value(INT64, array=np.array(self.numbers, np.int64), name="a label").stored
        return Value(INT64, e.gather(table, [(0, at)]))

    def either(self, positive: Tensor, labels: Sequence[int] | None = None) -> Value | Unheld:
        """Return the second label where a mask (N,) is true, else the first; or two other numbers."""
        at = e.cast(positive, "int32")
        if self.numbers is None or labels is None:
            return self.choose(at)
        return Labels(labels, None).choose(at)


def labels_of(c: NodeCall, numbers: str) -> Labels:
    """Read the labels of a node, by the name of its attribute for numbers."""
    return Labels(c.ints(numbers), c.texts("classlabels_strings"))
