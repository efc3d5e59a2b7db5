"""Elementwise operators, order, scattering, and what data decide the size of."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ...arrays.array import TracedArray
from ...arrays.reductions import cumulated
from ...base.registry import late
from ...graph import Opr, Var, params as P
from ...graph.composite import Composite
from ...graph.dtypes import Array, DType, plain
from ...layers import emit as e
from ...layers.emit import M
from ...layers.shared import nn as layers
from ...ops.elemwise.table import ARITY
from ...tensors import Tensor, apply, const
from ...tensors.access import dtype_of, static_shape
from ..encode import NodeMessage
from ..operators import activations, forest, functions, indexing, kernels, reductions, text
from ..operators.common import axis_of, refuse_where
from ..writing.elemwise import whole_numbers
from ..writing.elemwise_float import compose
from ..writing.emitter import NodeEmitter, UnsupportedOprError
from . import instead, known, operand, traced

with late(__name__):
    from ..operators import sampling


__all__: list[str] = []


def _mode(mode: Any) -> Any:
    def recorded(x: Any) -> Tensor:
        return e.elem(mode, operand(x))

    return recorded


instead("Relu")(_mode(M.RELU))
instead("HardSwish")(_mode(M.H_SWISH))
instead(functions.softplus)(_mode(M.SOFTPLUS))
instead(activations.sigmoid)(_mode(M.SIGMOID))
instead(activations.silu)(_mode(M.SILU))
instead(kernels.erf)(_mode(M.ERF))


@instead(kernels.gelu)
def gelu(x: Any) -> Tensor:
    return layers.gelu(operand(x))


instead("Swish")(lambda x, *, alpha=1.0: layers.swish(operand(x), alpha))
instead("QuickGelu", domain="com.microsoft")(lambda x, *, alpha=1.702: layers.swish(operand(x), alpha))


@instead(activations.softmax)
def softmax(x: Any, axis: int = -1, *, guard: bool = False) -> Any:
    if not x.size:
        return x
    return layers.softmax(operand(x), axis % max(x.ndim, 1), guard=guard)


@instead(reductions.log_softmax)
def log_softmax(x: Any, axis: int) -> Any:
    return layers.log_softmax(operand(x), axis % max(x.ndim, 1)) if x.size else x


instead("HardSigmoid")(lambda x, *, alpha=0.2, beta=0.5: layers.hard_sigmoid(operand(x), alpha, beta))


@instead(functions.scaled_elu)
def elu(x: Any, alpha: float, gamma: float = 1, steepness: float = 1) -> Tensor:
    return layers.elu(operand(x), alpha, gamma, steepness)


instead("LeakyRelu")(lambda x, *, alpha=0.01: layers.prelu(operand(x), alpha))


@instead("PRelu", since=7)
def prelu(x: Any, slope: Any) -> Any:
    return layers.prelu(operand(x), operand(slope)) if x.dtype.kind == "f" else NotImplemented


_NEQ = P.ElemwiseMultiTypeMode.NEQ


def _divided(x: Any, y: Any) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the operands, the remainder of MegEngine, and 1 where a quotient rounded down is not the one wanted.

    None instead of that for unsigned integers.
    """
    if isinstance(y, np.ndarray):
        refuse_where(y == 0, "whole numbers are divided by 0", ZeroDivisionError)
    n, d = operand(x), operand(y)
    if dtype_of(n).name == "Uint16":
        # Which MegEngine stores alone.
        n, d = e.whole(n), e.whole(d)
    rest = e.elem(M.MOD, n, d)
    if x.dtype.kind == "u":
        return n, d, rest, None
    zero = e.number(0, n)
    turned = e.elem(M.XOR, e.compare(_LT, n, zero), e.compare(_LT, rest, zero))
    return n, d, rest, e.cast(e.elem(M.AND, e.compare(_NEQ, rest, zero), turned), dtype_of(n))


@instead("Div")
def div(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return NotImplemented
    n, d, _, beyond = _divided(x, y)
    quotient = e.elem(M.FLOOR_DIV, n, d)
    return quotient if beyond is None else e.elem(M.ADD, quotient, beyond)


@instead("Mod", since=10)
def mod(x: Any, y: Any, *, fmod: int = 0) -> Any:
    if x.dtype.kind == "f":
        return NotImplemented
    n, d, rest, beyond = _divided(x, y)
    if beyond is None or not fmod:
        return rest
    return e.elem(M.SUB, rest, e.elem(M.COND_LT_MOV, e.number(0, n), beyond, d))


# What `loadrun.onnx.writing` writes for a mode of Elemwise that ONNX lacks, read again as that mode.
#
# The patterns are what the writer itself writes for placeholders, so that both stay the same.

_REAL = (M.LOG1P, M.EXPM1, M.ATAN2)
_WHOLE = (M.ADD, M.SUB, M.MUL, M.FLOOR_DIV, M.MOD, M.SHL, M.SHR, M.ABS, M.NEGATE, M.SIGN, M.MAX, M.MIN)
_INTEGERS = ("Int8", "Uint8", "Int16", "Int32")


@dataclass
class Pattern:
    """The nodes that are written for a mode.

    Attributes:
        mode: the mode.
        dtype: the type of its operands.
        inputs: the names of the operands.
        output: the name of the result.
        nodes: the nodes by the name of what they compute.
        constants: the constants by name.
    """

    mode: M
    dtype: DType
    inputs: tuple[str, ...]
    output: str
    nodes: dict[str, NodeMessage] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    def operands(self, var: Var) -> list[Var] | None:
        """Return the operands of the mode where a variable is computed by these nodes, else None."""
        found: dict[str, Var] = {}
        return [found[n] for n in self.inputs] if self._fits(self.output, var, found) else None

    def _fits(self, name: str, var: Var, found: dict[str, Var]) -> bool:
        if name in self.inputs:
            return found.setdefault(name, var) is var and var.dtype == self.dtype
        opr = var.owner
        value = opr.tensors[0].value() if opr.tensors and opr.type != "Host2DeviceCopy" else None
        if name in self.constants:
            return value is not None and np.array_equal(value.reshape(-1), self.constants[name].reshape(-1))
        node, p = self.nodes[name], var.owner.params[0] if var.owner.params else None
        if value is not None:
            # A constant that was converted when it was written.
            (inner,) = node.inputs[:1]
            fits = np.array_equal(value, value.astype(self.dtype.np))
            return (
                node.op_type == "Cast"
                and inner in self.inputs
                and fits
                and found.setdefault(inner, var) is var
            )
        if (
            not isinstance(p, Composite)
            or p.title != node.op_type
            or len(var.owner.inputs) != len(node.inputs)
        ):
            return False
        if p.attributes != node.attributes:
            return False
        return all(self._fits(n, v, found) for n, v in zip(node.inputs, var.owner.inputs, strict=True))


@cache
def _patterns(opset: int) -> dict[str, list[Pattern]]:
    """Return the patterns of an opset by the operator of the last node."""
    found: dict[str, list[Pattern]] = defaultdict(list)
    for pattern in _written(opset):
        if len(pattern.nodes) > 1:
            found[pattern.nodes[pattern.output].op_type].append(pattern)
    return found


def _written(opset: int) -> Iterator[Pattern]:
    for mode, name in [*((m, "Float32") for m in _REAL), *((m, n) for n in _INTEGERS for m in _WHOLE)]:
        dtype, emitter = plain(name), NodeEmitter(opset)
        inputs = tuple(f"operand {i}" for i in range(ARITY[mode]))
        try:
            real = dtype.is_float
            output = (
                compose(emitter, mode, *inputs) if real else whole_numbers(emitter, mode, dtype, list(inputs))
            )
        except UnsupportedOprError:
            continue
        nodes = {n.outputs[0]: n for n in emitter.nodes}
        stored = {n: t.value for n, t in emitter.initializers.items() if t.value is not None}
        yield Pattern(mode, dtype, inputs, output, nodes, stored)


def as_mode(opr: Opr) -> tuple[Pattern, list[Var]] | None:
    """Return the pattern of which an operator is the last node, and the operands; None where it is of none."""
    p = opr.params[0] if opr.params else None
    if isinstance(p, Composite) and not p.definition.domain:
        for pattern in _patterns(p.types.opset).get(p.title, ()):
            operands = pattern.operands(opr.outputs[0])
            if operands is not None:
                return pattern, operands
    return None


_LT, _EQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.EQ

# Scattering

_MOST_STEPS = 64


@instead("Gather")
def gather(x: Any, at: Any, *, axis: int = 0) -> Any:
    """Take one entry by an index, which MegEngine has."""
    if not isinstance(at, np.ndarray) or at.ndim:
        return NotImplemented
    index = [(axis_of(axis, x.ndim), None, None, None, int(at))]
    return e.subtensor(operand(x), index) if x.ndim > 1 else traced(x)[int(at)]


instead(indexing.taken)(lambda x, at: traced(x)[at])

combine_as_defined: Callable[..., Any] = indexing.combined.__wrapped__  # type: ignore[attr-defined]


@instead(indexing.combined)
def combined(x: Any, at: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    x = traced(x)
    if reduction in ("none", "add") or x.dtype == bool:
        return combine_as_defined(x, at, traced(updates), reduction)
    lead = tuple(np.broadcast_shapes(*(np.shape(i) for i in at)))
    rows, rest = int(np.prod(lead)), x.shape[len(at) :]
    places = [np.broadcast_to(i, lead).reshape(rows) for i in at]
    parts = traced(np.broadcast_to(updates, (*lead, *rest))).reshape(rows, *rest)
    combine = {"mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    y = x.copy()
    for chosen in _rounds(places, rows):
        here = tuple(i[chosen] for i in places)
        y[here] = combine(y[here], parts[chosen])
    return y


def _rounds(places: Sequence[Any], count: int) -> list[Array]:
    """Group updates into rounds, none of which has a place twice."""
    if any(isinstance(i, Tensor) for i in places):
        if count > _MOST_STEPS:
            raise ValueError(
                f"{count} positions that depend on data are combined one by one; at most {_MOST_STEPS}"
            )
        return [np.array([i]) for i in range(count)]
    seen: dict[tuple[int, ...], int] = {}
    rounds: list[list[int]] = []
    for i, place in enumerate(zip(*(p.tolist() for p in places), strict=True)):
        n = seen[place] = seen.get(place, -1) + 1
        if n == len(rounds):
            rounds.append([])
        rounds[n].append(i)
    return [np.array(r) for r in rounds]


# Order


def ordered(keys: Tensor, largest: bool = False) -> Tensor:
    """Return the positions of sorted elements of a vector; ties keep their order."""
    keys = e.as_float(keys) if dtype_of(keys).is_float else e.whole(keys)
    if largest:
        keys = e.elem(M.NEGATE, keys)
    param = P.Argsort(order=P.ArgsortOrder.ASCENDING)
    flat = e.reshape(keys, (1, keys.shape[0]))
    return e.reshape(apply("Argsort", param, inputs=[flat], n=2, scalar=False)[1], (keys.shape[0],))


# Sizes that data decide


def _places(mask: Tensor) -> Tensor:
    """Return the positions, in the flattened tensor, where a mask is true."""
    flat = e.flat(mask)
    return e.cond_take(flat, flat)[1]


@instead("Compress")
def compress(x: Any, mask: Any, *, axis: int | None = None) -> Tensor:
    x = traced(x if axis is not None else x.reshape(-1))
    axis = 0 if axis is None else axis_of(axis, x.ndim)
    places = _places(operand(mask[: x.shape[axis]]))
    return e.gather(operand(x), [(axis, places)])


@instead("Unique")
def unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    """Sort rows by one element after the other, and find where each differs from the one before."""
    if axis is None or x.ndim < 2:
        rows, order = x.reshape(-1), [0]
    else:
        axis = axis_of(axis, x.ndim)
        order = [axis, *[i for i in range(x.ndim) if i != axis]]
        rows = np.transpose(x, order)
    keys = operand(rows.reshape(rows.shape[0], -1))
    n, (_, width) = keys.shape[0], static_shape(keys)
    if width > 256:
        raise ValueError(f"rows of {width} elements; 256 at most can be sorted one key after another")
    place = e.arange(n)
    # Ordered by the last column first; every order keeps that of equal ones.
    for column in range(width - 1, -1, -1):
        now = e.gather(e.subtensor(keys, [(1, None, None, None, column)]), [(0, place)])
        place = e.gather(place, [(0, ordered(now))])
    lined = e.gather(keys, [(0, place)])
    fresh = const(np.ones(min(n, 1), np.int32))
    if n > 1:
        late = e.subtensor(lined, [(0, 1, None, None, None)])
        early = e.subtensor(lined, [(0, None, -1, None, None)])
        differ = e.whole(e.logical_not(e.compare(_EQ, late, early)))
        fresh = e.concat([fresh, e.reduce(differ, P.ReduceMode.MAX, [1])], 0)
    group = cumulated(fresh, 0)
    first = e.gather(place, [(0, _places(e.cast(fresh, "bool")))])
    inverse = e.scatter(place, e.elem(M.SUB, group, e.number(1, group)), [(0, place)])
    if not sorted:
        by = ordered(first)
        first = e.gather(first, [(0, by)])
        rank = e.scatter(by, e.arange(by.shape[0]), [(0, by)])
        inverse = e.gather(rank, [(0, inverse)])
    result = e.gather(operand(rows), [(0, first)])
    counts = e.compare(_EQ, e.add_axes(inverse, [0]), e.add_axes(e.arange(first.shape[0]), [1]))
    how_often = e.reduce(e.whole(counts), P.ReduceMode.SUM, [1])
    back = [order.index(i) for i in range(len(order))]
    return e.permute(result, back), first, inverse, how_often


_MOST, _KEPT = 512, 1 << 14


@instead("NonMaxSuppression")
def non_max_suppression(
    boxes: Any,
    scores: Any,
    most: Any = None,
    overlap: Any = None,
    bound: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """Keep boxes by MegEngine's operator, one image and class at a time."""
    limit = int(known(most, "most boxes").item()) if most is not None and most.size else 0
    share = float(known(overlap, "IoU threshold").item()) if overlap is not None and overlap.size else 0.0
    if not 0 <= share <= 1:
        raise ValueError(f"its IoU threshold is {share:g}, expected 0 to 1")
    batch, classes, count = scores.shape
    if batch * classes > _MOST:
        raise ValueError(f"{batch} images of {classes} classes; at most {_MOST} are unrolled")
    if limit <= 0 or not count:
        return np.zeros((0, 3), np.int64)

    box_corners = operand(sampling.corners(boxes, center_point_box))
    least = None if bound is None or not bound.size else operand(bound.reshape(1))
    table, rows = operand(scores), []
    for b in range(batch):
        for k in range(classes):
            score = e.subtensor(table, [(0, None, None, None, b), (1, None, None, None, k)])
            mine = e.subtensor(box_corners, [(0, None, None, None, b)])
            kept = _suppressed(mine, score, share, min(limit, max(count, _KEPT)))
            if least is not None:
                good = e.compare(_LT, least, e.gather(score, [(0, kept)]))
                kept = e.gather(kept, [(0, _places(good))])
            zero = e.elem(M.MUL, kept, e.number(0, kept))
            label = e.elem(M.ADD, e.add_axes(zero, [1]), const(np.array([[b, k]], np.int32)))
            rows.append(e.concat([label, e.add_axes(kept, [1])], 1))
    return e.concat(rows, 0)


def _suppressed(boxes: Tensor, score: Tensor, overlap: float, most: int) -> Tensor:
    """Select boxes that overlap no better one, best first; ties go to the first."""
    order = ordered(score, True)
    param = P.NMSKeep(iou_thresh=overlap, max_output=most)
    lined = e.reshape(e.gather(boxes, [(0, order)]), (1, -1, 4))
    places, count = apply("NMSKeepMGB", param, inputs=[lined], n=2, scalar=False)
    first = e.subtensor(places, [(0, None, None, None, 0)])
    return e.gather(order, [(0, e.subtensor(first, [(0, None, count, None, None)]))])


# Trees


instead(forest.blocks)(lambda x, step: (x,))


@instead(forest.is_member)
def is_member(members: Any, at: Any, value: Any) -> Any:
    if members is None or not len(members):
        return np.zeros(value.shape, bool)
    nodes, values = members.real.astype(np.int32), members.imag.astype(value.dtype)
    return ((at[..., None] == nodes) & (value[..., None] == values)).any(-1)


# N-grams

_MOST_PLACES = 1 << 26


@instead(text.counted)
def counted(rows: Any, grams: dict[tuple[int, ...], int], columns: int, skips: range) -> Any:
    """Compare all places of rows (N, L) with all n-grams of one length at once."""
    if not grams:
        return 0
    table, numbers = np.array([*grams]), [*grams.values()]
    n, length = table.shape[1], rows.shape[1]
    if length * len(table) > _MOST_PLACES:
        raise ValueError(
            f"{len(table)} n-grams are compared at {length} places, at most {_MOST_PLACES} comparisons"
        )
    total: Any = 0
    for step in skips:
        width = length - step * (n - 1)
        if width < 1:
            break
        same: Any = True
        for k in range(n):
            same = (rows[:, k * step : k * step + width, None] == table[:, k]) & same
        total = total + same.astype(np.float32).sum(1)
    place = np.zeros((len(table), columns), np.float32)
    place[np.arange(len(table)), numbers] = 1
    return total @ place if isinstance(total, TracedArray) else 0
