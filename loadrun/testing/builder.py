"""Building graphs by hand, and one operator in a graph of its own, run on arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.arguments import require_seed
from ..base.errors import UsageError
from ..engines.reference import ReferenceEngine
from ..graph import Graph, StoredTensor, Var
from ..graph.dtypes import Array, DType, dtype_of, encode
from ..graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy, Record
from ..ops.catalog import CATALOG
from ..ops.infer import infer_dtypes, infer_shapes

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


def operator_graph(
    name: str,
    params: Sequence[Record] | Record,
    inputs: Sequence[Array],
    *,
    known: Sequence[int] = (),
    dtypes: dict[int, DType] | None = None,
    output_dtype: DType | None = None,
) -> Graph:
    """Make a graph of one operator.

    Args:
        name: its name in the catalog.
        params: its parameter records.
        inputs: an example of every input, for dtypes and shapes, a number being one element; the graph's inputs are
            named ``i0``, ``i1``, ...
        known: numbers of the inputs that are constants of the graph.
        dtypes: dtypes of inputs whose array does not tell (quantized ones), by number.
        output_dtype: the dtype that the operator is configured to give.

    Raises:
        UsageError: no operator has this name, or no input such a number.

    >>> import numpy as np
    >>> from ..graph.params import Elemwise, ElemwiseMode
    >>> graph = operator_graph("Elemwise", Elemwise(mode=ElemwiseMode.EXP), [np.zeros(3, "f4")])
    >>> [o.type for o in graph.oprs]
    ['Host2DeviceCopy', 'Elemwise']
    """
    if name not in CATALOG:
        raise UsageError(f"no operator is called {name!r}; `loadrun info --operators` lists their names")
    if not {*known, *(dtypes or {})} <= {*range(len(inputs))}:
        numbers = [*known, *(dtypes or {})]
        raise UsageError(
            f"the inputs are numbered from 0 to {len(inputs) - 1}, found {numbers} in known and dtypes"
        )
    g = Graph()
    variables = []
    for i, x in enumerate(map(np.atleast_1d, inputs)):
        dtype = (dtypes or {}).get(i) or dtype_of(x)
        tensor = StoredTensor(dtype, x.shape, f"i{i}", encode(x, dtype) if i in known else None)
        if i in known:
            variables += g.add("ImmutableTensor", names=[f"i{i}"], tensors=[tensor])
        else:
            variables += g.add("Host2DeviceCopy", Host2DeviceCopy(), names=[f"i{i}"], tensors=[tensor])
    records = (params,) if isinstance(params, Record) else tuple(params)
    g.outputs = g.add(name, *records, inputs=variables, output_dtype=output_dtype)
    wanted = CATALOG[name].n_outputs(g.oprs[-1])
    if wanted > 1:
        g.oprs.pop()
        g.outputs = g.add(name, *records, inputs=variables, n_outputs=wanted, output_dtype=output_dtype)
    return g


def run_operator(
    name: str,
    params: Sequence[Record] | Record,
    *inputs: Array,
    known: Sequence[int] = (),
    dtypes: dict[int, DType] | None = None,
    output_dtype: DType | None = None,
    static: bool = True,
    seed: int = 0,
) -> list[Array]:
    """Run one operator on arrays and check that its outputs obey its dtype and shape rules.

    Args:
        name, params, known, dtypes, output_dtype: see `operator_graph`.
        inputs: the arrays, in storage dtypes.
        static: whether the outputs' shapes must be known before the run.
        seed: where random operators begin.

    Returns:
        the outputs, in storage dtypes.

    Raises:
        AssertionError: an output has another dtype or shape than its rule says, or an input was written into.
        EngineError: the operator does not take these inputs.

    >>> import numpy as np
    >>> from ..graph.params import Elemwise, ElemwiseMode
    >>> run_operator("Elemwise", Elemwise(mode=ElemwiseMode.NEGATE), np.array([1, -2], "f4"))
    [array([-1.,  2.], dtype=float32)]
    """
    graph = operator_graph(name, params, inputs, known=known, dtypes=dtypes, output_dtype=output_dtype)
    infer_dtypes(graph.oprs)
    shapes = infer_shapes(graph).shapes
    feeds = {f"i{i}": x for i, x in enumerate(map(np.atleast_1d, inputs)) if i not in known}
    before = {k: x.copy() for k, x in feeds.items()}
    outputs = ReferenceEngine(graph, seed=seed).run(feeds)
    for k, x in feeds.items():
        np.testing.assert_array_equal(x, before[k], err_msg=f"{name} modified its input")
    for var, array in zip(graph.outputs, outputs, strict=True):
        assert var.dtype is not None
        assert array.dtype == var.dtype.np
        assert array.ndim
        if static:
            assert var.id in shapes, f"the shape of {var.label} is not known statically"
        if var.id in shapes:
            assert shapes[var.id] == array.shape
    return outputs
