"""TreeEnsemble and TreeEnsembleRegressor: scores of targets."""

from __future__ import annotations

import numpy as np

from ....build import emit as e
from ....graph.dtypes import Array
from ....tensors import Tensor
from ...call import NodeCall, lower
from ...values import FLOAT, UnsupportedNodeError, Value
from .. import M, cast, const_like
from ..scores import TRANSFORMS, as_rows, post_transform, probit, transformed
from .attributes import Ensemble, choice_of, listed_ensemble, number_list, tabled_ensemble
from .evaluation import aggregated, leaves_reached, targets_scored, zero_elsewhere

__all__: list[str] = []

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


def _regressed(c: NodeCall, ensemble: Ensemble, how: str, post: str, base: Array) -> Tensor:
    """Compute the scores of targets, in ONNX Runtime's order of operations."""
    if len(base) not in (0, ensemble.count):
        raise UnsupportedNodeError(f"base_values has {len(base)} entries for {ensemble.count} targets")
    at = leaves_reached(ensemble.trees, as_rows(c, wide=True))
    scores = aggregated(ensemble, at, how)
    if how == "AVERAGE":
        scores = e.elem(M.TRUE_DIV, scores, const_like(len(ensemble.trees.roots), scores))
    if len(base):
        scores = zero_elsewhere(e.elem(M.ADD, scores, const_like(base, scores)), targets_scored(ensemble, at))
    if ensemble.count == 1:
        return probit(scores) if post == "PROBIT" else scores
    return transformed(scores, post)


@lower("TreeEnsembleRegressor", domain="ai.onnx.ml")
def _regressor(c: NodeCall) -> Value:
    how = c.text("aggregate_function", "SUM")
    if how not in _AGGREGATES:
        raise UnsupportedNodeError(
            f"its aggregate_function is {how!r}, expected one of {', '.join(_AGGREGATES)}"
        )
    ensemble = listed_ensemble(c, "target", c.number("n_targets"))
    scores = _regressed(c, ensemble, how, post_transform(c), number_list(c, "base_values"))
    return Value(FLOAT, cast(scores, "float32"))


@lower("TreeEnsemble", domain="ai.onnx.ml")
def _tree_ensemble(c: NodeCall) -> Value:
    how = choice_of(c, "aggregate_function", 1, _AGGREGATES)
    post = choice_of(c, "post_transform", 0, TRANSFORMS)
    return Value(c.kind(0), _regressed(c, tabled_ensemble(c), how, post, np.zeros(0, np.float32)))
