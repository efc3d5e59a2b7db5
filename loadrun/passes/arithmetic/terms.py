"""Chains of one elementwise operation, as the passes on sums and products see them."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import Opr, Var
from ...graph.dtypes import DType
from ...graph.params import Elemwise, ElemwiseMode
from ...ops.catalog import select, types
from ...ops.elemwise.table import ModeTrait, modes
from ...ops.op import Trait
from ..rewriter import Rewriter

__all__ = ["ends_chain", "is_step", "leaves", "mode_of", "on_grid", "uniform"]

_BOOL = DType("Bool")
_STEPS, _ON_GRID = modes(ModeTrait.STEPS), modes(ModeTrait.ON_GRID)
_VIEWS = types(Trait.VIEW) & types(Trait.INFERRED)
_MOVES = _VIEWS | {"Concat"} | select(lambda op: op.family == "typecvt")
_GIVEN = select(lambda op: op.category == "io")


def mode_of(opr: Opr) -> ElemwiseMode | None:
    """Return the mode of an Elemwise, None for other operators."""
    return opr.get(Elemwise).mode if opr.type == "Elemwise" else None


def uniform(r: Rewriter, opr: Opr) -> DType | None:
    """Return the one dtype of all inputs and the output of an old operator whose arithmetic may be rearranged.

    None if they differ or are quantized, or where a step shows every rounding.
    """
    dtype = opr.outputs[0].dtype
    if (
        dtype is None
        or on_grid(r, opr)
        or dtype.is_quantized
        or dtype.name == "Bool"
        or any(v.dtype != dtype for v in opr.inputs)
    ):
        return None
    return dtype


def on_grid(r: Rewriter, opr: Opr) -> bool:
    """Return whether an old operator computes, from inputs and constants alone, what a step makes integers or booleans.

    Inputs may be pixels or tenths, so that results are on the very edge of a step (``x / 255 >= 0.2``, ``x // 0.3``),
    and one rounding more or less shows as a difference of one. What convolutions, sums or functions give meets no edge.
    """
    if r.on_grid is None:
        r.on_grid = _grid(r.oprs)
    return opr.id in r.on_grid


def is_step(opr: Opr) -> bool:
    """Return whether an operator jumps, so that a rounding before it may show as a difference of one."""
    if opr.type == "TypeCvtV2":
        source, target = opr.inputs[0].dtype, opr.outputs[0].dtype
        return bool(source and target and source.is_float and not (target.is_float or target.is_quantized))
    real = any(v.dtype is not None and v.dtype.is_float for v in opr.inputs)
    compares = opr.type == "ElemwiseMultiType" and opr.outputs[0].dtype == _BOOL
    return real and (compares or mode_of(opr) in _STEPS)


def _grid(oprs: Sequence[Opr]) -> set[int]:
    """Return the arithmetic before steps whose values are numbers on a grid."""
    off: set[int] = set()
    steps: list[Opr] = []
    for opr in oprs:
        if is_step(opr):
            steps.append(opr)
        elif opr.type not in _GIVEN and (
            not (mode_of(opr) in _ON_GRID or opr.type in _MOVES)
            or any(v.owner.id in off for v in _sources(opr))
        ):
            off.add(opr.id)
    ids: set[int] = set()
    seen: set[int] = set()
    stack = [v.owner for s in steps if not any(v.owner.id in off for v in s.inputs) for v in s.inputs]
    while stack:
        opr = stack.pop()
        if opr.id in seen or opr.type in _GIVEN or is_step(opr):
            continue
        seen.add(opr.id)
        if mode_of(opr) in _ON_GRID:
            ids.add(opr.id)
        stack.extend(v.owner for v in _sources(opr))
    return ids


def _sources(opr: Opr) -> Sequence[Var]:
    """Return the inputs that values come from; shapes and indices are not among them."""
    return opr.inputs[:1] if opr.type in _VIEWS else opr.inputs


def ends_chain(r: Rewriter, opr: Opr, modes: Sequence[ElemwiseMode]) -> bool:
    """Return whether a chain of these modes ends at an old operator: what reads it is not one of them, or not alone."""
    var = opr.outputs[0]
    if not r.single(var):
        return True
    values = r.value_readers(var)
    return not values or mode_of(values[0]) not in modes or r.frozen(values[0])


def leaves(r: Rewriter, end: Var, mode: ElemwiseMode) -> list[Var]:
    """Return the old variables that a chain of one mode joins, in the order of the tree."""
    terms: list[Var] = []
    stack = [end]
    while stack:
        var = stack.pop()
        opr = var.owner
        inside = mode_of(opr) == mode and not r.frozen(opr) and (var is end or r.single(var))
        if inside and uniform(r, opr) is not None:
            stack.extend(reversed(opr.inputs))
        else:
            terms.append(var)
    return terms
