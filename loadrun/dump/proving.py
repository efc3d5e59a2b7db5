"""A graph as a dump holds it, compared with the graph that it was made of."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.proving import level
from ..base.registry import resolve
from ..graph import Graph, Opr, StoredTensor
from ..graph.dtypes import Array
from ..ops.catalog import CATALOG
from ..testcase import Bundle
from .container import loads
from .record import as_read_back
from .writer import dump_bytes

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
    stored = (t.data for o in graph.oprs for t in o.tensors if t is not None)
    weights = sum(int(data.size) for data in stored if data is not None)
    if level() != "none" and weights <= _MOST:
        why = _difference(graph, loads(dump_bytes(graph, format=kind)).graph)
        if why is not None:
            raise _error(
                f"what is read back of the .mge file is another graph than the one that was written ({why})"
            )
    if made_of is graph or _difference(made_of, graph) is None:
        return ()
    proved: Any = resolve("loadrun.proof:proved")
    source, target = Bundle(made_of), Bundle(graph)
    left: tuple[str, ...] = proved(
        source,
        target,
        [] if case is None else [case],
        outputs=dict(zip(source.outputs, target.outputs, strict=False)),
        what="the graph in the .mge file",
        rough=True,
    ).left
    return left


def _error(said: str) -> Exception:
    error: Exception = resolve("loadrun.proof:refusal")(said)
    return error


def _difference(a: Graph, b: Graph) -> str | None:
    """Return where two graphs have other operators or values, whatever their names are; None if nowhere."""
    if len(a.oprs) != len(b.oprs):
        return f"{len(b.oprs)} operators for {len(a.oprs)}"
    old, new = ({id(v): i for i, v in enumerate(g.vars())} for g in (a, b))
    for i, (x, y) in enumerate(zip(a.oprs, b.oprs, strict=True)):
        facts = [
            (o.type, o.output_dtype, len(o.outputs), [n.get(id(v)) for v in o.inputs], _params(o))
            for o, n in ((x, old), (y, new))
        ]
        same = len(x.tensors) == len(y.tensors) and all(map(_is_same, x.tensors, y.tensors))
        if facts[0] != facts[1] or not same:
            return f"operator {i}, {x.type}"
    return (
        None if [old.get(id(v)) for v in a.outputs] == [new.get(id(v)) for v in b.outputs] else "its outputs"
    )


def _params(opr: Opr) -> list[str]:
    """Return the records of an operator as a file has them, with those that nobody gave; as text NaN equals itself."""
    op = CATALOG.get(opr.type)
    left = op.params[len(opr.params) :] if op is not None else ()
    return [repr(p) for p in (*map(as_read_back, opr.params), *(kind() for kind in left))]


def _is_same(a: StoredTensor, b: StoredTensor) -> bool:
    if (a.dtype, a.shape) != (b.dtype, b.shape) or (a.data is None) != (b.data is None):
        return False
    return a.data is b.data or np.array_equal(a.data, b.data)  # type: ignore[arg-type]
