"""Computing variables of a growing graph when they are asked for."""

from __future__ import annotations

import numpy as np

from ..engines.program import execute, make_step
from ..graph import Opr, Var
from ..graph.dtypes import Array
from ..ops.budget import pay_operator, unlimited
from ..ops.catalog import types
from ..ops.control import Branches
from ..ops.numeric.parallel import blas_serial
from ..ops.op import Trait
from ..tensors.apply import generator

__all__ = ["Evaluator"]

_NO_BRANCHES = Branches()
_RANDOM = types(Trait.RANDOM)


class Evaluator:
    """Values of variables by id; every operator is executed at most once.

    Attributes:
        values: what is known; graph inputs must be put there.
    """

    def __init__(self) -> None:
        self.values: dict[int, Array] = {}

    def value(self, var: Var) -> Array:
        """Return the value of a variable; computes what it depends on."""
        found = self.values.get(var.id)
        if found is not None:
            return found
        steps = [make_step(o, (), _NO_BRANCHES) for o in self._missing(var)]
        # numpy.random is a package of its own, which takes time to import.
        rng = generator() if any(s.call.opr.type in _RANDOM for s in steps) else None
        with np.errstate(all="ignore"), blas_serial():
            if unlimited():
                execute(steps, self.values, rng)
            for step in () if unlimited() else steps:
                opr, arrays = step.call.opr, [self.values[v] for v in step.needs]
                pay_operator(opr, step.call.inputs, step.call.outputs, arrays)
                execute([step], self.values, rng)
        return self.values[var.id]

    def _missing(self, var: Var) -> list[Opr]:
        stack, seen = [var.owner], dict[int, Opr]()
        while stack:
            opr = stack.pop()
            if opr.id in seen:
                continue
            seen[opr.id] = opr
            stack.extend(v.owner for v in opr.inputs if v.id not in self.values)
        return [seen[i] for i in sorted(seen)]
