"""Operators of ai.onnx.ml whose attributes contradict each other: one error that names the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError
from tests.onnx.wire_models import attribute, field, model, node, value

NAN = float("nan")
VECTORS = {
    "kernel_type": "RBF",
    "kernel_params": [0.5, 0.0, 3.0],
    "vectors_per_class": [1, 2],
    "support_vectors": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "coefficients": [1.0, -1.0, 0.5],
    "rho": [0.25],
    "classlabels_ints": [0, 1],
}
REGRESSED = {n: v for n, v in VECTORS.items() if n not in ("vectors_per_class", "classlabels_ints")}
LINEAR = {"coefficients": [1.0, 2.0, 3.0, 4.0], "intercepts": [0.5, 1.0], "classlabels_ints": [3, 4]}
GRAMS = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 0,
    "ngram_counts": [0, 2],
    "ngram_indexes": [0, 1, 2],
    "pool_int64s": [1, 2, 1, 2],
}


def built(op: str, attributes: dict[str, Any], kind: int = 1, outputs: tuple[str, ...] = ("y",)) -> bytes:
    held = [attribute(n, v) for n, v in attributes.items() if v is not None]
    made = node(op, ["x"], list(outputs), *held, domain="" if op == "TfIdfVectorizer" else "ai.onnx.ml")
    ends = [field(12, value(n)) for n in outputs]
    file = model(made, field(11, value("x", kind, (1, 2))), *ends)
    return file + field(8, field(1, "ai.onnx.ml") + field(2, 3))


REFUSED = [
    ("SVMClassifier", {**VECTORS, "kernel_type": "ODD"}, "kernel_type is 'ODD'"),
    ("SVMClassifier", {**VECTORS, "kernel_params": [1.0]}, "kernel_params has 1 entries"),
    (
        "SVMClassifier",
        {**VECTORS, "support_vectors": [1.0] * 7},
        "support_vectors has 7 entries, which are not 3 rows",
    ),
    ("SVMClassifier", {**VECTORS, "support_vectors": [1.0] * 9}, "vectors have 3 features, the input has 2"),
    ("SVMClassifier", {**VECTORS, "support_vectors": [NAN] * 6}, "not finite"),
    ("SVMClassifier", {**VECTORS, "vectors_per_class": [1, 2**62]}, "support_vectors has 6 entries"),
    ("SVMClassifier", {**VECTORS, "vectors_per_class": [3]}, "vectors_per_class has 1 entries for 2 classes"),
    (
        "SVMClassifier",
        {**VECTORS, "coefficients": [1.0, 2.0]},
        "coefficients has 2 entries, expected 1 for each of 3",
    ),
    ("SVMClassifier", {**VECTORS, "rho": None}, "rho has 0 entries, expected 1"),
    (
        "SVMClassifier",
        {**VECTORS, "prob_a": [1.0], "prob_b": [0.5, 1.0][:0] or None},
        "prob_a and prob_b have 1 and 0",
    ),
    ("SVMClassifier", {**VECTORS, "classlabels_ints": None}, "names no classes"),
    (
        "SVMClassifier",
        {
            **VECTORS,
            "vectors_per_class": [1] + [0] * 59_999,
            "classlabels_ints": list(range(60_000)),
            "support_vectors": [1.0, 2.0],
            "coefficients": [1.0] * 59_999,
        },
        "rho has 1 entries, expected 1799970000",
    ),
    (
        "SVMRegressor",
        {**REGRESSED, "n_supports": 2, "support_vectors": [1.0] * 4},
        "coefficients has 3 entries for 2",
    ),
    ("SVMRegressor", {"n_supports": 2**40, **REGRESSED}, "not 1099511627776 rows"),
    (
        "LinearClassifier",
        {**LINEAR, "coefficients": [1.0] * 5},
        "coefficients has 5 entries, expected 2 rows",
    ),
    ("LinearClassifier", {**LINEAR, "classlabels_ints": [1]}, "names 1 classes for 2 scores"),
    ("LinearRegressor", {"coefficients": [1.0], "targets": 2**40}, "expected 1099511627776 rows"),
    ("Scaler", {"scale": [1.0] * 3}, "scale has 3 entries"),
    ("Normalizer", {"norm": "L7"}, "norm is 'L7'"),
    ("Imputer", {"imputed_value_floats": []}, "0 imputed values"),
    (
        "FeatureVectorizer",
        {"inputdimensions": [2**40]},
        r"inputdimensions are \[1099511627776\], expected 0 to",
    ),
    ("FeatureVectorizer", {"inputdimensions": [-1]}, "inputdimensions are"),
    ("FeatureVectorizer", {"inputdimensions": [1, 1]}, "2 entries for 1 inputs"),
    ("OneHotEncoder", {"cats_strings": ["a", "b"]}, "names no categories of the type of its input"),
    ("OneHotEncoder", {"cats_int64s": []}, "names no categories"),
    ("LabelEncoder", {"keys_floats": [1.0, 2.0], "values_floats": [1.0]}, "2 keys and 1 values"),
    ("TfIdfVectorizer", {**GRAMS, "mode": "ODD"}, "mode is 'ODD'"),
    ("TfIdfVectorizer", {**GRAMS, "ngram_indexes": [0, 1, 2**40]}, "ngram_indexes must be numbers"),
    ("TfIdfVectorizer", {**GRAMS, "ngram_indexes": [0, 1]}, "ngram_indexes has 2 entries for 3 n-grams"),
    ("TfIdfVectorizer", {**GRAMS, "ngram_counts": [0, 9]}, "expected rising places in 4 entries of the pool"),
    ("TfIdfVectorizer", {**GRAMS, "ngram_counts": [0, 1]}, "3 entries of its pool are not whole 2-grams"),
    (
        "TfIdfVectorizer",
        {**GRAMS, "pool_int64s": None, "pool_strings": ["a"]},
        "expected rising places in 0 entries",
    ),
    ("TfIdfVectorizer", {**GRAMS, "mode": "IDF", "weights": [1.0]}, "weights has 1 entries for 3 n-grams"),
]


@pytest.mark.parametrize(("op", "attributes", "said"), REFUSED, ids=[f"{o}: {s[:40]}" for o, _, s in REFUSED])
def test_attributes_that_contradict_each_other(op: str, attributes: dict[str, Any], said: str) -> None:
    outputs = ("y", "z") if op.endswith("Classifier") else ("y",)
    with pytest.raises(EngineError, match=said) as caught:
        loadrun.run(loadrun.load(built(op, attributes, 7 if op == "TfIdfVectorizer" else 1, outputs)))
    assert f"{op} 'y'" in str(caught.value)


def test_skips_without_end_and_a_replaced_number_that_no_input_holds() -> None:
    x = np.int32([[1, 2]])
    (result,) = loadrun.run(
        loadrun.load(built("TfIdfVectorizer", {**GRAMS, "max_skip_count": 2**62}, 7)), {"x": x}
    )
    assert result["y"].tolist() == [[1, 1, 1]]
    held = {"imputed_value_int64s": [5], "replaced_value_int64": 2**40}
    (result,) = loadrun.run(loadrun.load(built("Imputer", held, 7)), {"x": np.int32([[0, 7]])})
    assert result["y"].tolist() == [[0, 7]]


def test_several_ngrams_of_one_column() -> None:
    held = {**GRAMS, "mode": "TFIDF", "ngram_indexes": [1, 1, 0], "weights": [0.5, 2.0, 4.0]}
    (result,) = loadrun.run(loadrun.load(built("TfIdfVectorizer", held, 7)), {"x": np.int32([[1, 2]])})
    assert result["y"].tolist() == [[4, 2.5]]
