"""Support vector machines of ai.onnx.ml, with the votes and probabilities of ONNX Runtime."""

from collections.abc import Sequence
from itertools import combinations

from ...arrays.names import np
from ...graph.dtypes import Array
from .common import once, one_of, refuse_unless
from .forest import as_rows, chosen, label_type, logistic, of_both, row_operator, transformed
from .kernels import matrix_product as matmul

_LEAST = 1e-7
_MOST_WEIGHTS = 1 << 26
_ROUNDS = 8
"""Of the iteration towards probabilities, which ends after four for all but contrived data."""


def _kernel(x: Array, vectors: Array, kind: str, parameters: Sequence[float]) -> Array:
    """Compute the kernel (N, V) of samples (N, F) and vectors (V, F)."""
    one_of("kernel_type", kind, "LINEAR", "POLY", "RBF", "SIGMOID")
    if kind == "LINEAR":
        return matmul(x, vectors.T)
    refuse_unless(
        len(parameters) >= 3, f"kernel_params has {len(parameters)} entries, expected gamma, coef0 and degree"
    )
    gamma, coef0, degree = parameters[:3]
    if kind == "RBF":
        refuse_unless(bool(np.isfinite(vectors).all()), "support_vectors hold a value that is not finite")
        # |x - v|^2 as squares and products loses digits where both are far from 0, so both are centred.
        middle = vectors.mean(0, dtype=np.float64).astype(x.dtype)
        x, vectors = x - middle, vectors - middle
        squares = (vectors.astype(np.float64) ** 2).sum(1).astype(x.dtype)
        apart = (x * x).sum(1, keepdims=True) + squares - 2 * matmul(x, vectors.T)
        return np.exp(-gamma * np.maximum(apart, 0))
    near = gamma * matmul(x, vectors.T) + coef0
    if kind == "SIGMOID":
        return np.tanh(near)
    return near ** (int(degree) if degree in (2, 3) else degree)


def _matrix(values: Sequence[float], rows: int, x: Array, name: str, *, features: bool = False) -> Array:
    """Return an attribute as a matrix with that many rows, of the features of the input if it is so."""
    fits = rows > 0 and len(values) > 0 and len(values) % rows == 0
    refuse_unless(fits, f"{name} has {len(values)} entries, which are not {rows} rows")
    matrix = once(values, x.dtype.name, lambda: np.array(values, x.dtype)).reshape(rows, -1)
    refuse_unless(
        not features or matrix.shape[1] == x.shape[1],
        f"its vectors have {matrix.shape[1]} features, the input has {x.shape[1]}",
    )
    return matrix


def _rho(rho: Sequence[float], count: int, x: Array) -> Array:
    refuse_unless(len(rho) >= count, f"rho has {len(rho)} entries, expected {count}")
    return np.array(rho[:count], x.dtype)


@row_operator("SVMRegressor")
def svm_regressor(
    x: Array,
    *,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> Array:
    """Weigh the kernels of a sample and the support vectors, or its features where there are none."""
    x = as_rows(x)
    added = _rho(rho, 1, x)
    if n_supports > 0:
        vectors = _matrix(support_vectors, n_supports, x, "support_vectors", features=True)
        refuse_unless(
            len(coefficients) == n_supports,
            f"coefficients has {len(coefficients)} entries for {n_supports} support vectors",
        )
        x = _kernel(x, vectors, kernel_type, kernel_params)
    y = matmul(x, _matrix(coefficients, 1, x, "coefficients", features=True).T) + added
    return np.where(y > 0, 1.0, -1.0) if one_class else y


@row_operator("SVMClassifier", out=(label_type, "Float32"))
def svm_classifier(
    x: Array,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
) -> tuple[Array, Array]:
    """Choose the class that wins most pairs of classes; scores are those of the pairs, or probabilities."""
    x = as_rows(x)
    count, parts = len(classlabels_strings or classlabels_ints), vectors_per_class
    refuse_unless(count > 0, "it names no classes")
    if min(parts, default=0) < 0 or not sum(parts):
        weights = _matrix(coefficients, count, x, "coefficients", features=True)
        scores = matmul(x, weights.T) + _rho(rho, 1, x)
        at = _of_scores(scores, weights, bool(prob_a))
        plain = count == 1 and post_transform != "PROBIT"
        return chosen(at, classlabels_ints, classlabels_strings), (
            scores if plain else transformed(scores, post_transform)
        )
    refuse_unless(len(parts) == count > 1, f"vectors_per_class has {len(parts)} entries for {count} classes")
    vectors = _matrix(support_vectors, sum(parts), x, "support_vectors", features=True)
    near = _kernel(x, vectors, kernel_type, kernel_params)
    weights = _matrix(coefficients, count - 1, x, "coefficients")
    added = _rho(rho, count * (count - 1) // 2, x)
    pairs = list(combinations(range(count), 2))
    table = once(coefficients, f"pairs {x.dtype}", lambda: _pair_weights(weights, parts, pairs))
    scores = matmul(near, table.T) + added
    label = chosen(_votes(scores, pairs, count).argmax(1), classlabels_ints, classlabels_strings)
    if prob_a:
        return label, transformed(_shares(scores, prob_a, prob_b, pairs, count), post_transform)
    if count > 2:
        return label, transformed(scores, post_transform)
    return label, of_both(scores, -scores if post_transform == "NONE" else 1 - scores, post_transform)


def _of_scores(scores: Array, weights: Array, probable: bool) -> Array:
    """Return the class with the largest score; of two classes the second wins as soon as that is large enough."""
    at = scores.argmax(1)
    if scores.shape[1] != 2 or probable:
        return at
    most = scores.max(1)
    return np.where(most >= 0.5 if (weights >= 0).all() else most > 0, 1, at)


def _pair_weights(weights: Array, parts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Array:
    """Return the weight of every vector for every pair of classes."""
    total = sum(parts)
    refuse_unless(
        weights.shape[1] == total,
        f"coefficients has {weights.size} entries, expected {len(weights)} for each of {total} support vectors",
    )
    refuse_unless(
        len(pairs) * total <= _MOST_WEIGHTS,
        f"its {len(pairs)} pairs of classes would have {total} weights each; {_MOST_WEIGHTS} in all fit",
    )
    begin = np.cumsum([0, *parts])
    table = np.zeros((len(pairs), total), weights.dtype)
    for k, (i, j) in enumerate(pairs):
        first, second = slice(begin[i], begin[i + 1]), slice(begin[j], begin[j + 1])
        table[k, first], table[k, second] = weights[j - 1, first], weights[i, second]
    return table


def _votes(scores: Array, pairs: Sequence[tuple[int, int]], count: int) -> Array:
    """Count the pairs that each class wins, (N, C); the second class wins a pair that the first does not."""
    classes = np.arange(count)
    first, second = (np.array(side)[:, None] == classes for side in zip(*pairs, strict=True))
    return np.where((scores > 0)[:, :, None], first, second).sum(1)


def _shares(
    scores: Array, a: Sequence[float], b: Sequence[float], pairs: Sequence[tuple[int, int]], count: int
) -> Array:
    """Compute probabilities (N, C) that agree best with those of the pairs, by Wu, Lin and Weng's iteration."""
    refuse_unless(
        len(a) >= len(pairs) <= len(b),
        f"prob_a and prob_b have {len(a)} and {len(b)} entries, expected {len(pairs)}",
    )
    slope, shift = (np.array(v[: len(pairs)], scores.dtype) for v in (a, b))
    won = np.clip(logistic(-(scores * slope + shift)), _LEAST, 1 - _LEAST)
    both = np.concatenate([won, 1 - won, np.zeros_like(won[:, :1])], 1)
    places = np.full((count, count), 2 * len(pairs))
    for k, (i, j) in enumerate(pairs):
        places[i, j], places[j, i] = k, len(pairs) + k
    r = both[:, places]
    turned = r.transpose(0, 2, 1)
    q = np.eye(count) * (turned * turned).sum(2, keepdims=True) - r * turned
    p = np.full((scores.shape[0], count), 1 / count)
    for _ in range(_ROUNDS):
        p = _improved(p, q)
    return p


def _improved(p: Array, q: Array) -> Array:
    """Run one round of the iteration; samples that are near enough stay as they are."""
    count = p.shape[1]
    qp = (q * p[:, None]).sum(2)
    pqp = (p * qp).sum(1, keepdims=True)
    near = np.abs(qp - pqp).max(1, keepdims=True) < 0.005 / count
    better = p
    for i in range(count):
        row, diagonal, now = q[:, i], q[:, i, i, None], qp[:, i, None]
        step = (pqp - now) / diagonal
        better = (better + np.eye(count)[i] * step) / (1 + step)
        pqp = (pqp + step * (step * diagonal + 2 * now)) / (1 + step) ** 2
        qp = (qp + step * row) / (1 + step)
    return np.where(near, p, better)
