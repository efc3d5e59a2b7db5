"""Vectors of sizes, number by number: the shape arithmetic of a graph of MegEngine's operators.

There is a function for every operator that shape arithmetic is made of; it gives the numbers of the result one by one,
or None if it is no such arithmetic.
"""

import functools
import operator
from collections.abc import Callable

from ...base.registry import Registry
from ...graph import Opr, Var
from ...graph import params as P
from ...ops.elemwise.table import ROWS
from .emitter import Dim
from .shape import sizes_told
from .writer import OnnxWriter

_RULES: Registry[str, Callable[[OnnxWriter, Opr], list[Dim] | None]] = Registry("rule of sizes")
size_rule = _RULES.register


def followed_sizes(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    """Return the numbers in a vector of sizes one by one, where they are symbolic; None for other values.

    Runtimes and importers follow such arithmetic best when it does not go through vectors.
    """
    rule = _RULES.get(opr.type)
    if rule is None or len(opr.outputs) != 1 or w.dtype(opr.outputs[0]).name not in ("Int32", "Int64"):
        return None
    return rule(w, opr)


def _known(w: OnnxWriter, var: Var) -> list[Dim] | None:
    """Return the numbers of a vector that is constant or symbolic."""
    value = w.value(var)
    if value is not None and value.ndim == 1 and value.dtype.kind in "iu":
        return [int(v) for v in value]
    return w.vectors.get(var.id)


def _never_negative(w: OnnxWriter, var: Var) -> bool:
    """Return whether a value is at least 0 at all sizes that were tried."""
    values = [k.values.get(var.id) for k in w.known]
    return all(v is not None and (v >= 0).all() for v in values)


size_rule("GetVarShapeV1")(sizes_told)


@size_rule("Concat")
def _concat(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    parts = [_known(w, v) for v in opr.inputs]
    known = [p for p in parts if p is not None]
    return [n for part in known for n in part] if len(known) == len(parts) else None


@size_rule("Subtensor")
def _subtensor(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    whole = _known(w, opr.inputs[0])
    items = opr.get(P.IndexDescMaskDump).items
    if whole is None or len(items) != 1:
        return None
    numbers = [w.value(v) for v in opr.inputs[1:]]
    constants = [int(v.reshape(-1)[0]) for v in numbers if v is not None]
    if len(constants) != len(numbers):
        return None
    item, rest = items[0], iter(constants)
    begin, end, step, index = (
        next(rest) if on else None for on in (item.begin, item.end, item.step, item.idx)
    )
    return [whole[index]] if index is not None else whole[slice(begin, end, step)]


@size_rule("IndexingMultiAxisVec")
def _gathered(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    whole, items = _known(w, opr.inputs[0]), opr.get(P.IndexDescMaskDump).items
    at = w.value(opr.inputs[1]) if len(opr.inputs) == 2 and len(items) == 1 and items[0].idx else None
    return None if whole is None or at is None or at.ndim != 1 else [whole[int(i)] for i in at]


@size_rule("ReduceV2")
def _product(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    whole = _known(w, opr.inputs[0])
    if whole is None or w.shape(opr.outputs[0]) != (1,):
        return None
    mode = opr.get(P.Reduce).mode
    if mode == P.ReduceMode.PRODUCT:
        return [w.product(whole)]
    start: Dim = 0
    adding = functools.partial(w.arith, "Add")
    return [functools.reduce(adding, whole, start)] if mode == P.ReduceMode.SUM else None


_ARITHMETIC = {
    mode: row.onnx or "Div" for mode, row in ROWS.items() if row.neutral is not None and row.whole is not None
}
"""The modes that are sums, differences, products and quotients of integers."""


_MOVES = {P.ElemwiseMode.COND_LT_MOV: operator.lt, P.ElemwiseMode.COND_LEQ_MOV: operator.le}


@size_rule("Elemwise")
def _elemwise(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    mode = opr.get(P.Elemwise).mode
    kind = _ARITHMETIC.get(mode)
    parts = [p for p in (_known(w, v) for v in opr.inputs) if p is not None]
    length = max(map(len, parts), default=0)
    if len(parts) != len(opr.inputs) or any(len(p) not in (1, length) for p in parts):
        return None
    rows = [p * length if len(p) == 1 else p for p in parts]
    if mode in _MOVES:
        pairs = [p for p in zip(*rows[:2], strict=True) if all(isinstance(n, int) for n in p)]
        chosen = [_MOVES[mode](a, b) for a, b in pairs]
        return (
            [n if on else 0 for on, n in zip(chosen, rows[2], strict=False)] if len(pairs) == length else None
        )
    if kind is None or len(rows) != 2:
        return None
    if kind == "Div" and not all(_never_negative(w, v) for v in opr.inputs):
        return None
    return [w.arith(kind, a, b) for a, b in zip(*rows, strict=True)]


@size_rule("ReshapeV1", "AxisAddRemove", "Identity", "Copy")
def _same(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    """Return the sizes of the input: the operator leaves one number, or a vector, as it is.

    A reshape to a length that follows from sizes is a check of them, which has to stay.
    """
    sizes = _known(w, opr.inputs[0])
    if any(w.value(v) is None for v in opr.inputs[1:]):
        return None
    if sizes is None or w.rank(opr.outputs[0]) != 1 or w.shape(opr.outputs[0]) != (len(sizes),):
        return None
    return sizes
