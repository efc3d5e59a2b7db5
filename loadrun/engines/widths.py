"""Integers of 64 bits for which a file has 32: each operator on them is computed in both widths, and compared."""

from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np

from ..base.errors import LoadRunError
from ..graph import Graph, Opr, StoredTensor, Var
from ..graph.dtypes import Array, DType, plain
from ..graph.params import (
    Elemwise,
    ElemwiseMode,
    ElemwiseMultiType,
    ElemwiseMultiTypeMode,
    Host2DeviceCopy,
    MatrixMul,
)
from ..ops.catalog import select
from ..ops.infer import infer_dtypes
from .reference import ReferenceEngine

_WIDE, _INT = plain("Int64"), plain("Int32")
_PRODUCTS = select(lambda op: MatrixMul in op.params)
_HALVES = ElemwiseMultiTypeMode.FUSE_MUL_ADD3_INT16x32x32x32
_SUMS = ("Elemwise", "ReduceV2", "CumsumV1")
"""Operators whose results may be larger than what they are given."""


def first_overflow(
    graph: Graph, outputs: Sequence[Var], feeds: Mapping[str, Array], wide: Container[str]
) -> str | None:
    """Say which integer of a graph does not fit 32 bits, in the order of the operators; None if all do.

    Every operator gets what the one before computed in 32 bits, so that the first one that differs is at fault.

    Args:
        graph: a graph that was narrowed.
        outputs: what is computed.
        feeds: arrays by input name.
        wide: names of the inputs that hold 64 bits in the model that the file was made of.
    """
    oprs = graph.needed(list(outputs))
    infer_dtypes(oprs)
    found = [(o, read) for o, read in _narrowed(oprs, wide) if o.outputs[0].dtype == _INT]
    if not found:
        return None
    asked = {v.id: v for o, read in found for v in (*read, o.outputs[0])}
    try:
        engine = ReferenceEngine(graph, list(asked.values()))
        values = dict(zip(asked, engine.run({n: feeds[n] for n in engine.inputs}), strict=True))
    except (LoadRunError, KeyError):
        return None
    for opr, read in found:
        narrow = values[opr.outputs[0].id]
        try:
            whole = _in_64_bits(opr, [values[v.id] for v in read], read)
        except LoadRunError:
            continue
        if whole.shape == narrow.shape and not np.array_equal(whole, narrow):
            at = int(np.flatnonzero((whole != narrow).reshape(-1))[0])
            return (
                f"integers of 64 bits do not fit the 32 that the file has for them: {opr.outputs[0].label!r} is "
                f"{whole.reshape(-1)[at]} in the model and {narrow.reshape(-1)[at]} here; use the model itself, or an "
                ".onnx file of it, for such data"
            )
    return None


def _narrowed(oprs: Sequence[Opr], wide: Container[str]) -> list[tuple[Opr, list[Var]]]:
    """List the operators on such integers, with what they read; those that a product is made of count as one."""
    reached: set[int] = set()
    sums: set[int] = set()
    parts = {id(part) for o in oprs if _is_product(o) for part in _upper_half(o)}
    found: list[tuple[Opr, list[Var]]] = []
    for opr in oprs:
        if opr.type == "Host2DeviceCopy":
            reached.update(v.id for v in opr.outputs if v.name in wide)
            continue
        if opr.type in _PRODUCTS or any(v.id in sums for v in opr.inputs):
            # Sums of products of bytes wrap, as they are meant to.
            sums.update(v.id for v in opr.outputs if v.dtype == _INT)
        if not any(v.id in reached for v in opr.inputs):
            continue
        reached.update(v.id for v in opr.outputs if v.dtype is not None and v.dtype.np.kind == "i")
        if opr.outputs[0].id in sums or id(opr) in parts:
            continue
        if opr.type in _SUMS:
            found.append((opr, list(opr.inputs)))
        elif _is_product(opr):
            found.append((opr, [opr.inputs[0].owner.inputs[0], opr.inputs[1]]))
    return found


def _is_product(opr: Opr) -> bool:
    """Return whether an operator adds the product of a lower half to that of the upper one; see `passes.narrowing`."""
    if opr.type != "ElemwiseMultiType" or opr.get(ElemwiseMultiType).mode != _HALVES:
        return False
    return opr.inputs[0].owner.type == "TypeCvtV2"


def _upper_half(opr: Opr) -> Iterator[Opr]:
    """Yield the operators that multiply by the upper half, from the last one up to the one behind the factor."""
    factor, shift = opr.inputs[0].owner.inputs[0], opr.inputs[2].owner
    if shift.type != "Elemwise":
        return
    product = shift.inputs[0].owner
    yield from (shift, product)
    step = product.inputs[0].owner
    while step.inputs and step.outputs[0] is not factor:
        yield step
        step = step.inputs[0].owner


def _in_64_bits(opr: Opr, values: Sequence[Array], read: Sequence[Var]) -> Array:
    graph = Graph(exact=True)
    inputs: list[Var] = []
    for i, (value, var) in enumerate(zip(values, read, strict=True)):
        dtype: DType = _WIDE if var.dtype == _INT else var.dtype or _WIDE
        tensor = StoredTensor(dtype, value.shape, f"x{i}")
        inputs += graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[tensor], names=[f"x{i}"])
    if opr.type == "ElemwiseMultiType":
        outputs = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=inputs)
    else:
        outputs = graph.add(opr.type, *opr.params, inputs=inputs)
    feeds = {
        f"x{i}": v.astype(var.owner.tensors[0].dtype.np)
        for i, (v, var) in enumerate(zip(values, inputs, strict=True))
    }
    (whole,) = ReferenceEngine(graph, [outputs[0]]).run(feeds)
    return whole
