"""A graph as a dump holds it, compared with the graph that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.proving import level
from ..base.registry import resolve
from ..graph import Graph
from ..graph.dtypes import Array
from ..testcase import Bundle
from .container import loads
from .record import as_read_back
from .writer import dump_bytes

__all__ = ["not_proven"]

_MOST = 1 << 26
"""Bytes of weights up to which a graph is written twice, to be read back."""


def not_proven(made_of: Graph, graph: Graph, kind: str, case: Mapping[str, Array] | None) -> tuple[str, ...]:
    """Compare a graph with what it was made of, and with what is read back of it; return what was not compared.

    Where these are the same, operator for operator, nothing has to be run.

    Args:
        made_of: the graph before passes, narrowing and the options of the format.
        graph: what is written.
        kind: the format.
        case: inputs of the first testcase.

    Raises:
        ProofError: they compute different numbers.
    """
    written, unchanged = graph, made_of is graph or _alike(made_of, graph)
    weights = sum(t.data.nbytes for o in graph.oprs for t in o.tensors if t and t.data is not None)
    if level() != "none" and weights <= _MOST:
        written = loads(dump_bytes(graph, format=kind)).graph
        unchanged = unchanged and _alike(graph, written)
    if unchanged:
        return ()
    proved: Any = resolve("loadrun.proof:proved")
    source, target = Bundle(made_of), Bundle(written)
    left: tuple[str, ...] = proved(
        source,
        target,
        [] if case is None else [case],
        outputs=dict(zip(source.outputs, target.outputs, strict=False)),
        what="the graph in the .mge file",
        rough=True,
    ).left
    return left


def _alike(a: Graph, b: Graph) -> bool:
    """Return whether two graphs have the same operators on the same values, whatever their names are."""
    if len(a.oprs) != len(b.oprs):
        return False
    old, new = ({id(v): i for i, v in enumerate(g.vars())} for g in (a, b))
    if [old[id(v)] for v in a.outputs] != [new[id(v)] for v in b.outputs]:
        return False
    for x, y in zip(a.oprs, b.oprs, strict=True):
        if (x.type, x.output_dtype, len(x.outputs)) != (y.type, y.output_dtype, len(y.outputs)):
            return False
        if [old[id(v)] for v in x.inputs] != [new[id(v)] for v in y.inputs]:
            return False
        if [*map(as_read_back, x.params)] != [*map(as_read_back, y.params)] or len(x.tensors) != len(
            y.tensors
        ):
            return False
        for s, t in zip(x.tensors, y.tensors, strict=True):
            if (s.dtype, s.shape) != (t.dtype, t.shape) or (s.data is None) != (t.data is None):
                return False
            if s.data is not t.data and not np.array_equal(s.data, t.data):  # type: ignore[arg-type]
                return False
    return True
