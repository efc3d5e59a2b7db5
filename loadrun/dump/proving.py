"""A graph as a dump holds it, compared with the graph that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.proving import LARGE, level, spending
from ..base.registry import resolve
from ..graph import Graph, Opr, StoredTensor
from ..graph.dtypes import Array
from ..ops.catalog import CATALOG
from ..testcase import Bundle
from .container import loads
from .record import as_read_back
from .writer import dump_bytes

_BATCHES = (1, 2, 3, 65)
_ENDS = 1 << 20
"""Bytes at both ends of large weights that are compared, which would otherwise take as long as the writing."""


def check_read_back(graph: Graph, written: Graph) -> None:
    """Compare what is read back of a file with what was written.

    Raises:
        ProofError: it is another graph.
    """
    if (why := _difference(graph, written)) is not None:
        error: Exception = resolve("loadrun.proof:refusal")(
            f"what is read back of the .mge file is another graph than the one that was written ({why})"
        )
        raise error


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
    with spending():
        if level() != "none" and graph.stored_bytes <= LARGE:
            check_read_back(graph, loads(dump_bytes(graph, format=kind)).graph)
        same = made_of is graph or _difference(made_of, graph) is None
    source, target = Bundle(made_of), Bundle(graph)
    outputs = dict(zip(source.outputs, target.outputs, strict=False))
    others = _others(graph, outputs)
    if same and not others:
        return ()
    proved: Any = resolve("loadrun.proof:proved")
    left: tuple[str, ...] = proved(
        source,
        None if same else target,
        [] if case is None else [case],
        outputs=outputs,
        sizes=[] if same else _other_sizes(source, case or {}),
        may_refuse=True,
        what="the graph in the .mge file",
        others=others,
        rough=True,
    ).left
    return left


def _other_sizes(source: Bundle, case: Mapping[str, Array]) -> list[dict[str, tuple[int, ...]]]:
    """Return other shapes of inputs, at which a trace that keeps sizes symbolic may run: another batch, larger maps."""
    declared = {v.name or "": v.owner.tensors[0].shape or () for v in source.inputs}
    shapes = {n: case[n].shape if n in case else s for n, s in declared.items()}
    batch = next((s[0] for s in shapes.values() if s), 0)
    sets = [
        {n: (k, *s[1:]) if s[:1] == (batch,) else s for n, s in shapes.items()}
        for k in _BATCHES
        if k != batch
    ]
    sets.append({n: (*s[:2], *(a + 1 for a in s[2:])) for n, s in shapes.items()})
    return [one for one in sets if one != shapes]


def _others(graph: Graph, outputs: Mapping[str, str]) -> list[Any]:
    """Return MegEngine with the graph, where a Python has it and everything is to be proven: it takes long to start."""
    beside = resolve("loadrun.runtimes.megengine:beside")(graph) if level() == "full" else None
    if beside is None:
        return []
    name, run, stop = beside

    def by_source(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        values = run(feeds)
        return {n: values[new] for n, new in outputs.items() if new in values}

    return [resolve("loadrun.proof:Other")(name, "the .mge file", by_source, stop, told=True)]


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
    if a.data is b.data or a.data is None or b.data is None:
        return True
    if a.data.size <= LARGE or level() == "full":
        return np.array_equal(a.data, b.data)
    parts = (slice(None, _ENDS), slice(-_ENDS, None))
    return a.data.size == b.data.size and all(np.array_equal(a.data[part], b.data[part]) for part in parts)
