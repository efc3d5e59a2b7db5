"""TreeEnsembleClassifier: labels and scores of classes."""

from __future__ import annotations

import numpy as np

from ....build import emit as e
from ....graph.dtypes import Array
from ....tensors import Tensor, const
from ...call import NodeCall, lower
from ...values import FLOAT, Unheld, UnsupportedNodeError, Value
from .. import M, cast, const_like
from ..scores import Labels, as_rows, first_largest, labels_of, larger, post_transform, probit, transformed
from .attributes import Ensemble, listed_ensemble, number_list
from .evaluation import aggregated, leaves_reached, targets_scored, zero_elsewhere

__all__: list[str] = []


@lower("TreeEnsembleClassifier", domain="ai.onnx.ml")
def _classifier(c: NodeCall) -> tuple[Value | Unheld, Value]:
    labels = labels_of(c, "classlabels_int64s")
    if not labels.count:
        raise UnsupportedNodeError("it names no classes")
    ensemble = listed_ensemble(c, "class", labels.count)
    at = leaves_reached(ensemble.trees, as_rows(c, wide=True))
    base = number_list(c, "base_values").astype(np.float32)
    allowed = (0, 1, 2) if labels.count == 2 else (0, labels.count)
    if len(base) not in allowed:
        raise UnsupportedNodeError(f"base_values has {len(base)} entries for {labels.count} classes")
    post = post_transform(c)
    scores = cast(aggregated(ensemble, at, "SUM"), "float32")
    if labels.count > 2:
        return _of_many(ensemble, at, scores, base, labels, post)
    return _of_two(ensemble, at, scores, base, labels, post)


def _of_many(
    ensemble: Ensemble, at: Tensor, scores: Tensor, base: Array, labels: Labels, post: str
) -> tuple[Value | Unheld, Value]:
    """Choose the class with the largest score, among those that any leaf counts for."""
    ranked = scores
    if len(base):
        ranked = scores = e.elem(M.ADD, scores, const(base))
    else:
        there = targets_scored(ensemble, at)
        if isinstance(there, Tensor):
            ranked = e.where(there, scores, const_like(-np.inf, scores))
        elif not there.all():
            ranked = e.elem(M.MIN, scores, const(np.where(there, np.inf, -np.inf).astype(np.float32)))
    return labels.choose(first_largest(ranked)), Value(FLOAT, transformed(scores, post))


def _of_two(
    ensemble: Ensemble, at: Tensor, scores: Tensor, base: Array, labels: Labels, post: str
) -> tuple[Value | Unheld, Value]:
    """Score one or two classes, by the rules of ONNX Runtime: a single score gives the other class's."""
    if labels.count == 1:
        return _of_one(scores, base, labels, post)
    # Weights of one class alone speak for the second class against the first.
    alone = len(np.unique(ensemble.targets)) == 1
    positive = alone and bool((ensemble.weights >= 0).all())
    first, second = (_column(scores, i) for i in range(2))
    there = targets_scored(ensemble, at)
    scored = bool(there[1]) if isinstance(there, np.ndarray) else _column(there, 1)
    with_two = without = None
    if scored is not False:
        first_scored = there[:1] if isinstance(there, np.ndarray) else _column(there, 0)
        with_two = _two_scores(first, second, base, first_scored)
    if scored is not True:
        without = _single_score(first, base, alone, positive, post)
    ends = []
    if with_two is not None:
        pair, decides = with_two
        ends.append((transformed(pair, post), decides))
    if without is not None:
        ends.append(without)
    result, decides = ends[0]
    if len(ends) == 2:
        assert isinstance(scored, Tensor)
        result, decides = (e.where(scored, a, b) for a, b in zip(*ends, strict=True))
    wins = e.drop_axes(larger(decides, 0.5 if positive else 0.0), [1])
    return labels.either(wins, None if alone else (0, 1)), Value(FLOAT, result)


def _column(x: Tensor, i: int) -> Tensor:
    return e.subtensor(x, [(1, i, i + 1, None, None)])


def _two_scores(first: Tensor, second: Tensor, base: Array, there: Tensor | Array) -> tuple[Tensor, Tensor]:
    """Return both scores where the second class has one, and the deciding one."""
    if len(base) == 2:
        second = e.elem(M.ADD, first, const_like(base[1], first))
        first = e.elem(M.NEGATE, second)
    elif len(base) == 1:
        first = e.elem(M.ADD, first, const_like(base[0], first))
    return e.concat([zero_elsewhere(first, there) if len(base) else first, second], 1), second


def _single_score(
    first: Tensor, base: Array, alone: bool, positive: bool, post: str
) -> tuple[Tensor, Tensor]:
    """Return both scores where only the first class has one, and the deciding one."""
    if len(base):
        first = e.elem(M.ADD, first, const_like(base[0], first))
    if len(base) == 2:
        none = e.elem(M.MUL, first, const_like(0, first))
        return transformed(e.concat([first, none], 1), post), first
    if post == "PROBIT" or (len(base) == 1 and not alone):
        raise UnsupportedNodeError(
            f"with post_transform {post} and {len(base)} base_values the score of its second class is undefined"
        )
    if positive and post != "LOGISTIC":
        one = const_like(1, first)
        return e.concat([e.elem(M.SUB, one, first), first], 1), first
    pair = e.concat([e.elem(M.NEGATE, first), first], 1)
    return transformed(pair, post) if post == "LOGISTIC" else pair, first


def _of_one(scores: Tensor, base: Array, labels: Labels, post: str) -> tuple[Value | Unheld, Value]:
    """Classify with a single class: 1 if its score is above 0, else 0, whatever its label."""
    if len(base):
        scores = e.elem(M.ADD, scores, const(base))
    wins = e.drop_axes(larger(scores, 0), [1])
    return labels.either(wins, (0, 1)), Value(FLOAT, probit(scores) if post == "PROBIT" else scores)
