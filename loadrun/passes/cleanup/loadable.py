"""Removal of what keeps MegEngine from loading or compiling a graph although each operator is well-formed.

- Its loader creates every operator again and expects one of the type that the file names; making a Reshape or Broadcast
  to the shape that a value has gives the value itself, as does a join of one part.
- Its compiler takes an elementwise operator that changes nothing for its input, and fails where that is an input of the
  graph or one of several outputs of an operator: ``x + 0``, ``x * 1``, ``x ** 1``, ``x // 1`` of integers.
- It asserts on values without elements (see `empties`).

MegEngine's own dumps never hold these, since they were made the same way. `loadrun.passes.guards` takes care of what it
would compute differently from the graph.
"""

from __future__ import annotations

from ...graph import Graph, Opr, Var
from ...graph.params import Elemwise, ElemwiseMode, OptionalAxisV1
from ...ops.catalog import select
from ...ops.elemwise.table import ROWS, ModeTrait, modes
from ...ops.infer import Inference, follow
from ..arithmetic.identities import immutable
from ..guards import guarded
from ..rewriter import Rewriter
from .empties import without_elements
from .shapes import is_shape_of

__all__ = ["make_loadable"]

M = ElemwiseMode
_LEFT_OUT, _CHAINS = modes(ModeTrait.LEFT_OUT), modes(ModeTrait.ASSOCIATIVE)
_SHAPED = select(lambda op: op.inputs == "src target_shape")


def make_loadable(graph: Graph) -> Graph:
    """Remove from the graph what the module describes; all else stays as it is.

    >>> from loadrun.graph.dtypes import DType
    >>> from loadrun.graph import StoredTensor
    >>> from loadrun.graph.params import Empty, Host2DeviceCopy
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2, 3), "x")])
    >>> (shape,) = g.add("GetVarShapeV1", OptionalAxisV1(), inputs=[x])
    >>> g.outputs = g.add("Broadcast", Empty(), inputs=[x, shape], names=["y"])
    >>> [o.type for o in make_loadable(g).oprs]
    ['Host2DeviceCopy', 'Identity']
    """
    r = Rewriter(graph, dedupe=False)
    fixed = _fixed(r)
    r.rewrite(lambda opr: _visit(r, opr, fixed))
    return guarded(r.finish())


def _fixed(r: Rewriter) -> Inference:
    """Return the shapes of the old graph that are the same for all shapes of its inputs."""
    found = Inference()
    for opr in r.oprs:
        if opr.type != "Host2DeviceCopy":
            follow(opr, found, {}, sometimes=True)
    return found


def _visit(r: Rewriter, opr: Opr, fixed: Inference) -> Var | None:
    empty = without_elements(r, opr, fixed)
    if empty is not None:
        return empty
    given = [r.var(v) for v in opr.inputs]
    if opr.type in _SHAPED:
        shape, wanted = fixed.shapes.get(opr.inputs[0].id), fixed.values.get(opr.inputs[1].id)
        same = shape is not None and wanted is not None and tuple(wanted.tolist()) == shape
        return given[0] if same or _is_own_shape(*given) else None
    if opr.type == "Concat" and len(given) == 1:
        return given[0]
    if opr.type != "Elemwise" or any(r.dtype(v) != opr.outputs[0].dtype for v in given):
        return None
    found = _unchanged(r, opr.get(Elemwise).mode, given)
    alone = found is not None and found.owner.type != "Host2DeviceCopy" and len(found.owner.outputs) == 1
    return None if alone else found


def _is_own_shape(source: Var, target: Var) -> bool:
    """Tell whether a target shape is asked of the value itself."""
    while target.owner.type == "GetVarShapeV1":
        if is_shape_of(target, source):
            return True
        given = target.owner.inputs[0].owner
        if len(target.owner.inputs) > 1 or target.owner.get(OptionalAxisV1).axis != OptionalAxisV1().axis:
            return False
        if given.type != "Broadcast" and not (
            given.type == "ReshapeV1" and given.get(OptionalAxisV1).axis == OptionalAxisV1().axis
        ):
            return False
        # MegEngine sees through to the requested shape.
        target = given.inputs[1]
    return False


def _unchanged(r: Rewriter, mode: ElemwiseMode, given: list[Var]) -> Var | None:
    """Return the input that an elementwise operator gives as it is."""
    whole = mode == M.FLOOR_DIV and not r.dtype(given[0]).is_float
    if mode not in _LEFT_OUT and not whole:
        return None
    for x, other in (given, given[::-1])[: 2 if mode in _CHAINS else 1]:
        if r.shape(other) == (1,) and immutable(r, other) and r.scalar(other) == ROWS[mode].neutral:
            return x
    return None
