"""Operators of ai.onnx.ml that scale, encode and weigh features."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...graph.dtypes import Array
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from ..call import NodeCall, lower
from ..tensors import STRING
from ..values import FLOAT, INT64, Unheld, UnsupportedNodeError, Value, checked, graph_type
from . import M, cast, const_like
from .linalg import gemm
from .scores import (
    Labels,
    as_rows,
    first_largest,
    labels_of,
    larger,
    logistic,
    post_transform,
    probit,
    transformed,
)
from .text import is_text, text_of

__all__: list[str] = []

_ML = "ai.onnx.ml"
_MOST_FEATURES = 1 << 20
_EQ, _LEQ = P.ElemwiseMultiTypeMode.EQ, P.ElemwiseMultiTypeMode.LEQ


@lower("ArrayFeatureExtractor", domain=_ML)
def _extract(c: NodeCall) -> Tensor:
    x = c.t(0)
    at = e.flat(e.whole(c.t(1)))
    positions = c.value(1).constant()
    there = static_shape(x)[-1] if x.ndim else 0
    if positions is not None and positions.size and not (positions.min() >= 0 and positions.max() < there):
        raise UnsupportedNodeError(f"it reads the features {positions.min()} to {positions.max()} of {there}")
    if x.ndim == 1:
        x = e.add_axes(x, [0])
    return e.gather(x, [(x.ndim - 1, at)])


@lower("Binarizer", domain=_ML)
def _binarize(c: NodeCall) -> Tensor:
    x = c.t(0)
    above = e.compare(P.ElemwiseMultiTypeMode.LT, const_like(c.real("threshold"), x), x)
    return cast(above, dtype_of(x))


@lower("Scaler", domain=_ML)
def _scale(c: NodeCall) -> Value:
    x = cast(c.t(0), "float32")
    features = static_shape(x)[0 if x.ndim == 1 else 1] if x.ndim else 0
    parts = []
    for name, default in (("offset", 0.0), ("scale", 1.0)):
        values = c.floats(name) or [default]
        if len(values) not in (1, features):
            raise UnsupportedNodeError(
                f"{name} has {len(values)} entries, expected 1 or one for each of {features}"
            )
        parts.append(const(np.array(values, np.float32).reshape(-1, *[1] * max(x.ndim - 2, 0))))
    return Value(FLOAT, e.elem(M.MUL, e.elem(M.SUB, x, parts[0]), parts[1]))


@lower("Normalizer", domain=_ML)
def _normalize(c: NodeCall) -> Value:
    x = cast(c.t(0), "float32")
    last = [x.ndim - 1]
    norm = c.choice("norm", "MAX", "L1", "L2")
    size = {"MAX": x, "L1": e.elem(M.ABS, x), "L2": e.elem(M.SQUARE, x)}[norm]
    mode = P.ReduceMode.MAX if norm == "MAX" else P.ReduceMode.SUM
    total = e.add_axes(e.reduce(size, mode, last), last)
    total = e.elem(M.SQRT, total) if norm == "L2" else total
    # Rows of zeros stay zeros.
    none = e.compare(_EQ, total, const_like(0, total))
    return Value(FLOAT, e.elem(M.TRUE_DIV, x, e.elem(M.ADD, total, cast(none, "float32"))))


@lower("Imputer", domain=_ML)
def _impute(c: NodeCall) -> Tensor:
    x = c.t(0)
    kind = "int64s" if c.ints("imputed_value_int64s") is not None else "floats"
    values: Array
    if kind == "int64s":
        values = np.array(c.ints("imputed_value_int64s"), np.int64)
        gone: float = c.number("replaced_value_int64")
        values = checked(values, INT64)
    else:
        values = np.array(c.floats("imputed_value_floats") or [], np.float32)
        gone = c.real("replaced_value_float")
    if not x.ndim or not len(values):
        raise UnsupportedNodeError(f"it has {len(values)} imputed values for an input of {x.ndim} axes")
    features = static_shape(x)[0 if x.ndim == 1 else 1]
    if len(values) != features:
        values = values[:1]
    if not dtype_of(x).is_float and not -(2**31) <= gone < 2**31:
        return x
    missing = e.is_nan(x) if gone != gone else e.compare(_EQ, x, const_like(gone, x))
    return e.where(missing, const(values, dtype_of(x)), x)


@lower("FeatureVectorizer", domain=_ML)
def _vectorize(c: NodeCall) -> Value:
    sizes = c.ints("inputdimensions") or []
    if any(not 0 <= n <= _MOST_FEATURES for n in sizes):
        raise UnsupportedNodeError(f"inputdimensions are {sizes[:8]}, expected 0 to {_MOST_FEATURES}")
    if len(sizes) != len(c.inputs):
        raise UnsupportedNodeError(f"inputdimensions has {len(sizes)} entries for {len(c.inputs)} inputs")
    parts = []
    for i, size in enumerate(sizes):
        x = cast(c.t(i), "float32")
        x = e.reshape(x, (1, -1)) if x.ndim < 2 else e.reshape(x, (x.shape[0], -1))
        there = static_shape(x)[1]
        if there > size:
            x = e.subtensor(x, [(1, None, size, None, None)])
        parts.append(x)
        if there < size:
            parts.append(e.full(const(np.zeros(1, np.float32)), (x.shape[0], size - there)))
    return Value(FLOAT, e.concat(parts, 1))


# Categories


@lower("OneHotEncoder", domain=_ML)
def _one_hot(c: NodeCall) -> Value:
    if c.texts("cats_strings"):
        raise UnsupportedNodeError("its categories are text, which MegEngine does not support")
    if not c.flag("zeros", 1):
        c.importer.note("OneHotEncoder returns zeros for unknown categories, where ONNX Runtime fails")
    known = np.array(c.ints("cats_int64s") or [], np.int64)
    if not len(known):
        raise UnsupportedNodeError("it names no categories")
    # The last of equal categories counts.
    hot = np.zeros(len(known), bool)
    hot[len(known) - 1 - np.unique(known[::-1], return_index=True)[1]] = True
    inside = (known >= -(2**31)) & (known < 2**31) & hot
    x = e.add_axes(e.whole(c.t(0)), [c.t(0).ndim])
    same = cast(e.compare(_EQ, x, const(np.where(inside, known, 0).astype(np.int32))), "float32")
    return Value(FLOAT, same if inside.all() else e.elem(M.MUL, same, const(inside.astype(np.float32))))


@lower("LabelEncoder", domain=_ML)
def _encode(c: NodeCall) -> Value:
    """Map numbers to numbers: each is searched by bisection in the sorted keys."""
    if is_text(c, 0):
        return _encoded_text(c)
    x = c.t(0)
    keys, values, default, kind = _tables(c)
    if len(keys) != len(values):
        raise UnsupportedNodeError(f"it has {len(keys)} keys and {len(values)} values")
    # Of equal keys the first counts.
    table = checked(np.append(values, np.asarray(default, values.dtype)), kind)
    none_key = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), bool)
    with np.errstate(all="ignore"):
        cast_keys = keys.astype(dtype_of(x).np)
    usable = np.flatnonzero(~none_key & ((cast_keys == keys) | dtype_of(x).is_float))
    ranked, first = np.unique(cast_keys[usable], return_index=True)
    at = usable[first].astype(np.int32)
    none = len(values)
    indices = e.full(const(np.int32(none)), x.shape)
    if len(ranked):
        place = e.full(const(np.int32(0)), x.shape)
        sorted_keys = const(ranked, dtype_of(x))
        for bit in range((len(ranked) - 1).bit_length() - 1, -1, -1):
            probe = e.elem(M.ADD, place, const_like(1 << bit, place))
            inner = e.elem(M.MIN, probe, const_like(len(ranked) - 1, place))
            key = e.gather(sorted_keys, [(0, inner)])
            here = e.elem(M.AND, e.compare(_LEQ, key, x), e.compare(_EQ, inner, probe))
            place = e.where(here, probe, place)
        same = e.compare(_EQ, e.gather(sorted_keys, [(0, place)]), x)
        indices = e.where(same, e.gather(const(at), [(0, place)]), indices)
    # Before version 4 NaN equals no key in ONNX Runtime.
    if none_key.any() and dtype_of(x).is_float and c.opset >= 4:
        indices = e.where(e.is_nan(x), const_like(int(none_key.argmax()), indices), indices)
    result = e.gather(const(table, graph_type(kind)), [(0, indices)])
    return Value(kind, result)


def _encoded_text(c: NodeCall) -> Value:
    """Map text that is known when the model is loaded to numbers."""
    x = text_of(c, 0)
    if c.texts("keys_strings") is not None:
        keys = list(c.texts("keys_strings") or [])
    else:
        key_array = _table(c, "keys_tensor").array
        keys = [] if key_array is None else list(key_array.reshape(-1))
    default: Any
    names = ("values_strings", "values_int64s", "values_floats")
    if c.texts("values_strings") is not None:
        values, default, kind = (
            np.array(c.texts("values_strings"), object),
            c.text("default_string", "_Unused"),
            STRING,
        )
    elif c.ints("values_int64s") is not None:
        values, default, kind = (
            np.array(c.ints("values_int64s"), np.int64),
            c.number("default_int64", -1),
            INT64,
        )
    elif c.floats("values_floats") is not None:
        values, default, kind = (
            np.array(c.floats("values_floats"), np.float32),
            c.real("default_float", -0.0),
            FLOAT,
        )
    else:
        table, stored = _table(c, "values_tensor"), c.tensor("default_tensor")
        assert table.array is not None
        default_array = c.importer.stored(stored).array if stored is not None else None
        unused: Any = "_Unused" if table.kind == STRING else -1
        values, kind = table.array.reshape(-1), table.kind
        default = default_array.reshape(-1)[0] if default_array is not None and default_array.size else unused
    if len(keys) != len(values):
        raise UnsupportedNodeError(f"it has {len(keys)} keys and {len(values)} values ({', '.join(names)})")
    mapping: dict[str, Any] = {}
    for key, value in zip(keys, values, strict=True):
        mapping.setdefault(key, value)
    rows = [mapping.get(v, default) for v in x.flat]
    return Value(kind, array=np.array(rows, values.dtype).reshape(x.shape))


def _tables(c: NodeCall) -> tuple[Array, Array, float, int]:
    """Return keys, values, the default for other numbers, and ONNX's type of the values."""
    if any(n in c.attributes for n in ("keys_strings", "values_strings", "classes_strings")):
        raise UnsupportedNodeError("its table holds text, which MegEngine does not support")
    if any(n in c.attributes for n in ("keys_tensor", "values_tensor")):
        keys, values = (_table(c, n) for n in ("keys_tensor", "values_tensor"))
        stored = c.tensor("default_tensor")
        default = c.importer.stored(stored).array if stored is not None else None
        first = default.reshape(-1)[0] if default is not None and default.size else -1
        if STRING in (keys.kind, values.kind):
            raise UnsupportedNodeError("its table holds text, which MegEngine does not support")
        assert keys.array is not None
        assert values.array is not None
        return keys.array.reshape(-1), values.array.reshape(-1), first, values.kind
    whole_keys, whole = c.ints("keys_int64s"), c.ints("values_int64s")
    keys_held = (
        np.array(whole_keys, np.int64)
        if whole_keys is not None
        else np.array(c.floats("keys_floats") or [], np.float32)
    )
    if whole is not None:
        return keys_held, np.array(whole, np.int64), c.number("default_int64", -1), INT64
    return (
        keys_held,
        np.array(c.floats("values_floats") or [], np.float32),
        c.real("default_float", -0.0),
        FLOAT,
    )


def _table(c: NodeCall, name: str) -> Value:
    stored = c.tensor(name)
    if stored is None:
        raise UnsupportedNodeError(f"it has no {name}")
    return c.importer.stored(stored)


@lower("ZipMap", domain=_ML, foldable=False)
def _zip_map(c: NodeCall) -> Value:
    """Return the scores unchanged: ONNX would make a map of each row, with a key per column."""
    names = c.texts("classlabels_strings") or [str(n) for n in c.ints("classlabels_int64s") or []]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    c.importer.note(f"ZipMap would turn its scores into maps; they stay a tensor with the columns {shown}")
    return c.value(0)


# Linear models


def _weights(c: NodeCall, rows: int, features: int) -> Array:
    coefficients = np.array(c.floats("coefficients") or [], np.float32)
    if rows < 1 or coefficients.size != rows * features:
        raise UnsupportedNodeError(
            f"coefficients has {coefficients.size} entries, expected {rows} rows of the input's {features} features"
        )
    return coefficients.reshape(rows, features)


@lower("LinearRegressor", domain=_ML)
def _regress(c: NodeCall) -> Value:
    x = as_rows(c)
    targets = c.number("targets", 1)
    weights = _weights(c, targets, static_shape(x)[1])
    bias = c.floats("intercepts") or []
    added = const(np.array(bias, np.float32)) if len(bias) == targets else None
    y = gemm(x, const(weights), added, turn_y=True)
    post = post_transform(c)
    if targets == 1:
        return Value(FLOAT, probit(y) if post == "PROBIT" else y)
    return Value(FLOAT, transformed(y, post))


@lower("LinearClassifier", domain=_ML)
def _classify(c: NodeCall) -> tuple[Value | Unheld, Value]:
    x = as_rows(c)
    features = static_shape(x)[1]
    labels = labels_of(c, "classlabels_ints")
    bias = c.floats("intercepts") or []
    rows = len(bias) or len(c.floats("coefficients") or []) // max(features, 1)
    weights = _weights(c, rows, features)
    scores = gemm(x, const(weights), const(np.array(bias, np.float32)) if bias else None, turn_y=True)
    post = post_transform(c)
    if rows > 1:
        if labels.count < rows:
            raise UnsupportedNodeError(f"it names {labels.count} classes for {rows} scores")
        return labels.choose(first_largest(scores)), Value(FLOAT, transformed(scores, post))
    return _one_score(scores, labels, post)


def _one_score(scores: Tensor, labels: Labels, post: str) -> tuple[Value | Unheld, Value]:
    """Return labels and scores where one score tells two classes apart."""
    wins = e.drop_axes(larger(scores, 0), [1])
    if labels.count != 2:
        return labels.either(wins, (0, 1)), Value(FLOAT, probit(scores) if post == "PROBIT" else scores)
    if post == "PROBIT":
        raise UnsupportedNodeError("with post_transform PROBIT the score of its second class is undefined")
    if post == "LOGISTIC":
        pair = logistic(e.concat([e.elem(M.NEGATE, scores), scores], 1))
    else:
        pair = e.concat([e.elem(M.SUB, const_like(1, scores), scores), scores], 1)
    return labels.choose(e.whole(wins)), Value(FLOAT, pair)
