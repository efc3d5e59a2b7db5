"""Integers of 64 bits for which a file has 32: each operator on them is computed in both widths, and compared."""

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from ..base.errors import LoadRunError
from ..graph import Graph, Opr, StoredTensor, Var
from ..graph.dtypes import Array, dtype_of, plain
from ..graph.params import (
    Elemwise,
    ElemwiseMode,
    ElemwiseMultiType,
    ElemwiseMultiTypeMode,
    Host2DeviceCopy,
    MatrixMul,
)
from ..ops.catalog import TypeParam, select
from ..ops.infer import infer_dtypes
from .reference import ReferenceEngine

_INT = plain("Int32")
_PRODUCTS = select(lambda op: MatrixMul in op.params)
_HALVES = ElemwiseMultiTypeMode.FUSE_MUL_ADD3_INT16x32x32x32
_SHIFTS = [0, 8, 16, 24, 8, 16, 24, 16, 24, 24]
"""How far products of bytes are shifted that make the product of 32 bits; see `passes.narrowing`."""
_SMALL = 1 << 15
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
        wide: names of the inputs, and of what is cast inside, that hold 64 bits in the model that the file was made of.
    """
    oprs = graph.needed(list(outputs))
    infer_dtypes(oprs)
    found = [(o, kind, read) for o, kind, read in _narrowed(oprs, wide) if o.outputs[0].dtype == _INT]
    if not found:
        return None
    asked = {v.id: v for o, _, read in found for v in (*chain(*read), o.outputs[0])}
    try:
        engine = ReferenceEngine(graph, list(asked.values()))
        values = dict(zip(asked, engine.run({n: feeds[n] for n in engine.inputs}), strict=True))
    except (LoadRunError, KeyError):
        return None
    for opr, kind, read in found:
        narrow = values[opr.outputs[0].id]
        taken = [_joined([values[v.id] for v in digits]) for digits in read]
        if _is_small(kind, taken):
            continue
        try:
            whole = _in_64_bits(kind, taken)
        except LoadRunError:
            continue
        if kind.type == "TypeCvtV2":
            # Infinity, and what 64 bits do not hold either, may become anything.
            whole = np.where(np.abs(taken[0]) < 2.0**63, whole, narrow)
        if whole.shape == narrow.shape and not np.array_equal(whole, narrow):
            at = int(np.flatnonzero((whole != narrow).reshape(-1))[0])
            return (
                f"integers of 64 bits do not fit the 32 that the file has for them: {opr.outputs[0].label!r} is "
                f"{whole.reshape(-1)[at]} in the model and {narrow.reshape(-1)[at]} here; use the model itself, or an "
                ".onnx file of it, for such data"
            )
    return None


def _narrowed(oprs: Sequence[Opr], wide: Container[str]) -> Iterator[tuple[Opr, Opr, list[list[Var]]]]:
    """Yield the last operator of what stands for one on such integers, its kind, and what it reads, maybe in bytes."""
    reached: set[int] = set()
    products = _matrix_products(oprs)
    parts = {id(part) for o in oprs if _is_product(o) for part in _upper_half(o)}
    for opr in oprs:
        begun = {v.id for v in opr.outputs if v.name in wide}
        reached |= begun
        if begun and opr.type == "TypeCvtV2":
            yield opr, opr, [[v] for v in opr.inputs]
            continue
        product = products.get(id(opr))
        read = [[v] for v in opr.inputs]
        if product is not None:
            # The bytes of both matrices, the lowest first.
            read = [[product[i].inputs[0] for i in (0, 4, 7, 9)], [o.inputs[1] for o in product[:4]]]
        # What is a product of bytes in the model as well wraps there, too.
        if not any(v.id in reached for v in chain(*read)) or (product is None and opr.type in _PRODUCTS):
            continue
        reached.update(v.id for v in opr.outputs if v.dtype is not None and v.dtype.np.kind == "i")
        if id(opr) in parts or _is_remainder(opr):
            continue
        if product is not None:
            yield opr, product[0], read
        elif opr.type in _SUMS:
            yield opr, opr, read
        elif _is_product(opr):
            yield opr, opr, [[opr.inputs[0].owner.inputs[0]], [opr.inputs[1]]]


def _matrix_products(oprs: Sequence[Opr]) -> dict[int, list[Opr]]:
    """Find the sums that stand for products of matrices, with the products of bytes that each is made of, in order."""
    sums: dict[int, list[tuple[Opr, int]]] = {}
    found: dict[int, list[Opr]] = {}
    for opr in oprs:
        terms = [(opr, 0)] if opr.type in _PRODUCTS else _terms(opr, sums)
        if [shift for _, shift in terms] == _SHIFTS:
            found[id(opr)] = [product for product, _ in terms]
        elif terms:
            sums[opr.outputs[0].id] = terms
    return found


def _terms(opr: Opr, sums: Mapping[int, list[tuple[Opr, int]]]) -> list[tuple[Opr, int]]:
    """Return the products of bytes that an operator adds up or shifts, and how far; none where it does neither."""
    if opr.type != "Elemwise" or len(opr.inputs) != 2:
        return []
    mode, (first, second) = opr.get(Elemwise).mode, (sums.get(v.id, []) for v in opr.inputs)
    if mode == ElemwiseMode.ADD and first and second:
        return first + second if len(second) == 1 else second + first
    stored = opr.inputs[1].owner.tensors
    if mode == ElemwiseMode.SHL and len(first) == 1 and stored and stored[0].data is not None:
        return [(first[0][0], int(stored[0].value().flat[0]))]
    return []


def _is_remainder(opr: Opr) -> bool:
    """Return whether an operator subtracts from a number its lower bits, which wraps for the largest ones."""
    if opr.type != "Elemwise" or opr.get(Elemwise).mode != ElemwiseMode.SUB:
        return False
    low = opr.inputs[1].owner
    cast = low.inputs[0].owner if low.type == "TypeCvtV2" else low
    return cast.type == "TypeCvtV2" and cast.inputs[0] is opr.inputs[0]


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


def _joined(digits: Sequence[Array]) -> Array:
    """Return the numbers of which these are the bytes; one array stands for itself."""
    if len(digits) == 1:
        return digits[0]
    total: Array = sum(np.int64(256**i) * d for i, d in enumerate(digits))
    return total


def _is_small(opr: Opr, values: Sequence[Array]) -> bool:
    """Return whether numbers are so small that no sum and no product of two of them is too large."""
    if opr.type != "Elemwise" or opr.get(Elemwise).mode in (ElemwiseMode.POW, ElemwiseMode.SHL):
        return False
    return all(v.min(initial=0) > -_SMALL and v.max(initial=0) < _SMALL for v in values)


def _in_64_bits(opr: Opr, values: Sequence[Array]) -> Array:
    graph = Graph(exact=True)
    wide = [v.astype(np.int64) if v.dtype == np.int32 else v for v in values]
    inputs: list[Var] = []
    for i, value in enumerate(wide):
        tensor = StoredTensor(dtype_of(value), value.shape, f"x{i}")
        inputs += graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[tensor], names=[f"x{i}"])
    if opr.type == "TypeCvtV2":
        outputs = graph.add("TypeCvtV2", TypeParam(dtype=plain("Int64")), inputs=inputs)
    elif opr.type == "ElemwiseMultiType":
        outputs = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=inputs)
    else:
        outputs = graph.add(opr.type, *opr.params, inputs=inputs)
    (whole,) = ReferenceEngine(graph, [outputs[0]]).run({f"x{i}": v for i, v in enumerate(wide)})
    return whole
