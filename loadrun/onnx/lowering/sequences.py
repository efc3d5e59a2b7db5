"""Sequences and optional values, which are resolved while the graph is made."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...build import emit as e
from ...build.layers.sizes import joined
from ...ops.registry import check_recorded
from ..call import NodeCall, front, lower
from ..values import ABSENT, BOOL, INT64, Bound, Items, UnsupportedNodeError, Value
from .control import _stacked, index_value
from .shapes import sliced

__all__: list[str] = []


@lower("SequenceConstruct", foldable=False)
def _construct(c: NodeCall) -> Items:
    return [c.value(i) for i in range(len(c.inputs))]


@lower("SequenceEmpty", foldable=False)
def _empty(c: NodeCall) -> Items:
    return []


def _place(c: NodeCall, i: int, count: int, *, behind: bool = False) -> int:
    at = int(c.constant(i, "position").reshape(-1)[0])
    at = at + count if at < 0 else at
    if not 0 <= at < count + behind:
        raise UnsupportedNodeError(f"position {at} of {count}")
    return at


@lower("SequenceAt", foldable=False)
def _at(c: NodeCall) -> Value:
    items = c.items(0)
    return items[_place(c, 1, len(items))]


@lower("SequenceInsert", foldable=False)
def _insert(c: NodeCall) -> Items:
    items = list(c.items(0))
    items.insert(_place(c, 2, len(items), behind=True) if c.has(2) else len(items), c.value(1))
    return items


@lower("SequenceErase", foldable=False)
def _erase(c: NodeCall) -> Items:
    items = list(c.items(0))
    del items[_place(c, 1, len(items)) if c.has(1) else -1]
    return items


@lower("SequenceLength", foldable=False)
def _length(c: NodeCall) -> Value:
    return Value(INT64, array=np.array(len(c.items(0)), np.int64))


@lower("SplitToSequence", foldable=False)
def _split(c: NodeCall) -> Items:
    value = c.value(0)
    axis = front(c.number("axis"), value.rank)
    if value.constant() is None and e.fluid(value.stored):
        c.importer.ask_value(value.stored)
        raise UnsupportedNodeError(
            f"into how many parts it is split depends on data, which decide axis {axis}"
        )
    n = value.numbers[axis]
    if not c.has(1):
        check_recorded(n)
        parts = [index_value(value, axis, i) for i in range(n)]
        if not c.flag("keepdims", 1):
            return parts
        if value.constant() is not None:
            return [Value(p.kind, array=np.expand_dims(p.array, axis)) for p in parts if p.array is not None]
        return [Value(value.kind, e.add_axes(p.tensor, [axis])) for p in parts]
    lengths = c.constant(1, "sizes of the parts")
    sizes = [int(v) for v in lengths.reshape(-1)]
    if lengths.ndim == 0:
        each = sizes[0]
        if each < 1:
            raise UnsupportedNodeError(f"parts of {each}")
        check_recorded(n // each)
        sizes = [min(each, n - at) for at in range(0, n, each)]
    check_recorded(len(sizes))
    result, at = [], 0
    for size in sizes:
        result.append(Value(value.kind, sliced(value.tensor, axis, at, at + size)))
        at += size
    return result


@lower("ConcatFromSequence", foldable=False)
def _concat(c: NodeCall) -> Value:
    items = c.items(0)
    if not items:
        raise UnsupportedNodeError("the sequence is empty")
    if c.flag("new_axis"):
        return _stacked(items, c.number("axis"))
    return Value(items[0].kind, joined([v.tensor for v in items], front(c.number("axis"), items[0].rank)))


@lower("SequenceMap", foldable=False)
def _map(c: NodeCall) -> tuple[Any, ...]:
    body = c.graph("body")
    count = len(c.items(0))
    rows = []
    for i in range(count):
        inputs = [v[i] if isinstance(v, list) else v for v in c.inputs]
        rows.append(c.run_graph(body, inputs))
    if not rows:
        return tuple([] for _ in body.outputs)
    return tuple(list(column) for column in zip(*rows, strict=True))


@lower("Optional", foldable=False)
def _optional(c: NodeCall) -> Bound:
    return c.inputs[0] if c.has(0) else ABSENT


@lower("OptionalHasElement", foldable=False)
def _has_element(c: NodeCall) -> Value:
    return Value(BOOL, array=np.array(c.has(0)))


@lower("OptionalGetElement", foldable=False)
def _get_element(c: NodeCall) -> Bound:
    if not c.has(0):
        raise UnsupportedNodeError("the optional value has no element")
    return c.inputs[0]
