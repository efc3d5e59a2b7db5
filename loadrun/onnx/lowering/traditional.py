"""The few operators of ai.onnx.ml that compute with numbers."""

from __future__ import annotations

import numpy as np

from ... import params as P
from ...imperative import Tensor, const
from ...imperative import emit as e
from ..call import NodeCall, lower
from ..values import FLOAT, UnsupportedNodeError, Value, graph_type
from .linalg import gemm
from .parts import M, cast, const_like

__all__: list[str] = []

_ML = "ai.onnx.ml"


@lower("ArrayFeatureExtractor", domain=_ML)
def _extract(c: NodeCall) -> Tensor:
    x = c.t(0)
    return e.gather(x, [(x.ndim - 1, e.flat(cast(c.t(1), "int32")))])


@lower("Binarizer", domain=_ML)
def _binarize(c: NodeCall) -> Tensor:
    x = c.t(0)
    above = e.compare(P.ElemwiseMultiTypeMode.LT, const_like(c.real("threshold"), x), x)
    return cast(above, x._dtype)


@lower("Scaler", domain=_ML)
def _scale(c: NodeCall) -> Value:
    x = cast(c.t(0), "float32")
    offset, scale = (
        const(np.array(c.floats(n) or [d], np.float32)) for n, d in (("offset", 0.0), ("scale", 1.0))
    )
    return Value(FLOAT, e.elem(M.MUL, e.elem(M.SUB, x, offset), scale))


@lower("LinearRegressor", domain=_ML)
def _regress(c: NodeCall) -> Value:
    if c.text("post_transform", "NONE") != "NONE":
        raise UnsupportedNodeError("its post_transform cannot be expressed")
    x = cast(c.t(0), "float32")
    targets = c.number("targets", 1)
    w = np.array(c.floats("coefficients") or [], np.float32).reshape(targets, -1)
    bias = c.floats("intercepts")
    added = const(np.array(bias, np.float32)) if bias else None
    return Value(FLOAT, gemm(x, const(w), added, turn_y=True))


@lower("Normalizer", domain=_ML)
def _normalize(c: NodeCall) -> Value:
    x = cast(c.t(0), "float32")
    last = [x.ndim - 1]
    norm = c.text("norm", "MAX")
    size = e.elem(M.ABS, x) if norm != "L2" else e.elem(M.SQUARE, x)
    mode = P.ReduceMode.MAX if norm == "MAX" else P.ReduceMode.SUM
    total = e.add_axes(e.reduce(size, mode, last), last)
    total = e.elem(M.SQRT, total) if norm == "L2" else total
    return Value(FLOAT, e.elem(M.TRUE_DIV, x, total))


@lower("LabelEncoder", domain=_ML)
def _encode(c: NodeCall) -> Value:
    """Numbers replaced by numbers, one comparison each."""
    x = c.t(0)
    if any(n in c.attributes for n in ("keys_strings", "values_strings", "keys_tensor", "values_tensor")):
        keys, values = (_table(c, n) for n in ("keys_tensor", "values_tensor"))
        stored = c.tensor("default_tensor")
        default = c.importer.stored(stored) if stored is not None else None
        first = default.array.reshape(-1)[0] if default is not None and default.array is not None else 0
        kind = values.kind
        table = values.array
    else:
        keys = Value(c.kind(0), array=np.array(c.floats("keys_floats") or c.ints("keys_int64s") or []))
        whole = c.ints("values_int64s")
        kind = 7 if whole is not None else FLOAT
        table = np.array(whole if whole is not None else c.floats("values_floats"))
        first = c.number("default_int64", -1) if whole is not None else c.real("default_float", -0.0)
    if keys.array is None or table is None or keys.array.size > 1024:
        raise UnsupportedNodeError("its table cannot be expressed; up to 1024 numbers can")
    y = e.full(const(np.asarray(first), graph_type(kind)), x.shape)
    for key, value in zip(keys.array.tolist(), table.tolist(), strict=True):
        same = e.is_nan(x) if key != key else e.compare(P.ElemwiseMultiTypeMode.EQ, x, const_like(key, x))
        y = e.where(same, const_like(value, y), y)
    return Value(kind, y)


def _table(c: NodeCall, name: str) -> Value:
    stored = c.tensor(name)
    if stored is None:
        raise UnsupportedNodeError("its table holds text, of which MegEngine has none")
    return c.importer.stored(stored)
