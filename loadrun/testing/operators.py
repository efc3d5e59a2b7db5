"""One operator in a graph of its own, run on arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadrun.base.errors import UsageError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType, dtype_of, encode
from loadrun.graph.params import Host2DeviceCopy, Record
from loadrun.ops.catalog import CATALOG
from loadrun.ops.infer import infer_dtypes, infer_shapes

__all__ = ["operator_graph", "run_operator"]

Array = np.ndarray[Any, Any]


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
    >>> from loadrun.graph.params import Elemwise, ElemwiseMode
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
    >>> from loadrun.graph.params import Elemwise, ElemwiseMode
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
