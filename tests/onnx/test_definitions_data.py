"""Definitions of operators that move, pick, sample and encode data, against results computed by hand."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from loadrun.graph.composite import NodeTypes, ObjectType
from loadrun.graph.dtypes import DType
from loadrun.onnx.operators import find

ML = "ai.onnx.ml"
# fmt: off
TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
    "class_treeids": [0, 0, 0], "class_nodeids": [1, 2, 2], "class_ids": [0, 1, 2], "class_weights": [1.0, 0.25, 0.75],
}
GRAMS = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 1],
         "ngram_indexes": [1, 0], "pool_strings": ["a", "a", "b"]}
BOXES = [[[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.8], [3.0, 3.0, 4.0, 4.0]]]
# fmt: on


def run(op: str, opset: int, *inputs: Any, domain: str = "", **attributes: Any) -> Any:
    """Lists become arrays of float32, int64, booleans or text."""
    definition = find(domain, op, opset)
    assert definition is not None
    kinds = {"f": np.float32, "U": object}
    arrays = [None if v is None else np.asarray(v) for v in inputs]
    typed = [None if v is None else v.astype(kinds.get(v.dtype.kind, v.dtype)) for v in arrays]
    result = definition.function(*typed, **attributes)
    return [r.tolist() for r in result] if isinstance(result, tuple) else np.asarray(result).tolist()


def same(a: Any, b: Any) -> bool:
    if isinstance(b, list):
        return isinstance(a, list) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b if isinstance(b, (str, dict, bool)) else np.isclose(a, b))


X = np.arange(6).reshape(2, 3)
# fmt: off
CASES: list[tuple[partial[Any], Any]] = [
    (partial(run, "Slice", 13, [0, 1, 2, 3], [-9], [-9], [0], [-1]), [0]),
    (partial(run, "Reshape", 14, np.zeros((2, 0)), [3, -1]), [[], [], []]),
    (partial(run, "Reshape", 14, X, [0, -1, 1]), [[[0], [1], [2]], [[3], [4], [5]]]),
    (partial(run, "Split", 18, [1, 2, 3, 4, 5], types=NodeTypes((), (), 18, (True,) * 3)), [[1, 2], [3, 4], [5]]),
    (partial(run, "Pad", 19, [1, 2, 3], [5, 1], mode="reflect"), [2, 1, 2, 3, 2, 1, 2, 3, 2]),
    (partial(run, "Pad", 19, [1, 2, 3], [1, -7], 9), [9]),
    (partial(run, "Range", 11, 10, -3, -4), [10, 6, 2, -2]),
    (partial(run, "ScatterElements", 18, [1, 1, 1], [0, -1, 0], [5, 6, 7], reduction="add"), [13, 1, 7]),
    (partial(run, "GatherND", 13, X, [[1], [0]], batch_dims=1), [1, 3]),
    (partial(run, "TopK", 11, [3, 1, 3, 2], [2]), [[3, 3], [0, 2]]),
    (partial(run, "TopK", 11, np.arange(3000) % 7, [3], largest=0), [[0, 0, 0], [0, 7, 14]]),
    (partial(run, "Unique", 11, [2, 1, 1, 3, 2], sorted=0), [[2, 1, 3], [0, 1, 3], [0, 1, 1, 2, 0], [2, 2, 1]]),
    # Corners stay corners, whatever scale gave the size 2.
    (partial(run, "Resize", 19, [1.0, 2.0, 3.0, 4.0], None, [0.6], mode="linear",
             coordinate_transformation_mode="align_corners"), [1, 4]),
    (partial(run, "Resize", 19, [0.0, 4.0], None, None, [4], mode="linear"), [0, 1, 3, 4]),
    (partial(run, "GridSample", 20, [[[[1.0, 3.0]]]], [[[[0.0, 0.0], [1.0, 0.0]]]]), [[[[2, 1.5]]]]),
    (partial(run, "RoiAlign", 16, [[[[0.0, 1.0], [2.0, 3.0]]]], [[0.0, 0.0, 2.0, 2.0]], [0]), [[[[1.5]]]]),
    (partial(run, "DFT", 20, [[[1.0], [0.0], [-1.0], [0.0]]], onesided=1), [[[0, 0], [2, 0], [0, 0]]]),
    (partial(run, "STFT", 17, [[1.0, 1.0, 2.0, 2.0]], 2, None, 2), [[[[2, 0], [0, 0]], [[4, 0], [0, 0]]]]),
    (partial(run, "NegativeLogLikelihoodLoss", 13, [[1.0, 2.0], [3.0, 5.0]], [1, 0], [1.0, 3.0]), -2.25),
    (partial(run, "NonMaxSuppression", 11, BOXES, [[[0.5, 0.9, 0.5]]], 9, 0.5), [[0, 0, 1], [0, 0, 2]]),
    (partial(run, "RegexFullMatch", 20, ["a1", "a1b"], pattern="[a-z][0-9]"), [True, False]),
    (partial(run, "TfIdfVectorizer", 9, ["a", "b", "a"], mode="TF", **GRAMS), [1, 2]),
    (partial(run, "LabelEncoder", 4, ["x", "q"], domain=ML, keys_strings=["x", "x"], values_int64s=[3, 4]), [3, -1]),
    (partial(run, "ZipMap", 1, [[0.5, 0.25]], domain=ML, classlabels_strings=["a", "b"]), [{"a": 0.5, "b": 0.25}]),
    (partial(run, "TreeEnsembleClassifier", 3, [[9, 0], [9, 1]], domain=ML, classlabels_strings=list("abc"), **TREE),
     [["a", "c"], [[1, 0, 0], [0, 0.25, 0.75]]]),
    # The table of one node is not that of another.
    (partial(run, "TreeEnsembleClassifier", 3, [[9, 1]], domain=ML, classlabels_int64s=[4, 5, 6],
             **copy.deepcopy(TREE) | {"class_weights": [1.0, 0.75, 0.25]}), [[5], [[0, 0.75, 0.25]]]),
    (partial(run, "Momentum", 1, 0.5, 0, [1.0], [4.0], [2.0], domain="ai.onnx.preview.training",
             alpha=0.5, beta=9.0, mode="standard", norm_coefficient=0.0), [[-1.5], [5]]),
]
# fmt: on


@pytest.mark.parametrize(("found", "expected"), CASES, ids=[c.args[0] for c, _ in CASES])
def test_results(found: partial[Any], expected: Any) -> None:
    result = found()
    assert same(result, expected), result


def test_the_type_of_a_sequence_says_what_it_holds() -> None:
    held = pickle.loads(pickle.dumps(ObjectType("sequence", DType("Int32"))))
    at = find("", "SequenceAt", 11)
    assert at is not None
    assert at.types_of(NodeTypes((held, DType("Int64")), (), 11, (True,)), {}) == (DType("Int32"),)
    with pytest.raises(ValueError, match="has no type"):
        at.types_of(NodeTypes((DType("Object"), DType("Int64")), (), 11, (True,)), {})
