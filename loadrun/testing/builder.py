"""Building graphs by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.arguments import require_seed
from ..base.errors import UsageError
from ..graph import Graph, StoredTensor, Var
from ..graph.dtypes import Array, DType, encode
from ..graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy, Record

__all__ = ["GraphBuilder", "random_feeds"]

_F32 = DType("Float32")


class GraphBuilder:
    """A graph under construction: inputs, constants, operators, then `done`.

    Attributes:
        graph: what there is so far.

    >>> b = GraphBuilder()
    >>> x = b.input("x", 2, 3)
    >>> graph = b.done(b.elemwise("RELU", b.elemwise("ADD", x, b.const([1.0, -1.0, 0.0]))))
    >>> [o.title for o in graph.oprs], graph.outputs[0].name
    (['Host2DeviceCopy', 'ImmutableTensor', 'ADD', 'RELU'], 'out0')
    """

    def __init__(self) -> None:
        self.graph = Graph()

    def input(self, name: str, *shape: int, dtype: DType = _F32) -> Var:
        """Add an input of the model.

        Raises:
            UsageError: a size is negative.
        """
        if any(n < 0 for n in shape):
            raise UsageError(f"sizes must be at least 0, found the shape {shape} of the input {name!r}")
        tensor = StoredTensor(dtype, shape, name)
        return self.graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[tensor])[0]

    def const(self, value: npt.ArrayLike, dtype: DType = _F32, type: str = "ImmutableTensor") -> Var:
        """Add a constant; a number becomes an array of one element.

        Raises:
            UsageError: the value is no array of numbers.
        """
        numbers = np.asarray(value)
        if numbers.dtype.kind in "cOSUMm" or numbers.dtype.names:
            raise UsageError(f"a constant is an array of real numbers, found {numbers.dtype} values")
        array = np.atleast_1d(numbers.astype(dtype.np))
        return self.graph.add(type, tensors=[StoredTensor(dtype, array.shape, None, encode(array, dtype))])[0]

    def ints(self, *values: int) -> Var:
        """Add a constant row of int32 numbers, such as a shape."""
        return self.const(values, DType("Int32"))

    def elemwise(self, mode: str | ElemwiseMode, *inputs: Var, name: str | None = None) -> Var:
        """Add an Elemwise operator, its mode by name.

        Raises:
            UsageError: there is no such mode.
        """
        if isinstance(mode, str) and mode not in ElemwiseMode.__members__:
            raise UsageError(
                f"Elemwise has no mode {mode!r}; its modes are {', '.join(ElemwiseMode.__members__)}"
            )
        which = ElemwiseMode[mode] if isinstance(mode, str) else mode
        return self.add("Elemwise", Elemwise(mode=which), inputs=inputs, name=name)

    def add(
        self, type: str, *params: Record, inputs: Sequence[Var], name: str | None = None, **how: Any
    ) -> Var:
        """Add any operator and return its first output."""
        return self.graph.add(type, *params, inputs=inputs, names=[name], **how)[0]

    def done(self, *outputs: Var) -> Graph:
        """Return the graph with these outputs; those without a name are called ``out0``, ``out1``, ..."""
        for i, var in enumerate(outputs):
            var.name = var.name or f"out{i}"
        self.graph.outputs = list(outputs)
        return self.graph


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Draw values for a graph's inputs: floats from -1 to 1, integers from 0 to 254.

    Raises:
        UsageError: an input has no shape, or the seed is negative.
    """
    require_seed(seed)
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for var in graph.inputs:
        tensor = var.owner.tensors[0]
        if tensor.shape is None:
            raise UsageError(f"input {var.name!r} has no shape, so no values can be drawn for it")
        if tensor.dtype.is_float:
            feeds[var.name or ""] = rng.uniform(-1, 1, tensor.shape).astype(tensor.dtype.np)
        else:
            feeds[var.name or ""] = rng.integers(0, 255, tensor.shape).astype(tensor.dtype.np)
    return feeds
