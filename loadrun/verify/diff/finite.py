"""NaN, infinity and numbers that a dtype cannot hold, in two runs that are compared."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...graph import Graph, Var
from ...graph.dtypes import Array
from .blaming import SuspectVar
from .matching import is_constant
from .watching import Finding, beyond_range, watch


class Finiteness:
    """Looks at the values of two runs, one after another.

    Args:
        graph: the model, without checks.
        wide: whether the second run is in float64.
    """

    def __init__(self, graph: Graph, *, wide: bool = False) -> None:
        self._graph, self._wide = graph, wide
        self._outputs = {v.id for v in graph.outputs}
        self._beyond: dict[int, Finding] = {}
        self._infinite = False

    def see(self, var: Var, actual: Array, expected: Array) -> None:
        """Take note of a variable's values in the two runs, in execution order."""
        if self._wide and (limits := beyond_range(var, expected, self._beyond)) is not None:
            self._beyond[var.id] = limits
        if var.id in self._outputs and actual.dtype.kind == "f":
            self._infinite |= not np.isfinite(actual).all()

    def findings(self, feeds: Mapping[str, Array], seed: int) -> list[Finding]:
        """List where dtypes are left, and if an output is not finite, where NaN and infinity begin."""
        watched = watch(self._graph, feeds, seed=seed) if self._infinite else []
        beyond = [f for f in self._beyond.values() if f.origin]
        told = {f.var.id for f in beyond}
        return [*beyond, *(f for f in watched if f.origin and f.var.id not in told)]


def overflowed(graph: Graph, rows: Sequence[SuspectVar], feeds: Mapping[str, Array]) -> set[int]:
    """List values that are the same NaN or infinity on both sides, though nothing that they come from is.

    Any number behind them may be wrong and agree all the same. Infinities of constants and inputs, such as a mask's,
    are what the model means.

    Args:
        graph: the model.
        rows: what was compared.
        feeds: arrays by input name.
    """
    state = {r.var.id: r for r in rows}
    if not any(r.distance is not None and r.distance.nonfinite for r in rows):
        return set()
    meant: set[int] = set()
    bad: set[int] = set()
    for opr in graph.oprs:
        expected_so = any(v.id in meant for v in opr.inputs)
        for var in opr.outputs:
            if opr.tensors:
                value = opr.tensors[var.index].value() if is_constant(var) else feeds.get(var.name or "")
                if value is not None and value.dtype.kind == "f" and not np.isfinite(value).all():
                    meant.add(var.id)
                continue
            row = state.get(var.id)
            if row is not None and not (row.distance is not None and row.distance.nonfinite):
                continue
            if row is not None and (not expected_so or any(v.id in bad for v in opr.inputs)):
                bad.add(var.id)
            elif expected_so:
                meant.add(var.id)
    return bad
