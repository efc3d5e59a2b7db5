"""Tree ensembles by hand: what a tree gives, and trees that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, LoadRunError
from tests.onnx.wire_models import attribute, field, graph, node

INF, NAN = float("inf"), float("nan")


def ensemble(op: str, attributes: dict[str, Any], features: int = 2) -> bytes:
    held = [attribute(n, v) for n, v in attributes.items()]
    made = node(op, ["x"], ["y"], *held, domain="ai.onnx.ml")
    return graph(made, shape=(-1, features)) + field(8, field(1, "ai.onnx.ml") + field(2, 5))


def run(op: str, attributes: dict[str, Any], x: Any) -> np.ndarray:
    given = np.asarray(x, np.float32)
    (result,) = loadrun.run(loadrun.load(ensemble(op, attributes, given.shape[1])), {"x": given})
    return np.asarray(result["y"])


def listed(**changes: Any) -> dict[str, Any]:
    """x[0] <= 0.5 gives 1; else x[1] > 2 gives 10, and what is left -5."""
    held = {
        "n_targets": 1,
        "nodes_treeids": [0, 0, 0, 0, 0],
        "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 2.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 3, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0],
        "target_treeids": [0, 0, 0],
        "target_nodeids": [1, 3, 4],
        "target_ids": [0, 0, 0],
        "target_weights": [1.0, 10.0, -5.0],
    }
    return {n: v for n, v in {**held, **changes}.items() if v is not None}


def test_a_tree_by_hand() -> None:
    x = [[0.5, 9], [0.6, 3], [0.6, 2], [NAN, 3], [-INF, 0], [0.6, NAN]]
    assert run("TreeEnsembleRegressor", listed(), x).ravel().tolist() == [1, 10, -5, 10, 1, -5]
    tracked = listed(nodes_missing_value_tracks_true=[1, 0, 1, 0, 0])
    assert run("TreeEnsembleRegressor", tracked, x).ravel().tolist() == [1, 10, -5, 1, 1, 10]


def test_other_batch_sizes() -> None:
    bundle = loadrun.load(ensemble("TreeEnsembleRegressor", listed()))
    for n in (1, 3, 200):
        x = np.zeros((n, 2), np.float32)
        x[::2] = (1, 3)
        (result,) = loadrun.run(bundle, {"x": x})
        assert result["y"].ravel().tolist() == [10.0 if i % 2 == 0 else 1.0 for i in range(n)]


def test_thresholds_between_two_numbers_of_32_bits() -> None:
    # 0.1 of 64 bits lies below that of 32 bits: so that one is larger, though both round to the same.
    wide = np.array([0.1, 0.0, 2.0, 0.0, 0.0])
    held = listed(nodes_values=None, nodes_values_as_tensor=wide)
    assert float(np.float32(0.1)) > 0.1
    below = np.nextafter(np.float32(0.1), np.float32(0))
    assert run("TreeEnsembleRegressor", held, [[0.1, 3], [below, 3]]).ravel().tolist() == [10, 1]
    modes = {
        m: listed(
            nodes_values=None, nodes_values_as_tensor=wide, nodes_modes=[m, *listed()["nodes_modes"][1:]]
        )
        for m in ("BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    }
    found = {
        m: run("TreeEnsembleRegressor", h, [[0.1, 3], [below, 3]]).ravel().tolist() for m, h in modes.items()
    }
    assert found == {
        "BRANCH_LT": [10, 1],
        "BRANCH_GTE": [1, 10],
        "BRANCH_GT": [1, 10],
        "BRANCH_EQ": [10, 10],
        "BRANCH_NEQ": [1, 1],
    }


def test_several_parents_of_one_node() -> None:
    # 1 and 2 both lead to 3 and 4, which is a graph without circles.
    held = listed(
        nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_featureids=[0, 1, 1, 0, 0],
        nodes_values=[0.0, -1.0, 1.0, 0.0, 0.0],
        nodes_truenodeids=[1, 3, 3, 0, 0],
        nodes_falsenodeids=[2, 4, 4, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[3, 4],
        target_ids=[0, 0],
        target_weights=[1.0, 2.0],
    )
    x = [[-1, -1], [-1, 0], [1, 0], [1, 2]]
    assert run("TreeEnsembleRegressor", held, x).ravel().tolist() == [1, 2, 1, 2]


def stored(**changes: Any) -> dict[str, Any]:
    """x[0] in {1, 3, 7.5} gives 2 for target 1; else x[1] < 0 gives 5 for target 0, and what is left 3 for target 1."""
    held = {
        "n_targets": 2,
        "tree_roots": [0],
        "nodes_featureids": [0, 1],
        "nodes_modes": np.array([6, 1], np.uint8),
        "nodes_splits": np.array([0, 0], np.float32),
        "nodes_truenodeids": [0, 1],
        "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 2],
        "nodes_falseleafs": [0, 1],
        "leaf_targetids": [1, 0, 1],
        "leaf_weights": np.array([2, 5, 3], np.float32),
        "membership_values": np.array([3, 1, 7.5, NAN], np.float32),
    }
    return {n: v for n, v in {**held, **changes}.items() if v is not None}


def test_a_tree_of_the_newer_operator() -> None:
    x = [[1, 0], [3, -1], [7.5, 0], [2, -1], [2, 0], [NAN, -1], [-INF, 4]]
    want = [[0, 2], [0, 2], [0, 2], [5, 0], [0, 3], [5, 0], [0, 3]]
    assert run("TreeEnsemble", stored(), x).tolist() == want
    tracked = run("TreeEnsemble", stored(nodes_missing_value_tracks_true=[1, 0]), x).tolist()
    assert tracked == [*want[:5], [0, 2], want[6]]


@pytest.mark.parametrize("count", [1, 2, 5, 64, 1000])
def test_sets_of_many_values(count: int) -> None:
    rng = np.random.default_rng(count)
    members = rng.choice(4000, count, replace=False).astype(np.float32) / 2
    x = np.zeros((4000, 2), np.float32)
    x[:, 0] = np.arange(4000) / 2
    found = run("TreeEnsemble", stored(membership_values=np.append(members, np.float32(NAN))), x)
    assert (found[:, 1] == 2).tolist() == np.isin(x[:, 0], members).tolist()


def test_an_empty_set_holds_nothing() -> None:
    found = run("TreeEnsemble", stored(membership_values=np.float32([NAN])), [[NAN, -1], [0, 1]])
    assert found.tolist() == [[5, 0], [0, 3]]


@pytest.mark.parametrize(
    ("number", "want"),
    [(0, [0, 2]), (1, [1 / (1 + np.e**2), 1 / (1 + np.e**-2)]), (2, [0.5, 1 / (1 + np.e**-2)])],
)
def test_transforms_have_the_numbers_of_the_standard(number: int, want: list[float]) -> None:
    found = run("TreeEnsemble", stored(post_transform=number), [[1, 0]])
    np.testing.assert_allclose(found, [want], rtol=1e-6)


def test_trees_that_are_leaves() -> None:
    held = stored(
        nodes_featureids=[0],
        nodes_modes=np.uint8([0]),
        nodes_splits=np.float32([0]),
        nodes_truenodeids=[0],
        nodes_trueleafs=[1],
        nodes_falsenodeids=[0],
        nodes_falseleafs=[1],
        leaf_targetids=[1],
        leaf_weights=np.float32([7]),
        membership_values=None,
    )
    assert run("TreeEnsemble", held, [[0, 0], [1, 1]]).tolist() == [[0, 7], [0, 7]]


# What is no tree


def chain(depth: int) -> dict[str, Any]:
    """One tree of so many nodes below each other."""
    count = 2 * depth + 1
    inner = [2 * i for i in range(depth)]
    held = listed(
        nodes_treeids=[0] * count,
        nodes_nodeids=list(range(count)),
        nodes_featureids=[0] * count,
        nodes_modes=["LEAF"] * count,
        nodes_values=[0.0] * count,
        nodes_truenodeids=[0] * count,
        nodes_falsenodeids=[0] * count,
        target_treeids=[0],
        target_nodeids=[count - 1],
        target_ids=[0],
        target_weights=[1.0],
    )
    for at in inner:
        held["nodes_modes"][at] = "BRANCH_LEQ"
        held["nodes_truenodeids"][at], held["nodes_falsenodeids"][at] = at + 1, at + 2
    return held


LISTED = [
    ({"nodes_truenodeids": [0, 0, 3, 0, 0]}, "node 0 of tree 0 leads back to itself"),
    ({"nodes_truenodeids": [1, 0, 0, 0, 0]}, "node 0 of tree 0 leads back to itself"),
    (
        {"nodes_falsenodeids": [9, 0, 4, 0, 0]},
        "nodes_falsenodeids leads to node 9 of tree 0, which does not exist",
    ),
    ({"nodes_truenodeids": [-1, 0, 3, 0, 0]}, "leads to node -1 of tree 0"),
    ({"nodes_truenodeids": [2**62, 0, 3, 0, 0]}, "which does not exist"),
    ({"nodes_nodeids": [0, 1, 2, 3, 3]}, "node 3 of tree 0 occurs twice"),
    ({"nodes_treeids": [0, 0, 0, 0]}, "nodes_nodeids has 5 entries, nodes_treeids 4"),
    ({"nodes_modes": ["LEAF"]}, "nodes_modes has 1 entries"),
    ({"nodes_values": [0.5]}, "nodes_values has 1 entries"),
    ({"nodes_values": None}, "nodes_values has 0 entries"),
    ({"nodes_modes": ["BRANCH_ODD", "LEAF", "BRANCH_GT", "LEAF", "LEAF"]}, "the mode 'BRANCH_ODD'"),
    ({"nodes_modes": ["BRANCH_MEMBER", "LEAF", "BRANCH_GT", "LEAF", "LEAF"]}, "the mode 'BRANCH_MEMBER'"),
    ({"nodes_featureids": [0, 0, 2, 0, 0]}, "read the feature 2, the input has 2"),
    ({"nodes_featureids": [-1, 0, 1, 0, 0]}, "node 0 of tree 0 reads the feature -1"),
    ({"nodes_featureids": [2**62, 0, 1, 0, 0]}, "reads? the feature 4611686018427387904"),
    ({"nodes_missing_value_tracks_true": [1]}, "nodes_missing_value_tracks_true has 1 entries for 5 nodes"),
    ({"target_nodeids": [1, 3, 9]}, "target_nodeids leads to node 9 of tree 0"),
    ({"target_treeids": [0, 0, 1]}, "target_nodeids leads to node 4 of tree 1"),
    ({"target_weights": [1.0]}, "target_weights has 1 entries"),
    ({"target_ids": [0, 0, 1]}, "target_ids holds 1, expected numbers from 0 to 0"),
    ({"target_ids": [0, 0, -1]}, "target_ids holds -1"),
    ({"n_targets": 0}, "has 0 targets"),
    ({"n_targets": -5}, "has -5 targets"),
    ({"n_targets": 2**40}, "has 1099511627776 targets"),
    ({"base_values": [1.0, 2.0]}, "base_values has 2 entries for 1 targets"),
    ({"aggregate_function": "MEDIAN"}, "aggregate_function is 'MEDIAN'"),
    ({"post_transform": "CUBE"}, "post_transform is 'CUBE'"),
    ({n: [] for n in listed() if n.startswith("nodes_")}, "holds no trees"),
]
STORED = [
    ({"nodes_falsenodeids": [0, 2]}, "node 0 leads back to itself"),
    ({"nodes_falsenodeids": [2, 2]}, "nodes_falsenodeids holds 2; there are 2 nodes"),
    ({"nodes_truenodeids": [3, 1]}, "nodes_truenodeids holds 3; there are 3 leaves"),
    ({"nodes_truenodeids": [-1, 1]}, "nodes_truenodeids holds -1"),
    ({"tree_roots": [2]}, "tree_roots holds 2; there are 2 nodes"),
    ({"tree_roots": [-1]}, "tree_roots holds -1"),
    ({"tree_roots": []}, "holds no trees"),
    ({"nodes_modes": np.uint8([6, 7])}, "the mode 7"),
    ({"nodes_modes": np.uint8([6])}, "nodes_modes has 1 entries"),
    ({"nodes_splits": np.float32([0])}, "nodes_splits has 1 entries"),
    ({"leaf_weights": np.float32([0])}, "leaf_targetids has 3 entries, leaf_weights 1"),
    ({"leaf_targetids": [1, 0, 2]}, "leaf_targetids holds 2"),
    ({"membership_values": None}, "membership_values has 0 sets for 1 nodes"),
    ({"membership_values": np.float32([1, NAN, 2, NAN])}, "membership_values has 2 sets for 1 nodes"),
    ({"aggregate_function": 4}, "aggregate_function is 4, expected 0 to 3"),
    ({"post_transform": -1}, "post_transform is -1, expected 0 to 4"),
]


@pytest.mark.parametrize(("changes", "said"), LISTED, ids=[s[:40] for _, s in LISTED])
def test_lists_that_are_no_tree(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        run("TreeEnsembleRegressor", listed(**changes), [[0, 0]])
    assert "ai.onnx.ml.TreeEnsembleRegressor" in str(caught.value)


@pytest.mark.parametrize(("changes", "said"), STORED, ids=[s[:40] for _, s in STORED])
def test_nodes_that_are_no_tree(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        run("TreeEnsemble", stored(**changes), [[0, 0]])
    assert "ai.onnx.ml.TreeEnsemble" in str(caught.value)


@pytest.mark.parametrize("depth", [1001, pytest.param(50_000, marks=pytest.mark.slow)])
def test_depth(depth: int) -> None:
    x = np.float32([[1, 0], [-1, 0]])
    assert run("TreeEnsembleRegressor", chain(60), x).ravel().tolist() == [1, 0]
    with pytest.raises(EngineError, match="more than 1000 nodes deep"):
        run("TreeEnsembleRegressor", chain(depth), x)


def test_paths_that_double_at_every_level() -> None:
    # Both branches of every node lead to the next one: 2^900 paths through 900 nodes.
    count = 901
    held = chain(450)
    held["nodes_modes"] = ["BRANCH_LEQ"] * 900 + ["LEAF"]
    held["nodes_truenodeids"] = held["nodes_falsenodeids"] = [min(i + 1, count - 1) for i in range(count)]
    assert run("TreeEnsembleRegressor", held, [[0, 0]]).tolist() == [[1]]


def test_what_the_model_says_about_mutated_trees() -> None:
    whole = ensemble("TreeEnsembleRegressor", listed())
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            data[at] = rng.integers(0, 256)
        said = ""
        try:
            loadrun.run(loadrun.loads(bytes(data)))
        except LoadRunError as e:
            said = str(e)
        # So ends what is said of errors that nothing foresaw.
        assert "do not fit it" not in said
        refused += bool(said)
    assert refused == 281


@pytest.mark.parametrize(
    ("mode", "below", "same", "above"),
    [("LEQ", 1, 1, 0), ("LT", 1, 0, 0), ("GTE", 0, 1, 1), ("GT", 0, 0, 1), ("EQ", 0, 1, 0), ("NEQ", 1, 0, 1)],
)
def test_features_of_64_bits_are_compared_in_64_bits(mode: str, below: int, same: int, above: int) -> None:
    """Three features that float32 cannot tell apart, and weights that it rounds, as in ONNX Runtime."""
    onnx = pytest.importorskip("onnx", reason="tensors are made with the package onnx")
    x, third = np.array([[0.1 - 1e-12], [0.1], [0.1 + 1e-12]]), 1 / 3
    tensors = {
        "nodes_splits": np.array([0.1]),
        "leaf_weights": np.array([third, 1e-9]),
        "nodes_modes": np.array([("LEQ", "LT", "GTE", "GT", "EQ", "NEQ").index(mode)], np.uint8),
    }
    held = {n: onnx.numpy_helper.from_array(v) for n, v in tensors.items()}
    held |= {"nodes_featureids": [0], "nodes_truenodeids": [0], "nodes_falsenodeids": [1], "n_targets": 1}
    held |= {"nodes_trueleafs": [1], "nodes_falseleafs": [1], "tree_roots": [0], "leaf_targetids": [0, 0]}
    made = onnx.helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **held)
    ends = [onnx.helper.make_tensor_value_info(n, 11, ["N", 1]) for n in "xy"]
    opsets = [onnx.helper.make_opsetid("ai.onnx.ml", 5), onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([made], "g", ends[:1], ends[1:]), opset_imports=opsets
    )
    (result,) = loadrun.run(loadrun.load(model.SerializeToString()), {"x": x})
    assert result["y"].ravel().tolist() == [third if yes else 1e-9 for yes in (below, same, above)]
