"""Chains of one elementwise operation, as the passes on sums and products see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import frexp, inf, prod

from ...graph import Opr, Var
from ...graph.dtypes import DType
from ...graph.params import Elemwise, ElemwiseMode
from ...ops.catalog import select, types
from ...ops.elemwise.table import ModeTrait, modes
from ...ops.op import Trait
from ..rewriter import Rewriter

_BOOL = DType("Bool")
_LARGE = 1000.0
"""From where on a stored number in a sum takes more digits from the other terms than a tolerance has."""
_PRODUCTS, _MUL_ADDS = modes(ModeTrait.PRODUCT), modes(ModeTrait.MUL_ADD)
_SUMS, _FACTORS = modes(ModeTrait.SUM) | _MUL_ADDS, _PRODUCTS | _MUL_ADDS
_STEPS, _ON_GRID = modes(ModeTrait.STEPS), modes(ModeTrait.ON_GRID)
_VIEWS = types(Trait.VIEW) & types(Trait.INFERRED)
_MOVES = _VIEWS | {"Concat"} | select(lambda op: op.family == "typecvt")
_STORED, _SIZES = types(Trait.CONSTANT), types(Trait.SHAPE_ONLY)
_CARRIES = _VIEWS | {"Broadcast"}
"""What gives values of its first input alone."""
_GIVEN = select(lambda op: op.category == "io")
_WHOLE = 2.0**23
"""From where on all float32 numbers are whole."""
_EXTREME = 40
"""The exponent of 2, of either sign, beyond which a factor is extreme: four of them leave float32."""


def mode_of(opr: Opr) -> ElemwiseMode | None:
    """Return the mode of an Elemwise, None for other operators."""
    return opr.get(Elemwise).mode if opr.type == "Elemwise" else None


def scalar_value(var: Var) -> float | None:
    """Return the value of a stored scalar."""
    if var.owner.type != "ImmutableTensor" or prod(var.owner.tensors[0].shape or ()) != 1:
        return None
    return float(var.owner.tensors[0].value().reshape(-1)[0])


def is_large(r: Rewriter, old: Var) -> bool:
    """Return whether a variable is a sum with a large number (a mask of -1e4), a difference or an extreme product.

    Its terms stay together: each alone would take the digits of what is added to it, or overflow with other factors.
    """
    if r.large is None:
        r.large = large_sums(r.oprs) | extreme_products(r.oprs)
    return old.id in r.large


def large_sums(oprs: Sequence[Opr]) -> set[int]:
    """Return the float variables whose terms may be large while they are not.

    These are sums with a large stored number, and multiples of such, if all else is about 1; and differences of two
    variables, such as positions, which may be alike.
    """
    sizes: dict[int, float] = {}
    sources: dict[int, Var] = {}
    sums: set[int] = set()

    def size(var: Var) -> float:
        var = sources.get(var.id, var)
        if var.id not in sizes:
            sizes[var.id] = _largest(var) if var.owner.type in _STORED else 1.0
        return sizes[var.id]

    for o in oprs:
        mode = mode_of(o)
        if mode not in _SUMS | _PRODUCTS:
            if o.type in _CARRIES:
                sources[o.outputs[0].id] = sources.get(o.inputs[0].id, o.inputs[0])
            continue
        (out,) = o.outputs
        if out.dtype is None or not out.dtype.is_float:
            continue
        sized = [size(v) for v in o.inputs]
        if mode == ElemwiseMode.TRUE_DIV:
            sizes[out.id] = sized[0] / sized[1] if sized[1] else inf
        else:
            factors = 2 if mode in _PRODUCTS or mode in _MUL_ADDS else 1
            sizes[out.id] = max(prod(sized[i : i + factors]) for i in range(0, len(sized), factors))
        if (mode in _SUMS and len(sized) > 1) or any(v.id in sums for v in o.inputs):
            sums.add(out.id)
    return {v for v in sums if not sizes[v] < _LARGE} | _differences(oprs)


def extreme_products(oprs: Sequence[Opr]) -> set[int]:
    """Return float products that may overflow or vanish with other factors: with an extreme number, or before it."""
    extreme = [
        o for o in oprs if mode_of(o) in _FACTORS and any(_is_extreme(scalar_value(v)) for v in o.inputs)
    ]
    near = (v for o in extreme for v in (*o.inputs, o.outputs[0]) if mode_of(v.owner) in _PRODUCTS)
    return {v.id for v in near if v.dtype is not None and v.dtype.is_float}


def _is_extreme(number: float | None) -> bool:
    return number is not None and (number == 0 or number - number != 0 or abs(frexp(number)[1]) > _EXTREME)


def _differences(oprs: Sequence[Opr]) -> set[int]:
    """Return the differences of two float variables, and multiples of such, whose values nothing but sums reads."""
    differences: set[int] = set()
    read: set[int] = set()
    readers = Counter(v.id for o in oprs if o.type not in _SIZES for v in o.inputs)
    for o in oprs:
        mode, dtype = mode_of(o), o.outputs[0].dtype if o.outputs else None
        if mode in _MUL_ADDS:
            # Its third input is a term.
            read.update(v.id for i, v in enumerate(o.inputs) if i != 2 or len(o.inputs) == 4)
        elif mode not in _SUMS and o.type not in _SIZES:
            read.update(v.id for v in o.inputs)
        if mode not in _SUMS | _PRODUCTS or dtype is None or not dtype.is_float:
            continue
        variables = [v for v in o.inputs if v.owner.type not in _STORED]
        if mode in _PRODUCTS or len(o.inputs) == 1:
            is_one = len(variables) == 1 and variables[0].id in differences and readers[variables[0].id] == 1
        else:
            negated = mode == ElemwiseMode.SUB or any(
                mode_of(v.owner) == ElemwiseMode.NEGATE for v in variables
            )
            is_one = negated and len(variables) == len(o.inputs)
        if is_one:
            differences.add(o.outputs[0].id)
    return differences - read


def _largest(var: Var) -> float:
    """Return the largest absolute value of a stored tensor of floats, 1 for other types."""
    tensor = var.owner.tensors[var.index]
    if not tensor.dtype.is_float or not prod(tensor.shape or ()):
        return 1.0
    value = tensor.value()
    return float(max(abs(value.min()), abs(value.max())))


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
    return real and (compares or mode_of(opr) in _STEPS or rounds(opr))


def rounds(opr: Opr) -> bool:
    """Return whether an operator rounds to whole numbers by adding so large a one that nothing is kept behind them."""
    adds = mode_of(opr) in (ElemwiseMode.ADD, ElemwiseMode.FUSE_ADD_RELU)
    return adds and any((scalar_value(v) or 0) >= _WHOLE for v in opr.inputs)


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
        joined = var is end or (r.single(var) and not is_large(r, var))
        inside = mode_of(opr) == mode and not r.frozen(opr) and joined
        if inside and uniform(r, opr) is not None:
            stack.extend(reversed(opr.inputs))
        else:
            terms.append(var)
    return terms
