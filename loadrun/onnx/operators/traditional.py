"""Operators of ai.onnx.ml that scale, encode and weigh features."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...arrays.names import np
from ...graph.composite import NodeTypes, ObjectType, TensorAttribute
from ...graph.dtypes import Array, DType, plain
from . import operator
from .common import like_first, once, one_of, refuse_unless
from .forest import as_rows, chosen, label_type, of_both, probit, row_operator, transformed
from .kernels import matrix_product as matmul

_ML = "ai.onnx.ml"
_MOST_FEATURES = 1 << 20


@operator(
    "ArrayFeatureExtractor",
    domain=_ML,
    shape=lambda x, at: (*(x.shape[:-1] if x.ndim > 1 else (1,)), at.size),
)
def array_feature_extractor(x: Array, at: Array) -> Array:
    """Take entries of the last axis."""
    return np.take(x if x.ndim > 1 else x.reshape(1, -1), at.reshape(-1), -1)


operator("Binarizer", domain=_ML, pointwise=True)(lambda x, *, threshold=0.0: (x > threshold).astype(x.dtype))


def _floats(x: Array) -> Array:
    return x if x.dtype.kind == "f" else x.astype(np.float32)


@operator("Scaler", domain=_ML, out=("Float32",), shape=like_first)
def scaler(x: Array, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Array:
    """Subtract and multiply, by one number or one for each feature."""
    x = _floats(x)
    features = x.shape[0 if x.ndim == 1 else 1] if x.ndim else 0
    parts = []
    for name, values, default in (("offset", offset, 0.0), ("scale", scale, 1.0)):
        fits = len(values) in (0, 1, features)
        refuse_unless(fits, f"{name} has {len(values)} entries, expected 1 or one for each of {features}")
        parts.append(np.array(values or [default], x.dtype).reshape(-1, *[1] * max(x.ndim - 2, 0)))
    return (x - parts[0]) * parts[1]


@operator("Normalizer", domain=_ML, out=("Float32",), shape=like_first)
def normalizer(x: Array, *, norm: str = "MAX") -> Array:
    """Divide rows by their norm; rows of zeros stay."""
    one_of("norm", norm, "MAX", "L1", "L2")
    x = _floats(x)
    if norm == "MAX":
        total = x.max(-1, keepdims=True)
    else:
        total = (np.abs(x) if norm == "L1" else x * x).sum(-1, keepdims=True)
    total = np.sqrt(total) if norm == "L2" else total
    return x / np.where(total == 0, 1, total)


@operator("Imputer", domain=_ML, shape=like_first)
def imputer(
    x: Array,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    """Replace one value, which may be NaN, by a number, or by one for each feature."""
    whole = len(imputed_value_int64s) > 0
    values = np.array(imputed_value_int64s if whole else imputed_value_floats).astype(x.dtype)
    gone = replaced_value_int64 if whole else replaced_value_float
    refuse_unless(
        x.ndim > 0 and len(values) > 0, f"it has {len(values)} imputed values for an input of {x.ndim} axes"
    )
    if len(values) != x.shape[0 if x.ndim == 1 else 1]:
        values = values[:1]
    return np.where(x != x if gone != gone else x == gone, values, x)


@operator("FeatureVectorizer", domain=_ML, out=("Float32",))
def feature_vectorizer(*xs: Array, inputdimensions: Sequence[int] = ()) -> Array:
    """Join the features of several inputs, each cut or filled up with zeros to its size."""
    sizes = list(inputdimensions)
    fits = all(0 <= n <= _MOST_FEATURES for n in sizes)
    refuse_unless(fits, f"inputdimensions are {sizes[:8]}, expected 0 to {_MOST_FEATURES}")
    refuse_unless(len(sizes) == len(xs), f"inputdimensions has {len(sizes)} entries for {len(xs)} inputs")
    parts = []
    for x, size in zip(xs, sizes, strict=True):
        x = _floats(x)
        x = x.reshape(x.shape[0] if x.ndim > 1 else 1, -1)[:, :size]
        parts.append(np.pad(x, ((0, 0), (0, size - x.shape[1]))))
    return np.concatenate(parts, 1)


# Categories


@operator(
    "OneHotEncoder",
    domain=_ML,
    out=("Float32",),
    shape=lambda x, cats_int64s=(), cats_strings=(), zeros=1: (*x.shape, len(cats_strings or cats_int64s)),
)
def one_hot_encoder(
    x: Array, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), zeros: int = 1
) -> Array:
    """Mark the category of every element along a new last axis; the last of equal categories counts."""
    known = list(cats_strings) if x.dtype == object else list(cats_int64s)
    refuse_unless(len(known) > 0, "it names no categories of the type of its input")
    place = {category: i for i, category in enumerate(known)}
    last = np.array([place[category] == i for i, category in enumerate(known)])
    value = x if x.dtype == object else x.astype(np.int64)
    hot = (value[..., None] == np.array(known, value.dtype)) & last
    if not zeros:
        refuse_unless(bool(hot.any(-1).all()), "an element is of no category, which its zeros = 0 forbids")
    return hot.astype(np.float32)


def _encoded(x: Array, keys: Array, values: Array, default: Any) -> Array:  # noqa: ANN401 - of any type
    """Map keys to values, each to that of the first of equal keys."""
    refuse_unless(len(keys) == len(values), f"it has {len(keys)} keys and {len(values)} values")
    refuse_unless(
        (keys.dtype == object) == (x.dtype == object), f"its keys are {keys.dtype}, its input is {x.dtype}"
    )
    table = np.append(values, np.array([default], values.dtype))
    if not len(keys):
        return np.full(x.shape, table[-1], table.dtype)
    if x.dtype == object:
        places = {key: i for i, key in reversed(list(enumerate(keys.tolist())))}
        at = np.array([places.get(v, len(keys)) for v in x.flat], np.int64).reshape(x.shape)
    else:
        ranked, first = np.unique(keys, return_index=True)
        place = np.searchsorted(ranked, x).clip(0, len(ranked) - 1)
        nearest = ranked[place]
        at = np.where((nearest == x) | ((nearest != nearest) & (x != x)), first[place], len(keys))
    return table[at]


def _table(
    texts: Sequence[str],
    whole: Sequence[int],
    real: Sequence[float],
    stored: TensorAttribute | None,
    what: str,
) -> Array:
    """Return keys or values, of the type for which some are given."""
    if stored is not None:
        return stored.value.reshape(-1)
    refuse_unless(bool(texts or whole or real), f"it has no {what}")
    if texts:
        return np.array(texts, object)
    return np.array(whole, np.int64) if whole else np.array(real, np.float32)


def _value_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    stored = attributes.get("values_tensor")
    if stored is not None:
        kind: DType = stored.dtype
        return kind
    kinds = {"values_strings": "String", "values_int64s": "Int64"}
    return plain(next((kind for name, kind in kinds.items() if attributes.get(name)), "Float32"))


@operator("LabelEncoder", domain=_ML, since=2, out=(_value_type,), shape=like_first)
def label_encoder(
    x: Array,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: TensorAttribute | None = None,
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (),
    keys_tensor: TensorAttribute | None = None,
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[str] = (),
    values_tensor: TensorAttribute | None = None,
) -> Array:
    """Map keys to values, and all others to a default."""
    keys = _table(keys_strings, keys_int64s, keys_floats, keys_tensor, "keys")
    values = _table(values_strings, values_int64s, values_floats, values_tensor, "values")
    if default_tensor is not None and default_tensor.value.size:
        default: Any = default_tensor.value.reshape(-1)[0]
    elif values.dtype == object:
        default = default_string
    elif values_tensor is not None:
        default = -1
    else:
        default = default_int64 if values.dtype.kind == "i" else default_float
    return _encoded(x, keys, values, default)


@operator(
    "LabelEncoder",
    domain=_ML,
    out=(lambda types, a: plain("Int64" if types.inputs[0] == plain("String") else "String"),),
    shape=like_first,
)
def label_encoder_1(
    x: Array, *, classes_strings: Sequence[str] = (), default_int64: int = -1, default_string: str = "_Unused"
) -> Array:
    """Map texts to their places in a list, or places to texts."""
    texts, places = np.array(classes_strings, object), np.arange(len(classes_strings))
    if x.dtype == object:
        return _encoded(x, texts, places, default_int64)
    return _encoded(x, places, texts, default_string)


@operator("ZipMap", domain=_ML, out=(lambda types, attributes: ObjectType("sequence", ObjectType("map")),))
def zip_map(
    x: Array, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = ()
) -> list[dict[Any, float]]:
    """Return a map of every row, from labels to numbers."""
    labels = list(classlabels_strings or classlabels_int64s)
    rows = x.reshape(-1, x.shape[-1])
    refuse_unless(len(labels) == rows.shape[1], f"it names {len(labels)} labels for {rows.shape[1]} columns")
    return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]


# Linear models


def _weights(coefficients: Sequence[float], rows: int, x: Array) -> Array:
    features = x.shape[1]
    refuse_unless(
        rows > 0 and len(coefficients) == rows * features,
        f"coefficients has {len(coefficients)} entries, expected {rows} rows of the input's {features} features",
    )
    return once(coefficients, x.dtype.name, lambda: np.array(coefficients, x.dtype)).reshape(rows, features).T


@row_operator("LinearRegressor")
def linear_regressor(
    x: Array,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Array:
    """Weigh features, for each target."""
    x = as_rows(x)
    y = matmul(x, _weights(coefficients, targets, x))
    y = y + np.array(intercepts, x.dtype) if len(intercepts) == targets else y
    if targets == 1:
        return probit(y) if post_transform == "PROBIT" else y
    return transformed(y, post_transform)


@row_operator("LinearClassifier", out=(label_type, "Float32"))
def linear_classifier(
    x: Array,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """Weigh features, for each class, and choose the class with the largest score."""
    x = as_rows(x)
    rows = len(intercepts) or len(coefficients) // max(x.shape[1], 1)
    scores = matmul(x, _weights(coefficients, rows, x))
    scores = scores + np.array(intercepts, x.dtype) if intercepts else scores
    count = len(classlabels_strings or classlabels_ints)
    if rows > 1:
        refuse_unless(count >= rows, f"it names {count} classes for {rows} scores")
        label = chosen(scores.argmax(1), classlabels_ints, classlabels_strings)
        return label, transformed(scores, post_transform)
    # One score tells two classes apart.
    wins = (scores[:, 0] > 0).astype(np.int64)
    if count != 2:
        refuse_unless(not classlabels_strings, "its single class is a text: no label says that it is none")
        return wins, probit(scores) if post_transform == "PROBIT" else scores
    label = chosen(wins, classlabels_ints, classlabels_strings)
    return label, of_both(scores, 1 - scores, post_transform)
