"""Chains of one elementwise operation, as the passes on sums and products see them."""

from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from math import frexp, inf, prod

import numpy as np

from ...graph import Graph, Opr, Var
from ...graph.dtypes import DType
from ...graph.params import Elemwise, ElemwiseMode, PowC
from ...ops.catalog import select, types
from ...ops.elemwise.modes import stored_scalar
from ...ops.elemwise.table import AFTER_SUM, INVERSE, ModeTrait, modes
from ...ops.op import Trait
from ..rewriter import Rewriter, each
from .identities import elemwise

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


# Sums and products in a normal form: one term per variable, differences and quotients as negated terms.
#
# MegEngine's ExpandFusedArith, NormalizeArithChain and FinalArithTransform. In between, `redistribute` and
# `reorder` find constants wherever they are in a chain; the last pass writes differences, quotients and
# powers as operators of their own again. Results agree to within rounding. Unlike MegEngine, roots are never
# merged with powers: ``(x ** 2) ** 0.5`` stays ``|x|``; terms that cancel altogether stay, since they are NaN
# where the term is infinite; and what a step shows to the last bit (`terms.on_grid`) stays as it is, so that
# quotients do not become products with a rounded inverse.

M = ElemwiseMode
_PLAIN_SUMS = modes(ModeTrait.SUM)
_CHAINED = select(lambda op: op.family == "elemwise.modes")


def expand_fused(graph: Graph) -> Graph:
    """Write FUSE_MUL_ADD3, FUSE_MUL_ADD4 and FUSE_ADD_* as the operators that they fuse."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        mode, dtype = opr.get(Elemwise).mode, uniform(r, opr)
        # Fused operators differ from the others when integers overflow.
        if dtype is None or not dtype.is_float:
            return None
        operands = [r.var(v) for v in opr.inputs]
        if mode == M.FUSE_MUL_ADD3:
            return elemwise(r, M.ADD, elemwise(r, M.MUL, *operands[:2]), operands[2])
        if mode == M.FUSE_MUL_ADD4:
            return elemwise(r, M.ADD, elemwise(r, M.MUL, *operands[:2]), elemwise(r, M.MUL, *operands[2:]))
        return elemwise(r, AFTER_SUM[mode], elemwise(r, M.ADD, *operands)) if mode in AFTER_SUM else None

    return each(graph, visit, "Elemwise")


def normalize_chains(graph: Graph) -> Graph:
    """Rewrite chains of sums and of products with differences, quotients or repeated terms."""
    r = Rewriter(graph)
    r.rewrite(partial(_rewritten, r))
    return r.finish()


def _rewritten(r: Rewriter, opr: Opr) -> Var | None:
    family = _family(r, opr)
    if family is M.ADD and is_large(r, opr.outputs[0]):
        return None
    return _normalized(r, opr, family) if family is not None and _ends(r, opr, family) else None


def _family(r: Rewriter, opr: Opr) -> ElemwiseMode | None:
    """Return ADD for sums and what becomes one, MUL for products, quotients and powers."""
    if opr.type not in _CHAINED or r.frozen(opr) or uniform(r, opr) is None:
        return None
    mode = mode_of(opr)
    if mode in _PLAIN_SUMS:
        return M.ADD
    if mode in _PRODUCTS or _exponent(opr) is not None:
        return M.MUL if opr.outputs[0].dtype is not None and opr.outputs[0].dtype.is_float else None
    return None


def _exponent(opr: Opr) -> float | None:
    """Return the constant exponent of a power."""
    if opr.type == "PowC":
        return opr.get(PowC).exp
    return stored_scalar(opr.inputs[1]) if mode_of(opr) == M.POW else None


def _ends(r: Rewriter, opr: Opr, family: ElemwiseMode) -> bool:
    var = opr.outputs[0]
    values = r.value_readers(var)
    return not r.single(var) or not values or r.frozen(values[0]) or _family(r, values[0]) is not family


def _terms_of(r: Rewriter, opr: Opr, family: ElemwiseMode) -> list[tuple[Var, float]] | None:
    """Return the terms of one operator with their coefficients (exponents), None if it is a term itself."""
    if opr.type not in _CHAINED or r.frozen(opr) or uniform(r, opr) is None:
        return None
    mode = mode_of(opr)
    if mode == family:
        return [(v, 1.0) for v in opr.inputs]
    if mode == INVERSE[family]:
        return [(opr.inputs[0], 1.0), (opr.inputs[1], -1.0)]
    if family == M.MUL:
        exponent = _exponent(opr)
        return [(opr.inputs[0], exponent)] if exponent is not None and exponent == int(exponent) else None
    if mode == M.NEGATE:
        return [(opr.inputs[0], -1.0)]
    if mode == M.MUL:
        for x, c in (opr.inputs, opr.inputs[::-1]):
            number = stored_scalar(c)
            if number is not None and stored_scalar(x) is None:
                return [(x, number)]
    if mode == M.TRUE_DIV and opr.outputs[0].dtype is not None and opr.outputs[0].dtype.is_float:
        number = stored_scalar(opr.inputs[1])
        return [(opr.inputs[0], float(np.float32(1) / np.float32(number)))] if number else None
    return None


def _normalized(r: Rewriter, end: Opr, family: ElemwiseMode) -> Var | None:
    queue = deque([(end.outputs[0], 1.0)])
    terms: dict[int, tuple[Var, float]] = {}
    negative = scaled = count = 0
    powers = False
    while queue:
        var, factor = queue.popleft()
        opr = var.owner
        parts = _terms_of(r, opr, family) if opr is end or (r.single(var) and not is_large(r, var)) else None
        if parts is None and opr is end:
            return None
        if parts is None:
            count += 1
            new = r.var(var)
            terms[new.id] = (new, factor + terms.get(new.id, (new, 0.0))[1])
            continue
        negative += mode_of(opr) == INVERSE[family]
        scaled += len(parts) == 1 and parts[0][1] != 1
        powers |= opr.type == "PowC"
        queue.extend((v, factor * c) for v, c in parts)
    if not (negative or scaled >= 2 or count > len(terms) or powers):
        return None
    if any(not np.isfinite(c) or c == 0 or (len(terms) == 1 and c == 1) for _, c in terms.values()):
        return None
    return _written(r, list(terms.values()), family)


def _written(r: Rewriter, terms: list[tuple[Var, float]], family: ElemwiseMode) -> Var:
    total: Var | None = None
    for x, factor in terms:
        term = x
        if factor != 1:
            if family == M.MUL:
                (term,) = r.add("PowC", PowC(exp=factor), inputs=[x])
            elif factor == -1:
                term = elemwise(r, M.NEGATE, x)
            else:
                dtype = r.dtype(x)
                term = elemwise(r, M.MUL, x, r.put(np.array([factor]).astype(dtype.np), dtype))
        total = term if total is None else elemwise(r, family, total, term)
    assert total is not None
    return total


def finish_arithmetic(graph: Graph) -> Graph:
    """Write sums with negated terms as differences, products with inverse factors as quotients, and constant powers
    as PowC."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        if uniform(r, opr) is None:
            return None
        mode = mode_of(opr)
        if mode == M.POW:
            exponent = _exponent(opr)
            return (
                None
                if exponent is None
                else r.add("PowC", PowC(exp=exponent), inputs=[r.var(opr.inputs[0])])[0]
            )
        if mode not in INVERSE:
            return None
        a, b = (r.var(v) for v in opr.inputs)
        first, second = _inverse(a, mode), _inverse(b, mode)
        back = INVERSE[mode]
        if first is not None and second is not None:
            inner = elemwise(r, mode, first, second)
            if mode == M.ADD:
                return elemwise(r, M.NEGATE, inner)
            return r.add("PowC", PowC(exp=-1.0), inputs=[inner])[0]
        if first is not None:
            return elemwise(r, back, b, first)
        return elemwise(r, back, a, second) if second is not None else None

    return each(graph, visit, "Elemwise")


def _inverse(var: Var, mode: ElemwiseMode) -> Var | None:
    opr = var.owner
    if mode == M.ADD:
        return opr.inputs[0] if mode_of(opr) == M.NEGATE else None
    return opr.inputs[0] if opr.type == "PowC" and opr.get(PowC).exp == -1 else None
