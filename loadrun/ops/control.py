"""Conditional execution: predicates, marks that open a branch, merges that close it.

Semantics follow MegEngine's ``cond`` operators. A predicate operator has one int32 output per branch, 1 where the
branch is taken. Whatever depends on a mark belongs to the mark's branch and is executed only when that output
is 1; `find_branches` tells which operators those are, the engine leaves them out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..base.errors import EngineError
from ..graph import Opr, Var, params as P
from ..graph.dtypes import Array, DType, plain
from .catalog import select
from .registry import Call, Shape, ShapeCall, int32, kernel
from .shape import target_shape

CONDITIONAL = select(lambda op: op.conditional)
"""The operators of conditional execution."""
PREDICATES = select(lambda op: op.name.startswith("CondExecPred"))
"""Those that give the flags by which branches are taken."""
_Mode = P.CondExecMergeMode


@dataclass(eq=False)
class Branches:
    """The operators that are executed only sometimes.

    Attributes:
        guard: by operator id the predicate variable that must be 1 for the operator to be executed.
        merged: by id of a merge the predicate variables of its branches.
    """

    guard: dict[int, Var] = field(default_factory=dict)
    merged: dict[int, tuple[Var, ...]] = field(default_factory=dict)


def find_branches(oprs: Iterable[Opr]) -> Branches:
    """Follow marks and merges through operators in execution order.

    Raises:
        EngineError: an operator mixes branches, or a predicate is used as an ordinary value.
    """
    oprs = list(oprs)
    finder = _Finder()
    if any(o.type in CONDITIONAL for o in oprs):
        for opr in oprs:
            finder.visit(opr)
    return finder.branches


class _Finder:
    def __init__(self) -> None:
        self.branches = Branches()
        # A branch goes by its predicate variable; outside all branches is None.
        self.branch: dict[int, Var] = {}
        self.parent: dict[int, Var | None] = {}

    def visit(self, opr: Opr) -> None:
        inside = self._of_inputs(opr)
        if opr.type == "CondExecMerge":
            self.branches.merged[opr.id] = self._merged(opr)
        marked = self._predicate_given(opr)
        if marked is not None:
            if inside is not None and not self._implies(marked, inside):
                raise EngineError(
                    f"{opr.type} (operator {opr.id}) takes values of branch {inside.label!r} into branch "
                    f"{marked.label!r}, which does not lie inside it"
                )
            inside = marked
        if inside is not None:
            self.branches.guard[opr.id] = inside
            self.branch.update((v.id, inside) for v in opr.outputs)
        if opr.type in PREDICATES:
            self.branch.update((v.id, v) for v in opr.outputs)
            self.parent.update((v.id, inside) for v in opr.outputs)

    def _predicate_given(self, opr: Opr) -> Var | None:
        """Return the predicate that opens the operator's branch, if the operator takes one."""
        if opr.type == "CondExecMarkIfNeed":
            return self.branch.get(opr.inputs[0].id)
        follows = opr.type == "CondExecMark" or (
            opr.type == "CondExecMerge" and opr.get(P.CondExecMerge).mode == _Mode.SUM_COND_OUT
        )
        if not follows:
            return None
        predicate = opr.inputs[-1]
        if predicate.owner.type not in PREDICATES:
            raise EngineError(
                f"the last input of {opr.type} (operator {opr.id}) must be a predicate, found {predicate.label!r}"
            )
        return predicate

    def _of_inputs(self, opr: Opr) -> Var | None:
        """Return the branch of the inputs as the operator sees it."""
        inside: Var | None = None
        predicate = self._predicate_given(opr)
        for i, var in enumerate(opr.inputs):
            if opr.type == "CondExecMarkIfNeed" and i == 0:
                continue
            if predicate is not None and var is predicate and i == len(opr.inputs) - 1:
                continue
            if var.owner.type in PREDICATES and opr.type != "CondExecPredLogical":
                raise EngineError(
                    f"{opr.type} (operator {opr.id}) takes the predicate {var.label!r} as a value"
                )
            branch = self.branch.get(var.id)
            if branch is not None and opr.type == "CondExecPredLogical":
                branch = self.parent[branch.id]
            elif branch is not None and opr.type == "CondExecMerge":
                # The shapes that follow the branches' values are known without executing anything.
                branch = self.parent[branch.id] if i < _n_values(opr) else None
            if branch is not None:
                inside = self._inner(opr, inside, branch)
        return inside

    def _inner(self, opr: Opr, a: Var | None, b: Var) -> Var:
        if a is None or self._within(b, a):
            return b
        if self._within(a, b):
            return a
        raise EngineError(
            f"{opr.type} (operator {opr.id}) mixes values of the branches {a.label!r} and {b.label!r}"
        )

    def _within(self, inner: Var, outer: Var) -> bool:
        at: Var | None = inner
        while at is not None and at is not outer:
            at = self.parent[at.id]
        return at is outer

    def _implies(self, marked: Var, inside: Var) -> bool:
        """Return whether a taken branch `marked` means that `inside` is taken too, as far as MegEngine proves it."""
        either = inside.owner
        mode = P.CondExecPredLogicalMode
        if (
            either.type == "CondExecPredLogical"
            and either.get(P.CondExecPredLogical).mode == mode.AND
            and len(either.inputs) == 1
        ):
            either = either.inputs[0].owner
        is_or = either.type == "CondExecPredLogical" and either.get(P.CondExecPredLogical).mode == mode.OR
        return marked is inside or self.parent[marked.id] is inside or (is_or and marked in either.inputs)

    def _merged(self, opr: Opr) -> tuple[Var, ...]:
        n = opr.get(P.CondExecMerge).nr_output
        values = opr.inputs[: _n_values(opr)]
        merged = []
        for i in range(0, len(values), n):
            branches = [self.branch.get(v.id) for v in values[i : i + n]]
            first = branches[0]
            if first is None or any(b is not first for b in branches):
                raise EngineError(
                    f"branch {i // n} of CondExecMerge (operator {opr.id}) does not lie in one branch"
                )
            merged.append(first)
        return tuple(merged)


# Predicates


def _pred_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    *keys, pred = inputs
    if not keys:
        raise ValueError("there is no key to compare the predicate with")
    if any(k != pred for k in keys):
        raise ValueError(f"all keys must be {pred} as the predicate, found {', '.join(map(str, keys))}")
    if not (pred.is_float or pred.np.kind in "iu") or pred.is_quantized:
        raise ValueError(f"the predicate cannot be {pred}")
    return (plain("Int32"),) * len(opr.outputs)


def _flags(s: ShapeCall) -> Sequence[Shape | None]:
    return ((1,),) * len(s.opr.outputs)


def _flag(taken: bool) -> Array:
    return np.array([taken], np.int32)


def _side(pred: Array, key: Array, eps: float) -> int:
    """Return -1, 0 or 1: whether the predicate is below, at or above the key."""
    for x in (pred, key):
        if x.shape != (1,):
            raise ValueError(f"predicate and keys must be scalars, found shape {list(x.shape)}")
    p, k = pred[0], key[0]
    if p == k if pred.dtype.kind in "iu" else np.abs(p - k) < np.float32(eps):
        return 0
    return -1 if p < k else 1


@kernel("CondExecPred", dtype=_pred_dtype, shape=_flags)
def cond_exec_pred(c: Call, *args: Array) -> tuple[Array, ...]:
    """Return which branches are taken, one int32 per branch.

    CASE: those whose key equals the predicate (floats: to within `eps`); CASE_FALLBACK: one more branch for when
    none does; PIECEWISE: the interval between neighbouring keys that holds the predicate, its left end included.

    Raises:
        ValueError: predicate or key is no scalar.
    """
    p = c.get(P.CondExecPred)
    *keys, pred = args
    sides = [_side(pred, k, p.eps) for k in keys]
    if p.mode == P.CondExecPredMode.PIECEWISE:
        pairs = zip([1, *sides], [*sides, -1], strict=True)
        return tuple(_flag(left >= 0 and right < 0) for left, right in pairs)
    flags = [s == 0 for s in sides]
    if p.mode == P.CondExecPredMode.CASE_FALLBACK:
        flags.append(not any(flags))
    return tuple(map(_flag, flags))


@kernel("CondExecPredLogical", dtype=int32, shape=_flags)
def cond_exec_pred_logical(c: Call, *flags: Array) -> Array:
    """Join predicates by OR, AND or XOR, or negate one."""
    name = c.get(P.CondExecPredLogical).mode.name
    taken = [bool(f.any()) for f in flags]
    if name in ("OR", "NOR"):
        combined = any(taken)
    elif name in ("AND", "NAND"):
        combined = all(taken)
    else:
        combined = sum(taken) % 2 == 1
    return _flag(combined != name.startswith(("NOR", "NAND", "XN")))


# Marks


@kernel("CondExecMark", dtype=lambda opr, inputs: inputs[:-1], shape=lambda s: s.shapes[:-1])
def cond_exec_mark(c: Call, *args: Array) -> tuple[Array, ...]:
    """Return all inputs but the last, which is the predicate of the branch that they enter."""
    return args[:-1]


@kernel("CondExecMarkIfNeed", dtype=lambda opr, inputs: (inputs[1],), shape=lambda s: (s.shapes[1],))
def cond_exec_mark_if_need(c: Call, like: Array, x: Array) -> Array:
    """Return the second input, in the branch of the first one if that is in any."""
    return x


# Merge


def _n_values(opr: Opr) -> int:
    """Count the inputs of a merge that are branch values."""
    p = opr.get(P.CondExecMerge)
    extra = {_Mode.SUM: p.nr_output, _Mode.SUM_COND_OUT: 1}.get(p.mode, 0)
    n = len(opr.inputs) - extra
    if p.nr_output < 1 or n < p.nr_output or n % p.nr_output:
        raise ValueError(f"{len(opr.inputs)} inputs do not make whole branches of {p.nr_output} outputs")
    return n


def _merge_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    n = opr.get(P.CondExecMerge).nr_output
    values = inputs[: _n_values(opr)]
    for i, d in enumerate(values):
        if d != values[i % n]:
            raise ValueError(f"branch {i // n} gives {d} where branch 0 gives {values[i % n]}")
    return values[:n]


def _merge_shape(s: ShapeCall) -> Sequence[Shape | None]:
    p = s.get(P.CondExecMerge)
    total, n = _n_values(s.opr), p.nr_output
    shapes: list[Shape | None] = []
    for i in range(n):
        branches = [s.shapes[j] for j in range(i, total, n)]
        if p.mode == _Mode.SUM:
            value = s.values[total + i]
            shapes.append(None if value is None else target_shape(value))
        elif p.mode == _Mode.EXACT_ONE:
            shapes.append(branches[0] if len(set(branches)) == 1 else None)
        else:
            shapes.append(next((b for b in branches if b is not None), None))
    return shapes


@kernel("CondExecMerge", dtype=_merge_dtype, shape=_merge_shape)
def cond_exec_merge(c: Call, *args: Array) -> tuple[Array, ...]:
    """Return the values of the branch that was taken, or for the SUM modes the sum over those that were.

    The engine adds the branches' predicates to the operator's own inputs. SUM gives zeros of the shapes in its
    last inputs when no branch was taken.

    Raises:
        ValueError: the EXACT_ONE modes found no branch taken or several, or shapes differ between branches.
    """
    p = c.get(P.CondExecMerge)
    n, total, inputs = p.nr_output, _n_values(c.opr), len(c.opr.inputs)
    taken = [i for i, flag in enumerate(args[inputs:]) if flag.any()]
    if p.mode in (_Mode.EXACT_ONE, _Mode.EXACT_ONE_SAME_SHAPE) and len(taken) != 1:
        raise ValueError(f"exactly one branch must be taken, found {taken or 'none'}")
    out = []
    for i in range(n):
        values = [args[b * n + i] for b in taken]
        shapes = {v.shape for v in values}
        if p.mode == _Mode.SUM:
            if not args[total + i].size:
                raise ValueError(f"the shape of output {i} follows from a branch that was not taken")
            shapes.add(target_shape(args[total + i]))
        if len(shapes) != 1:
            raise ValueError(f"output {i} has different shapes: {', '.join(str(list(s)) for s in shapes)}")
        if not values:
            out.append(np.zeros(shapes.pop(), c.outputs[i].np))
            continue
        result = values[0]
        for v in values[1:]:
            result = np.add(result, v)
        out.append(result)
    return tuple(out)
