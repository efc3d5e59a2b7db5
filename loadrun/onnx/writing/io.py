"""Operators that only pass values on; conditional execution, where a merge becomes If nodes that hold its branches."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ...base.errors import EngineError
from ...graph import Opr, Var, params as P
from ..encode import GraphMessage, ValueMessage
from ..tensors import ElemType
from .emitter import Dim, UnsupportedOprError
from .writer import OnnxWriter, elem_of, translation


@translation(
    "Copy",
    "Identity",
    "MarkDynamicVar",
    "MarkNoBroadcastElemwise",
    "PersistentOutputStorage",
    "Sleep",
    "VirtualDep",
)
def same(w: OnnxWriter, opr: Opr) -> str:
    """Return the first input itself; others only had to be computed."""
    return w.name(opr.inputs[0])


@translation(
    "ImmutableTensor",
    "SharedDeviceTensor",
    "VolatileSharedDeviceTensor",
    "SharedDeviceTensorWithFormat",
    "MultipleDeviceTensorHolder",
    "MultipleDeviceTensorWithFormatHolder",
    "Host2DeviceCopy",
)
def stored(w: OnnxWriter, opr: Opr) -> str:
    """Raise: initializers and graph inputs are created when they are first read."""
    raise EngineError(f"{opr.type} is not written as a node")


@translation("Dropout")
def dropout(w: OnnxWriter, opr: Opr) -> list[str]:
    """Multiply the input by a random mask; drop nothing if the probability is 0."""
    (x,) = opr.inputs
    dtype, prob = w.dtype(x), np.float32(opr.get(P.Dropout).drop_prob)
    if not prob:
        ones = w.expand(w.const(np.uint8(1)), w.vector([w.product(w.dims(x))]))
        return [w.op("Identity", w.name(x)), ones]
    value = w.float(x)
    # ONNX's numbers are in [0, 1), MegEngine's in (0, 1].
    drawn = w.op("Sub", w.f32(1), w.op("RandomUniformLike", value, dtype=int(ElemType.FLOAT)))
    kept = w.op("Not", w.op("Less", drawn, w.const(prob)))
    scaled = w.op("Mul", value, w.const(np.float32(1) / (np.float32(1) - prob)))
    mask = w.reshape(w.cast(kept, ElemType.UINT8), [-1])
    return [w.stored(w.where(kept, scaled, w.f32(0)), dtype), mask]


_Mode = P.CondExecMergeMode
_REQUIRES = "requires "
"""What the names of operators begin with that refuse sizes; the condition follows (`torch.guards`)."""


def requirements(
    oprs: Iterable[Opr], readers: Mapping[int, Sequence[Opr]], ends: Collection[int]
) -> dict[int, set[int]]:
    """List the operators that refuse sizes, by id, each with those that compute for it alone."""
    named = [o for o in oprs if o.type == "ReshapeV1" and (o.name or "").startswith(_REQUIRES)]
    # Another one before it makes the size that it asks for.
    found = {}
    for opr in {_condition(o): o for o in named}.values():
        inside, todo = {opr.id}, [opr.inputs[1].owner]
        while todo:
            one = todo.pop()
            read = [o.id in inside for v in one.outputs for o in readers.get(v.id, ())]
            apart = one is opr.inputs[0].owner or not one.inputs or any(v.id in ends for v in one.outputs)
            if one.id not in inside and not apart and all(read):
                inside.add(one.id)
                todo += [v.owner for v in one.inputs]
        found[opr.id] = inside - {opr.id}
    return found


def _condition(opr: Opr) -> str:
    """Return the condition in the name of what refuses sizes, without its place in a graph or in another file."""
    return re.sub(r"\[\d\]$|\.\w+_\d+\.Reshape$", "", str(opr.name))


def required(w: OnnxWriter, opr: Opr, write: Callable[[OnnxWriter, Opr], str]) -> str:
    """Write what refuses sizes as one node of its condition's name: a branch that is always taken."""

    def refusing() -> list[str]:
        w.translate_for([opr.inputs[1]])
        return [write(w, opr)]

    first = _branch(w, opr.outputs, refusing)
    second = _branch(w, opr.outputs, lambda: [w.op("Identity", w.name(opr.inputs[0]))])
    result = w.op("If", w.const(np.True_), then_branch=first, else_branch=second)
    w.nodes[-1] = replace(w.nodes[-1], name=_condition(opr))
    return result


@translation("CondExecMark")
def mark(w: OnnxWriter, opr: Opr) -> list[str]:
    """Return the inputs, inside the branch that they enter."""
    return [w.name(v) for v in opr.inputs[:-1]]


@translation("CondExecMarkIfNeed")
def mark_if_need(w: OnnxWriter, opr: Opr) -> str:
    """Return the second input."""
    return w.name(opr.inputs[1])


@translation("CondExecMerge")
def merge(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit nested Ifs if exactly one branch is taken, sums of If if any may be."""
    p = opr.get(P.CondExecMerge)
    n = int(p.nr_output)
    predicates = w.merged.get(opr.id)
    if predicates is None:
        raise UnsupportedOprError("a merge whose branches are not known")
    branches = [opr.inputs[i * n : (i + 1) * n] for i in range(len(predicates))]
    if p.mode in (_Mode.EXACT_ONE, _Mode.EXACT_ONE_SAME_SHAPE):
        return _chosen(w, list(zip(predicates, branches, strict=True)))
    shapes = opr.inputs[n * len(branches) :]
    total: list[str] = []
    for i, (predicate, values) in enumerate(zip(predicates, branches, strict=True)):
        first = p.mode == _Mode.SUM_COND_OUT and len(branches) == 1
        parts = _chosen(w, [(predicate, values)]) if first else _or_zero(w, predicate, values, shapes, p.mode)
        total = parts if not i else [_plus(w, a, b, v) for a, b, v in zip(total, parts, values, strict=True)]
    return total


def _plus(w: OnnxWriter, a: str, b: str, var: Var) -> str:
    elem = elem_of(w.dtype(var))
    if w.dtype(var).is_float or elem is ElemType.INT32:
        return w.op("Add", a, b)
    return w.cast(w.op("Add", w.cast(a, ElemType.INT32), w.cast(b, ElemType.INT32)), elem)


def _chosen(w: OnnxWriter, branches: list[tuple[Var, list[Var]]]) -> list[str]:
    """Emit the values of the branch that is taken, the last one if none of the others is."""
    predicate, values = branches[0]
    if len(branches) == 1:
        w.translate_for(values)
        return [w.op("Identity", w.name(v)) for v in values]
    flag = w.cast(w.name(predicate), ElemType.BOOL)
    first, second = (_branch(w, values, partial(_chosen, w, part)) for part in (branches[:1], branches[1:]))
    return w.ops("If", flag, out=len(values), then_branch=first, else_branch=second)


def _or_zero(
    w: OnnxWriter, predicate: Var, values: list[Var], shapes: Sequence[Var], mode: _Mode
) -> list[str]:
    """Emit the values of a branch if it is taken, else zeros."""
    flag = w.cast(w.name(predicate), ElemType.BOOL)

    def zeros() -> list[str]:
        made = []
        for i, var in enumerate(values):
            sizes: Sequence[Dim] = w.split_dims(shapes[i]) if mode == _Mode.SUM else w.fixed(var)
            made.append(w.expand(w.const(np.zeros((), elem_of(w.dtype(var)).numpy)), w.vector(sizes)))
        return made

    first = _branch(w, values, partial(_chosen, w, [(predicate, values)]))
    second = _branch(w, values, zeros)
    return w.ops("If", flag, out=len(values), then_branch=first, else_branch=second)


def _branch(w: OnnxWriter, values: list[Var], write: Callable[[], list[str]]) -> GraphMessage:
    """Write a subgraph of what gives those values."""
    with w.subgraph() as body:
        names = write()
    outputs = [ValueMessage(n, elem_of(w.dtype(v)), None) for n, v in zip(names, values, strict=True)]
    return GraphMessage(w.fresh("branch"), body, [], [], outputs)
