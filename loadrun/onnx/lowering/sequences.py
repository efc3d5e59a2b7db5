"""Sequences and optional values, which are resolved while the graph is made."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...imperative import emit as e
from ..call import Call, front, lower
from ..values import BOOL, INT64, Items, Refused, Value
from .control import _stacked, index_value
from .shapes import joined, sliced

__all__: list[str] = []


@lower("SequenceConstruct", foldable=False)
def _construct(c: Call) -> Items:
    return [c.value(i) for i in range(len(c.inputs))]


@lower("SequenceEmpty", foldable=False)
def _empty(c: Call) -> Items:
    return []


def _place(c: Call, i: int, count: int, *, behind: bool = False) -> int:
    at = int(c.constant(i, "position").reshape(-1)[0])
    at = at + count if at < 0 else at
    if not 0 <= at < count + behind:
        raise Refused(f"position {at} of {count}")
    return at


@lower("SequenceAt", foldable=False)
def _at(c: Call) -> Value:
    items = c.items(0)
    return items[_place(c, 1, len(items))]


@lower("SequenceInsert", foldable=False)
def _insert(c: Call) -> Items:
    items = list(c.items(0))
    items.insert(_place(c, 2, len(items), behind=True) if c.has(2) else len(items), c.value(1))
    return items


@lower("SequenceErase", foldable=False)
def _erase(c: Call) -> Items:
    items = list(c.items(0))
    del items[_place(c, 1, len(items)) if c.has(1) else -1]
    return items


@lower("SequenceLength", foldable=False)
def _length(c: Call) -> Value:
    return Value(INT64, array=np.array(len(c.items(0)), np.int64))


@lower("SplitToSequence", foldable=False)
def _split(c: Call) -> Items:
    value = c.value(0)
    axis = front(c.int("axis"), value.rank)
    n = value.numbers[axis]
    if not c.has(1):
        parts = [index_value(value, axis, i) for i in range(n)]
        if not c.int("keepdims", 1):
            return parts
        return [Value(value.kind, e.add_axes(p.tensor, [axis])) for p in parts]
    given = c.constant(1, "sizes of the parts")
    sizes = [int(v) for v in given.reshape(-1)]
    if given.ndim == 0:
        each = sizes[0]
        if each < 1:
            raise Refused(f"parts of {each}")
        sizes = [min(each, n - at) for at in range(0, n, each)]
    found, at = [], 0
    for size in sizes:
        found.append(Value(value.kind, sliced(value.tensor, axis, at, at + size)))
        at += size
    return found


@lower("ConcatFromSequence", foldable=False)
def _concat(c: Call) -> Value:
    items = c.items(0)
    if not items:
        raise Refused("the sequence is empty")
    if c.int("new_axis"):
        return _stacked(items, c.int("axis"))
    return Value(items[0].kind, joined([v.tensor for v in items], front(c.int("axis"), items[0].rank)))


@lower("SequenceMap", foldable=False)
def _map(c: Call) -> tuple[Any, ...]:
    body = c.graph("body")
    count = len(c.items(0))
    rows = []
    for i in range(count):
        given = [v[i] if isinstance(v, list) else v for v in c.inputs]
        rows.append(c.run_graph(body, given))
    if not rows:
        return tuple([] for _ in body.outputs)
    return tuple(list(column) for column in zip(*rows, strict=True))


@lower("Optional", foldable=False)
def _optional(c: Call) -> Any:
    if not c.has(0):
        raise Refused("an optional value without an element cannot be expressed")
    return c.inputs[0]


@lower("OptionalHasElement", foldable=False)
def _has_element(c: Call) -> Value:
    return Value(BOOL, array=np.array(c.has(0)))


@lower("OptionalGetElement", foldable=False)
def _get_element(c: Call) -> Any:
    if not c.has(0):
        raise Refused("its input is missing")
    return c.inputs[0]
