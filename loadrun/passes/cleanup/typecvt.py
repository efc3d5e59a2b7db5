"""Removing conversions between data types that change nothing or that a later one makes superfluous."""

from __future__ import annotations

from collections.abc import Callable

from ...graph import Graph, Opr, Var
from ...graph.dtypes import DType
from ...ops.catalog import TypeParam
from ..rewriter import Rewriter, each

_INTEGERS = ("Int8", "Uint8", "Int16", "Int32")
_EVERY = (*_INTEGERS, "Uint16", "Uint32", "Int64", "Uint64")
_BITS = {"Bool": 1, "Float16": 11, "Float32": 24, "Float64": 53}


def holds(target: DType, source: DType) -> bool:
    """Return whether every value of `source` is a value of `target`.

    >>> holds(DType("Float32"), DType("Int16")), holds(DType("Float32"), DType("Int32"))
    (True, False)
    """
    if source == target or source.name == "Bool":
        return True
    if source.name in _EVERY:
        low = -(1 << source.bits - 1) if source.np.kind == "i" else 0
        high = (1 << source.bits - (source.np.kind == "i")) - 1
        if target.name in _EVERY:
            least = -(1 << target.bits - 1) if target.np.kind == "i" else 0
            most = (1 << target.bits - (target.np.kind == "i")) - 1
            return least <= low and high <= most
        return target.name in _BITS and max(high, -low) <= 1 << _BITS[target.name]
    return (source.name, target.name) in (
        ("Float16", "Float32"),
        ("Float16", "Float64"),
        ("Float32", "Float64"),
    )


def remove_exact_conversions(graph: Graph) -> Graph:
    """Drop conversions to the type that a value has, and detours through a type that holds every value.

    Results are the same bits.
    """

    def superfluous(source: DType, between: DType, target: DType) -> bool:
        if target.is_quantized and (source.name == "Bool" or target.name == "QuantizedS32"):
            return False
        return not source.is_quantized and not between.is_quantized and holds(between, source)

    return _remove(graph, superfluous)


def remove_conversions(graph: Graph) -> Graph:
    """Remove what `remove_exact_conversions` does, and what MegEngine's RemoveRedundantTypeCvt drops besides.

    A detour through a larger type of the same category, and through float32 on the way to a quantized or small
    integer type, goes although it rounds twice where the direct way rounds once.
    """

    def superfluous(source: DType, between: DType, target: DType) -> bool:
        both = (between, target)
        if all(d.is_float for d in both) or all(d.name in _INTEGERS for d in both):
            return between.bits >= target.bits
        small = target.name in _INTEGERS and target.bits <= 24
        return between.name == "Float32" and (target.is_quantized or small) and source.name != "Bool"

    return _remove(graph, superfluous)


def _remove(graph: Graph, superfluous: Callable[[DType, DType, DType], bool]) -> Graph:
    def visit(r: Rewriter, opr: Opr) -> Var | None:
        target = opr.get(TypeParam).dtype
        source = r.var(opr.inputs[0])
        while True:
            if r.dtype(source) == target:
                return source
            inner = source.owner
            if inner.type != "TypeCvtV2":
                break
            first = inner.inputs[0]
            if not superfluous(r.dtype(first), r.dtype(source), target):
                break
            source = first
        if source is r.var(opr.inputs[0]):
            return None
        return r.add("TypeCvtV2", TypeParam(dtype=target), inputs=[source], like=opr)[0]

    return each(graph, visit, "TypeCvtV2")
