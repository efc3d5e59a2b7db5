"""Graphs built from other graphs: a copy of a part, a model without its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace

from ..base.errors import UsageError
from ..graph import Graph, Opr, Var
from ..testcase import EXPECT, Bundle

__all__ = ["bare", "subgraph"]


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
        fresh = opr.copied(inputs, len(made.oprs))
        for var in opr.outputs:
            new = var.copied(number, fresh)
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
    """Return the model alone: without checks, expected values and what computes the errors.

    Outputs keep their order and get the names that the checks have for them: optimization renames variables. Messages
    call operators by their numbers in the bundle.

    Raises:
        UsageError: the model computes something from an input that is named like an expected value.

    >>> import loadrun
    >>> graph = bare(loadrun.load("fixtures/nets/mlp.mge"))
    >>> [v.name for v in graph.inputs], [v.name for v in graph.outputs]
    (['data'], ['out'])
    """
    outputs = bundle.outputs
    if not bundle.checks:
        graph, known = subgraph(bundle.graph, bundle.graph.outputs)
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
    for opr in bundle.graph.oprs:
        if opr.outputs and opr.outputs[0].id in known:
            known[opr.outputs[0].id].owner.number = opr.id if opr.number is None else opr.number
    for var in graph.inputs:
        if (var.name or "").endswith(EXPECT):
            raise UsageError(
                f"the model computes with its input {var.name!r}; names that end with {EXPECT} are those of "
                "expected values"
            )
    return graph
