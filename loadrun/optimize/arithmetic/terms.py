"""Chains of one elementwise operation, as the passes on sums and products see them."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import DType
from ...graph import Opr, Var
from ...params import Elemwise, ElemwiseMode
from ..rewriter import Rewriter

__all__ = ["ends_chain", "leaves", "mode_of", "uniform"]


def mode_of(opr: Opr) -> ElemwiseMode | None:
    """The mode of an Elemwise, None for other operators."""
    return opr.get(Elemwise).mode if opr.type == "Elemwise" else None


def uniform(r: Rewriter, opr: Opr) -> DType | None:
    """The one dtype of all inputs and the output of an old operator, None where they differ or are quantized."""
    dtype = opr.outputs[0].dtype
    if (
        dtype is None
        or dtype.is_quantized
        or dtype.name == "Bool"
        or any(v.dtype != dtype for v in opr.inputs)
    ):
        return None
    return dtype


def ends_chain(r: Rewriter, opr: Opr, modes: Sequence[ElemwiseMode]) -> bool:
    """Whether a chain of these modes ends at an old operator: what reads it is not one of them, or not alone."""
    var = opr.outputs[0]
    if not r.single(var):
        return True
    values = r.value_readers(var)
    return not values or mode_of(values[0]) not in modes or r.frozen(values[0])


def leaves(r: Rewriter, end: Var, mode: ElemwiseMode) -> list[Var]:
    """The old variables that a chain of one mode joins, in the order of the tree."""
    found: list[Var] = []
    stack = [end]
    while stack:
        var = stack.pop()
        opr = var.owner
        inside = mode_of(opr) == mode and not r.frozen(opr) and (var is end or r.single(var))
        if inside and uniform(r, opr) is not None:
            stack.extend(reversed(opr.inputs))
        else:
            found.append(var)
    return found
