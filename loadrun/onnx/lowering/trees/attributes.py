"""The attributes of a tree ensemble, in both forms of storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....graph.dtypes import Array
from ...call import NodeCall
from ...values import DOUBLE, UnsupportedNodeError
from .forest import LEAF, MEMBER, MODES, Forest, Nodes, forest

__all__ = ["Ensemble", "choice_of", "listed_ensemble", "number_list", "tabled_ensemble"]

_MOST_WEIGHTS, _MOST_TARGETS = 1 << 25, 1 << 16


@dataclass
class Ensemble:
    """Trees with the weights of their leaves.

    Attributes:
        trees: the tables to walk by.
        rows: (W,) for each weight, the leaf by its place in the tables.
        targets: (W,) the target or class that it counts for.
        weights: (W,) of the type in which they are added: float32, or float64 for features of float64.
        count: how many targets there are.
    """

    trees: Forest
    rows: Array
    targets: Array
    weights: Array
    count: int


def number_list(c: NodeCall, name: str) -> Array:
    """Read a list of numbers, which newer versions give as a tensor."""
    plain = c.attributes.get(name)
    stored = plain.t if plain is not None and plain.t is not None else c.tensor(f"{name}_as_tensor")
    if stored is not None:
        values = c.importer.stored(stored).array
        assert values is not None
        return values.reshape(-1)
    return np.array(c.floats(name) or [], np.float32)


def _integers(c: NodeCall, name: str) -> Array:
    return np.array(c.ints(name) or [], np.int64)


def _same_length(lists: dict[str, Array]) -> None:
    """Refuse lists of which one is longer than another."""
    (first, begin), *rest = lists.items()
    for name, values in rest:
        if len(values) != len(begin):
            raise UnsupportedNodeError(
                f"{name} has {len(values)} entries, {first} {len(begin)}; each node has one in both"
            )


def _optional(values: Array, count: int, name: str) -> Array:
    if not len(values):
        return np.zeros(count, np.int64)
    if len(values) != count:
        raise UnsupportedNodeError(f"{name} has {len(values)} entries for {count} nodes")
    return values


class _Places:
    """The positions of nodes, by their tree and number."""

    def __init__(self, trees: Array, numbers: Array) -> None:
        self.trees, self.numbers = trees, numbers
        self.order = np.lexsort((numbers, trees))
        t, n = trees[self.order], numbers[self.order]
        twice = (t[1:] == t[:-1]) & (n[1:] == n[:-1])
        if twice.any():
            at = int(twice.argmax())
            raise UnsupportedNodeError(f"node {int(n[at])} of tree {int(t[at])} occurs twice")
        # One key per tree and node, made of their ranks.
        self._trees, self._numbers = np.unique(trees), np.unique(numbers)
        self._keys = self._ranks(t, n)[0]

    def _ranks(self, trees: Array, numbers: Array) -> tuple[Array, Array]:
        a, b = np.searchsorted(self._trees, trees), np.searchsorted(self._numbers, numbers)
        a, b = np.minimum(a, len(self._trees) - 1), np.minimum(b, len(self._numbers) - 1)
        there = (self._trees[a] == trees) & (self._numbers[b] == numbers)
        return a * len(self._numbers) + b, there

    def of(self, trees: Array, numbers: Array, what: str) -> Array:
        """Return the positions of nodes, all of which must exist."""
        keys, there = self._ranks(trees, numbers)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        there &= self._keys[at] == keys
        if not there.all():
            i = int((~there).argmax())
            raise UnsupportedNodeError(
                f"{what} leads to node {int(numbers[i])} of tree {int(trees[i])}, which does not exist"
            )
        return self.order[at]

    def name(self, at: int) -> str:
        return f"node {int(self.numbers[at])} of tree {int(self.trees[at])}"


def listed_ensemble(c: NodeCall, prefix: str, count: int) -> Ensemble:
    """Read the ensemble as TreeEnsembleRegressor and TreeEnsembleClassifier store it."""
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    lists = {f"nodes_{n}": _integers(c, f"nodes_{n}") for n in names}
    modes = c.texts("nodes_modes") or []
    unknown = sorted(set(modes) - set(MODES) | {"BRANCH_MEMBER"} & set(modes))
    if unknown:
        raise UnsupportedNodeError(f"a node has the mode {unknown[0]!r}")
    splits = number_list(c, "nodes_values")
    kinds = np.array([MODES[m] for m in modes], np.int64)
    _same_length({**lists, "nodes_modes": kinds, "nodes_values": splits})
    trees, numbers, features, true_ids, false_ids = lists.values()
    if not len(trees):
        raise UnsupportedNodeError("it holds no trees")
    places = _Places(trees, numbers)
    leaf = kinds == LEAF
    own = np.arange(len(trees))
    yes, no = own.copy(), own.copy()
    for to, ids, what in ((yes, true_ids, "truenodeids"), (no, false_ids, "falsenodeids")):
        to[~leaf] = places.of(trees[~leaf], ids[~leaf], f"nodes_{what}")
    # The first node of every run of one tree is a root.
    roots = np.flatnonzero(np.concatenate([[True], trees[1:] != trees[:-1]]))
    missing = _optional(
        _integers(c, "nodes_missing_value_tracks_true"), len(trees), "nodes_missing_value_tracks_true"
    )
    all_trees = forest(
        Nodes(kinds, features, splits, yes, no, missing == 1, roots, places.name, c.kind(0) == DOUBLE)
    )
    return _weighted(c, prefix, count, all_trees, places, leaf)


def _weighted(
    c: NodeCall, prefix: str, count: int, all_trees: Forest, places: _Places, leaf: Array
) -> Ensemble:
    names = ("treeids", "nodeids", "ids")
    lists = {f"{prefix}_{n}": _integers(c, f"{prefix}_{n}") for n in names}
    weights = number_list(c, f"{prefix}_weights")
    _same_length({**lists, f"{prefix}_weights": weights})
    trees, numbers, targets = lists.values()
    order = np.lexsort((numbers, trees))
    trees, numbers, targets, weights = (v[order] for v in (trees, numbers, targets, weights))
    at = places.of(trees, numbers, f"{prefix}_nodeids") if len(trees) else np.zeros(0, np.int64)
    # Weights of inner nodes, which old converters write, are ignored.
    counts = leaf[at]
    row = np.full(len(leaf), -1)
    row[all_trees.leaves] = np.arange(len(all_trees.leaves))
    rows = row[at]
    counts &= rows >= 0
    return _ensemble(all_trees, rows[counts], targets[counts], weights[counts], count, f"{prefix}_ids")


def _ensemble(trees: Forest, rows: Array, targets: Array, weights: Array, count: int, name: str) -> Ensemble:
    if not 1 <= count <= _MOST_TARGETS:
        raise UnsupportedNodeError(f"it has {count} targets, expected 1 to {_MOST_TARGETS}")
    if max(len(trees.leaves), len(trees.roots)) * count > _MOST_WEIGHTS:
        raise UnsupportedNodeError(
            f"its {len(trees.leaves)} leaves would have {count} weights each; {_MOST_WEIGHTS} in all fit"
        )
    outside = (targets < 0) | (targets >= count)
    if outside.any():
        raise UnsupportedNodeError(
            f"{name} holds {int(targets[outside][0])}, expected numbers from 0 to {count - 1}"
        )
    if count == 1:
        # Of several weights of one leaf the first counts.
        _, first = np.unique(rows, return_index=True)
        rows, targets, weights = rows[first], targets[first], weights[first]
    return Ensemble(trees, rows, targets, weights.astype(trees.thresholds.dtype), count)


def tabled_ensemble(c: NodeCall) -> Ensemble:
    """Read the ensemble as TreeEnsemble stores it: nodes and leaves apart."""
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    lists = {f"nodes_{n}": _integers(c, f"nodes_{n}") for n in names}
    modes, splits = number_list(c, "nodes_modes").astype(np.int64), number_list(c, "nodes_splits")
    _same_length({**lists, "nodes_modes": modes, "nodes_splits": splits})
    features, true_ids, false_ids, true_leaf, false_leaf = lists.values()
    targets, weights = _integers(c, "leaf_targetids"), number_list(c, "leaf_weights")
    if len(targets) != len(weights):
        raise UnsupportedNodeError(f"leaf_targetids has {len(targets)} entries, leaf_weights {len(weights)}")
    count, leaves = len(modes), len(targets)
    roots = _integers(c, "tree_roots")
    if not len(roots) or not count:
        raise UnsupportedNodeError("it holds no trees")
    _inside(roots, count, "tree_roots", "nodes")
    unknown = (modes < 0) | (modes > MEMBER)
    if unknown.any():
        raise UnsupportedNodeError(f"a node has the mode {int(modes[unknown][0])}, expected 0 to {MEMBER}")

    def following(ids: Array, leaf: Array, name: str) -> Array:
        _inside(ids[leaf != 0], leaves, name, "leaves")
        _inside(ids[leaf == 0], count, name, "nodes")
        return np.concatenate([np.where(leaf != 0, ids + count, ids), np.arange(count, count + leaves)])

    def filled(values: Array, value: float = 0) -> Array:
        return np.concatenate([values, np.full(leaves, value, values.dtype)])

    missing = _integers(c, "nodes_missing_value_tracks_true")
    trees = forest(
        Nodes(
            filled(modes, LEAF),
            filled(features),
            filled(splits),
            following(true_ids, true_leaf, "nodes_truenodeids"),
            following(false_ids, false_leaf, "nodes_falsenodeids"),
            filled(_optional(missing, count, "nodes_missing_value_tracks_true")) != 0,
            roots,
            lambda at: f"node {at}" if at < count else f"leaf {at - count}",
            c.kind(0) == DOUBLE,
            _sets(number_list(c, "membership_values"), int((modes == MEMBER).sum())),
        )
    )
    at = trees.leaves - count
    return _ensemble(
        trees, np.arange(len(at)), targets[at], weights[at], c.number("n_targets"), "leaf_targetids"
    )


def _inside(ids: Array, count: int, name: str, what: str) -> None:
    outside = (ids < 0) | (ids >= count)
    if outside.any():
        raise UnsupportedNodeError(f"{name} holds {int(ids[outside][0])}; there are {count} {what}")


def _sets(values: Array, count: int) -> list[Array]:
    """Split the sets of nodes with the mode BRANCH_MEMBER: NaN ends each."""
    pieces = np.split(values, np.flatnonzero(np.isnan(values)) + 1) if len(values) else []
    if pieces and not len(pieces[-1]):
        pieces.pop()
    sets = [v[~np.isnan(v)] for v in pieces]
    if len(sets) != count:
        raise UnsupportedNodeError(
            f"membership_values has {len(sets)} sets for {count} nodes that ask for one"
        )
    return sets


def choice_of(c: NodeCall, name: str, default: int, known: Sequence[str]) -> str:
    """Return the choice that an attribute makes by its number."""
    number = c.number(name, default)
    if not 0 <= number < len(known):
        raise UnsupportedNodeError(f"its {name} is {number}, expected 0 to {len(known) - 1}")
    return known[number]
