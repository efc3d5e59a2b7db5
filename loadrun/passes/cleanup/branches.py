"""Conditional execution whose conditions are constants (MegEngine's CondExecConstPredicateFolding)."""

import numpy as np

from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array
from ...graph.params import CondExecMerge, CondExecMergeMode, ElemwiseMode
from ...ops.control import CONDITIONAL, PREDICATES, find_branches
from ...ops.infer import kernel_of
from ...ops.registry import Call
from ..arithmetic.identities import elemwise
from ..rewriter import EMPTY, Rewriter


def fold_branches(graph: Graph) -> Graph:
    """Keep the branches that are taken and drop the others, if every condition of the graph follows from constants.

    A graph of which an output is in a branch that is not taken stays as it is.
    """
    oprs = graph.needed()
    if not any(o.type in CONDITIONAL for o in oprs):
        return graph
    r = Rewriter(graph)
    fold = _Fold(r)
    for opr in r.oprs:
        if not fold.visit(opr):
            return graph
    if any(v.id not in fold.known for v in graph.outputs):
        return graph
    return r.finish()


class _Fold:
    def __init__(self, rewriter: Rewriter) -> None:
        self.r = rewriter
        self.branches = find_branches(rewriter.oprs)
        self.flags: dict[int, Array] = {}
        # Old variables with a known value.
        self.known: set[int] = set()

    def visit(self, opr: Opr) -> bool:
        """Handle one operator; False if a condition is not a constant."""
        r = self.r
        guard = self.branches.guard.get(opr.id)
        taken = guard is None or bool(self.flags[guard.id].any())
        if opr.type in PREDICATES:
            return self.predicate(opr, taken)
        if not taken:
            return True
        if opr.type == "CondExecMark":
            for old, source in zip(opr.outputs, opr.inputs, strict=False):
                self.put(old, r.var(source))
        elif opr.type == "CondExecMarkIfNeed":
            self.put(opr.outputs[0], r.var(opr.inputs[1]))
        elif opr.type == "CondExecMerge":
            return self.merge(opr)
        else:
            r.copy(opr)
            self.known.update(v.id for v in opr.outputs)
        return True

    def put(self, old: Var, new: Var) -> None:
        """Let a new variable stand for an old one that has a value."""
        self.r.replace(old, new)
        self.known.add(old.id)

    def predicate(self, opr: Opr, taken: bool) -> bool:
        """Compute flags."""
        r = self.r
        if not taken:
            # Branches inside an untaken branch are not taken either.
            self.flags.update((v.id, np.zeros(1, np.int32)) for v in opr.outputs)
            return True
        values = [self.flags[v.id] if v.id in self.flags else r.value(r.var(v)) for v in opr.inputs]
        if any(v is None for v in values):
            return False
        types = tuple(v.dtype for v in opr.inputs if v.dtype is not None)
        call = Call(opr, types, tuple(v.dtype for v in opr.outputs if v.dtype is not None))
        flags = kernel_of(call)(call, *values)
        for var, flag in zip(opr.outputs, flags if isinstance(flags, tuple) else (flags,), strict=True):
            self.flags[var.id] = np.asarray(flag)
        return True

    def merge(self, opr: Opr) -> bool:
        """Put the values of the branches that are taken in the place of a merge."""
        r, p = self.r, opr.get(CondExecMerge)
        taken = [i for i, v in enumerate(self.branches.merged[opr.id]) if self.flags[v.id].any()]
        exact = p.mode in (CondExecMergeMode.EXACT_ONE, CondExecMergeMode.EXACT_ONE_SAME_SHAPE)
        if exact and len(taken) != 1:
            return False
        n = p.nr_output
        for i, old in enumerate(opr.outputs):
            values = [opr.inputs[b * n + i] for b in taken]
            if any(v.id not in self.known for v in values):
                return False
            if values:
                total = r.var(values[0])
                for v in values[1:]:
                    total = elemwise(r, ElemwiseMode.ADD, total, r.var(v))
                self.put(old, total)
            elif p.mode == CondExecMergeMode.SUM:
                shape = opr.inputs[len(self.branches.merged[opr.id]) * n + i]
                if shape.id not in self.known or old.dtype is None:
                    return False
                zero = r.put(np.zeros(1, old.dtype.np), old.dtype)
                self.put(old, r.add("Broadcast", *EMPTY, inputs=[zero, r.var(shape)])[0])
        return True
