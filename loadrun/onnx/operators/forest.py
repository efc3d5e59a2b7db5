"""The nodes of tree ensembles, checked once, the walk down them, and the weights of leaves."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...arrays.names import kernel, np
from ...graph.composite import NodeTypes, OutRule
from ...graph.dtypes import Array, DType, plain
from . import operator
from .common import one_of, refuse_unless

__all__ = ["LEAF", "MEMBER", "MODES", "TreeNodes", "WeightedTrees", "weighted"]


LEAF, MEMBER = -1, 6
MODES = {
    **{f"BRANCH_{name}": i for i, name in enumerate("LEQ LT GTE GT EQ NEQ".split())},
    "LEAF": LEAF,
    "BRANCH_MEMBER": MEMBER,
}
_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_MOST_DEPTH = 1000
_MOST_WEIGHTS, _MOST_TARGETS = 1 << 25, 1 << 16
_BLOCK = 1 << 18
"""Numbers that are looked up at once, for several samples, trees and targets."""


class TreeNodes:
    """The nodes of all trees, leaves included, one entry each.

    Args:
        modes: (S,) numbers of `MODES`.
        features: (S,) which feature each compares.
        splits: (S,) the thresholds.
        yes: (S,) the places of the nodes that follow where the condition holds; leaves are followed by themselves.
        no: (S,) the same where it does not.
        missing: (S,) whether NaN counts as holding.
        roots: (T,) places of the roots.
        name: names a node in messages, by its place.
        members: for nodes that ask whether a feature is in a set, sorted pairs node + 1j * member.

    Raises:
        ValueError: a feature below 0, nodes that form no trees, or too deep ones.
    """

    def __init__(
        self,
        modes: Array,
        features: Array,
        splits: Array,
        yes: Array,
        no: Array,
        missing: Array,
        roots: Array,
        name: Callable[[int], str],
        members: Array | None = None,
    ) -> None:
        self.leaf = modes == LEAF
        bad = ~self.leaf & (features < 0)
        at = int(bad.argmax())
        refuse_unless(not bad.any(), f"{name(at)} reads the feature {features[at]}")
        trees = np.arange(len(modes))
        self.yes, self.no = np.where(self.leaf, trees, yes), np.where(self.leaf, trees, no)
        self.features, self.splits = np.where(self.leaf, 0, features), np.where(self.leaf, 0, splits)
        self.modes, self.missing, self.roots = modes, missing & ~self.leaf, roots
        self.members = members
        self.reached, self.depth = self._walked(name)
        self.width = int(self.features[self.reached].max()) + 1 if self.depth else 0
        self._kinds = np.unique(modes[self.reached & ~self.leaf]).tolist()

    def _walked(self, name: Callable[[int], str]) -> tuple[Array, int]:
        """Find the nodes that roots lead to, and the greatest depth."""
        reached = np.zeros(len(self.leaf), bool)
        front = np.unique(self.roots)
        while len(front):
            reached[front] = True
            inner = front[~self.leaf[front]]
            front = np.unique(np.concatenate([self.yes[inner], self.no[inner]]))
            front = front[~reached[front]]
        # A node that never loses all its incoming edges is on a cycle.
        waiting = reached & ~self.leaf
        edges = np.zeros(len(self.leaf), np.int64)
        for ways in (self.yes, self.no):
            np.add.at(edges, ways[waiting], 1)
        front = np.flatnonzero(reached & (edges == 0))
        depth = -1
        while len(front):
            depth += 1
            waiting[front] = False
            inner = front[~self.leaf[front]]
            ways = np.concatenate([self.yes[inner], self.no[inner]])
            np.subtract.at(edges, ways, 1)
            nodes = np.unique(ways)
            front = nodes[edges[nodes] == 0]
        refuse_unless(
            not waiting.any(), f"{name(int(waiting.argmax()))} leads back to itself, so it is in no tree"
        )
        refuse_unless(depth <= _MOST_DEPTH, f"its trees are more than {_MOST_DEPTH} nodes deep")
        return reached, depth

    def leaves(self, x: Array) -> Array:
        """Return the leaves (N, T) that samples (N, F) reach."""
        at = np.broadcast_to(self.roots, (x.shape[0], len(self.roots)))
        rows = np.arange(x.shape[0])[:, None]
        for _ in range(self.depth):
            value = x[rows, np.take(self.features, at)]
            at = np.where(self._holds(at, value), np.take(self.yes, at), np.take(self.no, at))
        return at

    def _holds(self, at: Array, value: Array) -> Array:
        split = np.take(self.splits, at)
        holds = np.zeros(at.shape, bool)
        for kind in self._kinds:
            outcome = is_member(self.members, at, value) if kind == MEMBER else _COMPARE[kind](value, split)
            holds = (
                outcome
                if len(self._kinds) == 1
                else np.where(np.take(self.modes, at) == kind, outcome, holds)
            )
        return holds | (np.take(self.missing, at) & (value != value)) if self.missing.any() else holds


@kernel
def blocks(x: Array, step: int) -> Sequence[Array]:
    """Return parts of so many rows, at least one part."""
    return [x[i : i + step] for i in range(0, max(len(x), 1), step)]


@kernel
def is_member(members: Array | None, at: Array, value: Array) -> Array:
    """Return whether values are among those of their nodes; members are pairs of node and value as complex numbers."""
    if members is None or not len(members):
        return np.zeros(at.shape, bool)
    # Complex numbers are sorted by node first.
    pair = at + 1j * value
    return members[np.searchsorted(members, pair).clip(0, len(members) - 1)] == pair


class WeightedTrees:
    """Trees with the weights of their leaves.

    Args:
        forest: the trees.
        rows: (W,) for each weight, the place of its leaf.
        ids: (W,) the target or class that it counts for.
        weights: (W,) the weights.
        targets: how many targets there are.
    """

    def __init__(self, forest: TreeNodes, rows: Array, ids: Array, weights: Array, targets: int) -> None:
        self.forest, self.rows, self.ids, self.weights, self.targets = forest, rows, ids, weights, targets
        leaves = np.flatnonzero(forest.leaf & forest.reached)
        self._number = np.zeros(len(forest.leaf), np.int64)
        self._number[leaves] = np.arange(len(leaves))
        self._shape = len(leaves), targets
        self._has = np.zeros(self._shape, bool)
        self._has[self._number[rows], ids] = True
        self._tables: dict[tuple[str, str], Array] = {}

    def _table(self, how: str, dtype: np.dtype[Any]) -> Array:
        if (how, dtype.name) in self._tables:
            return self._tables[how, dtype.name]
        combine, rest = {"MIN": (np.minimum, np.inf), "MAX": (np.maximum, -np.inf)}.get(how, (np.add, 0.0))
        table = self._tables[how, dtype.name] = np.full(self._shape, rest, dtype)
        combine.at(table, (self._number[self.rows], self.ids), self.weights.astype(dtype))
        return table

    def scores(self, x: Array, how: str) -> tuple[Array, Array]:
        """Return the scores (N, C) of samples, and whether any leaf counts for a target; if none does, it is 0.

        Args:
            x: (N, F), of the type in which weights are added.
            how: SUM, MIN or MAX.
        """
        width = self.forest.width
        refuse_unless(
            x.shape[1] >= width, f"its trees read the feature {width - 1}, the input has {x.shape[1]}"
        )
        table = self._table(how, x.dtype)
        reduce = {"MIN": np.min, "MAX": np.max}.get(how, np.sum)
        always = bool(self._has.all())
        scores, there = [], []
        step = max(_BLOCK // (len(self.forest.roots) * self.targets), 1)
        for block in blocks(x, step):
            at = np.take(self._number, self.forest.leaves(block))
            has = np.ones((at.shape[0], self.targets), bool) if always else np.take(self._has, at, 0).any(1)
            scores.append(np.where(has, reduce(np.take(table, at, 0), 1), 0))
            there.append(has)
        return np.concatenate(scores), np.concatenate(there)


def weighted(
    forest: TreeNodes, rows: Array, ids: Array, weights: Array, targets: int, name: str
) -> WeightedTrees:
    """Return an ensemble, of the weights of leaves that are reached.

    Raises:
        ValueError: a target beyond those that there are, or too many weights.
    """
    refuse_unless(1 <= targets <= _MOST_TARGETS, f"it has {targets} targets, expected 1 to {_MOST_TARGETS}")
    leaves = int((forest.leaf & forest.reached).sum())
    refuse_unless(
        max(leaves, len(forest.roots)) * targets <= _MOST_WEIGHTS,
        f"its {leaves} leaves would have {targets} weights each; {_MOST_WEIGHTS} in all fit",
    )
    there = forest.reached[rows]
    rows, ids, weights = rows[there], ids[there], weights[there]
    outside = (ids < 0) | (ids >= targets)
    refuse_unless(
        not outside.any(), f"{name} holds {ids[outside][:1].sum()}, expected numbers from 0 to {targets - 1}"
    )
    if targets == 1:
        # Of several weights of one leaf the first counts.
        _, first = np.unique(rows, return_index=True)
        rows, ids, weights = rows[first], ids[first], weights[first]
    return WeightedTrees(forest, rows, ids, weights, targets)


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
