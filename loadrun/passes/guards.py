"""Guards that keep MegEngine's compiler and kernels from computing something other than the graph.

When MegEngine 1.13 has loaded a graph, it rewrites arithmetic before it runs, by rules for real numbers that do not
hold for all floats, and its kernels of two inputs have a bug. Where values would change, an operator goes in between:

- exponents of powers, roots, products and quotients that follow each other are multiplied, so that ``(x * x) ** 0.5``
  becomes ``x``: ``max(v, v)``, which is v, goes in between where a root is taken (Identity would be removed). Roots of
  one variable that are multiplied with each other become its power, where a negative one would give NaN;
- ``log(exp(x))``, ``log(1 + x)``, ``exp(x) - 1``, ``x - x``, ``x / x`` are simplified: the same goes in between where
  the graph still has them (`loadrun.passes.cleanup` does the same to traces, at every level but 0);
- the square of ``x / y`` becomes ``x * x * y ** -2``, where the power may be infinite: likewise;
- ``PowC`` with the exponents 0 and 1 cannot be loaded: they are written as ones, and as the base;
- division by a number becomes a product with its reciprocal, and consecutive factors become one, which a step (``//``,
  ``floor``, a comparison) shows: there the number goes into a SharedDeviceTensor, which MegEngine does not look into,
  and ``max(v, v)`` between factors; also beside a factor beyond 1e12, as others may make it overflow or vanish;
- the terms of sums are reordered, so that ``score + (mask * 1e6 - 1e6)`` has the digits of a number about -1e6, and
  numbers move into the weights of what follows: ``max(v, v)`` goes in between where a sum with so large a number, or a
  difference of variables, is added, and before convolutions and products of matrices;
- zeros that are added, or ones by which is multiplied, as many as one axis of ``v`` is long, get the shape of all of
  ``v``: ``max(z, z)`` goes in between;
- an operand that is broadcast along the first axes or has gaps in memory is read as if it were contiguous where the
  other is a row: two Reshapes make it contiguous;
- a product of many matrices stops at a matrix of one row whose elements have gaps between them: likewise.

Nothing removes these operators while MegEngine loads and runs a graph; loadrun's optimization may, and puts them back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod

import numpy as np

from ..base.errors import LoadRunError
from ..graph import Graph, Opr, Var, params as P
from ..graph.dtypes import DType
from ..graph.params import ElemwiseMode as M
from ..ops.catalog import select, types
from ..ops.elemwise.table import ModeTrait as ModeT, modes
from ..ops.infer import infer_dtypes, infer_shapes
from ..ops.op import Trait as T
from .arithmetic.terms import extreme_products, large_sums, mode_of, rounds, scalar_value
from .constants import number, subgraph

_INT = DType("Int32")
_CLOSE = 1e-6
_PRODUCTS, _MUL_ADDS, _STEPS = modes(ModeT.PRODUCT), modes(ModeT.MUL_ADD), modes(ModeT.STEPS)
_SUMS, _FACTORS = modes(ModeT.SUM) | _MUL_ADDS, _PRODUCTS | _MUL_ADDS
_CANCELS = modes(ModeT.CANCELS)
_THROUGH = _SUMS | _PRODUCTS | {M.MAX, M.MIN}
"""Modes whose result shows the rounding of what goes in."""
_FAMILIES = (_SUMS, _PRODUCTS, frozenset({M.MAX}), frozenset({M.MIN}))
_ARITHMETIC, _PRODUCT = select(lambda op: op.family == "elemwise.modes"), "BatchedMatrixMulV2"
_LINEAR = types(T.LINEAR)
_MADE = types(T.CONSTANT | T.SHAPE_ONLY)
_VIEWS = types(T.REARRANGES)
_MOVES = (types(T.VIEW) & types(T.INFERRED)) | {"Concat"}
_ONE_BY_ONE = _ARITHMETIC | select(lambda op: op.family == "typecvt")
_Guard = Callable[[Graph, Var], Var]


def guarded(graph: Graph) -> Graph:
    """Return a copy of a graph that MegEngine computes as written; the graph itself where nothing is to be done.

    >>> from loadrun.graph import StoredTensor
    >>> from loadrun.graph.dtypes import DType
    >>> from loadrun.graph.params import Elemwise, Host2DeviceCopy, PowC
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2, 3), "x")])
    >>> (square,) = g.add("Elemwise", Elemwise(mode=M.MUL), inputs=[x, x])
    >>> g.outputs = g.add("PowC", PowC(exp=0.5), inputs=[square], names=["y"])
    >>> [o.type for o in guarded(g).oprs]
    ['Host2DeviceCopy', 'Elemwise', 'Elemwise', 'PowC']
    """
    plan = _GuardPlan(graph)
    if not plan.changes:
        return graph
    return subgraph(graph, graph.outputs, everything=True, convert=plan.convert)[0]


@dataclass
class _Change:
    """A change to an operator: which inputs get what in front of them."""

    between: dict[int, _Guard] = field(default_factory=dict)
    power: int | None = None


class _GuardPlan:
    def __init__(self, graph: Graph) -> None:
        self.changes: dict[int, _Change] = {}
        self.guarded: dict[tuple[int, _Guard], Var] = {}
        arithmetic = [o for o in graph.needed() if o.type in _ARITHMETIC | _LINEAR | {_PRODUCT}]
        if not arithmetic:
            return
        oprs = graph.needed()
        self.shapes = _shapes(graph)
        self.loose = _loose(oprs)
        stepped = _before_steps(oprs)
        large, extreme = large_sums(oprs), extreme_products(oprs)
        for opr in arithmetic:
            change = _Change()
            _watch_power(opr, change)
            _watch_simplified(opr, change)
            if id(opr) in stepped:
                _watch_factors(opr, change)
            if opr.type == "Elemwise":
                self._watch_rows(opr, change)
                _watch_neutral(opr, change)
            if mode_of(opr) in _SUMS or opr.type in _LINEAR:
                places = [i for i, v in enumerate(opr.inputs) if v.id in large]
                change.between.update(dict.fromkeys(places, _self_equality))
            if mode_of(opr) in _FACTORS or _exponent(opr) is not None:
                places = [i for i, v in enumerate(opr.inputs) if v.id in extreme]
                change.between.update(dict.fromkeys(places, _self_equality))
            if opr.type == _PRODUCT:
                self._watch_matrices(opr, change)
            if change.between or change.power is not None:
                self.changes[id(opr)] = change

    def convert(self, graph: Graph, opr: Opr, inputs: list[Var]) -> Var | None:
        """Convert an operator, in the copy."""
        change = self.changes.get(id(opr))
        if change is None:
            return None
        if change.power is not None:
            out = _trivial_power(graph, opr, inputs[0], change.power)
        else:
            operands = [self._between(graph, v, change.between.get(i)) for i, v in enumerate(inputs)]
            (out,) = graph.add_copy(opr, operands)
        out.name, out.owner.name = opr.outputs[0].name, opr.name
        out.owner.dumped = out.owner.dumped._replace(priority=opr.dumped.priority)
        return out

    def _between(self, graph: Graph, x: Var, guard: _Guard | None) -> Var:
        if guard is None:
            return x
        guarded = self.guarded.get((x.id, guard))
        if guarded is None:
            guarded = guard(graph, x)
            guarded.dtype, guarded.shape = x.dtype, x.shape
            self.guarded[x.id, guard] = guarded
        return guarded

    # Rows

    def _watch_rows(self, opr: Opr, change: _Change) -> None:
        """Copy operands that are no dense blocks where another may be a row."""
        if len(opr.inputs) < 2:
            return
        for i, v in enumerate(opr.inputs):
            if id(v.owner) not in self.loose:
                continue
            others = chain.from_iterable(_terms(w, opr) for w in opr.inputs)
            if any(w is not v and self._may_be_row(w, v) for w in others):
                change.between[i] = _dense

    def _watch_matrices(self, opr: Opr, change: _Change) -> None:
        """Copy matrices of one row with gaps between its elements, a column that was turned."""
        for i, v in enumerate(opr.inputs[:2]):
            shape = self.shapes.get(v.id)
            if id(v.owner) in self.loose and (shape is None or shape[-2] == 1):
                change.between[i] = _dense

    def _may_be_row(self, var: Var, other: Var) -> bool:
        """Return whether a variable may be repeated along the first axes of another."""
        if id(var.owner) in self.loose:
            return True
        shape, wide = self.shapes.get(var.id), self.shapes.get(other.id)
        if shape is None or wide is None:
            return True
        if prod(shape) <= 1 or shape[-1] == 1:
            return False
        return len(shape) < len(wide) or any(n == 1 for n in shape[:-1])


def _self_equality(graph: Graph, x: Var) -> Var:
    return graph.add(
        "Elemwise", P.Elemwise(mode=M.MAX), inputs=[x, x], comp_node=x.owner.dumped.comp_node[:1]
    )[0]


def _dense(graph: Graph, x: Var) -> Var:
    """Make the values contiguous: MegEngine's Copy keeps gaps, a vector has none."""
    node = x.owner.dumped.comp_node[:1]
    one = number(graph, 1, _INT)
    (shape,) = graph.add("GetVarShapeV1", P.OptionalAxisV1(), inputs=[x], comp_node=node)
    (flat,) = graph.add("ReshapeV1", P.OptionalAxisV1(axis=0), inputs=[x, one], comp_node=node)
    shape.dtype = _INT
    flat.dtype = x.dtype
    return graph.add("ReshapeV1", P.OptionalAxisV1(), inputs=[flat, shape], comp_node=node)[0]


def _shared(graph: Graph, x: Var) -> Var:
    return graph.add("SharedDeviceTensor", tensors=x.owner.tensors, comp_node=x.owner.dumped.comp_node[:1])[0]


def _shapes(graph: Graph) -> dict[int, tuple[int, ...]]:
    try:
        infer_dtypes(graph.needed())
        return {v: s for v, s in infer_shapes(graph, graph.needed()).shapes.items() if s is not None}
    except LoadRunError:
        return {}


def _loose(oprs: Sequence[Opr]) -> set[int]:
    """Return the operators whose values may be in memory with gaps between their rows, or have one row for all."""
    loose: set[int] = set()
    # MegEngine swaps a Broadcast with the arithmetic of one variable after it.
    wide: set[int] = set()
    for o in oprs:
        before = [id(v.owner) for v in o.inputs]
        if o.type in _VIEWS:
            if before[0] in wide:
                wide.add(id(o))
            if before[0] in loose:
                loose.add(id(o))
            continue
        if o.type == "Broadcast" or (o.type in _ONE_BY_ONE and _source(o) in wide):
            wide.add(id(o))
            loose.add(id(o))
        elif o.type == "Split" or (
            o.type == "Subtensor" and any(i.axis != 0 or i.step for i in o.get(P.IndexDescMaskDump).items)
        ):
            loose.add(id(o))
    return loose


def _watch_neutral(opr: Opr, change: _Change) -> None:
    """Hide zeros and ones along one axis of another variable, which MegEngine takes for ones along all of its axes."""
    if mode_of(opr) not in _SUMS | _PRODUCTS | {M.POW}:
        return
    for i, v in enumerate(opr.inputs):
        if v.owner.type != "Broadcast":
            continue
        value, shape = v.owner.inputs
        one_axis = shape.owner.type == "GetVarShapeV1" and (
            len(shape.owner.inputs) == 1 and shape.owner.get(P.OptionalAxisV1) != P.OptionalAxisV1()
        )
        if one_axis and scalar_value(value) in (0, 1):
            change.between[i] = _self_equality


def _source(opr: Opr) -> int | None:
    """Return the operator of the one operand that is not a stored scalar, None if there are several."""
    operands = [v for v in opr.inputs if scalar_value(v) is None]
    if len(operands) > 1 and opr.type == "Elemwise":
        return None
    return id((operands or opr.inputs)[0].owner)


def _terms(var: Var, reader: Opr) -> Iterator[Var]:
    """Yield the terms that MegEngine may bring together with others when it reorders a chain."""
    family = next((f for f in _FAMILIES if mode_of(reader) in f), frozenset())
    stack, met = [var], set()
    while stack:
        at = stack.pop()
        if at.id in met:
            continue
        met.add(at.id)
        yield at
        if mode_of(at.owner) in family:
            stack.extend(at.owner.inputs)


# Powers


def _exponent(opr: Opr) -> float | None:
    """Return the constant exponent of a power, None for other operators."""
    if opr.type == "PowC":
        return float(opr.get(P.PowC).exp)
    return scalar_value(opr.inputs[1]) if mode_of(opr) == M.POW else None


def _is_whole(number: float) -> bool:
    return bool(np.isfinite(number)) and number == int(number)


def _watch_power(opr: Opr, change: _Change) -> None:
    exponent = _exponent(opr)
    if opr.type == "PowC" and exponent is not None:
        close = [n for n in (0, 1) if abs(exponent - n) < _CLOSE]
        if close:
            change.power = close[0]
            return
    if exponent is not None and _is_merged(exponent, _behind_broadcast(opr.inputs[0]).owner):
        change.between[0] = _self_equality
    if mode_of(opr) == M.MUL and opr.inputs[0] is opr.inputs[1] and _is_ratio(opr.inputs[0].owner):
        change.between.update(dict.fromkeys((0, 1), _self_equality))


def _is_merged(exponent: float, inner: Opr) -> bool:
    """Return whether a power of an operator's result changes when their exponents are joined."""
    inner_exponent = _exponent(inner)
    if inner_exponent is None:
        product = mode_of(inner) in _PRODUCTS and not _is_whole(exponent)
        return mode_of(inner) == M.POW or product or _is_ratio(inner)
    return not (_is_whole(exponent) and _is_whole(inner_exponent))


def _is_ratio(opr: Opr) -> bool:
    """Return whether an operator divides by a variable, whose powers may be 0 or infinite where the ratio's are not."""
    return mode_of(opr) == M.TRUE_DIV and scalar_value(opr.inputs[1]) is None


def _behind_broadcast(var: Var) -> Var:
    while var.owner.type == "Broadcast" or var.owner.type == "TypeCvtV2":
        var = var.owner.inputs[0]
    return var


def _trivial_power(graph: Graph, opr: Opr, x: Var, exponent: int) -> Var:
    """Replace ``x ** 1`` and ``x ** 0``."""
    dtype = opr.outputs[0].dtype
    if exponent == 1 or dtype is None:
        out = graph.add("Identity", inputs=[x], comp_node=opr.dumped.comp_node[:1])[0]
    else:
        one = number(graph, 1, dtype)
        (shape,) = graph.add("GetVarShapeV1", P.OptionalAxisV1(), inputs=[x])
        (out,) = graph.add("Broadcast", P.Empty(), inputs=[one, shape])
        shape.dtype = _INT
    out.dtype, out.shape = dtype, opr.outputs[0].shape
    return out


# What is simplified when it is loaded


def _watch_simplified(opr: Opr, change: _Change) -> None:
    mode = mode_of(opr)
    if mode == M.LOG:
        place = 0 if _has_better_log(opr.inputs[0].owner) else None
    elif mode == M.SUB and mode_of(opr.inputs[0].owner) == M.EXP and scalar_value(opr.inputs[1]) == 1:
        place = 0
    else:
        place = 1 if mode in _CANCELS and opr.inputs[0] is opr.inputs[1] else None
    if place is not None:
        change.between[place] = _self_equality


def _has_better_log(inner: Opr) -> bool:
    modes: Sequence[M | None] = [mode_of(v.owner) for v in inner.inputs]
    if mode_of(inner) == M.EXP:
        return True
    if mode_of(inner) in _PRODUCTS:
        return M.EXP in modes
    return mode_of(inner) == M.ADD and (
        modes.count(M.EXP) == 2 or any(scalar_value(v) == 1 for v in inner.inputs)
    )


# What a step shows


def _before_steps(oprs: Sequence[Opr]) -> set[int]:
    """Find the products and quotients of data whose rounding shows in an integer or a truth value."""
    sizes: set[int] = set()
    for o in oprs:
        follows = o.type in _ONE_BY_ONE or o.type in _MOVES
        is_size = o.type in _MADE or (follows and all(v.id in sizes for v in o.inputs))
        sizes.update(v.id for v in o.outputs if is_size)
    seen: set[int] = set()
    stack = [v for o in oprs if _is_step(o) for v in o.inputs]
    while stack:
        var = stack.pop()
        opr = var.owner
        through = mode_of(opr) in _THROUGH or opr.type in _MOVES
        if through and id(opr) not in seen and var.id not in sizes:
            seen.add(id(opr))
            stack.extend(opr.inputs)
    return seen


def _is_step(opr: Opr) -> bool:
    dtype = opr.outputs[0].dtype
    whole = opr.type == "TypeCvtV2" and dtype is not None and not (dtype.is_float or dtype.is_quantized)
    return whole or mode_of(opr) in _STEPS or rounds(opr)


def _watch_factors(opr: Opr, change: _Change) -> None:
    dtype = opr.outputs[0].dtype
    if mode_of(opr) not in _PRODUCTS or dtype is None or not dtype.is_float:
        return
    if mode_of(opr) == M.TRUE_DIV and not _divides_exactly(opr.inputs[1].owner):
        change.between.setdefault(1, _shared)
    if any(v.owner.type in _MADE for v in opr.inputs):
        for i, v in enumerate(opr.inputs):
            if mode_of(v.owner) in _PRODUCTS:
                change.between.setdefault(i, _self_equality)


def _divides_exactly(divisor: Opr) -> bool:
    """Return whether a reciprocal changes no quotient: by powers of two, and by what is not known."""
    if divisor.type != "ImmutableTensor":
        return True
    return bool((np.abs(np.frexp(divisor.tensors[0].value())[0]) == 0.5).all())
