"""Tree ensembles as tables: nodes checked and renumbered, so that all trees are walked at once by indexing.

A walk is at one node in every tree. Each step compares a feature with the node's threshold and looks the next node
up by what came out: not comparable (NaN), less, greater, or equal. So every mode of a node is a choice of four entries.
Leaves come first in the tables and lead to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ....graph.dtypes import Array
from ...values import UnsupportedNodeError

__all__ = ["LEAF", "MEMBER", "MODES", "Forest", "Nodes", "forest"]

LEAF, MEMBER = -1, 6
MODES = {
    name: i
    for i, name in enumerate(
        ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
    )
}
MODES["LEAF"] = LEAF
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ = range(6)
_HOLDS = np.array(
    # Whether a mode's condition holds for: NaN, less, greater, equal.
    [[0, 1, 0, 1], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 0]],
    bool,
)
_MOST_DEPTH = 1000


@dataclass
class Nodes:
    """The nodes of all trees, leaves included, one entry each.

    Attributes:
        modes: (S,) numbers of `MODES`.
        features: (S,) which feature each compares.
        splits: (S,) float64 or float32, the thresholds.
        yes: (S,) the places of the nodes that follow where the condition holds; leaves have any.
        no: (S,) the same where it does not.
        missing: (S,) whether NaN counts as holding.
        roots: (T,) places of the roots.
        names: the name of each in messages, by its place.
        wide: whether the features are float64, as thresholds are then.
        members: for each node of the mode BRANCH_MEMBER, in their order, the values of its set.
    """

    modes: Array
    features: Array
    splits: Array
    yes: Array
    no: Array
    missing: Array
    roots: Array
    names: Callable[[int], str]
    wide: bool = False
    members: Sequence[Array] = ()


@dataclass(frozen=True)
class Forest:
    """Tables to walk by.

    Attributes:
        features: (S,) int32.
        thresholds: (S,) float32, or float64 where the features are.
        following: (S, 4) int32: where to go on for NaN, less, greater and equal.
        roots: (T,) int32.
        depth: how many steps the deepest tree takes.
        leaves: (L,) places that the first L nodes had in what was given.
        width: how many features there must be.
    """

    features: Array
    thresholds: Array
    following: Array
    roots: Array
    depth: int
    leaves: Array
    width: int


def forest(nodes: Nodes) -> Forest:
    """Build the tables of the nodes reachable from the roots.

    Raises:
        UnsupportedNodeError: the nodes form no trees, or deeper ones than can be unrolled.
    """
    inner = nodes.modes != LEAF
    bad = inner & (nodes.features < 0)
    if bad.any():
        at = int(bad.argmax())
        raise UnsupportedNodeError(f"{nodes.names(at)} reads the feature {int(nodes.features[at])}")
    features = nodes.features.astype(np.int64)
    thresholds, following = _tables(nodes)
    if nodes.members:
        features, thresholds, following = _with_sets(nodes, features, thresholds, following)
        inner = np.concatenate([inner, np.ones(len(features) - len(inner), bool)])
    names = _Names(nodes.names, len(nodes.modes))
    reached, depth = _walked(following, inner, nodes.roots, names)
    order = np.concatenate([np.flatnonzero(reached & ~inner), np.flatnonzero(reached & inner)])
    place = np.zeros(len(inner), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    used = features[order]
    used[: int((reached & ~inner).sum())] = 0
    width = int(used.max(initial=0)) + 1 if depth else 0
    if width > 2**31:
        raise UnsupportedNodeError(f"a node reads the feature {width - 1}")
    return Forest(
        used.astype(np.int32),
        thresholds[order],
        place[following[order]],
        place[nodes.roots],
        depth,
        np.flatnonzero(reached & ~inner),
        width,
    )


class _Names:
    """The name of a node in messages; nodes for parts of a set have the name of its place."""

    def __init__(self, names: Callable[[int], str], count: int) -> None:
        self.names = names
        self.count = count

    def __call__(self, at: int) -> str:
        return self.names(at) if at < self.count else "a set"


def _tables(nodes: Nodes) -> tuple[Array, Array]:
    """Return thresholds in the type of the features, and the target of each of the four results."""
    count = len(nodes.modes)
    plain = (nodes.modes >= 0) & (nodes.modes < MEMBER)
    kinds = np.where(plain, nodes.modes, 0)
    exact = nodes.splits.astype(np.float64)
    # float32 numbers compare with the rounded threshold as they do with the threshold itself.
    narrow = exact.copy() if nodes.wide else _narrowed(exact, up=(kinds == _LT) | (kinds == _GTE))
    holds = _HOLDS[kinds]
    never = np.isnan(exact) | (((kinds == _EQ) | (kinds == _NEQ)) & (narrow != exact))
    holds[never] = (kinds == _NEQ)[never, None]
    holds[:, 0] |= nodes.missing.astype(bool)
    narrow[never] = 0
    following = np.where(holds, nodes.yes[:, None], nodes.no[:, None])
    leaf = nodes.modes == LEAF
    following[leaf] = np.arange(count)[leaf, None]
    narrow[leaf] = 0
    return narrow, following


def _narrowed(values: Array, up: Array) -> Array:
    """Round float64 to the next float32 that is not above, or not below."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = values.astype(np.float32)
        back = near.astype(np.float64)
        near = np.where(~up & (back > values), np.nextafter(near, np.float32(-np.inf)), near)
        return np.where(up & (back < values), np.nextafter(near, np.float32(np.inf)), near)


def _with_sets(
    nodes: Nodes, features: Array, thresholds: Array, following: Array
) -> tuple[Array, Array, Array]:
    """Turn nodes that test set membership into a binary search in the sorted set."""
    more: list[tuple[Array, Array, Array]] = []
    count = len(features)
    for at, members in zip(np.flatnonzero(nodes.modes == MEMBER).tolist(), nodes.members, strict=True):
        yes, no = int(nodes.yes[at]), int(nodes.no[at])
        lost = yes if nodes.missing[at] else no
        exact = np.asarray(members, np.float64)
        with np.errstate(over="ignore"):
            near = exact.astype(thresholds.dtype)
        keys = np.unique(near[near == exact])
        if not len(keys):
            thresholds[at], following[at] = 0, (lost, no, no, no)
            continue
        # The middle of a range goes to the node itself or to a new one; its halves follow.
        rows = np.empty((len(keys), 4), np.int64)
        places = np.arange(count - 1, count - 1 + len(keys))
        middles: list[int] = []
        todo = [(0, len(keys), -1, 0)]
        while todo:
            low, high, parent, side = todo.pop()
            if low == high:
                rows[parent, side] = no
                continue
            middle, new = (low + high) // 2, len(middles)
            middles.append(middle)
            if parent >= 0:
                rows[parent, side] = places[new]
            rows[new, 0], rows[new, 3] = lost, yes
            todo += [(low, middle, new, 1), (middle + 1, high, new, 2)]
        thresholds[at], following[at] = keys[middles[0]], rows[0]
        count += len(keys) - 1
        kept = slice(1, None)
        more.append((np.full(len(keys) - 1, features[at]), keys[middles][kept], rows[kept]))
    if not more:
        return features, thresholds, following
    return (
        np.concatenate([features, *(m[0] for m in more)]),
        np.concatenate([thresholds, *(m[1] for m in more)]),
        np.concatenate([following, *(m[2] for m in more)]),
    )


def _walked(following: Array, inner: Array, roots: Array, names: _Names) -> tuple[Array, int]:
    """Find the nodes reachable from the roots, and the greatest depth."""
    reached = np.zeros(len(inner), bool)
    front = np.unique(roots)
    reached[front] = True
    for _ in range(_MOST_DEPTH + 1):
        front = front[inner[front]]
        if not len(front):
            break
        front = np.unique(following[front])
        front = front[~reached[front]]
        reached[front] = True
    else:
        raise _too_deep()
    # Topological order: a node that never loses all its incoming edges is on a cycle.
    open_nodes = reached & inner
    edges = np.zeros(len(inner), np.int64)
    ways = following[open_nodes]
    for column in range(4):
        np.add.at(edges, ways[:, column], 1)
    front = np.flatnonzero(reached & (edges == 0))
    depth = -1
    while len(front):
        depth += 1
        if depth > _MOST_DEPTH:
            raise _too_deep()
        open_nodes[front] = False
        ways = following[front[inner[front]]]
        np.subtract.at(edges, ways.reshape(-1), 1)
        nodes = np.unique(ways)
        front = nodes[edges[nodes] == 0]
    if open_nodes.any():
        raise UnsupportedNodeError(
            f"{names(int(open_nodes.argmax()))} leads back to itself, so it is in no tree"
        )
    return reached, depth


def _too_deep() -> UnsupportedNodeError:
    return UnsupportedNodeError(
        f"its trees are more than {_MOST_DEPTH} nodes deep; every level becomes operators, {_MOST_DEPTH} at most"
    )
