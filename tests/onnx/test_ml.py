"""Operators of ai.onnx.ml against ONNX Runtime's own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loadrun

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
KINDS = {"float32": 1, "float64": 11, "int64": 7, "int32": 6}


def model(
    op: str,
    x: np.ndarray,
    outputs: tuple[int, ...] = (1,),
    version: int = 3,
    domain: str = "ai.onnx.ml",
    **attributes: Any,
) -> bytes:
    """A model of one node; its outputs are y0, y1 ... of these types."""
    h = onnx.helper
    names = [f"y{i}" for i in range(len(outputs))]
    node = h.make_node(op, ["x"], names, domain=domain, **attributes)
    feed = h.make_tensor_value_info("x", KINDS[x.dtype.name], ["N", *x.shape[1:]])
    ends = [h.make_tensor_value_info(n, k, None) for n, k in zip(names, outputs, strict=True)]
    opsets = [h.make_opsetid("", 18), h.make_opsetid("ai.onnx.ml", version)]
    graph = h.make_graph([node], "g", [feed], ends)
    return h.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def compare(data: bytes, x: np.ndarray) -> list[str]:
    """Hold what loadrun gives against ONNX Runtime; gives the warnings of loading."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})
    bundle = loadrun.load(data)
    (result,) = loadrun.run(bundle, {"x": x.astype(bundle.inputs[0].owner.tensors[0].dtype.np)})
    assert result.message is None
    for output, want in zip(session.get_outputs(), expected, strict=True):
        got = np.asarray(result[output.name])
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return bundle.warnings


class Grown:
    """Random trees: lists of attributes for their nodes, and weights of their leaves."""

    def __init__(self, rng: np.random.Generator, trees: int, modes: tuple[str, ...], missing: bool) -> None:
        self.rng, self.modes, self.missing = rng, modes, missing
        names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
        self.nodes: dict[str, list[Any]] = {f"nodes_{n}": [] for n in names}
        self.tracks: list[int] = []
        self.leaves: list[tuple[int, int]] = []
        for tree in range(trees):
            self.count = 0
            self.grow(tree, 4)

    def grow(self, tree: int, depth: int) -> int:
        own, at = self.count, len(self.tracks)
        self.count += 1
        leaf = not depth or (depth < 4 and self.rng.random() < 0.2)
        mode = "LEAF" if leaf else str(self.rng.choice(self.modes))
        split = float(np.round(self.rng.standard_normal() * 2) / 2)
        for values, value in zip(
            self.nodes.values(), (tree, own, int(self.rng.integers(3)), mode, split, 0, 0), strict=True
        ):
            values.append(value)
        self.tracks.append(int(self.missing and self.rng.random() < 0.5))
        if leaf:
            self.leaves.append((tree, own))
        else:
            self.nodes["nodes_truenodeids"][at] = self.grow(tree, depth - 1)
            self.nodes["nodes_falsenodeids"][at] = self.grow(tree, depth - 1)
        return own

    def attributes(self, prefix: str, targets: list[list[int]], positive: bool) -> dict[str, Any]:
        """All attributes; `targets` are those that the leaves of each tree count for."""
        rows = [(t, n, c) for t, n in self.leaves for c in targets[t]]
        weights = self.rng.standard_normal(len(rows)).astype(np.float32)
        found: dict[str, Any] = dict(self.nodes)
        if self.missing:
            found["nodes_missing_value_tracks_true"] = self.tracks
        names = (f"{prefix}_treeids", f"{prefix}_nodeids", f"{prefix}_ids")
        found |= {n: list(v) for n, v in zip(names, zip(*rows, strict=True), strict=True)}
        found[f"{prefix}_weights"] = (np.abs(weights) / len(targets) if positive else weights).tolist()
        return found


def samples(rng: np.random.Generator, missing: bool, dtype: str = "float32") -> np.ndarray:
    """Numbers on the grid on which the thresholds lie, so that some are equal."""
    x = np.round(rng.standard_normal((60, 3)) * 2) / 2
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    return x.astype(dtype)


TARGETS = {
    "one": lambda trees: [[0]] * trees,
    "all": lambda trees: [[0, 1, 2]] * trees,
    "in turns": lambda trees: [[t % 3] for t in range(trees)],
    "unevenly": lambda trees: [[0] if t < 4 else [2] for t in range(trees)],
    "some": lambda trees: [[t % 3, 2] if t % 3 != 2 else [2] for t in range(trees)],
}


@pytest.mark.parametrize("modes", [*((m,) for m in MODES), MODES], ids=[*MODES, "mixed"])
@pytest.mark.parametrize("missing", [False, True])
def test_modes_of_nodes(modes: tuple[str, ...], missing: bool) -> None:
    rng = np.random.default_rng(3)
    grown = Grown(rng, 9, modes, missing)
    attributes = grown.attributes("class", TARGETS["all"](9), False)
    for dtype in ("float32", "int64", "int32"):
        x = samples(rng, missing and dtype == "float32", dtype)
        compare(model("TreeEnsembleClassifier", x, (7, 1), classlabels_int64s=[0, 1, 2], **attributes), x)


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_targets_and_aggregates(targets: str, how: str) -> None:
    rng = np.random.default_rng(5)
    grown = Grown(rng, 9, ("BRANCH_LEQ",), False)
    attributes = grown.attributes("target", TARGETS[targets](9), False)
    x = samples(rng, False)
    for base in ((), (0.5, -0.25, 2.0)):
        given = {"base_values": list(base)} if base else {}
        data = model("TreeEnsembleRegressor", x, n_targets=3, aggregate_function=how, **attributes, **given)
        compare(data, x)


@pytest.mark.parametrize("post", [*POSTS, "PROBIT"])
def test_transforms_of_scores(post: str) -> None:
    rng = np.random.default_rng(6)
    grown = Grown(rng, 3, ("BRANCH_LT",), True)
    x = samples(rng, True)
    for targets, count in (("one", 1), ("all", 3)):
        attributes = grown.attributes("target", TARGETS[targets](3), True)
        data = model("TreeEnsembleRegressor", x, n_targets=count, post_transform=post, **attributes)
        compare(data, x)


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("post", POSTS)
def test_classes(targets: str, post: str) -> None:
    rng = np.random.default_rng(8)
    grown = Grown(rng, 9, ("BRANCH_LEQ", "BRANCH_GT"), True)
    attributes = grown.attributes("class", TARGETS[targets](9), False)
    x = samples(rng, True)
    for labels in ([0, 1, 2], [7, -3, 40]):
        for base in ((), (0.5, -0.25, 0.0)):
            given = {"base_values": list(base)} if base else {}
            data = model(
                "TreeEnsembleClassifier",
                x,
                (7, 1),
                classlabels_int64s=labels,
                post_transform=post,
                **attributes,
                **given,
            )
            compare(data, x)


@pytest.mark.parametrize("classes", [[0], [1], [0, 1]])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("post", POSTS)
def test_two_classes(classes: list[int], positive: bool, post: str) -> None:
    rng = np.random.default_rng(9)
    grown = Grown(rng, 5, ("BRANCH_LEQ",), False)
    x = samples(rng, False)
    attributes = grown.attributes("class", [classes] * 5, positive)
    for base in ((), (0.125,), (0.25, -0.5)):
        given = {"base_values": list(base)} if base else {}
        data = model(
            "TreeEnsembleClassifier",
            x,
            (7, 1),
            classlabels_int64s=[3, 8],
            post_transform=post,
            **attributes,
            **given,
        )
        compare(data, x)


def test_two_classes_of_which_samples_decide_how_many_count() -> None:
    rng = np.random.default_rng(10)
    grown = Grown(rng, 1, ("BRANCH_LEQ",), False)
    x = samples(rng, False)
    attributes = grown.attributes("class", [[0, 1]], False)
    kept = [i for i, c in enumerate(attributes["class_ids"]) if c == 0 or i % 4 == 1]
    for name in ("class_treeids", "class_nodeids", "class_ids", "class_weights"):
        attributes[name] = [attributes[name][i] for i in kept]
    for post in POSTS:
        data = model(
            "TreeEnsembleClassifier", x, (7, 1), classlabels_int64s=[0, 1], post_transform=post, **attributes
        )
        compare(data, x)


def test_one_class_gives_one_and_zero() -> None:
    rng = np.random.default_rng(11)
    attributes = Grown(rng, 2, ("BRANCH_LEQ",), False).attributes("class", [[0]] * 2, False)
    x = samples(rng, False)
    compare(model("TreeEnsembleClassifier", x, (7, 1), classlabels_int64s=[5], **attributes), x)


def test_numbers_of_64_bits() -> None:
    rng = np.random.default_rng(12)
    attributes = Grown(rng, 9, ("BRANCH_LEQ", "BRANCH_EQ"), True).attributes("target", [[0]] * 9, False)
    x = samples(rng, True, "float64")
    for name in ("nodes_values", "target_weights"):
        values = np.array(attributes.pop(name), np.float64)
        attributes[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(values)
    compare(model("TreeEnsembleRegressor", x, n_targets=1, **attributes), x)


# Linear models and vector machines


def numbers(rng: np.random.Generator, *shape: int) -> list[float]:
    return rng.standard_normal(shape).astype(np.float32).ravel().tolist()


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_linear_models(post: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((20, 3)).astype(np.float32)
    weights, bias = numbers(rng, rows, 3), numbers(rng, rows)
    data = model(
        "LinearRegressor", x, targets=rows, coefficients=weights, intercepts=bias, post_transform=post
    )
    compare(data, x)
    for dtype in ("float32", "float64", "int64"):
        fed = np.round(x * 2).astype(dtype)
        data = model(
            "LinearClassifier",
            fed,
            (7, 1),
            coefficients=weights,
            intercepts=bias,
            classlabels_ints=[4, 9, 1, 3][: max(rows, 2)],
            post_transform=post,
        )
        compare(data, fed)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("degree", [2.0, 3.0, 4.0])
def test_kernels(kernel: str, degree: float) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((20, 3)).astype(np.float32)
    for one in (0, 1):
        data = model(
            "SVMRegressor",
            x,
            kernel_type=kernel,
            kernel_params=[0.3, 0.5, degree],
            n_supports=6,
            support_vectors=numbers(rng, 6, 3),
            coefficients=numbers(rng, 6),
            rho=numbers(rng, 1),
            one_class=one,
        )
        compare(data, x)


def test_distances_far_from_zero() -> None:
    # Squares and products of numbers around 100 have lost the digits that decide here.
    rng = np.random.default_rng(2)
    x = (100 + rng.standard_normal((20, 4))).astype(np.float32)
    data = model(
        "SVMRegressor",
        x,
        kernel_type="RBF",
        kernel_params=[0.5, 0.0, 0.0],
        n_supports=6,
        support_vectors=(100 + rng.standard_normal((6, 4))).astype(np.float32).ravel().tolist(),
        coefficients=numbers(rng, 6),
        rho=[0.0],
    )
    compare(data, x)


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("probable", [False, True])
def test_vector_machines(post: str, count: int, probable: bool) -> None:
    rng = np.random.default_rng(count)
    x = rng.standard_normal((30, 3)).astype(np.float32)
    per = [2, 1, 3, 1, 2][:count]
    pairs = count * (count - 1) // 2
    given: dict[str, Any] = {}
    if probable:
        given = {"prob_a": [-1.5 - 0.1 * i for i in range(pairs)], "prob_b": numbers(rng, pairs)}
    data = model(
        "SVMClassifier",
        x,
        (7, 1),
        kernel_type="RBF",
        kernel_params=[0.3, 0.0, 3.0],
        vectors_per_class=per,
        support_vectors=numbers(rng, sum(per), 3),
        coefficients=numbers(rng, count - 1, sum(per)),
        rho=numbers(rng, pairs),
        classlabels_ints=[11, 5, 7, 0, 2][:count],
        post_transform=post,
        **given,
    )
    compare(data, x)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("positive", [False, True])
def test_vector_machines_without_vectors(count: int, positive: bool) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((30, 3)).astype(np.float32)
    weights = np.float32(numbers(rng, count, 3))
    data = model(
        "SVMClassifier",
        x,
        (7, 1),
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        coefficients=(np.abs(weights) if positive else weights).tolist(),
        rho=[0.25],
        classlabels_ints=[11, 5, 7][:count],
    )
    compare(data, x)


def test_a_vector_is_one_sample() -> None:
    x = np.float32([0.5, -1, 2])
    data = model(
        "LinearClassifier",
        x,
        (7, 1),
        coefficients=[1.0, 2, 3] * 2,
        intercepts=[1.0, 2],
        classlabels_ints=[4, 5],
    )
    made = onnx.load_from_string(data)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    compare(made.SerializeToString(), x)


# Features


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_scaling(dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = np.round(rng.standard_normal((6, 4)) * 3).astype(dtype)
    x[2] = 0
    for norm in ("MAX", "L1", "L2"):
        compare(model("Normalizer", x, norm=norm), x)
    for n in (1, 4):
        compare(model("Scaler", x, offset=numbers(rng, n), scale=numbers(rng, n)), x)
    for sizes in ([4], [6], [2]):
        compare(model("FeatureVectorizer", x, inputdimensions=sizes), x)
    for categories in ([3, -1, 0, 5], [2, 0, 2]):
        compare(model("OneHotEncoder", x, cats_int64s=categories), x)


def test_imputing() -> None:
    x = np.float32([[0, np.nan, 2], [np.nan, 1, 0], [3, 0, np.nan]])
    for values in ([9.0], [7.0, 8.0, 9.0], [7.0, 8.0]):
        for gone in (float("nan"), 0.0):
            compare(model("Imputer", x, imputed_value_floats=values, replaced_value_float=gone), x)
    whole = np.int64([[0, 1, 2], [2, 1, 0]])
    compare(model("Imputer", whole, (7,), imputed_value_int64s=[5, 6, 7], replaced_value_int64=0), whole)


def test_encoding_labels() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 3, 7, 300):
        keys = rng.integers(-5, 2 * count, count).tolist()
        whole = rng.integers(-6, 2 * count + 1, (9, 3))
        values = rng.integers(0, 99, count).tolist()
        data = model("LabelEncoder", whole, (7,), 2, keys_int64s=keys, values_int64s=values, default_int64=-7)
        compare(data, whole)
        x = whole.astype(np.float32)
        floats = [float(k) for k in keys]
        data = model("LabelEncoder", x, (1,), 2, keys_floats=floats, values_floats=numbers(rng, count))
        compare(data, x)
        x[0, 0] = np.nan
        keys_values = {"keys_floats": [*floats, float("nan")], "values_int64s": [*values, 123]}
        compare(model("LabelEncoder", x, (7,), 4, **keys_values, default_int64=3), x)


# Text


def forest_of_labels(labels: dict[str, Any], zipped: bool = False) -> bytes:
    """A classifier with labels of any kind, whose scores may become maps."""
    h = onnx.helper
    attributes = Grown(np.random.default_rng(1), 3, ("BRANCH_LEQ",), False).attributes(
        "class", [[0, 1, 2]] * 3, False
    )
    strings = labels.get("classlabels_strings")
    node = h.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", **attributes, **labels
    )
    nodes = [node]
    ends = [h.make_tensor_value_info("label", 8 if strings else 7, None)]
    if zipped:
        nodes.append(h.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", **labels))
        of = h.make_map_type_proto(8 if strings else 7, h.make_tensor_type_proto(1, None))
        ends.append(h.make_value_info("maps", h.make_sequence_type_proto(of)))
    else:
        ends.append(h.make_tensor_value_info("scores", 1, None))
    feed = h.make_tensor_value_info("x", 1, ["N", 3])
    opsets = [h.make_opsetid("", 18), h.make_opsetid("ai.onnx.ml", 3)]
    graph = h.make_graph(nodes, "g", [feed], ends)
    return h.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def test_labels_of_text() -> None:
    h = onnx.helper
    data = onnx.load_from_string(forest_of_labels({"classlabels_strings": ["a", "b", "c"]}))
    data.graph.node.append(h.make_node("Shape", ["label"], ["size"]))
    data.graph.output.append(h.make_tensor_value_info("size", 7, None))
    x = samples(np.random.default_rng(2), False)
    (result,) = loadrun.run(loadrun.load(data.SerializeToString()), {"x": x})
    labels, scores, size = ort.InferenceSession(data.SerializeToString()).run(None, {"x": x})
    assert result["label"].tolist() == labels.tolist()
    assert result["size"].tolist() == size.tolist()
    np.testing.assert_allclose(result["scores"], scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("labels", [["a", "b", "c"], [4, 5, 9]])
def test_maps_are_compared_as_columns(labels: list[Any]) -> None:
    name = "classlabels_strings" if labels[0] == "a" else "classlabels_int64s"
    data = forest_of_labels({name: labels}, zipped=True)
    x = samples(np.random.default_rng(2), False)
    (result,) = loadrun.run(loadrun.load(data), {"x": x})
    (maps,) = ort.InferenceSession(data).run(["maps"], {"x": x})
    want = [[row[k] for k in labels] for row in maps]
    np.testing.assert_allclose(result["maps"], want, rtol=1e-5, atol=1e-6)


# n-grams


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 3), (2, 3), (3, 3)])
@pytest.mark.parametrize("skips", [0, 2, 50])
def test_ngrams(mode: str, lengths: tuple[int, int], skips: int) -> None:
    rng = np.random.default_rng(1)
    pool = [1, 2, 3, 1, 2, 2, 3, 3, 1, 1, 2, 3, 2, 2, 2]
    for length in (0, 1, 2, 9):
        x = rng.integers(1, 5, (4, length))
        data = model(
            "TfIdfVectorizer",
            x,
            domain="",
            mode=mode,
            min_gram_length=lengths[0],
            max_gram_length=lengths[1],
            max_skip_count=skips,
            ngram_counts=[0, 3, 9],
            ngram_indexes=[9, 6, 0, 1, 2, 3, 4, 5],
            pool_int64s=pool,
            weights=numbers(rng, 8),
        )
        compare(data, x)
