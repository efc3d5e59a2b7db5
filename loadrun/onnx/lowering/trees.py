"""Tree ensembles of ai.onnx.ml: all samples walk down all trees at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ... import params as P
from ...dtypes import Array
from ...imperative import Tensor, const
from ...imperative import emit as e
from ..call import NodeCall, lower
from ..values import DOUBLE, FLOAT, Unheld, UnsupportedNodeError, Value
from .forest import LEAF, MEMBER, MODES, Forest, Nodes, forest
from .parts import M, cast, const_like
from .scores import (
    TRANSFORMS,
    Labels,
    as_rows,
    first_largest,
    labels_of,
    larger,
    post_transform,
    probit,
    transformed,
)

__all__: list[str] = []

_ML = "ai.onnx.ml"
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_LEQ, _LT = P.ElemwiseMultiTypeMode.LEQ, P.ElemwiseMultiTypeMode.LT
_MOST_WEIGHTS, _MOST_TARGETS = 1 << 25, 1 << 16


# What the attributes say


@dataclass
class Ensemble:
    """Trees with what their leaves are worth.

    Attributes:
        trees: the tables to walk by.
        rows: (W,) for each weight, the leaf by its place in the tables.
        targets: (W,) the target or class that it counts for.
        weights: (W,) float32.
        count: how many targets there are.
    """

    trees: Forest
    rows: Array
    targets: Array
    weights: Array
    count: int


def _numbers(c: NodeCall, name: str) -> Array:
    """A list of numbers, which newer versions give as a tensor."""
    stored = c.tensor(name) or c.tensor(f"{name}_as_tensor")
    if stored is not None:
        found = c.importer.stored(stored).array
        assert found is not None
        return found.reshape(-1)
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
    """Where nodes stand, by their tree and number."""

    def __init__(self, trees: Array, numbers: Array) -> None:
        self.trees, self.numbers = trees, numbers
        self.order = np.lexsort((numbers, trees))
        t, n = trees[self.order], numbers[self.order]
        twice = (t[1:] == t[:-1]) & (n[1:] == n[:-1])
        if twice.any():
            at = int(twice.argmax())
            raise UnsupportedNodeError(f"node {int(n[at])} of tree {int(t[at])} is there twice")
        # One number for a tree and a node: both ranked among those that there are.
        self._trees, self._numbers = np.unique(trees), np.unique(numbers)
        self._keys = self._ranks(t, n)[0]

    def _ranks(self, trees: Array, numbers: Array) -> tuple[Array, Array]:
        a, b = np.searchsorted(self._trees, trees), np.searchsorted(self._numbers, numbers)
        a, b = np.minimum(a, len(self._trees) - 1), np.minimum(b, len(self._numbers) - 1)
        there = (self._trees[a] == trees) & (self._numbers[b] == numbers)
        return a * len(self._numbers) + b, there

    def of(self, trees: Array, numbers: Array, what: str) -> Array:
        """The places of nodes that must be there."""
        keys, there = self._ranks(trees, numbers)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        there &= self._keys[at] == keys
        if not there.all():
            i = int((~there).argmax())
            raise UnsupportedNodeError(
                f"{what} leads to node {int(numbers[i])} of tree {int(trees[i])}, which is not there"
            )
        return self.order[at]

    def name(self, at: int) -> str:
        return f"node {int(self.numbers[at])} of tree {int(self.trees[at])}"


def _listed(c: NodeCall, prefix: str, count: int) -> Ensemble:
    """The ensemble as TreeEnsembleRegressor and TreeEnsembleClassifier store it."""
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    lists = {f"nodes_{n}": _integers(c, f"nodes_{n}") for n in names}
    modes = c.texts("nodes_modes") or []
    unknown = sorted(set(modes) - set(MODES) | {"BRANCH_MEMBER"} & set(modes))
    if unknown:
        raise UnsupportedNodeError(f"a node has the mode {unknown[0]!r}")
    splits = _numbers(c, "nodes_values")
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
    made = forest(
        Nodes(kinds, features, splits, yes, no, missing == 1, roots, places.name, c.kind(0) == DOUBLE)
    )
    return _weighted(c, prefix, count, made, places, leaf)


def _weighted(c: NodeCall, prefix: str, count: int, made: Forest, places: _Places, leaf: Array) -> Ensemble:
    names = ("treeids", "nodeids", "ids")
    lists = {f"{prefix}_{n}": _integers(c, f"{prefix}_{n}") for n in names}
    weights = _numbers(c, f"{prefix}_weights")
    _same_length({**lists, f"{prefix}_weights": weights})
    trees, numbers, targets = lists.values()
    order = np.lexsort((numbers, trees))
    trees, numbers, targets, weights = (v[order] for v in (trees, numbers, targets, weights))
    at = places.of(trees, numbers, f"{prefix}_nodeids") if len(trees) else np.zeros(0, np.int64)
    # Weights of nodes that are no leaves, which old converters write, count for nothing.
    counts = leaf[at]
    row = np.full(len(leaf), -1)
    row[made.leaves] = np.arange(len(made.leaves))
    rows = row[at]
    counts &= rows >= 0
    return _ensemble(made, rows[counts], targets[counts], weights[counts], count, f"{prefix}_ids")


def _ensemble(made: Forest, rows: Array, targets: Array, weights: Array, count: int, name: str) -> Ensemble:
    if not 1 <= count <= _MOST_TARGETS:
        raise UnsupportedNodeError(f"it has {count} targets, expected 1 to {_MOST_TARGETS}")
    if max(len(made.leaves), len(made.roots)) * count > _MOST_WEIGHTS:
        raise UnsupportedNodeError(
            f"its {len(made.leaves)} leaves would have {count} weights each; {_MOST_WEIGHTS} in all can be held"
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
    return Ensemble(made, rows, targets, weights.astype(np.float32), count)


def _stored(c: NodeCall) -> Ensemble:
    """The ensemble as TreeEnsemble stores it: nodes and leaves apart."""
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    lists = {f"nodes_{n}": _integers(c, f"nodes_{n}") for n in names}
    modes, splits = _numbers(c, "nodes_modes").astype(np.int64), _numbers(c, "nodes_splits")
    _same_length({**lists, "nodes_modes": modes, "nodes_splits": splits})
    features, true_ids, false_ids, true_leaf, false_leaf = lists.values()
    targets, weights = _integers(c, "leaf_targetids"), _numbers(c, "leaf_weights")
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
    made = forest(
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
            _sets(_numbers(c, "membership_values"), int((modes == MEMBER).sum())),
        )
    )
    at = made.leaves - count
    return _ensemble(
        made, np.arange(len(at)), targets[at], weights[at], c.number("n_targets"), "leaf_targetids"
    )


def _inside(ids: Array, count: int, name: str, what: str) -> None:
    outside = (ids < 0) | (ids >= count)
    if outside.any():
        raise UnsupportedNodeError(f"{name} holds {int(ids[outside][0])}; there are {count} {what}")


def _sets(values: Array, count: int) -> list[Array]:
    """The sets of nodes with the mode BRANCH_MEMBER: NaN ends each."""
    pieces = np.split(values, np.flatnonzero(np.isnan(values)) + 1) if len(values) else []
    if pieces and not len(pieces[-1]):
        pieces.pop()
    found = [v[~np.isnan(v)] for v in pieces]
    if len(found) != count:
        raise UnsupportedNodeError(
            f"membership_values has {len(found)} sets for {count} nodes that ask for one"
        )
    return found


# Walking


def _walk(trees: Forest, x: Tensor) -> Tensor:
    """The leaves (N, T) that samples (N, F) reach."""
    there = x._tuple_shape[1]
    if there < trees.width:
        raise UnsupportedNodeError(f"its trees read the feature {trees.width - 1}, the input has {there}")
    batch = x.shape[0]
    if not trees.depth:
        return e.broadcast(const(trees.roots), (batch, len(trees.roots)))
    rows = e.reshape(e.arange(batch), (-1, 1))
    ask, table = _question(trees.following)
    entries = table.shape[1]
    features, thresholds, following = (
        const(v) for v in (trees.features, trees.thresholds, table.reshape(-1))
    )
    # All samples begin at the same nodes.
    feature, threshold = (const(v[trees.roots]) for v in (trees.features, trees.thresholds))
    at = const(trees.roots)
    for step in range(trees.depth):
        if step:
            feature, threshold = (e.gather(v, [(0, at)]) for v in (features, thresholds))
        code = ask(e.gather(x, [(0, rows), (1, feature)]), threshold)
        place = e.elem(M.ADD, e.elem(M.MUL, at, const_like(entries, at)), code)
        at = e.gather(following, [(0, place)])
    return at


def _question(following: Array) -> tuple[Callable[[Tensor, Tensor], Tensor], Array]:
    """What to compare at every node, and where each result leads; one comparison where that tells enough."""

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


# What the leaves are worth


def _gathered(table: Array, at: Tensor) -> Tensor:
    return e.gather(const(table), [(0, at)])


def _aggregated(found: Ensemble, at: Tensor, how: str) -> Tensor:
    """What the leaves (N, T) are worth together, (N, C): the sum, the least or the largest of each target."""
    leaves, count = len(found.trees.leaves), found.count
    mode, rest = {"MIN": (P.ReduceMode.MIN, np.inf), "MAX": (P.ReduceMode.MAX, -np.inf)}.get(
        how, (P.ReduceMode.SUM, 0.0)
    )
    only = _only_targets(found)
    if only is not None and mode == P.ReduceMode.SUM:
        worth = np.zeros(leaves, np.float32)
        np.add.at(worth, found.rows, found.weights)
        return _by_target(_gathered(worth, at), only, count)
    table = np.full((leaves, count), rest, np.float32)
    {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add).at(
        table, (found.rows, found.targets), found.weights
    )
    if count == 1:
        total = e.add_axes(e.reduce(_gathered(table[:, 0], at), mode, [1]), [1])
    else:
        total = e.reduce(_gathered(table, at), mode, [1])
    return total if mode == P.ReduceMode.SUM else _kept(total, _scored(found, at))


def _kept(scores: Tensor, there: Tensor | Array) -> Tensor:
    """Scores (N, C), with 0 where no leaf counts for a target."""
    if isinstance(there, np.ndarray):
        if there.all():
            return scores
        there = const(there)
    return e.where(there, scores, const_like(0, scores))


def _only_targets(found: Ensemble) -> Array | None:
    """The target of every tree, None where a tree has several."""
    trees = found.trees
    spans = _tree_of_leaf(trees) if 1 < found.count <= 4 * len(trees.roots) else None
    if spans is None:
        return None
    low = np.full(len(trees.roots), found.count)
    high = np.full(len(trees.roots), -1)
    np.minimum.at(low, spans[found.rows], found.targets)
    np.maximum.at(high, spans[found.rows], found.targets)
    return low if (low == high).all() else None


def _tree_of_leaf(trees: Forest) -> Array | None:
    """The tree of every leaf, None where two trees share one."""
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
    """Sums of (N, T) over the trees of each target, (N, C)."""
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
            sums.append(e.full(const(np.zeros(1, np.float32)), (worth.shape[0], 1)))
    return e.concat(sums, 1)


def _scored(found: Ensemble, at: Tensor) -> Tensor | Array:
    """Whether any leaf counts for a target: (C,) where all samples agree, else (N, C) booleans."""
    leaves = len(found.trees.leaves)
    has = np.zeros((leaves, found.count), bool)
    has[found.rows, found.targets] = True
    never = ~has.any(0)
    spans = _tree_of_leaf(found.trees)
    always = np.asarray(has.all(0))
    if spans is not None:
        lacks = np.zeros((len(found.trees.roots), found.count), bool)
        np.logical_or.at(lacks, spans, ~has)
        always |= ~lacks.all(0)
    if (never | always).all():
        return always
    some = _gathered(has.astype(np.float32), at)
    return larger(e.reduce(some, P.ReduceMode.MAX, [1]), 0)


# Regression


def _regressed(c: NodeCall, found: Ensemble, how: str, post: str, base: Array) -> Tensor:
    """Scores of targets, with ONNX Runtime's order of things."""
    if len(base) not in (0, found.count):
        raise UnsupportedNodeError(f"base_values has {len(base)} entries for {found.count} targets")
    at = _walk(found.trees, as_rows(c))
    scores = _aggregated(found, at, how)
    if how == "AVERAGE":
        scores = e.elem(M.TRUE_DIV, scores, const_like(len(found.trees.roots), scores))
    if len(base):
        scores = _kept(e.elem(M.ADD, scores, const(base.astype(np.float32))), _scored(found, at))
    if found.count == 1:
        return probit(scores) if post == "PROBIT" else scores
    return transformed(scores, post)


@lower("TreeEnsembleRegressor", domain=_ML)
def _regressor(c: NodeCall) -> Value:
    how = c.text("aggregate_function", "SUM")
    if how not in _AGGREGATES:
        raise UnsupportedNodeError(
            f"its aggregate_function is {how!r}, expected one of {', '.join(_AGGREGATES)}"
        )
    found = _listed(c, "target", c.number("n_targets"))
    return Value(FLOAT, _regressed(c, found, how, post_transform(c), _numbers(c, "base_values")))


@lower("TreeEnsemble", domain=_ML)
def _tree_ensemble(c: NodeCall) -> Value:
    how = _named(c, "aggregate_function", 1, _AGGREGATES)
    post = _named(c, "post_transform", 0, TRANSFORMS)
    return Value(c.kind(0), _regressed(c, _stored(c), how, post, np.zeros(0, np.float32)))


def _named(c: NodeCall, name: str, default: int, known: Sequence[str]) -> str:
    """What an attribute says by its number."""
    number = c.number(name, default)
    if not 0 <= number < len(known):
        raise UnsupportedNodeError(f"its {name} is {number}, expected 0 to {len(known) - 1}")
    return known[number]


# Classification


@lower("TreeEnsembleClassifier", domain=_ML)
def _classifier(c: NodeCall) -> tuple[Value | Unheld, Value]:
    labels = labels_of(c, "classlabels_int64s")
    if not labels.count:
        raise UnsupportedNodeError("it names no classes")
    found = _listed(c, "class", labels.count)
    at = _walk(found.trees, as_rows(c))
    base = _numbers(c, "base_values").astype(np.float32)
    allowed = (0, 1, 2) if labels.count == 2 else (0, labels.count)
    if len(base) not in allowed:
        raise UnsupportedNodeError(f"base_values has {len(base)} entries for {labels.count} classes")
    post = post_transform(c)
    scores = _aggregated(found, at, "SUM")
    if labels.count > 2:
        return _of_many(found, at, scores, base, labels, post)
    return _of_two(found, at, scores, base, labels, post)


def _of_many(
    found: Ensemble, at: Tensor, scores: Tensor, base: Array, labels: Labels, post: str
) -> tuple[Value | Unheld, Value]:
    """Classes of which the largest score wins, among those that any leaf counts for."""
    ranked = scores
    if len(base):
        ranked = scores = e.elem(M.ADD, scores, const(base))
    else:
        there = _scored(found, at)
        if isinstance(there, Tensor):
            ranked = e.where(there, scores, const_like(-np.inf, scores))
        elif not there.all():
            ranked = e.elem(M.MIN, scores, const(np.where(there, np.inf, -np.inf).astype(np.float32)))
    return labels.choose(first_largest(ranked)), Value(FLOAT, transformed(scores, post))


def _of_two(
    found: Ensemble, at: Tensor, scores: Tensor, base: Array, labels: Labels, post: str
) -> tuple[Value | Unheld, Value]:
    """One or two classes, by the rules of ONNX Runtime: of a single score the other class's follows."""
    if labels.count == 1:
        return _of_one(scores, base, labels, post)
    # Weights of one class alone speak for the second class against the first.
    alone = len(np.unique(found.targets)) == 1
    positive = alone and bool((found.weights >= 0).all())
    first, second = (_column(scores, i) for i in range(2))
    there = _scored(found, at)
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
    """Both scores where the second class has one, and the one that decides."""
    if len(base) == 2:
        second = e.elem(M.ADD, first, const_like(base[1], first))
        first = e.elem(M.NEGATE, second)
    elif len(base) == 1:
        first = e.elem(M.ADD, first, const_like(base[0], first))
    return e.concat([_kept(first, there) if len(base) else first, second], 1), second


def _single_score(
    first: Tensor, base: Array, alone: bool, positive: bool, post: str
) -> tuple[Tensor, Tensor]:
    """Both scores where only the first class has one, and the one that decides."""
    if len(base):
        first = e.elem(M.ADD, first, const_like(base[0], first))
    if len(base) == 2:
        none = e.elem(M.MUL, first, const_like(0, first))
        return transformed(e.concat([first, none], 1), post), first
    if post == "PROBIT" or (len(base) == 1 and not alone):
        raise UnsupportedNodeError(
            f"with post_transform {post} and {len(base)} base_values the score of its second class is open"
        )
    if positive and post != "LOGISTIC":
        one = const_like(1, first)
        return e.concat([e.elem(M.SUB, one, first), first], 1), first
    pair = e.concat([e.elem(M.NEGATE, first), first], 1)
    return transformed(pair, post) if post == "LOGISTIC" else pair, first


def _of_one(scores: Tensor, base: Array, labels: Labels, post: str) -> tuple[Value | Unheld, Value]:
    """A single class: 1 where its score is above 0, else 0, whatever its label."""
    if len(base):
        scores = e.elem(M.ADD, scores, const(base))
    wins = e.drop_axes(larger(scores, 0), [1])
    return labels.either(wins, (0, 1)), Value(FLOAT, probit(scores) if post == "PROBIT" else scores)
