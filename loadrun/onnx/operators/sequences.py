"""Sequences, which are lists, and optional values, None where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays.names import np
from ...graph.composite import Known, NodeTypes, ObjectType
from ...graph.dtypes import Array, DType
from . import operator
from .common import axis_of, integers, refuse_unless, tensor_type

Items = list[Any]


def _sequence(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    return ObjectType(
        "sequence", types.inputs[0] if types.inputs else tensor_type(attributes.get("dtype", 1))
    )


def _element(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    """Return the type of what the first input holds."""
    outer = types.inputs[0]
    element = outer.element if isinstance(outer, ObjectType) else None
    refuse_unless(element is not None, "what its input holds has no type")
    assert element is not None
    return element


operator("SequenceConstruct", since=11, out=(_sequence,))(lambda *xs: list(xs))
operator("SequenceEmpty", since=11, out=(_sequence,))(lambda *, dtype=1: [])


def _place(position: Array, count: int, *, behind: bool = False) -> int:
    at = int(position.item())
    at = at + count if at < 0 else at
    refuse_unless(0 <= at < count + behind, f"position {at} of {count}")
    return at


@operator("SequenceAt", since=11, out=(_element,))
def sequence_at(items: Items, position: Array) -> Any:  # noqa: ANN401 - what it holds
    """Return one element."""
    return items[_place(position, len(items))]


@operator("SequenceInsert", since=11)
def sequence_insert(items: Items, x: Any, position: Array | None = None) -> Items:  # noqa: ANN401
    """Return the sequence with one more element, by default at its end."""
    at = len(items) if position is None else _place(position, len(items), behind=True)
    return [*items[:at], x, *items[at:]]


@operator("SequenceErase", since=11)
def sequence_erase(items: Items, position: Array | None = None) -> Items:
    """Return the sequence without an element, by default the last."""
    refuse_unless(bool(items), "the sequence is empty")
    at = len(items) - 1 if position is None else _place(position, len(items))
    return items[:at] + items[at + 1 :]


operator("SequenceLength", since=11, out=("Int64",))(lambda items: np.array(len(items), np.int64))


@operator("SplitToSequence", since=11, out=(_sequence,), shape=lambda x, parts=None, axis=0, keepdims=1: ())
def split_to_sequence(x: Array, parts: Known | None = None, *, axis: int = 0, keepdims: int = 1) -> Items:
    """Cut an axis into parts: single entries, parts of one size, or parts of their own sizes each."""
    axis = axis_of(axis, x.ndim)
    n = x.shape[axis]
    if parts is None and not keepdims:
        return [np.take(x, i, axis) for i in range(n)]
    each = 1 if parts is None else int(parts.item()) if not parts.ndim else 0
    if parts is None or not parts.ndim:
        refuse_unless(each > 0, f"parts of {each}")
        ends = list(range(each, n, each))
    else:
        sizes = integers(parts)
        fits = min(sizes, default=0) >= 0 and sum(sizes) == n
        refuse_unless(fits, f"parts of {sizes} do not make up the {n} of axis {axis}")
        ends = np.cumsum(sizes)[:-1].tolist()
    return np.split(x, ends, axis) if n or ends else []


@operator("ConcatFromSequence", since=11, out=(_element,))
def concat_from_sequence(items: Items, *, axis: int, new_axis: int = 0) -> Array:
    """Join the elements along an axis, or along a new one."""
    refuse_unless(bool(items), "the sequence is empty")
    if new_axis:
        return np.stack(items, axis_of(axis, items[0].ndim + 1))
    return np.concatenate(items, axis_of(axis, items[0].ndim))


# Optional values


def _optional(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    return ObjectType("optional", types.inputs[0] if types.inputs else attributes.get("type"))


@operator("Optional", since=15, out=(_optional,))
def optional(x: Any = None, *, type: DType | None = None) -> Any:  # noqa: ANN401
    """Return the value itself, or none."""
    return x


@operator("OptionalHasElement", since=15, out=("Bool",))
def optional_has_element(x: Any = None) -> Array:  # noqa: ANN401
    """Tell whether there is a value."""
    return np.array(x is not None)


def _given(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    """Return the type of an optional value; one that is no optional is given itself."""
    outer = types.inputs[0]
    assert outer is not None
    optional = isinstance(outer, ObjectType) and outer.kind == "optional"
    return _element(types, attributes) if optional else outer


@operator("OptionalGetElement", since=15, out=(_given,))
def optional_get_element(x: Any) -> Any:  # noqa: ANN401
    """Return the value, which must be there."""
    refuse_unless(x is not None, "the optional value has no element")
    return x
