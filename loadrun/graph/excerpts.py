"""A part of a graph by itself: variables at its border become inputs, known ones constants."""

from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from . import params as P
from .composite import holds_composites
from .dtypes import Array, DType, encode
from .graph import Graph, Opr, StoredTensor, Var


def reached(targets: Iterable[Var], border: Iterable[int]) -> list[Opr]:
    """Return the operators that some variables depend on, in execution order, up to the border.

    Args:
        targets: the variables.
        border: ids of variables that are given.
    """
    stop = set(border)
    stack = [v.owner for v in targets if v.id not in stop]
    oprs: dict[int, Opr] = {}
    while stack:
        opr = stack.pop()
        if opr.id not in oprs:
            oprs[opr.id] = opr
            stack.extend(v.owner for v in opr.inputs if v.id not in stop)
    return [oprs[i] for i in sorted(oprs)]


def excerpt(
    graph: Graph,
    targets: Iterable[Var],
    input_names: Mapping[int, str],
    constants: Mapping[int, Array] | None = None,
) -> tuple[Graph, dict[int, Var]]:
    """Copy what some variables depend on, up to a border; the bytes of stored tensors are shared.

    Args:
        graph: the source; it stays as it is. Dtypes of variables at the border are inferred before.
        targets: the copy's outputs, in order; a variable may stand twice.
        input_names: names by id of variables that are inputs of the copy. A target among them comes from such an input.
        constants: values by id of variables that are constants of the copy.

    Returns:
        the copy and its variables by the ids that they had in the source.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/mlp.mge").graph
    >>> opr = next(o for o in graph.oprs if o.type == "Elemwise")
    >>> part, known = excerpt(graph, opr.outputs, {v.id: f"in{v.id}" for v in opr.inputs})
    >>> [o.type for o in part.oprs]
    ['Host2DeviceCopy', 'Host2DeviceCopy', 'Elemwise']
    """
    outputs = list(targets)
    fixed = constants or {}
    part = graph.emptied()
    part.fixed_shapes, part.declared = {}, {}
    known: dict[int, Var] = {}
    oprs = reached(outputs, {*input_names, *fixed})
    ranked = holds_composites(graph)
    border = {v.id: v for o in oprs for v in o.inputs if v.id in input_names or v.id in fixed}
    border.update((v.id, v) for v in outputs if v.id in input_names or v.id in fixed)
    for number in sorted(border):
        var = border[number]
        dtype = var.dtype or DType("Float32")
        known[number] = (
            _constant(part, var, dtype, fixed[number])
            if number in fixed
            else _input(part, input_names[number], dtype, var.shape, ranked)
        )
    read = {v.id for o in oprs for v in o.inputs} | {v.id for v in outputs}
    for opr in oprs:
        _copy(part, opr, known, read)
    part.outputs = [known[v.id] for v in outputs]
    return part, known


def with_reals(graph: Graph, targets: Iterable[Var], change: Callable[[Array], Array]) -> Graph:
    """Copy what some variables depend on, with other real numbers in place of those that are stored."""
    outputs = list(targets)
    stored = {}
    for opr in reached(outputs, ()):
        for var, tensor in zip(opr.outputs, opr.tensors, strict=False):
            if tensor.data is not None and tensor.dtype.is_float:
                var.dtype = tensor.dtype
                stored[var.id] = change(tensor.value())
    return excerpt(graph, outputs, {}, stored)[0]


def _input(graph: Graph, name: str, dtype: DType, shape: tuple[int, ...] | None, ranked: bool) -> Var:
    tensor = StoredTensor(dtype, shape, name, ranked=ranked)
    (var,) = graph.add("Host2DeviceCopy", P.Host2DeviceCopy(), names=[name], tensors=[tensor])
    var.dtype = dtype
    return var


def _constant(graph: Graph, var: Var, dtype: DType, value: Array) -> Var:
    data = encode(np.ascontiguousarray(value), dtype)
    stored = StoredTensor(dtype, value.shape, None, data)
    (new,) = graph.add("ImmutableTensor", names=[var.name], tensors=[stored])
    new.dtype = dtype
    return new


def _copy(graph: Graph, opr: Opr, known: dict[int, Var], read: Collection[int]) -> None:
    fresh = opr.copied([known[v.id] for v in opr.inputs], len(graph.oprs))
    fresh.number = opr.id if opr.number is None else opr.number
    first, outputs = graph.n_vars, opr.outputs
    if len(opr.tensors) == len(outputs) > 1:
        # An operator that holds many weights keeps those that something reads.
        kept = [i for i, var in enumerate(outputs) if var.id in read]
        fresh.tensors, outputs = [opr.tensors[i] for i in kept], [outputs[i] for i in kept]
    for i, var in enumerate(outputs):
        new = var.copied(first + i, fresh)
        new.index = i
        fresh.outputs.append(new)
        known[var.id] = new
    graph.oprs.append(fresh)
