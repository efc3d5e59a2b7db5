"""Tree ensembles of ai.onnx.ml: all samples walk down all trees at once, and leaves count for targets."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...arrays.names import np
from ...graph.composite import TensorAttribute
from ...graph.dtypes import Array
from .common import once, one_of, refuse_unless, taking
from .forest import (
    LEAF,
    MEMBER,
    MODES,
    TRANSFORMS,
    TreeNodes,
    WeightedTrees,
    as_rows,
    chosen,
    label_type,
    probit,
    row_operator,
    transformed,
    weighted,
)

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

Stored = TensorAttribute | None


def _numbers(values: Sequence[float], stored: Stored = None) -> Array:
    """Return a list of floats, which newer versions give as a tensor."""
    return np.array(values, np.float32) if stored is None else stored.value.reshape(-1)


def _whole(values: Sequence[int]) -> Array:
    return np.array(values, np.int64)


def _same_length(lists: Mapping[str, Array]) -> None:
    (first, begin), *rest = lists.items()
    for name, values in rest:
        refuse_unless(
            len(values) == len(begin),
            f"{name} has {len(values)} entries, {first} {len(begin)}; each node has one in both",
        )


def _optional(values: Sequence[int], count: int) -> Array:
    refuse_unless(
        len(values) in (0, count),
        f"nodes_missing_value_tracks_true has {len(values)} entries for {count} nodes",
    )
    return _whole(values) if len(values) else np.zeros(count, np.int64)


class _Places:
    """The positions of nodes, by their tree and number."""

    def __init__(self, trees: Array, numbers: Array) -> None:
        self.trees, self.numbers = trees, numbers
        self.order = np.lexsort((numbers, trees))
        t, n = trees[self.order], numbers[self.order]
        twice = (t[1:] == t[:-1]) & (n[1:] == n[:-1])
        at = int(twice.argmax()) if len(twice) else 0
        refuse_unless(not twice.any(), f"node {n[at]} of tree {t[at]} occurs twice")
        # Complex numbers are sorted by tree first.
        self._keys = t + 1j * n

    def of(self, trees: Array, numbers: Array, what: str) -> Array:
        """Return the positions of nodes, all of which must exist."""
        keys = trees + 1j * numbers
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        there = self._keys[at] == keys
        i = int((~there).argmax()) if len(there) else 0
        refuse_unless(
            bool(there.all()),
            f"{what} leads to node {numbers[i : i + 1].sum()} of tree {trees[i : i + 1].sum()}, which does not exist",
        )
        return self.order[at]

    def name(self, at: int) -> str:
        """Name a node in a message."""
        return f"node {self.numbers[at]} of tree {self.trees[at]}"


# The two forms in which ensembles are stored


_ORDER = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
_LISTS = {f"nodes_{n}": () for n in (*_ORDER, "hitrates", "missing_value_tracks_true", "modes", "values")}
_SHARED: dict[str, Any] = {**_LISTS, "nodes_hitrates_as_tensor": None, "nodes_values_as_tensor": None}
"""The attributes of nodes, with what they are where they are left out."""
_APART: dict[str, Any] = dict.fromkeys(
    "leaf_weights membership_values nodes_hitrates nodes_modes nodes_splits".split()
) | dict.fromkeys(
    """leaf_targetids nodes_falseleafs nodes_falsenodeids nodes_missing_value_tracks_true nodes_trueleafs
    nodes_truenodeids tree_roots""".split(),
    (),
)
"""The same of a TreeEnsemble."""
_TARGETS, _CLASSES = (
    {f"{kind}_{n}": () for n in ("ids", "nodeids", "treeids", "weights")}
    | {f"{kind}_weights_as_tensor": None}
    for kind in ("target", "class")
)


def _listed(prefix: str, targets: int, given: Mapping[str, Any]) -> WeightedTrees:
    """Return the ensemble as TreeEnsembleRegressor and TreeEnsembleClassifier store it: leaves are nodes too.

    Args:
        given: the attributes of the node.
    """
    stored = {**_SHARED, **(_TARGETS if prefix == "target" else _CLASSES), **given}
    modes = stored["nodes_modes"]
    splits = _numbers(stored["nodes_values"], stored["nodes_values_as_tensor"])
    weights = _numbers(stored[f"{prefix}_weights"], stored[f"{prefix}_weights_as_tensor"])
    lists = {f"nodes_{name}": _whole(stored[f"nodes_{name}"]) for name in _ORDER}
    for mode in sorted(set(modes)):
        refuse_unless(mode in MODES and mode != "BRANCH_MEMBER", f"a node has the mode {mode!r}")
    kinds = _whole([MODES[m] for m in modes])
    _same_length({**lists, "nodes_modes": kinds, "nodes_values": splits})
    trees, numbers, features, true_ids, false_ids = lists.values()
    refuse_unless(len(trees) > 0, "it holds no trees")
    places = _Places(trees, numbers)
    inner = kinds != LEAF
    yes, no = np.arange(len(trees)), np.arange(len(trees))
    yes[inner] = places.of(trees[inner], true_ids[inner], "nodes_truenodeids")
    no[inner] = places.of(trees[inner], false_ids[inner], "nodes_falsenodeids")
    # The first node of every run of one tree is a root.
    roots = np.flatnonzero(np.concatenate([[True], trees[1:] != trees[:-1]]))
    missed = _optional(stored["nodes_missing_value_tracks_true"], len(trees)) == 1
    forest = TreeNodes(kinds, features, splits, yes, no, missed, roots, places.name)
    lists = {n: _whole(stored[n]) for n in (f"{prefix}_treeids", f"{prefix}_nodeids", f"{prefix}_ids")}
    _same_length({**lists, f"{prefix}_weights": weights})
    trees, numbers, ids = lists.values()
    order = np.lexsort((numbers, trees))
    at = places.of(trees[order], numbers[order], f"{prefix}_nodeids")
    # Weights of inner nodes, which old converters write, are ignored.
    counts = ~inner[at]
    at, ids, weights = at[counts], ids[order][counts], weights[order][counts]
    return weighted(forest, at, ids, weights, targets, f"{prefix}_ids")


def _tabled(targets: int, given: Mapping[str, Any]) -> WeightedTrees:
    """Return the ensemble as TreeEnsemble stores it: nodes and leaves apart.

    Args:
        given: the attributes of the node.
    """
    stored = {**_APART, **given}
    modes, splits, weights, sets = (
        _numbers((), stored[n]) for n in ("nodes_modes", "nodes_splits", "leaf_weights", "membership_values")
    )
    modes, roots, ids = modes.astype(np.int64), stored["tree_roots"], stored["leaf_targetids"]
    lists = {f"nodes_{n}": _whole(stored[f"nodes_{n}"]) for n in (*_ORDER[2:], "trueleafs", "falseleafs")}
    _same_length({**lists, "nodes_modes": modes, "nodes_splits": splits})
    features, true_ids, false_ids, true_leaf, false_leaf = lists.values()
    refuse_unless(
        len(ids) == len(weights), f"leaf_targetids has {len(ids)} entries, leaf_weights {len(weights)}"
    )
    count, leaves = len(modes), len(ids)
    refuse_unless(len(roots) > 0 and count > 0, "it holds no trees")
    _inside(_whole(roots), count, "tree_roots", "nodes")
    for mode in np.unique(modes).tolist():
        refuse_unless(0 <= mode <= MEMBER, f"a node has the mode {mode}, expected 0 to {MEMBER}")

    def following(ids: Array, leaf: Array, name: str) -> Array:
        _inside(ids[leaf != 0], leaves, name, "leaves")
        _inside(ids[leaf == 0], count, name, "nodes")
        return np.concatenate([np.where(leaf != 0, ids + count, ids), np.arange(count, count + leaves)])

    def filled(values: Array, value: int = 0) -> Array:
        return np.concatenate([values, np.full(leaves, value, values.dtype)])

    forest = TreeNodes(
        filled(modes, LEAF),
        filled(features),
        filled(splits),
        following(true_ids, true_leaf, "nodes_truenodeids"),
        following(false_ids, false_leaf, "nodes_falsenodeids"),
        filled(_optional(stored["nodes_missing_value_tracks_true"], count)) != 0,
        _whole(roots),
        lambda at: f"node {at}" if at < count else f"leaf {at - count}",
        _members(sets, np.flatnonzero(modes == MEMBER)),
    )
    return weighted(forest, np.arange(count, count + leaves), _whole(ids), weights, targets, "leaf_targetids")


def _inside(ids: Array, count: int, name: str, what: str) -> None:
    outside = (ids < 0) | (ids >= count)
    refuse_unless(not outside.any(), f"{name} holds {ids[outside][:1].sum()}; there are {count} {what}")


def _members(values: Array, nodes: Array) -> Array:
    """Return the sorted pairs of node and member of its set, as complex numbers; NaN ends each set."""
    ends = np.isnan(values)
    sets = np.cumsum(ends) - ends
    count = int(ends.sum()) + (len(values) > 0 and not ends[-1])
    refuse_unless(
        count == len(nodes), f"membership_values has {count} sets for {len(nodes)} nodes that ask for one"
    )
    return np.sort(nodes[sets[~ends]] + 1j * values[~ends])


# Scores


def _regressed(ensemble: WeightedTrees, x: Array, how: str, post: str, base: Array) -> Array:
    """Compute the scores of targets, in ONNX Runtime's order of operations."""
    one_of("post_transform", post, *TRANSFORMS)
    fits = len(base) in (0, ensemble.targets)
    refuse_unless(fits, f"base_values has {len(base)} entries for {ensemble.targets} targets")
    scores, there = ensemble.scores(as_rows(x), "SUM" if how == "AVERAGE" else how)
    if how == "AVERAGE":
        scores = scores / len(ensemble.forest.roots)
    if len(base):
        scores = np.where(there, scores + base.astype(scores.dtype), 0)
    if ensemble.targets == 1:
        return probit(scores) if post == "PROBIT" else scores
    return transformed(scores, post)


@row_operator("TreeEnsembleRegressor")
@taking(**_SHARED | _TARGETS)
def tree_ensemble_regressor(
    x: Array,
    *,
    aggregate_function: str = "SUM",
    base_values: Sequence[float] = (),
    base_values_as_tensor: Stored = None,
    n_targets: int = 0,
    nodes_featureids: Sequence[int] = (),
    post_transform: str = "NONE",
    **given: Any,
) -> Array:
    """Aggregate the weights of the leaves that samples reach, for each target."""
    one_of("aggregate_function", aggregate_function, *_AGGREGATES)
    given["nodes_featureids"] = nodes_featureids
    ensemble = once(nodes_featureids, "trees", lambda: _listed("target", n_targets, given))
    base = _numbers(base_values, base_values_as_tensor)
    return _regressed(ensemble, x, aggregate_function, post_transform, base)


@row_operator("TreeEnsemble", since=5, out=(0,))
@taking(**_APART)
def tree_ensemble(
    x: Array,
    *,
    aggregate_function: int = 1,
    n_targets: int = 0,
    nodes_featureids: Sequence[int],
    post_transform: int = 0,
    **given: Any,
) -> Array:
    """Aggregate the weights of the leaves that samples reach, for each target."""
    for name, number, known in (
        ("aggregate_function", aggregate_function, _AGGREGATES),
        ("post_transform", post_transform, TRANSFORMS),
    ):
        fits = 0 <= number < len(known)
        refuse_unless(fits, f"its {name} is {number}, expected 0 to {len(known) - 1}")
    given["nodes_featureids"] = nodes_featureids
    ensemble = once(nodes_featureids, "trees", lambda: _tabled(n_targets, given))
    how, post = _AGGREGATES[aggregate_function], TRANSFORMS[post_transform]
    return _regressed(ensemble, x, how, post, np.zeros(0))


@row_operator("TreeEnsembleClassifier", out=(label_type, "Float32"))
@taking(**_SHARED | _CLASSES)
def tree_ensemble_classifier(
    x: Array,
    *,
    base_values: Sequence[float] = (),
    base_values_as_tensor: Stored = None,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    nodes_featureids: Sequence[int] = (),
    post_transform: str = "NONE",
    **given: Any,
) -> tuple[Array, Array]:
    """Sum the weights of the leaves that samples reach, and choose the class with the largest score."""
    one_of("post_transform", post_transform, *TRANSFORMS)
    count = len(classlabels_strings or classlabels_int64s)
    refuse_unless(count > 0, "it names no classes")
    given["nodes_featureids"] = nodes_featureids
    ensemble = once(nodes_featureids, "trees", lambda: _listed("class", count, given))
    base = _numbers(base_values, base_values_as_tensor)
    refuse_unless(
        len(base) in ((0, 1, 2) if count == 2 else (0, count)),
        f"base_values has {len(base)} entries for {count} classes",
    )
    scores, there = ensemble.scores(as_rows(x), "SUM")
    base = base.astype(scores.dtype)
    if count > 2:
        scores = scores + base if len(base) else scores
        # Those of which no leaf says anything are never chosen.
        ranked = scores if len(base) else np.where(there, scores, -np.inf)
        label = chosen(ranked.argmax(1), classlabels_int64s, classlabels_strings)
        return label, transformed(scores, post_transform)
    if count == 1:
        # 1 if the score is above 0, else 0, whatever the label.
        scores = scores + base if len(base) else scores
        refuse_unless(not classlabels_strings, "its single class is a text: no label says that it is none")
        label = (scores[:, 0] > 0).astype(np.int64)
        return label, probit(scores) if post_transform == "PROBIT" else scores
    wins, alone, result = _of_two(ensemble, scores, there, base, post_transform)
    label = chosen(wins.astype(np.int64), classlabels_int64s if alone else (0, 1), classlabels_strings)
    return label, result


def _of_two(
    ensemble: WeightedTrees, scores: Array, there: Array, base: Array, post: str
) -> tuple[Array, bool, Array]:
    """Score two classes, by the rules of ONNX Runtime: a single score gives the other class's.

    Returns:
        whether the second class wins, whether the labels say so, and the scores.
    """
    # Weights of one class alone speak for the second class against the first.
    alone = len(np.unique(ensemble.ids)) == 1
    positive = alone and bool((ensemble.weights >= 0).all())
    scored = there[:, 1:]
    pair, decides = _two_scores(scores, there[:, :1], base)
    pair = transformed(pair, post)
    if not scored.all():
        other, first = _single_score(scores[:, :1], base, alone, positive, post)
        pair, decides = np.where(scored, pair, other), np.where(scored, decides, first)
    return decides[:, 0] > (0.5 if positive else 0.0), alone, pair


def _two_scores(scores: Array, there: Array, base: Array) -> tuple[Array, Array]:
    """Return both scores where the second class has one, and the deciding one."""
    first, second = scores[:, :1], scores[:, 1:]
    if len(base) == 2:
        second = first + base[1]
        first = -second
    elif len(base) == 1:
        first = first + base[0]
    first = np.where(there, first, 0) if len(base) else first
    return np.concatenate([first, second], 1), second


def _single_score(first: Array, base: Array, alone: bool, positive: bool, post: str) -> tuple[Array, Array]:
    """Return both scores where only the first class has one, and the deciding one."""
    first = first + base[0] if len(base) else first
    if len(base) == 2:
        return transformed(np.concatenate([first, 0 * first], 1), post), first
    refuse_unless(
        post != "PROBIT" and (alone or not len(base)),
        f"with post_transform {post} and {len(base)} base_values the score of its second class is undefined",
    )
    if positive and post != "LOGISTIC":
        return np.concatenate([1 - first, first], 1), first
    pair = np.concatenate([-first, first], 1)
    return transformed(pair, post) if post == "LOGISTIC" else pair, first
