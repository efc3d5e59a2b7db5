"""New tensors from sizes and bounds, and triangles of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from ...arrays.names import np
from ...graph.composite import Known, NodeTypes, TensorAttribute
from ...graph.dtypes import Array, DType, plain
from . import operator
from .common import integers, like_first, refuse_unless, tensor_type

_FAR = 2**31


def _filled(shape: Known, *, value: TensorAttribute | None = None) -> tuple[int, ...]:
    sizes = integers(shape)
    refuse_unless(min(sizes, default=0) >= 0, f"the shape {sizes} is none")
    return tuple(sizes)


@operator(
    "ConstantOfShape",
    since=9,
    out=(lambda types, a: a["value"].dtype if "value" in a else plain("Float32"),),
    shape=_filled,
)
def constant_of_shape(shape: Known, *, value: TensorAttribute | None = None) -> Array:
    """Fill a shape with one value, by default 0."""
    one = np.zeros((), np.float32) if value is None else value.value
    return np.full(_filled(shape), one.reshape(()), one.dtype)


def _square(x: Array, **attributes: object) -> tuple[int, ...]:
    refuse_unless(x.ndim == 2, f"an input of {x.ndim} axes, expected a matrix")
    return x.shape


def _eye_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    like = tensor_type(attributes["dtype"]) if "dtype" in attributes else types.inputs[0]
    assert like is not None
    return like


@operator("EyeLike", since=9, out=(_eye_type,), shape=_square)
def eye_like(x: Array, *, dtype: int | None = None, k: int = 0, types: NodeTypes) -> Array:
    """Return ones on a diagonal in the shape of a matrix."""
    rows, columns = x.shape
    return np.eye(rows, columns, min(max(k, -_FAR), _FAR), types.outputs[0].np)


def _count(start: Known, limit: Known, delta: Known, *, stash_type: int = 1) -> tuple[int]:
    first, last, step = (v.item() for v in (start, limit, delta))
    refuse_unless(step != 0, "its step is 0")
    # A quotient in float32 may be on the other side of a whole number.
    whole = isinstance(step, int)
    count = -((first - last) // step) if whole else ceil((last - first) / step)
    return (max(count, 0),)


@operator("Range", since=11, shape=_count)
def counted(start: Known, limit: Known, delta: Known, *, stash_type: int = 1) -> Array:
    """Count from a number towards another, by steps."""
    steps = np.arange(_count(start, limit, delta)[0]).astype(start.dtype)
    return start.reshape(()) + steps * delta.reshape(())


@operator("Trilu", since=14, shape=like_first)
def triangle(x: Array, k: Known | None = None, *, upper: int = 1) -> Array:
    """Keep the upper or lower triangle of matrices."""
    at = 0 if k is None else min(max(int(k.item()), -_FAR), _FAR)
    return np.triu(x, at) if upper else np.tril(x, at)
