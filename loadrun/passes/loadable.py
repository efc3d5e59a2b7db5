"""Removal of what keeps MegEngine from loading or compiling a graph although each operator is well-formed.

- Its loader creates every operator again and expects one of the type that the file names; making a Reshape or Broadcast
  to the shape that a value has gives the value itself, as do a join of one part and a conversion to the type it has.
- Its compiler takes an elementwise operator that changes nothing for its input, and fails where that is an input of the
  graph or one of several outputs of an operator: ``x + 0``, ``x * 1``, ``x ** 1``, ``x // 1`` of integers.
- It asserts on values without elements that are stored or come of elementwise operators. Where a size is 0 for all
  sizes of the inputs, they become a slice of a tensor that has an element, since there is nothing to compute. Where
  the traced sizes alone make it 0, the operator stays, and the graph runs at other sizes.

MegEngine's own dumps never hold these, since they were made the same way. `loadrun.passes.guards` takes care of what it
would compute differently from the graph.
"""

from collections.abc import Callable
from math import prod

import numpy as np

from ..base.errors import EngineError
from ..base.registry import Registry, late
from ..graph import Graph, Opr, Var, params as P
from ..graph.dtypes import DType
from ..ops.catalog import TypeParam, select, types
from ..ops.elemwise.table import ROWS, ModeTrait, modes
from ..ops.infer import Inference, follow, infer_dtypes, infer_shapes
from ..ops.op import Trait
from ..ops.registry import Shape
from .rewriter import Rewriter, each

with late(__name__):
    from . import guards


_ELEMWISE = select(lambda op: op.family.startswith("elemwise."))
_CONSTANTS = types(Trait.CONSTANT)
_INT = DType("Int32")


def without_elements(r: Rewriter, opr: Opr, fixed: Inference) -> Var | None:
    """Replace an operator whose value has no elements; None if it may stay.

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
        shape = fixed.shapes.get(old.id, ())
        if 0 in shape and 1 not in shape and len(shape) == max(ranks):
            return shape
    return None


def _empty_constant(r: Rewriter, shape: Shape, dtype: DType) -> Var | None:
    if max(shape) > np.iinfo(np.int32).max:  # MegEngine's sizes are int32
        return None
    one, zero = r.put(np.zeros(1, dtype.np), dtype), r.put(np.zeros(1, np.int32), _INT)
    nothing = P.IndexItem(axis=0, begin=True, end=True, step=False, idx=False)
    (x,) = r.add("Subtensor", P.IndexDescMaskDump(items=(nothing,)), inputs=[one, zero, zero])
    if shape == (0,):
        return x
    target = r.put(np.array(shape, np.int32), _INT)
    return r.add("ReshapeV1", P.OptionalAxisV1(), inputs=[x, target])[0]


def empty_at(graph: Graph, times: int = 1) -> list[Opr]:
    """Return the elementwise operators that give no elements at the sizes that the inputs have in the graph.

    Args:
        graph: any graph.
        times: how many times as large the first axis of every input is; nothing is known where that cannot be.
    """
    oprs = graph.needed()
    infer_dtypes(oprs)
    inputs = [(v.name or "", v.owner.tensors[0].shape) for v in graph.inputs]
    try:
        shapes = infer_shapes(graph, oprs, {n: (s[0] * times, *s[1:]) for n, s in inputs if s}).shapes
    except EngineError:
        return []
    return [o for o in oprs if o.type in _ELEMWISE and 0 in shapes.get(o.outputs[0].id, ())]


_NO_AXIS = 7
_Rule = Callable[[Rewriter, Opr], "Var | None"]
_RULES: Registry[str, _Rule] = Registry("rule of shapes")


def remove_shape_changes(graph: Graph) -> Graph:
    """Join neighbouring Dimshuffle, Reshape, AxisAddRemove and Broadcast operators; results are the same bits.

    >>> from loadrun.graph.dtypes import DType
    >>> from loadrun.graph import StoredTensor
    >>> from loadrun.graph.params import Host2DeviceCopy
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2, 3), "x")])
    >>> turn = P.Dimshuffle(pattern=(1, 0), ndim=2)
    >>> (y,) = g.add("Dimshuffle", turn, inputs=g.add("Dimshuffle", turn, inputs=[x]), names=["y"])
    >>> g.outputs = [y]
    >>> [o.type for o in remove_shape_changes(g).oprs]
    ['Host2DeviceCopy', 'Identity']
    """
    return each(graph, lambda r, opr: _RULES[opr.type](r, opr), *_RULES)


@_RULES.register("Dimshuffle")
def _dimshuffle(r: Rewriter, opr: Opr) -> Var | None:
    p = opr.get(P.Dimshuffle)
    source = r.var(opr.inputs[0])
    pattern, ndim, inner = p.pattern, p.ndim or max(p.pattern, default=-1) + 1, source.owner
    joined = inner.type == "Dimshuffle"
    if joined:
        q = inner.get(P.Dimshuffle)
        pattern = tuple(-1 if a < 0 else q.pattern[a] for a in pattern)
        source, ndim = inner.inputs[0], q.ndim or max(q.pattern, default=-1) + 1
    if pattern == tuple(range(ndim)):
        return source
    if not joined:
        return None
    return r.add("Dimshuffle", P.Dimshuffle(pattern=pattern, ndim=ndim), inputs=[source], like=opr)[0]


@_RULES.register("ReshapeV1")
def _reshape(r: Rewriter, opr: Opr) -> Var | None:
    source, target = map(r.var, opr.inputs)
    if opr.get(P.OptionalAxisV1).axis == _NO_AXIS and is_shape_of(target, source):
        return source
    if source.owner.type != "ReshapeV1":
        return None
    # An empty tensor may not determine an open axis of its shape.
    if opr.get(P.OptionalAxisV1).axis != _NO_AXIS and not r.shape(source):
        return None
    first = source.owner.inputs[0]
    if opr.get(P.OptionalAxisV1).axis == _NO_AXIS and is_shape_of(target, first):
        return first
    return r.add("ReshapeV1", *opr.params, inputs=[first, target], like=opr)[0]


@_RULES.register("Broadcast")
def _broadcast(r: Rewriter, opr: Opr) -> Var | None:
    source, target = map(r.var, opr.inputs)
    if is_shape_of(target, source):
        return source
    if source.owner.type == "Broadcast":
        return r.add("Broadcast", *opr.params, inputs=[source.owner.inputs[0], target], like=opr)[0]
    return None


def is_shape_of(target: Var, source: Var) -> bool:
    """Return whether a target shape is the shape of `source`."""
    opr = target.owner
    return (
        opr.type == "GetVarShapeV1" and opr.inputs == [source] and opr.get(P.OptionalAxisV1).axis == _NO_AXIS
    )


@_RULES.register("AxisAddRemove")
def _axes(r: Rewriter, opr: Opr) -> Var | None:
    source = r.var(opr.inputs[0])
    steps = list(opr.get(P.AxisAddRemove).desc)
    if source.owner.type == "AxisAddRemove":
        steps = [*source.owner.get(P.AxisAddRemove).desc, *steps]
        source = source.owner.inputs[0]
    kept: list[P.AxisDesc] = []
    for step in (P.AxisDesc(*s) for s in steps):
        last = kept[-1] if kept else None
        if last is not None and (last.method, step.method, last.axis) == (0, 1, step.axis) and step.axis >= 0:
            kept.pop()
        else:
            kept.append(step)
    if not kept:
        return source
    if tuple(kept) == tuple(P.AxisDesc(*s) for s in opr.get(P.AxisAddRemove).desc):
        return None
    return r.add("AxisAddRemove", P.AxisAddRemove(desc=tuple(kept)), inputs=[source], like=opr)[0]


M = P.ElemwiseMode
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
    >>> (shape,) = g.add("GetVarShapeV1", P.OptionalAxisV1(), inputs=[x])
    >>> g.outputs = g.add("Broadcast", Empty(), inputs=[x, shape], names=["y"])
    >>> [o.type for o in make_loadable(g).oprs]
    ['Host2DeviceCopy', 'Identity']
    """
    r = Rewriter(graph, dedupe=False)
    fixed = _fixed(r)
    r.rewrite(lambda opr: _visit(r, opr, fixed))
    result = r.finish()
    if result.exact:
        # Guarded when it is narrowed for a file: only MegEngine computes otherwise than written.
        return result

    return guards.guarded(result)


def _fixed(r: Rewriter) -> Inference:
    """Return the shapes of the old graph that are the same for all shapes of its inputs."""
    inferred = Inference()
    for opr in r.oprs:
        if opr.type != "Host2DeviceCopy":
            follow(opr, inferred, {}, sometimes=True)
    return inferred


def _visit(r: Rewriter, opr: Opr, fixed: Inference) -> Var | None:
    empty = without_elements(r, opr, fixed)
    if empty is not None:
        return empty
    operands = [r.var(v) for v in opr.inputs]
    if opr.type in _SHAPED:
        shape, wanted = fixed.shapes.get(opr.inputs[0].id), fixed.values.get(opr.inputs[1].id)
        same = shape is not None and wanted is not None and tuple(wanted.tolist()) == shape
        return operands[0] if same or _is_own_shape(*operands) else None
    if opr.type == "Concat" and len(operands) == 1:
        return operands[0]
    if opr.type == "TypeCvtV2":
        return operands[0] if r.dtype(operands[0]) == opr.get(TypeParam).dtype else None
    if opr.type != "Elemwise" or any(r.dtype(v) != opr.outputs[0].dtype for v in operands):
        return None
    unchanged = _unchanged(r, opr.get(P.Elemwise).mode, operands)
    alone = (
        unchanged is not None
        and unchanged.owner.type != "Host2DeviceCopy"
        and len(unchanged.owner.outputs) == 1
    )
    return None if alone else unchanged


def _is_own_shape(source: Var, target: Var) -> bool:
    """Return whether a target shape is asked of the value itself."""
    while target.owner.type == "GetVarShapeV1":
        if is_shape_of(target, source):
            return True
        producer = target.owner.inputs[0].owner
        if len(target.owner.inputs) > 1 or target.owner.get(P.OptionalAxisV1).axis != P.OptionalAxisV1().axis:
            return False
        if producer.type != "Broadcast" and not (
            producer.type == "ReshapeV1" and producer.get(P.OptionalAxisV1).axis == P.OptionalAxisV1().axis
        ):
            return False
        # MegEngine sees through to the requested shape.
        target = producer.inputs[1]
    return False


def _unchanged(r: Rewriter, mode: P.ElemwiseMode, operands: list[Var]) -> Var | None:
    """Return the input that an elementwise operator gives as it is."""
    whole = mode == M.FLOOR_DIV and not r.dtype(operands[0]).is_float
    if mode not in _LEFT_OUT and not whole:
        return None
    for x, other in (operands, operands[::-1])[: 2 if mode in _CHAINS else 1]:
        if r.shape(other) == (1,) and r.immutable(other) and r.scalar(other) == ROWS[mode].neutral:
            return x
    return None


_COLOURS = {
    P.CvtColorMode[name] for name in "RGB2BGR BGR2RGB RGBA2RGB RGBA2BGR RGBA2GRAY YUV2GRAY_NV21".split()
}
"""Conversions of bytes alone."""


_KINDS: tuple[tuple[Callable[[Opr, str], bool], str, str], ...] = (
    (
        lambda opr, dtype: any(isinstance(p, P.ConvBias) and p.format == P.Format.CHWN4 for p in opr.params),
        "convolutions in CHWN4, which MegEngine runs on GPUs only",
        "leave out enable_chwn4 for a file that MegEngine runs on CPUs",
    ),
    (
        lambda opr, dtype: (
            dtype == "Float32" and any(isinstance(p, P.CvtColor) and p.mode in _COLOURS for p in opr.params)
        ),
        "colour conversions of float images, for which MegEngine has no kernel",
        "convert uint8 images, or index the channels",
    ),
    (
        # Files of ONNX's and torch's dtypes pool float32.
        lambda opr, dtype: (
            dtype == "Float16"
            and not opr.exact
            and any(isinstance(p, P.Pooling) and p.mode == P.PoolingMode.MAX for p in opr.params)
        ),
        "max pooling of float16, which MegEngine computes wrongly",
        "pool float32",
    ),
    (
        lambda opr, dtype: dtype == "Int8" and opr.type == "ConvolutionV2",
        "convolutions of int8 without a scale, for which MegEngine's kernels fail on x86",
        "use quantized types or float32",
    ),
)
"""By an operator and the dtype of its first input: what it is, and what to do instead."""


def unavailable(graph: Graph) -> str | None:
    """Say in one sentence what MegEngine cannot run of a graph; None if it runs all."""
    said = []
    for holds, what, way_out in _KINDS:
        found = [o for o in graph.needed() if o.inputs and holds(o, getattr(o.inputs[0].dtype, "name", ""))]
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            said.append(f"{what} ({found[0].name or found[0].type}{more}): {way_out}")
    return f"the file holds what loadrun runs and MegEngine does not: {'; '.join(said)}" if said else None
