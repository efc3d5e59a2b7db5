"""Graphs made of other graphs: a copy of a part, a model without its checks, a model with checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace

import numpy as np

from ..dtypes import DType, encode
from ..errors import UsageError
from ..graph import Graph, Opr, Tensor, Var
from ..ops.catalog import TypeParam
from ..params import AssertEqual, Elemwise, ElemwiseMode, Host2DeviceCopy, Reduce, ReduceMode
from ..testcase import EXPECT, Bundle

__all__ = ["add_check", "bare", "subgraph"]

_F32 = DType("Float32")


def subgraph(
    graph: Graph,
    outputs: Iterable[Var],
    *,
    everything: bool = False,
    convert: Callable[[Graph, Opr, list[Var]], Var | None] | None = None,
) -> tuple[Graph, dict[int, Var]]:
    """Copy what some variables depend on; the bytes of stored tensors are shared.

    Args:
        graph: the source, which stays as it is.
        outputs: the copy's outputs, in order; a variable may stand twice.
        everything: copy what no output depends on as well.
        convert: called with the copy so far, an operator of the source and that operator's inputs in the copy; what it
            returns stands for the operator's first output, instead of a copy of the operator.

    Returns:
        the copy, renumbered, and its variables by the ids that they had in the source.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/mlp.mge").graph
    >>> copied, _ = subgraph(graph, graph.outputs)
    >>> len(copied.oprs) == len(graph.oprs), copied.oprs[0] is graph.oprs[0]
    (True, False)
    """
    outputs = list(outputs)
    made = replace(
        graph, oprs=[], outputs=[], original_ids=[], output_alias=[], metadata=copy(graph.metadata)
    )
    known: dict[int, Var] = {}
    for opr in graph.oprs if everything else graph.needed(outputs):
        inputs = [known[v.id] for v in opr.inputs]
        other = convert(made, opr, inputs) if convert is not None else None
        if other is not None:
            known[opr.outputs[0].id] = other
            continue
        number = made.n_vars
        fresh = Opr(
            opr.type,
            opr.params,
            inputs,
            name=opr.name,
            tensors=[copy(t) for t in opr.tensors],
            output_dtype=opr.output_dtype,
            comp_node=list(opr.comp_node),
            priority=opr.priority,
            blobs=list(opr.blobs),
            version=opr.version,
            id=len(made.oprs),
        )
        for var in opr.outputs:
            new = copy(var)
            new.id, new.owner = number, fresh
            fresh.outputs.append(new)
            known[var.id] = new
            number += 1
        made.oprs.append(fresh)
    made.outputs = [known[v.id] for v in outputs]
    if [id(v) for v in outputs] == [id(v) for v in graph.outputs]:
        made.original_ids, made.output_alias = list(graph.original_ids), list(graph.output_alias)
    # A hash identifies the content that it was computed from.
    made.content_hash = 0
    return made, known


def bare(bundle: Bundle) -> Graph:
    """The model alone: without checks, expected values and what computes the errors.

    Outputs keep their order and get the names that the checks have for them: optimization renames variables.

    Raises:
        UsageError: the model computes something from an input that is named like an expected value.

    >>> import loadrun
    >>> graph = bare(loadrun.load("fixtures/nets/mlp.mge"))
    >>> [v.name for v in graph.inputs], [v.name for v in graph.outputs]
    (['data'], ['out'])
    """
    outputs = bundle.outputs
    if not bundle.checks:
        graph, _ = subgraph(bundle.graph, bundle.graph.outputs)
    else:
        graph, known = subgraph(bundle.graph, outputs.values())
        named: set[int] = set()
        for i, (name, var) in enumerate(outputs.items()):
            if var.owner.type == "Host2DeviceCopy" and var.name != name and var.id not in named:
                # An input that is an output as well keeps its own name.
                graph.outputs[i] = graph.add("Identity", inputs=[known[var.id]], names=[name])[0]
            elif var.id not in named:
                known[var.id].name = name
            named.add(var.id)
    for var in graph.inputs:
        if (var.name or "").endswith(EXPECT):
            raise UsageError(
                f"the model computes with its input {var.name!r}; names that end with {EXPECT} are those of "
                "expected values"
            )
    return graph


def add_check(
    graph: Graph, name: str, get: Var, shape: tuple[int, ...] | None, *, maxerr: float, verbose: bool
) -> Var:
    """Append the expected value of a variable and the check of it, as MegEngine's ``trace.dump`` does.

    The error is ``max(|expect - get| / max(1, min(|expect|, |get|)))`` in the operators that MegEngine writes.
    Types other than float32 are converted for it: MegEngine has no ABS of bool, no difference of quantized values
    and wraps small integers around, so that 255 would equal 0.

    Args:
        graph: what to extend.
        name: name of the output.
        get: the variable, of known dtype.
        shape: shape of the expected value, which testcases may change.
        maxerr: tolerance.
        verbose: whether MegEngine prints the error.

    Returns:
        the output of the AssertEqual.
    """
    assert get.dtype is not None
    tensor = Tensor(get.dtype, shape, name + EXPECT)
    (expect,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name + EXPECT], tensors=[tensor])

    def elemwise(mode: ElemwiseMode, *inputs: Var) -> Var:
        return graph.add("Elemwise", Elemwise(mode=mode), inputs=inputs)[0]

    def number(value: np.generic, dtype: DType) -> Var:
        stored = Tensor(dtype, (1,), None, encode(np.reshape(value, 1), dtype))
        return graph.add("ImmutableTensor", tensors=[stored])[0]

    a, b = expect, get
    if get.dtype != _F32:
        a, b = (graph.add("TypeCvtV2", TypeParam(dtype=_F32), inputs=[v])[0] for v in (expect, get))
    M = ElemwiseMode
    top = elemwise(M.ABS, elemwise(M.SUB, a, b))
    least = elemwise(M.MIN, elemwise(M.ABS, a), elemwise(M.ABS, b))
    bound = elemwise(M.MAX, least, number(np.float32(1), _F32))
    ratio = elemwise(M.TRUE_DIV, top, bound)
    target = number(np.int32(1), DType("Int32"))
    (err,) = graph.add("ReduceV2", Reduce(mode=ReduceMode.MAX), inputs=[ratio, target])
    return graph.add("AssertEqual", AssertEqual(maxerr=maxerr, verbose=verbose), inputs=[a, b, err])[0]


def set_tolerances(graph: Graph, tolerances: Mapping[int, float], verbose: bool | None) -> None:
    """Change checks in place: maxerr by operator id, and whether they print."""
    for opr in graph.oprs:
        if opr.type == "AssertEqual":
            old = opr.get(AssertEqual)
            opr.params = (
                AssertEqual(
                    maxerr=tolerances.get(opr.id, old.maxerr),
                    verbose=old.verbose if verbose is None else verbose,
                ),
            )
