"""Support vector machines of ai.onnx.ml, with the votes and probabilities of ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...graph.dtypes import Array
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import static_shape
from ..call import NodeCall, lower
from ..values import FLOAT, Unheld, UnsupportedNodeError, Value
from . import M, cast, const_like
from .linalg import gemm
from .scores import Labels, as_rows, first_largest, labels_of, larger, logistic, post_transform, transformed

__all__: list[str] = []

_ML = "ai.onnx.ml"
_LEAST = 1e-7
_MOST_WEIGHTS = 1 << 26
_ROUNDS = 8
"""Of the iteration towards probabilities, which ends after four for all but contrived data."""


@dataclass
class Kernel:
    """The kernel: the comparison of two samples.

    Attributes:
        kind: LINEAR, POLY, RBF or SIGMOID.
        gamma: the factor of products.
        coef0: the term added to them.
        degree: the exponent of POLY.
    """

    kind: str
    gamma: float = 0.0
    coef0: float = 0.0
    degree: float = 0.0

    def __call__(self, x: Tensor, vectors: Array) -> Tensor:
        """Compute the kernel (N, V) of samples (N, F) and vectors (V, F)."""
        if self.kind == "RBF":
            return self._radial(x, vectors)
        if self.kind == "LINEAR":
            return gemm(x, const(vectors), turn_y=True)
        near = gemm(x, const(vectors), alpha=self.gamma, turn_y=True)
        near = e.elem(M.ADD, near, const_like(self.coef0, near))
        if self.kind == "SIGMOID":
            return e.elem(M.TANH, near)
        if self.degree == 2:
            return e.elem(M.SQUARE, near)
        if self.degree == 3:
            return e.elem(M.MUL, e.elem(M.SQUARE, near), near)
        return e.elem(M.POW, near, const_like(self.degree, near))

    def _radial(self, x: Tensor, vectors: Array) -> Tensor:
        # |x - v|^2 as squares and products loses digits where both are far from 0, so both are centred.
        if not np.isfinite(vectors).all():
            raise UnsupportedNodeError("support_vectors hold a value that is not finite")
        middle = vectors.mean(0, dtype=np.float64).astype(np.float32)
        x, vectors = e.elem(M.SUB, x, const(middle)), vectors - middle
        own = e.add_axes(e.reduce(e.elem(M.SQUARE, x), P.ReduceMode.SUM, [1]), [1])
        with np.errstate(over="ignore"):
            squares = const((vectors.astype(np.float64) ** 2).sum(1).astype(np.float32))
        products = gemm(x, const(vectors), alpha=-2.0, turn_y=True)
        apart = e.elem(M.ADD, e.elem(M.ADD, own, squares), products)
        apart = e.elem(M.MAX, apart, const_like(0, apart))
        endless = e.compare(P.ElemwiseMultiTypeMode.EQ, own, const_like(np.inf, own))
        apart = e.where(endless, own, apart)
        return e.elem(M.EXP, e.elem(M.MUL, apart, const_like(-self.gamma, apart)))


def _kernel(c: NodeCall) -> Kernel:
    kind = c.choice("kernel_type", "LINEAR", "POLY", "RBF", "SIGMOID")
    parameters = c.floats("kernel_params") or []
    if kind != "LINEAR" and len(parameters) < 3:
        raise UnsupportedNodeError(
            f"kernel_params has {len(parameters)} entries, expected gamma, coef0 and degree"
        )
    return Kernel(kind, *parameters[:3])


def _matrix(c: NodeCall, name: str, rows: int) -> Array:
    """Read an attribute as a matrix with that many rows."""
    values = np.array(c.floats(name) or [], np.float32)
    if rows < 1 or not values.size or values.size % rows:
        raise UnsupportedNodeError(f"{name} has {values.size} entries, which are not {rows} rows")
    return values.reshape(rows, -1)


def _rho(c: NodeCall, count: int) -> Array:
    rho = np.array(c.floats("rho") or [], np.float32)
    if len(rho) < count:
        raise UnsupportedNodeError(f"rho has {len(rho)} entries, expected {count}")
    return rho[:count]


def _checked(x: Tensor, vectors: Array) -> Array:
    if static_shape(x)[1] != vectors.shape[1]:
        raise UnsupportedNodeError(
            f"its vectors have {vectors.shape[1]} features, the input has {static_shape(x)[1]}"
        )
    return vectors


@lower("SVMRegressor", domain=_ML)
def _regressor(c: NodeCall) -> Value:
    x = as_rows(c)
    count = c.number("n_supports")
    rho = _rho(c, 1)
    if count > 0:
        vectors = _checked(x, _matrix(c, "support_vectors", count))
        weights = _matrix(c, "coefficients", 1)
        if weights.size != count:
            raise UnsupportedNodeError(f"coefficients has {weights.size} entries for {count} support vectors")
        y = gemm(_kernel(c)(x, vectors), const(weights), const(rho), turn_y=True)
    else:
        y = gemm(x, const(_checked(x, _matrix(c, "coefficients", 1))), const(rho), turn_y=True)
    if c.flag("one_class"):
        y = e.where(larger(y, 0), const_like(1, y), const_like(-1, y))
    return Value(FLOAT, y)


@lower("SVMClassifier", domain=_ML)
def _classifier(c: NodeCall) -> tuple[Value | Unheld, Value]:
    labels = labels_of(c, "classlabels_ints")
    if not labels.count:
        raise UnsupportedNodeError("it names no classes")
    counts = c.ints("vectors_per_class") or []
    if any(n < 0 for n in counts) or not sum(counts):
        return _linear(c, labels)
    if len(counts) != labels.count or labels.count < 2:
        raise UnsupportedNodeError(f"vectors_per_class has {len(counts)} entries for {labels.count} classes")
    x = as_rows(c)
    scores = _pair_scores(c, x, counts)
    wins = larger(scores, 0)
    votes = _votes(wins, labels.count)
    at = first_largest(votes)
    chosen = labels.choose(at)
    a, b = c.floats("prob_a") or [], c.floats("prob_b") or []
    post = post_transform(c)
    if a:
        shares = _shares(scores, a, b, labels.count)
        return chosen, Value(FLOAT, transformed(shares, post))
    if labels.count > 2:
        return chosen, Value(FLOAT, transformed(scores, post))
    if post == "PROBIT":
        raise UnsupportedNodeError("with post_transform PROBIT the score of its second class is undefined")
    if post == "LOGISTIC":
        pair = logistic(e.concat([e.elem(M.NEGATE, scores), scores], 1))
    else:
        turned = e.elem(M.NEGATE, scores)
        pair = e.concat(
            [turned if post == "NONE" else e.elem(M.ADD, const_like(1, turned), turned), scores], 1
        )
    return chosen, Value(FLOAT, pair)


def _linear(c: NodeCall, labels: Labels) -> tuple[Value | Unheld, Value]:
    """Classify without support vectors: one weight per feature and class."""
    x = as_rows(c)
    weights = _checked(x, _matrix(c, "coefficients", labels.count))
    scores = gemm(x, const(weights), const(_rho(c, 1)), turn_y=True)
    at = first_largest(scores)
    if labels.count == 2 and not c.floats("prob_a"):
        # The second class wins as soon as the larger of both scores says so.
        most = e.reduce(scores, P.ReduceMode.MAX, [1])
        positive = bool((weights >= 0).all())
        half = const_like(0.5, most)
        enough = e.compare(P.ElemwiseMultiTypeMode.LEQ, half, most) if positive else larger(most, 0)
        at = e.where(enough, const_like(1, at), at)
    how = post_transform(c)
    if labels.count == 1:
        return labels.choose(at), Value(FLOAT, transformed(scores, how) if how == "PROBIT" else scores)
    return labels.choose(at), Value(FLOAT, transformed(scores, how))


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _pair_scores(c: NodeCall, x: Tensor, counts: list[int]) -> Tensor:
    """Compute (N, P), each sample's decision for every pair of classes, positive for the first."""
    total, classes = sum(counts), len(counts)
    vectors = _checked(x, _matrix(c, "support_vectors", total))
    weights = _matrix(c, "coefficients", classes - 1)
    if weights.shape[1] != total:
        raise UnsupportedNodeError(
            f"coefficients has {weights.size} entries, expected {classes - 1} for each of {total} support vectors"
        )
    rho = _rho(c, classes * (classes - 1) // 2)
    begin = np.concatenate([[0], np.cumsum(counts)])
    pairs = _pairs(classes)
    if len(pairs) * total > _MOST_WEIGHTS:
        raise UnsupportedNodeError(
            f"its {len(pairs)} pairs of classes would have {total} weights each; {_MOST_WEIGHTS} in all fit"
        )
    table = np.zeros((len(pairs), total), np.float32)
    for k, (i, j) in enumerate(pairs):
        table[k, begin[i] : begin[i + 1]] = weights[j - 1, begin[i] : begin[i + 1]]
        table[k, begin[j] : begin[j + 1]] = weights[i, begin[j] : begin[j + 1]]
    return gemm(_kernel(c)(x, vectors), const(table), const(rho), turn_y=True)


def _votes(wins: Tensor, count: int) -> Tensor:
    """Count the pairs that each class wins, (N, C)."""
    pairs = _pairs(count)
    pay(4 * len(pairs) * count)
    table = np.zeros((len(pairs), count), np.float32)
    lost = np.zeros(count, np.float32)
    for k, (i, j) in enumerate(pairs):
        # The second class wins a pair that the first does not.
        table[k, i], table[k, j] = 1, -1
        lost[j] += 1
    return gemm(cast(wins, "float32"), const(table), const(lost))


# Probabilities


def _shares(scores: Tensor, a: list[float], b: list[float], count: int) -> Tensor:
    """Compute probabilities (N, C) that agree best with those of the pairs, by Wu, Lin and Weng's iteration."""
    pairs = _pairs(count)
    if len(a) < len(pairs) or len(b) < len(pairs):
        raise UnsupportedNodeError(
            f"prob_a and prob_b have {len(a)} and {len(b)} entries, expected {len(pairs)}"
        )
    slope, shift = (const(np.array(v[: len(pairs)], np.float32)) for v in (a, b))
    won = logistic(e.elem(M.NEGATE, e.elem(M.ADD, e.elem(M.MUL, scores, slope), shift)))
    won = e.elem(M.MIN, e.elem(M.MAX, won, const_like(_LEAST, won)), const_like(1 - _LEAST, won))
    one = const_like(1, won)
    both = e.concat([won, e.elem(M.SUB, one, won), e.elem(M.MUL, _column(won, 0), const_like(0, won))], 1)
    places = np.full((count, count), 2 * len(pairs), np.int32)
    for k, (i, j) in enumerate(pairs):
        places[i, j], places[j, i] = k, len(pairs) + k
    r = e.reshape(e.gather(both, [(1, const(places.reshape(-1)))]), (-1, count, count))
    turned = e.permute(r, [0, 2, 1])
    own = e.add_axes(e.reduce(e.elem(M.SQUARE, turned), P.ReduceMode.SUM, [2]), [2])
    eye = const(np.eye(count, dtype=np.float32)[None])
    q = e.elem(M.SUB, e.elem(M.MUL, eye, own), e.elem(M.MUL, r, turned))
    rows = [e.subtensor(q, [(1, None, None, None, i)]) for i in range(count)]
    p = e.full(const(np.full((1, count), 1 / count, np.float32)), (won.shape[0], count))
    for _ in range(_ROUNDS):
        p = _improved(p, q, rows)
    return p


def _column(x: Tensor, i: int) -> Tensor:
    return e.subtensor(x, [(1, i, i + 1, None, None)])


def _improved(p: Tensor, q: Tensor, rows: list[Tensor]) -> Tensor:
    """Run one round of the iteration; samples that are near enough stay as they are."""
    count = len(rows)
    qp = e.reduce(e.elem(M.MUL, q, e.add_axes(p, [1])), P.ReduceMode.SUM, [2])
    pqp = e.add_axes(e.reduce(e.elem(M.MUL, p, qp), P.ReduceMode.SUM, [1]), [1])
    error = e.reduce(e.elem(M.ABS, e.elem(M.SUB, qp, pqp)), P.ReduceMode.MAX, [1])
    far = e.compare(P.ElemwiseMultiTypeMode.LEQ, const_like(0.005 / count, error), error)
    near = e.add_axes(e.logical_not(far), [1])
    better, one, two = p, const_like(1, p), const_like(2, p)
    for i, row in enumerate(rows):
        own, now = _column(row, i), _column(qp, i)
        step = e.elem(M.TRUE_DIV, e.elem(M.SUB, pqp, now), own)
        grown = e.elem(M.ADD, one, step)
        unit = np.zeros((1, count), np.float32)
        unit[0, i] = 1
        better = e.elem(M.TRUE_DIV, e.elem(M.ADD, better, e.elem(M.MUL, const(unit), step)), grown)
        inner = e.elem(M.ADD, e.elem(M.MUL, step, own), e.elem(M.MUL, two, now))
        pqp = e.elem(M.TRUE_DIV, e.elem(M.ADD, pqp, e.elem(M.MUL, step, inner)), e.elem(M.SQUARE, grown))
        qp = e.elem(M.TRUE_DIV, e.elem(M.ADD, qp, e.elem(M.MUL, step, row)), grown)
    return e.where(near, p, better)
