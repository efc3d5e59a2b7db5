"""Runs one operator on arrays, in a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadrun.dtypes import DType, dtype_of, encode
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Tensor
from loadrun.ops.catalog import CATALOG
from loadrun.ops.infer import infer_dtypes, infer_shapes
from loadrun.params import Host2DeviceCopy, Record

Array = np.ndarray[Any, Any]


def graph_of(
    name: str,
    params: Sequence[Record] | Record,
    inputs: Sequence[Array],
    *,
    known: Sequence[int] = (),
    dtypes: dict[int, DType] | None = None,
    output_dtype: DType | None = None,
) -> Graph:
    """A graph of the operator; the inputs whose numbers are in `known` are constants."""
    g = Graph()
    variables = []
    for i, x in enumerate(inputs):
        dtype = (dtypes or {}).get(i) or dtype_of(x)
        tensor = Tensor(dtype, x.shape, f"i{i}", encode(x, dtype) if i in known else None)
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


def run(
    name: str,
    params: Sequence[Record] | Record,
    *inputs: Array,
    known: Sequence[int] = (),
    dtypes: dict[int, DType] | None = None,
    static: bool = True,
    seed: int = 0,
) -> list[Array]:
    """The operator's outputs; their dtypes and static shapes must be what the rules say.

    Args:
        known: numbers of inputs that are constants of the graph.
        static: whether the shapes must be known before the run.
    """
    g = graph_of(name, params, inputs, known=known, dtypes=dtypes)
    infer_dtypes(g.oprs)
    shapes = infer_shapes(g).shapes
    feeds = {f"i{i}": x for i, x in enumerate(inputs) if i not in known}
    before = {k: x.copy() for k, x in feeds.items()}
    found = ReferenceEngine(g, seed=seed).run(feeds)
    for k, x in feeds.items():
        np.testing.assert_array_equal(x, before[k], err_msg=f"{name} wrote into its input")
    for var, array in zip(g.outputs, found, strict=True):
        assert var.dtype is not None
        assert array.dtype == var.dtype.np
        assert array.ndim
        if static:
            assert var.id in shapes, f"the shape of {var.label} is not known statically"
        if var.id in shapes:
            assert shapes[var.id] == array.shape
    return found


def ints(*values: int) -> Array:
    return np.array(values, "i4")
