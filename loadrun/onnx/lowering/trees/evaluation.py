"""Evaluation: walks down the trees, and sums of the weights of the leaves reached."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....build import emit as e
from ....graph import params as P
from ....graph.dtypes import Array, plain
from ....ops.registry import pay
from ....tensors import Tensor, const
from ....tensors.access import static_shape
from ...values import UnsupportedNodeError
from .. import M, cast, const_like
from ..scores import larger
from .attributes import Ensemble
from .forest import Forest

__all__ = ["aggregated", "leaves_reached", "targets_scored", "zero_elsewhere"]

_LEQ, _LT = P.ElemwiseMultiTypeMode.LEQ, P.ElemwiseMultiTypeMode.LT


def leaves_reached(trees: Forest, x: Tensor) -> Tensor:
    """Find the leaves (N, T) that samples (N, F) reach."""
    there = static_shape(x)[1]
    if there < trees.width:
        raise UnsupportedNodeError(f"its trees read the feature {trees.width - 1}, the input has {there}")
    batch = x.shape[0]
    if not trees.depth:
        return e.broadcast(const(trees.roots), (batch, len(trees.roots)))
    rows = e.reshape(e.arange(batch), (-1, 1))
    ask, table = _comparison(trees.following)
    entries = table.shape[1]
    features, thresholds, following = (
        _held(v) for v in (trees.features, trees.thresholds, table.reshape(-1))
    )
    # All samples begin at the same nodes.
    feature, threshold = (_held(v[trees.roots]) for v in (trees.features, trees.thresholds))
    at = const(trees.roots)
    for step in range(trees.depth):
        if step:
            feature, threshold = (e.gather(v, [(0, at)]) for v in (features, thresholds))
        code = ask(e.gather(x, [(0, rows), (1, feature)]), threshold)
        place = e.elem(M.ADD, e.elem(M.MUL, at, const_like(entries, at)), code)
        at = e.gather(following, [(0, place)])
    return at


def _comparison(following: Array) -> tuple[Callable[[Tensor, Tensor], Tensor], Array]:
    """Return the comparison to make at every node, and where each result leads; a single one where that suffices."""

    def asked(mode: P.ElemwiseMultiTypeMode, turned: bool) -> Callable[[Tensor, Tensor], Tensor]:
        def run(x: Tensor, y: Tensor) -> Tensor:
            return cast(e.compare(mode, y, x) if turned else e.compare(mode, x, y), "int32")

        return run

    up_to, from_on = asked(_LEQ, False), asked(_LEQ, True)
    # Results are numbered: NaN, less, greater, equal. Those of a comparison that holds, and the others.
    for ask, true, false in (
        (up_to, (1, 3), (0, 2)),
        (asked(_LT, False), (1,), (0, 2, 3)),
        (from_on, (2, 3), (0, 1)),
        (asked(_LT, True), (2,), (0, 1, 3)),
    ):
        if all((following[:, g] == following[:, g[:1]]).all() for g in (list(true), list(false))):
            return ask, following[:, [false[0], true[0]]]

    def both(x: Tensor, y: Tensor) -> Tensor:
        upper = from_on(x, y)
        return e.elem(M.ADD, up_to(x, y), e.elem(M.ADD, upper, upper))

    return both, following


def _held(values: Array) -> Tensor:
    """Return a constant that keeps float64."""
    return const(values, plain("Float64") if values.dtype == np.float64 else None)


def _gathered(table: Array, at: Tensor) -> Tensor:
    return e.gather(_held(table), [(0, at)])


def aggregated(ensemble: Ensemble, at: Tensor, how: str) -> Tensor:
    """Aggregate the weights of leaves (N, T) to (N, C): the sum, minimum or maximum of each target."""
    leaves, count = len(ensemble.trees.leaves), ensemble.count
    mode, rest = {"MIN": (P.ReduceMode.MIN, np.inf), "MAX": (P.ReduceMode.MAX, -np.inf)}.get(
        how, (P.ReduceMode.SUM, 0.0)
    )
    only = _only_targets(ensemble)
    if only is not None and mode == P.ReduceMode.SUM:
        worth = np.zeros(leaves, ensemble.weights.dtype)
        np.add.at(worth, ensemble.rows, ensemble.weights)
        return _by_target(_gathered(worth, at), only, count)
    pay(4 * leaves * count)
    table = np.full((leaves, count), rest, ensemble.weights.dtype)
    {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add).at(
        table, (ensemble.rows, ensemble.targets), ensemble.weights
    )
    if count == 1:
        total = e.add_axes(e.reduce(_gathered(table[:, 0], at), mode, [1]), [1])
    else:
        total = e.reduce(_gathered(table, at), mode, [1])
    return total if mode == P.ReduceMode.SUM else zero_elsewhere(total, targets_scored(ensemble, at))


def zero_elsewhere(scores: Tensor, there: Tensor | Array) -> Tensor:
    """Return scores (N, C), with 0 if no leaf counts for a target."""
    if isinstance(there, np.ndarray):
        if there.all():
            return scores
        there = const(there)
    return e.where(there, scores, const_like(0, scores))


def _only_targets(ensemble: Ensemble) -> Array | None:
    """Return the target of every tree, or None if a tree has several."""
    trees = ensemble.trees
    spans = _tree_of_leaf(trees) if 1 < ensemble.count <= 4 * len(trees.roots) else None
    if spans is None:
        return None
    low = np.full(len(trees.roots), ensemble.count)
    high = np.full(len(trees.roots), -1)
    np.minimum.at(low, spans[ensemble.rows], ensemble.targets)
    np.maximum.at(high, spans[ensemble.rows], ensemble.targets)
    return low if (low == high).all() else None


def _tree_of_leaf(trees: Forest) -> Array | None:
    """Return the tree of every leaf, or None if two trees share one."""
    count = len(trees.features)
    of = np.full(count, -1)
    front, who = trees.roots.astype(np.int64), np.arange(len(trees.roots))
    for _ in range(trees.depth + 1):
        taken = of[front]
        if ((taken >= 0) & (taken != who)).any():
            return None
        of[front] = who
        if (of[front] != who).any():
            return None
        front = trees.following[front].astype(np.int64)
        who = np.repeat(who, 4)
        both = np.unique(front.reshape(-1) * len(trees.roots) + who)
        front, who = both // len(trees.roots), both % len(trees.roots)
    return of[: len(trees.leaves)]


def _by_target(worth: Tensor, targets: Array, count: int) -> Tensor:
    """Sum (N, T) over the trees of each target, (N, C)."""
    trees = len(targets)
    if trees % count == 0 and (targets == np.arange(trees) % count).all():
        # As boosting writes them: round after round, in each one tree a class.
        return e.reduce(e.reshape(worth, (-1, trees // count, count)), P.ReduceMode.SUM, [1])
    sums = []
    for target in range(count):
        at = np.flatnonzero(targets == target).astype(np.int32)
        if len(at):
            part = e.gather(worth, [(1, const(at))])
            sums.append(e.add_axes(e.reduce(part, P.ReduceMode.SUM, [1]), [1]))
        else:
            sums.append(e.full(const_like(np.zeros(1), worth), (worth.shape[0], 1)))
    return e.concat(sums, 1)


def targets_scored(ensemble: Ensemble, at: Tensor) -> Tensor | Array:
    """Return whether any leaf counts for a target: (C,) where all samples agree, else (N, C) booleans."""
    leaves = len(ensemble.trees.leaves)
    pay(leaves * ensemble.count)
    has = np.zeros((leaves, ensemble.count), bool)
    has[ensemble.rows, ensemble.targets] = True
    never = ~has.any(0)
    spans = _tree_of_leaf(ensemble.trees)
    always = np.asarray(has.all(0))
    if spans is not None:
        lacks = np.zeros((len(ensemble.trees.roots), ensemble.count), bool)
        np.logical_or.at(lacks, spans, ~has)
        always |= ~lacks.all(0)
    if (never | always).all():
        return always
    some = _gathered(has.astype(np.float32), at)
    return larger(e.reduce(some, P.ReduceMode.MAX, [1]), 0)
