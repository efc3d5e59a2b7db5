"""Narrowing: the form of a graph that a .mge file can hold, in MegEngine's dtypes and with its operators alone.

Float64 becomes Float32; Int64, Uint32 and Uint64 become Int32. Constants that do not fit become the nearest number.
"""

import numpy as np

from ..graph import Graph, Opr, StoredTensor, Var, params as P
from ..graph.dtypes import Array, DType, encode, plain
from ..graph.params import ElemwiseMode as M
from ..ops.catalog import TypeParam, select, types
from ..ops.infer import infer_dtypes
from ..ops.op import Trait
from .constants import number, subgraph

_NARROW = {"Float64": plain("Float32"), **dict.fromkeys(("Int64", "Uint32", "Uint64"), plain("Int32"))}
_INT, _SHORT, _BYTE, _HALF, _FLOAT = (plain(n) for n in ("Int32", "Int16", "Int8", "Float16", "Float32"))
_CONSTANTS = types(Trait.CONSTANT)
_POOLINGS = select(lambda op: op.family == "pooling")
_PRODUCTS = select(lambda op: P.MatrixMul in op.params)


def narrow_dtype(dtype: DType) -> DType:
    """Return the dtype that stands for one in a .mge file.

    >>> str(narrow_dtype(DType("Uint64"))), str(narrow_dtype(DType("Float16")))
    ('Int32', 'Float16')
    """
    return _NARROW.get(dtype.name, dtype)


def narrow_array(array: Array, dtype: DType) -> Array:
    """Return a value of a dtype as a .mge file holds it; integers out of range become the nearest one.

    >>> narrow_array(np.array([2**40, -1]), DType("Int64")).tolist()
    [2147483647, -1]
    """
    want = narrow_dtype(dtype).np
    if array.dtype == want:
        return array
    with np.errstate(all="ignore"):
        if want.kind == "f":
            return array.astype(want)
        limits = np.iinfo(want)
        low = limits.min if array.dtype.kind == "i" else 0
        return np.asarray(np.clip(array, low, limits.max), want)


def wide_dtypes(graph: Graph) -> list[str]:
    """Return the names of the dtypes in a graph that no .mge file holds, sorted."""
    infer_dtypes(graph.oprs)
    names = {v.dtype.name for v in graph.vars() if v.dtype is not None and v.dtype.is_wide}
    return sorted(names)


def narrowed(graph: Graph) -> tuple[Graph, dict[int, Var]]:
    """Return a graph in dtypes that a .mge file holds, and its variables by the ids that they had.

    >>> from loadrun.graph.params import Host2DeviceCopy
    >>> g = Graph(exact=True)
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Int64"), (2,), "x")])
    >>> g.outputs = g.add("TypeCvtV2", TypeParam(dtype=DType("Float64")), inputs=[x])
    >>> [str(v.dtype) for v in narrowed(g)[0].vars()]
    ['Int32', 'Float32']
    """
    infer_dtypes(graph.oprs)
    ends = {id(v) for v in graph.outputs}
    factors = _factors(graph)

    def convert(graph: Graph, opr: Opr, inputs: list[Var]) -> Var | None:
        if opr.type == "Softmax":
            return _safe_softmax(graph, opr, inputs[0])
        if opr.id in factors:
            return _whole_product(graph, opr, inputs, factors[opr.id])
        if opr.type in _POOLINGS:
            return _wide_maxima(graph, opr, inputs)
        if opr.type != "TypeCvtV2":
            return None
        source, target = (
            narrow_dtype(v.dtype) for v in (opr.inputs[0], opr.outputs[0]) if v.dtype is not None
        )
        if (
            source != target
            or not (opr.outputs[0].dtype or source).is_wide | (opr.inputs[0].dtype or source).is_wide
        ):
            return None
        if id(opr.outputs[0]) not in ends:
            return inputs[0]
        return graph.add("Identity", inputs=inputs, names=[opr.outputs[0].name])[0]

    copied, known = subgraph(graph, graph.outputs, everything=True, convert=convert)
    copied.exact = False
    for opr in copied.oprs:
        opr.exact = False
        opr.params = tuple(
            TypeParam(dtype=narrow_dtype(p.dtype)) if isinstance(p, TypeParam) else p for p in opr.params
        )
        opr.output_dtype = None if opr.output_dtype is None else narrow_dtype(opr.output_dtype)
        opr.tensors = [_tensor(t) for t in opr.tensors]
    return _without_products(copied, known)


def _safe_softmax(graph: Graph, opr: Opr, x: Var) -> Var | None:
    """Subtract the maximum first: MegEngine's float32 kernel gives NaN where all values are below -87."""
    if opr.inputs[0].dtype is None or narrow_dtype(opr.inputs[0].dtype).name != "Float32":
        return None
    (top,) = graph.add("ReduceV2", P.Reduce(mode=P.ReduceMode.MAX, axis=opr.get(P.Softmax).axis), inputs=[x])
    (y,) = graph.add("Softmax", *opr.params, inputs=[_elem(graph, M.SUB, x, top)])
    y.name, y.owner.name = opr.outputs[0].name, opr.name
    return y


def _factors(graph: Graph) -> dict[int, int | None]:
    """Find products of integers that data decide, by operator; one factor's place where it is a number of 16 bits.

    Products of sizes are few at a time, which MegEngine multiplies exactly.
    """
    products: dict[int, int | None] = {}
    data: set[int] = set()
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy" or (
            opr.type != "GetVarShapeV1" and any(v.id in data for v in opr.inputs)
        ):
            data.update(v.id for v in opr.outputs)
        if opr.type != "Elemwise" or opr.get(P.Elemwise).mode != M.MUL:
            continue
        dtype = opr.outputs[0].dtype
        if dtype is None or narrow_dtype(dtype) != _INT or opr.outputs[0].id not in data:
            continue
        stored = [v.owner.tensors[0] if v.owner.type in _CONSTANTS else None for v in opr.inputs]
        values = [None if t is None or t.data is None else t.value() for t in stored]
        products[opr.id] = next(
            (
                i
                for i, v in enumerate(values)
                if v is not None and (np.abs(v.astype(np.float64)) < 2**15).all()
            ),
            None,
        )
    return products


def _elem(graph: Graph, mode: M, *inputs: Var) -> Var:
    return graph.add("Elemwise", P.Elemwise(mode=mode), inputs=inputs)[0]


def _cast(graph: Graph, x: Var, dtype: DType) -> Var:
    return graph.add("TypeCvtV2", TypeParam(dtype=dtype), inputs=[x])[0]


def _above(graph: Graph, x: Var, low: Var, bits: int) -> Var:
    """Return what integers are above their low bits."""
    rest = _elem(graph, M.SUB, x, _cast(graph, low, _INT))
    return _elem(graph, M.SHR, rest, number(graph, bits, _INT))


def _whole_product(graph: Graph, opr: Opr, inputs: list[Var], small: int | None) -> Var:
    """Multiply by halves of 16 bits: MegEngine rounds products of int32 to those of float32 where it has vectors."""

    def added(half: Var, other: Var, more: Var) -> Var:
        param = P.ElemwiseMultiType(mode=P.ElemwiseMultiTypeMode.FUSE_MUL_ADD3_INT16x32x32x32)
        return graph.add("ElemwiseMultiType", param, inputs=[half, other, more], output_dtype=_INT)[0]

    x, y = reversed(inputs) if small == 1 else inputs
    low, rest = _cast(graph, x, _SHORT), number(graph, 0, _INT)
    if small is None:
        high = _cast(graph, _above(graph, x, low, 16), _SHORT)
        rest = _elem(graph, M.SHL, added(high, y, rest), number(graph, 16, _INT))
    whole = added(low, y, rest)
    whole.name, whole.owner.name = opr.outputs[0].name, opr.name
    return whole


def _wide_maxima(graph: Graph, opr: Opr, inputs: list[Var]) -> Var | None:
    """Pool float16 as float32, which changes no maximum: MegEngine's float16 kernel reads what nobody wrote."""
    param = opr.params[0]
    if opr.inputs[0].dtype != _HALF or getattr(param, "mode", None) != P.PoolingMode.MAX:
        return None
    (y,) = graph.add(opr.type, *opr.params, inputs=[_cast(graph, inputs[0], _FLOAT), *inputs[1:]])
    narrow = _cast(graph, y, _HALF)
    narrow.name, y.owner.name = opr.outputs[0].name, opr.name
    return narrow


def _tensor(tensor: StoredTensor) -> StoredTensor:
    if not tensor.dtype.is_wide:
        return tensor
    copied, want = tensor.copied(), narrow_dtype(tensor.dtype)
    if tensor.data is not None:
        copied.data = encode(narrow_array(tensor.value(), tensor.dtype), want)
    copied.dtype = want
    return copied


def _without_products(graph: Graph, known: dict[int, Var]) -> tuple[Graph, dict[int, Var]]:
    """Write products of matrices of integers, of which MegEngine has those of bytes, as sums of such products."""
    kinds: dict[int, DType] = {}
    if not any(o.type in _PRODUCTS for o in graph.oprs):
        infer_dtypes(graph.oprs)
        return graph, known
    for opr in graph.oprs:
        # Their dtype rules refuse int32, and all after them would have no dtype.
        if opr.type in _PRODUCTS and opr.inputs[0].dtype == opr.inputs[1].dtype == _INT:
            opr.outputs[0].dtype = _INT
            kinds[opr.id] = _INT
        else:
            infer_dtypes([opr])
    if not kinds:
        return graph, known

    def convert(target: Graph, opr: Opr, inputs: list[Var]) -> Var | None:
        return _product(target, opr, inputs) if opr.id in kinds else None

    again, moved = subgraph(graph, graph.outputs, everything=True, convert=convert)
    infer_dtypes(again.oprs)
    return again, {i: moved[v.id] for i, v in known.items()}


def _product(graph: Graph, opr: Opr, inputs: list[Var]) -> Var:
    """Add the product of two int32 matrices, which wraps, as products of their bytes."""

    def digits(x: Var) -> list[Var]:
        pieces = []
        for i in range(4):
            pieces.append(_cast(graph, x, _BYTE))
            if i < 3:
                x = _above(graph, x, pieces[-1], 8)
        return pieces

    total: Var | None = None
    for i, a in enumerate(digits(inputs[0])):
        for j, b in enumerate(digits(inputs[1])):
            if i + j > 3:
                continue
            (part,) = graph.add(opr.type, opr.get(P.MatrixMul), inputs=[a, b], output_dtype=_INT)
            if i + j:
                part = _elem(graph, M.SHL, part, number(graph, 8 * (i + j), _INT))
            total = part if total is None else _elem(graph, M.ADD, total, part)
    assert total is not None
    total.name = opr.outputs[0].name
    return total
