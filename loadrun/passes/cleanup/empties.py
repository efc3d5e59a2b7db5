"""Empty values that MegEngine 1.13 asserts on: stored ones, and results of elementwise operators.

All other operators accept and give them. Where a size is 0 whatever the inputs' sizes are, an elementwise operator and
a stored tensor become a slice of a tensor that has an element, since there is nothing to compute. Where inputs of the
traced sizes alone make it 0, the operator stays, and the graph runs at other sizes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...base.errors import EngineError
from ...graph import Graph, Opr, Var
from ...graph.dtypes import DType
from ...graph.params import IndexDescMaskDump, IndexItem, OptionalAxisV1
from ...ops.catalog import select, types
from ...ops.infer import Inference, infer_dtypes, infer_shapes
from ...ops.op import Trait
from ...ops.registry import Shape
from ..rewriter import Rewriter

__all__ = ["empty_at", "without_elements"]

_ELEMWISE = select(lambda op: op.family.startswith("elemwise."))
_CONSTANTS = types(Trait.CONSTANT)
_INT = DType("Int32")


def without_elements(r: Rewriter, opr: Opr, fixed: Inference) -> Var | None:
    """Replace an operator whose value has no elements; None where it may stay.

    Args:
        r: what rewrites the graph.
        opr: the old operator.
        fixed: shapes of the old graph that are the same for all shapes of its inputs.
    """
    if opr.type in _CONSTANTS and len(opr.outputs) == 1:
        shape = opr.tensors[0].shape
        return (
            _empty_constant(r, shape, opr.tensors[0].dtype) if shape is not None and not prod(shape) else None
        )
    dtype = opr.outputs[0].dtype
    if opr.type not in _ELEMWISE or dtype is None:
        return None
    shape = fixed.shapes.get(opr.outputs[0].id) or _empty_shape(r, opr, fixed)
    return _empty_constant(r, shape, dtype) if shape is not None and not prod(shape) else None


def _empty_shape(r: Rewriter, opr: Opr, fixed: Inference) -> Shape | None:
    """Return the shape of an operand without elements that no other one can change, whatever its sizes are."""
    ranks = [len(r.old_shape(v) or ()) for v in opr.inputs]
    for old in opr.inputs:
        held = fixed.shapes.get(old.id, ())
        if 0 in held and 1 not in held and len(held) == max(ranks):
            return held
    return None


def _empty_constant(r: Rewriter, shape: Shape, dtype: DType) -> Var:
    one, zero = r.put(np.zeros(1, dtype.np), dtype), r.put(np.zeros(1, np.int32), _INT)
    nothing = IndexItem(axis=0, begin=True, end=True, step=False, idx=False)
    (x,) = r.add("Subtensor", IndexDescMaskDump(items=(nothing,)), inputs=[one, zero, zero])
    return x if shape == (0,) else _reshaped(r, x, shape)


def _reshaped(r: Rewriter, x: Var, shape: Shape) -> Var:
    target = r.put(np.array(shape, np.int32), _INT)
    return r.add("ReshapeV1", OptionalAxisV1(), inputs=[x, target])[0]


def empty_at(graph: Graph, times: int = 1) -> list[Opr]:
    """Return the elementwise operators that give no elements at the sizes that the inputs have in the graph.

    Args:
        graph: any graph.
        times: how many times as large the first axis of every input is; nothing is known where that cannot be.
    """
    oprs = graph.needed()
    infer_dtypes(oprs)
    held = [(v.name or "", v.owner.tensors[0].shape) for v in graph.inputs]
    try:
        shapes = infer_shapes(graph, oprs, {n: (s[0] * times, *s[1:]) for n, s in held if s}).shapes
    except EngineError:
        return []
    return [o for o in oprs if o.type in _ELEMWISE and 0 in shapes.get(o.outputs[0].id, ())]
