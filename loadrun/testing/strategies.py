"""Hypothesis strategies: dtypes, parameter records, tensors, graphs of any operators.

Needs the package hypothesis. The graphs are right in form and may compute nonsense: they are for readers, writers and
passes, not for kernels.

>>> from loadrun.testing.strategies import graphs
>>> type(graphs().example()).__name__  # doctest: +SKIP
'Graph'
"""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..graph import Graph, Metadata, StoredTensor, TensorFormat, Var
from ..graph.dtypes import DType, nbytes
from ..graph.params import AxisDesc, DTypeScalar, Host2DeviceCopy, IndexItem, Record, RecordField
from ..ops.catalog import CATALOG, TypeParam
from ..ops.op import Op

_F32 = DType("Float32")
_RANGE = {
    "ubyte": (0, 2**8 - 1),
    "byte": (-(2**7), 2**7 - 1),
    "uint": (0, 2**32 - 1),
    "int": (-(2**31), 2**31 - 1),
    "ulong": (0, 2**64 - 1),
}
dtypes = st.one_of(
    st.sampled_from(
        [DType(n) for n in ("Float32", "Float16", "Int32", "Uint8", "Bool", "BFloat16", "Complex64")]
    ),
    st.builds(
        lambda n, s, z: DType(n, s, z if "Asymm" in n else 0),
        st.sampled_from(["QuantizedS8", "Quantized8Asymm", "QuantizedS32", "QuantizedS4", "Quantized4Asymm"]),
        st.floats(width=32, min_value=2.0**-20, max_value=2.0**20),
        st.integers(0, 255),
    ),
)


def _field(f: RecordField) -> st.SearchStrategy[Any]:
    if f.enum is not None:
        if f.enum.__name__ == "Strategy":
            return st.integers(0, 15).map(f.enum)
        return st.sampled_from(list(f.enum))
    if f.wire == "bool":
        return st.booleans()
    if f.wire in ("float", "double"):
        return st.floats(width=32 if f.wire == "float" else 64)
    if f.wire == "[int]":
        return st.lists(st.integers(*_RANGE["int"]), max_size=6).map(tuple)
    if f.wire == "[AxisDesc]":
        item = st.builds(AxisDesc, st.integers(0, 1), st.integers(*_RANGE["int"]))
        return st.lists(item, max_size=4).map(tuple)
    if f.wire == "[IndexItem]":
        place = st.builds(IndexItem, st.integers(*_RANGE["byte"]), *[st.booleans()] * 4)
        return st.lists(place, max_size=4).map(tuple)
    if f.wire == "DTypeScalar":
        return st.builds(DTypeScalar, st.integers(0, 21), st.binary(min_size=4, max_size=4))
    if f.wire == "DType":
        return dtypes
    return st.integers(*_RANGE[f.wire])


def records(kind: type[Record]) -> st.SearchStrategy[Record]:
    """Draw records of a kind, every field free within its wire type."""
    if kind is TypeParam:
        return dtypes.map(lambda d: TypeParam(dtype=d))
    return st.fixed_dictionaries({f.name: _field(f) for f in kind.fields()}).map(lambda v: kind(**v))


names = st.one_of(st.none(), st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12))
shapes = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def tensors(draw: st.DrawFn, value: bool) -> StoredTensor:
    """Draw a stored tensor, with random bytes when it has a value."""
    dtype, shape = draw(dtypes), draw(shapes)
    data = None
    if value:
        size = nbytes(shape, dtype)
        data = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    node = draw(st.sampled_from(["xpux:0", "cpux:0", "cpu0:1"]))
    return StoredTensor(dtype, shape, draw(names), data, node)


_FORMATS = [
    TensorFormat(1),
    TensorFormat(2, align_axis=3),
    TensorFormat(3, size_nbits=4, align_size_in_bits=8),
]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph of any operators of the catalog: well-formed, but possibly meaningless."""
    graph = Graph()
    (x,) = graph.add(
        "Host2DeviceCopy",
        Host2DeviceCopy(),
        names=["x"],
        tensors=[StoredTensor(_F32, draw(st.none() | shapes), "x")],
    )
    known = [x]
    dumped = sorted(n for n, op in CATALOG.items() if op.category != "composite")
    for name in draw(st.lists(st.sampled_from(dumped), max_size=8)):
        known += _operator(draw, graph, CATALOG[name], known)
    graph.outputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    graph.header.original_ids = draw(
        st.lists(st.integers(0, 99), min_size=len(graph.outputs), max_size=len(graph.outputs))
    )
    graph.header.metadata = draw(
        st.none()
        | st.builds(Metadata, st.booleans(), st.booleans(), st.integers(0, 2**64 - 1), st.binary(max_size=9))
    )
    graph.header.has_middle_tensors = draw(st.booleans())
    return graph


def _operator(draw: st.DrawFn, graph: Graph, op: Op, known: list[Var]) -> list[Var]:
    stored = []
    if op.category == "io" and op.name != "Host2DeviceCopy":
        count = draw(st.integers(1, 3)) if op.name.startswith("Multiple") else 1
        stored = [draw(tensors(True)) for _ in range(count)]
        if "WithFormat" in op.name:
            for t in stored:
                t.format = draw(st.sampled_from(_FORMATS))
    elif op.name == "Host2DeviceCopy":
        default = draw(st.booleans())
        stored = [draw(tensors(default))]
        stored[0].name = f"in{len(graph.oprs)}"
    params = [draw(records(kind)) for kind in op.params]
    if op.name == "Host2DeviceCopy":
        params = [Host2DeviceCopy(dump_default_value=default)]
    if op.name == "CondExecMerge":
        params = [p.replace(nr_output=draw(st.integers(0, 4))) for p in params]
    roles = op.inputs.split()
    least = sum(not r.endswith(("?", "...")) for r in roles)
    most = least + 2 if any(r.endswith("...") for r in roles) else len(roles)
    inputs = draw(st.lists(st.sampled_from(known), min_size=least, max_size=most))
    outputs = graph.add(op.name, *params, inputs=inputs, n_outputs=0, tensors=stored)
    opr = graph.oprs[-1]
    first = graph.n_vars
    for i in range(max(op.n_outputs(opr), 0)):
        opr.outputs.append(Var(first + i, opr, i))
    outputs = opr.outputs
    opr.output_dtype = draw(st.none() | dtypes)
    opr.name = draw(names)
    nodes = draw(st.lists(st.sampled_from(["xpux:0", "gpu0:1"]), max_size=2))
    blobs = [] if stored else draw(st.lists(st.binary(max_size=5), max_size=2))
    priority = draw(st.sampled_from([0, -(2**31), 2**31 - 1]))
    opr.dumped = opr.dumped._replace(comp_node=tuple(nodes), priority=priority, blobs=tuple(blobs))
    return outputs
