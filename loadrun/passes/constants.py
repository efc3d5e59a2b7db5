"""The variables of a graph that are the same in every run, and their values, computed on demand."""

from __future__ import annotations

import numpy as np

from ..base.errors import EngineError
from ..graph import Opr, Var
from ..graph.dtypes import Array, DType
from ..ops.budget import pay_operator
from ..ops.catalog import CATALOG, types
from ..ops.kernels import kernel_of
from ..ops.op import Trait
from ..ops.registry import Call

__all__ = ["Constants", "dtype_of", "is_pure", "is_stored"]

_CONSTANTS = types(Trait.CONSTANT)


def is_pure(opr: Opr) -> bool:
    """Tell whether an operator gives the same for the same inputs and does nothing else.

    >>> is_pure(Opr("Dimshuffle")), is_pure(Opr("UniformRNGV1")), is_pure(Opr("AssertEqual"))
    (True, False, False)
    """
    known = CATALOG.get(opr.type)
    return known is not None and known.pure


def is_stored(var: Var) -> bool:
    """Tell whether a variable is a constant that is stored, not computed."""
    return var.owner.type in _CONSTANTS


def dtype_of(var: Var) -> DType:
    """Return the data type of a variable after inference.

    Raises:
        EngineError: it is not inferred yet.
    """
    if var.dtype is None:
        raise EngineError(f"the dtype of {var.label!r} is not inferred yet")
    return var.dtype


class Constants:
    """The known constants of a growing graph; variables are told apart by their ids.

    >>> from loadrun.graph.dtypes import encode
    >>> from loadrun.graph import Graph, StoredTensor
    >>> from loadrun.graph.params import Elemwise, ElemwiseMode
    >>> g, one = Graph(), np.ones(1, np.float32)
    >>> held = StoredTensor(DType("Float32"), (1,), None, encode(one, DType("Float32")))
    >>> (x,) = g.add("ImmutableTensor", tensors=[held])
    >>> (y,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[x, x])
    >>> x.dtype = y.dtype = DType("Float32")
    >>> Constants().scalar(y)
    2.0
    """

    def __init__(self) -> None:
        self._constant: dict[int, bool] = {}
        self._values: dict[int, Array] = {}

    def clear(self) -> None:
        """Forget everything, since variables are numbered anew."""
        self._constant.clear()
        self._values.clear()

    def keep(self, var: Var, value: Array) -> None:
        """Note the value of a constant, which need not be decoded then."""
        self._values[var.id] = value

    def holds(self, var: Var) -> bool:
        """Tell whether a variable is the same in every run."""
        stack = [var]
        while stack:
            at = stack[-1]
            if at.id in self._constant:
                stack.pop()
                continue
            opr = at.owner
            if opr.type in _CONSTANTS or not opr.inputs or not is_pure(opr):
                self._constant[at.id] = opr.type in _CONSTANTS or (not opr.inputs and is_pure(opr))
                continue
            todo = [v for v in opr.inputs if v.id not in self._constant]
            if todo:
                stack.extend(todo)
                continue
            self._constant[at.id] = all(self._constant[v.id] for v in opr.inputs)
        return self._constant[var.id]

    def value(self, var: Var) -> Array | None:
        """Return the value of a constant, None where it is none or cannot be computed."""
        if not self.holds(var):
            return None
        stack = [var]
        while stack:
            at = stack[-1]
            if at.id in self._values:
                stack.pop()
                continue
            todo = [v for v in at.owner.inputs if v.id not in self._values]
            if todo:
                stack.extend(todo)
            elif not self._execute(at.owner):
                return None
        return self._values[var.id]

    def scalar(self, var: Var) -> float | None:
        """Return the number that all elements of a constant hold, None where they differ or it is not a constant."""
        value = self.value(var)
        if value is None or not value.size or var.dtype is None or var.dtype.is_quantized:
            return None
        first = value.reshape(-1)[0]
        if value.dtype.kind not in "fiub" or (value.size > 1 and not (value == first).all()):
            return None
        return float(first)

    def _execute(self, opr: Opr) -> bool:
        call = Call(
            opr,
            tuple(dtype_of(v) for v in opr.inputs),
            tuple(dtype_of(v) for v in opr.outputs),
            (True,) * len(opr.inputs),
        )
        try:
            arrays = [self._values[v.id] for v in opr.inputs]
            pay_operator(opr, call.inputs, call.outputs, arrays)
            with np.errstate(all="ignore"):
                found = kernel_of(call)(call, *arrays)
        except Exception:
            # What cannot be computed stays in the graph; running it reports why.
            return False
        for v, array in zip(opr.outputs, found if isinstance(found, tuple) else (found,), strict=True):
            self._values[v.id] = array
        return True
