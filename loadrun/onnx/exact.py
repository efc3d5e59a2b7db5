"""Arithmetic on a few integers: exact, and symbolic where they are sizes of tensors.

ONNX computes shapes with operators on int64 tensors. Computed in Python, on object arrays of ints and `TracedInt`,
they do not overflow, and constants are known where MegEngine wants a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph.dtypes import Array
from ..tensors.convert import TracedInt
from ..tensors.symbolic import is_natural
from .call import NodeCall, front
from .values import BOOL, INT32, INT64, Value, objects

__all__ = ["compute"]

_INTEGERS = (INT32, INT64)
Rule = Callable[[NodeCall, list[Array]], Array | None]


def compute(call: NodeCall) -> Value | None:
    """Compute a node on few integers exactly; None if the inputs are not such or there is no rule."""
    rule = _RULES.get(call.op)
    if rule is None or not call.inputs:
        return None
    operands = []
    for value in call.inputs:
        if value is None:
            continue
        operand = value.exact() if isinstance(value, Value) else None
        if operand is None:
            return None
        operands.append(operand)
    if len(operands) != len(call.inputs):
        return None
    result = rule(call, operands)
    if result is None:
        return None
    kind = call.kind(1 if call.op == "Where" else 0)
    if call.op in _TO_BOOL:
        kind = BOOL
    if call.op == "Cast":
        kind = call.number("to")
    return Value.of_sizes(kind, result)


def _symbolic(*arrays: Array) -> bool:
    return any(isinstance(v, TracedInt) for a in arrays for v in a.flat)


def _pairs(compute: Callable[[int, int], int | None]) -> Rule:
    def rule(call: NodeCall, operands: list[Array]) -> Array | None:
        if call.opset < 7 or len(operands) != 2:
            return None
        a, b = np.broadcast_arrays(operands[0], operands[1])
        return _mapped(compute, a, b)

    return rule


def _mapped(compute: Callable[..., int | None], *arrays: Array) -> Array | None:
    flat = [compute(*row) for row in zip(*(a.flat for a in arrays), strict=True)]
    if any(v is None for v in flat):
        return None
    return objects(flat).reshape(arrays[0].shape)


def _divided(a: int, b: int) -> int | None:
    if int(b) == 0:
        return None
    if isinstance(a, TracedInt) or isinstance(b, TracedInt):
        return a // b if is_natural(a) and is_natural(b) else None
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(call: NodeCall, operands: list[Array]) -> Array | None:
    if call.flag("fmod"):
        return None
    a, b = np.broadcast_arrays(*operands)
    return _mapped(lambda x, y: x % y if int(y) else None, a, b)


def _extreme(largest: bool) -> Rule:
    def one(a: int, b: int) -> int | None:
        if isinstance(a, TracedInt) or isinstance(b, TracedInt):
            # A size is never negative, which settles most comparisons that exporters write; a difference may be.
            other, size = (b, a) if isinstance(a, TracedInt) else (a, b)
            if isinstance(other, TracedInt) or int(other) > 0 or not is_natural(size):
                return None
            return size if largest else other
        return max(a, b) if largest else min(a, b)

    def rule(call: NodeCall, operands: list[Array]) -> Array | None:
        extreme = operands[0]
        for other in operands[1:]:
            a, b = np.broadcast_arrays(extreme, other)
            step = _mapped(one, a, b)
            if step is None:
                return None
            extreme = step
        return extreme

    return rule


def _compared(compare: Callable[[int, int], bool]) -> Rule:
    def rule(call: NodeCall, operands: list[Array]) -> Array | None:
        if call.opset < 7:
            return None
        a, b = np.broadcast_arrays(operands[0], operands[1])
        if any(map(_is_undecided, a.flat, b.flat)) and any(
            isinstance(v, Value) and v.follows_data() for v in call.inputs
        ):
            return None

        def one(x: int, y: int) -> bool:
            if _is_undecided(x, y):
                call.importer.required.decide(compare(x, y))
            return bool(compare(int(x), int(y)))

        return _mapped(one, a, b)

    return rule


def _is_undecided(x: int, y: int) -> bool:
    """Whether a size is compared with what it may be; a size is never negative, a difference may be."""
    if not isinstance(x, TracedInt) and not isinstance(y, TracedInt):
        return False
    return is_natural(x) == is_natural(y) or isinstance(x if is_natural(y) else y, TracedInt)


def _concat(call: NodeCall, operands: list[Array]) -> Array | None:
    if any(g.ndim == 0 for g in operands) or sum(g.size for g in operands) > 4096:
        return None
    return np.concatenate(operands, front(call.number("axis"), operands[0].ndim))


def _gather(call: NodeCall, operands: list[Array]) -> Array | None:
    data, at = operands
    if data.ndim == 0 or _symbolic(at):
        return None
    axis = front(call.number("axis"), data.ndim)
    where = at.astype(np.int64)
    if where.size and (where.max() >= data.shape[axis] or where.min() < -data.shape[axis]):
        return None
    return np.take(data, where, axis)


def _slice(call: NodeCall, operands: list[Array]) -> Array | None:
    if call.opset < 10 or _symbolic(*operands[1:]):
        return None
    data = operands[0]
    starts, ends = operands[1].astype(object).reshape(-1), operands[2].reshape(-1)
    axes = operands[3].reshape(-1) if len(operands) > 3 else np.arange(starts.size)
    steps = operands[4].reshape(-1) if len(operands) > 4 else np.ones(starts.size, int)
    index: list[Any] = [slice(None)] * data.ndim
    for s, e, a, t in zip(starts, ends, axes, steps, strict=True):
        n = data.shape[front(int(a), data.ndim)]
        t = int(t)
        start = _bound(int(s), n, t)
        stop = _bound(int(e), n, t)
        index[front(int(a), data.ndim)] = slice(start, None if t < 0 and stop < 0 else stop, t)
    return data[tuple(index)]


def _bound(at: int, size: int, step: int) -> int:
    at = at + size if at < 0 else at
    return min(max(at, 0), size) if step > 0 else min(max(at, -1), size - 1)


def _squeeze(call: NodeCall, operands: list[Array]) -> Array | None:
    axes = call.ints("axes") if len(operands) == 1 else [int(v) for v in operands[1].flat]
    data = operands[0]
    if axes is None:
        return data.reshape([n for n in data.shape if n != 1])
    gone = {front(a, data.ndim) for a in axes}
    if any(data.shape[a] != 1 for a in gone):
        return None
    return data.reshape([n for i, n in enumerate(data.shape) if i not in gone])


def _unsqueeze(call: NodeCall, operands: list[Array]) -> Array | None:
    axes = call.ints("axes") if len(operands) == 1 else [int(v) for v in operands[1].flat]
    if axes is None:
        return None
    rank = operands[0].ndim + len(axes)
    return np.expand_dims(operands[0], tuple(front(a, rank) for a in axes))


def _reshape(call: NodeCall, operands: list[Array]) -> Array | None:
    target = operands[1].reshape(-1) if len(operands) > 1 else call.ints("shape")
    if target is None or any(int(v) == 0 for v in target) or (len(operands) > 1 and _symbolic(operands[1])):
        return None
    return operands[0].reshape([int(v) for v in target])


def _cast(call: NodeCall, operands: list[Array]) -> Array | None:
    to = call.number("to")
    if to not in _INTEGERS or call.kind(0) not in (*_INTEGERS, BOOL):
        return None
    if call.kind(0) == BOOL:
        return _mapped(int, operands[0])
    return None if to == INT32 and not _fits(operands[0]) else operands[0]


def _fits(data: Array) -> bool:
    return all(-(2**31) <= int(v) < 2**31 for v in data.flat)


def _reduced(combine: Callable[[int, int], int]) -> Rule:
    def rule(call: NodeCall, operands: list[Array]) -> Array | None:
        data = operands[0]
        axes = call.ints("axes") if len(operands) == 1 else [int(v) for v in operands[1].flat]
        if data.ndim != 1 or not data.size or (not axes and call.flag("noop_with_empty_axes")):
            return None
        if axes and [front(a, 1) for a in axes] != [0]:
            return None
        total = data[0]
        for v in data[1:]:
            total = combine(total, v)
        return objects([total]).reshape((1,) if call.flag("keepdims", 1) else ())

    return rule


def _where(call: NodeCall, operands: list[Array]) -> Array | None:
    mask, a, b = np.broadcast_arrays(*operands)
    return _mapped(lambda m, x, y: x if m else y, mask, a, b)


def _range(call: NodeCall, operands: list[Array]) -> Array | None:
    if _symbolic(*operands) or int(operands[2].item()) == 0:
        return None
    numbers = range(int(operands[0].item()), int(operands[1].item()), int(operands[2].item()))
    return np.array(list(numbers), object) if len(numbers) <= 4096 else None


def _expand(call: NodeCall, operands: list[Array]) -> Array | None:
    if _symbolic(operands[1]):
        return None
    shape = np.broadcast_shapes(operands[0].shape, [int(v) for v in operands[1]])
    return np.broadcast_to(operands[0], shape) if np.prod(shape, initial=1) <= 4096 else None


_RULES: dict[str, Rule] = {
    "Add": _pairs(lambda a, b: a + b),
    "Sub": _pairs(lambda a, b: a - b),
    "Mul": _pairs(lambda a, b: a * b),
    "Div": _pairs(_divided),
    "Mod": _modulo,
    "Max": _extreme(True),
    "Min": _extreme(False),
    "Neg": lambda c, g: _mapped(lambda v: -v, g[0]),
    "Identity": lambda c, g: g[0],
    "Equal": _compared(lambda a, b: a == b),
    "Less": _compared(lambda a, b: a < b),
    "LessOrEqual": _compared(lambda a, b: a <= b),
    "Greater": _compared(lambda a, b: a > b),
    "GreaterOrEqual": _compared(lambda a, b: a >= b),
    "And": _pairs(lambda a, b: bool(a and b)),
    "Or": _pairs(lambda a, b: bool(a or b)),
    "Not": lambda c, g: _mapped(lambda v: not v, g[0]),
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Cast": _cast,
    "ReduceProd": _reduced(lambda a, b: a * b),
    "ReduceSum": _reduced(lambda a, b: a + b),
    "Where": _where,
    "Range": _range,
    "Expand": _expand,
}
_TO_BOOL = frozenset(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not"))
