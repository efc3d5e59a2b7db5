"""Operators that make NaN, infinity or numbers out of a range, while a model runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...base.arguments import typed
from ...base.records import dataclass
from ...engines.reference import ReferenceEngine
from ...graph import Graph, Var
from ...graph.dtypes import Array
from .measuring import real
from .running import taken

__all__ = ["Finding", "watch"]


@dataclass(frozen=True)
class Finding:
    """A variable with values that are not finite, or out of range.

    Attributes:
        var: the variable.
        what: "NaN", "infinity" or "out of range".
        count: how many of its elements.
        size: how many elements it has.
        index: the first of them.
        value: the first of them.
        origin: whether everything that its operator read was in order, so that it began here.
        hidden: whether it is read, and no operator that reads it passes it on.
    """

    var: Var
    what: str
    count: int
    size: int
    index: tuple[int, ...]
    value: float
    origin: bool
    hidden: bool = False


@typed
def watch(
    graph: Graph, feeds: Mapping[str, Array], *, limit: float | None = None, seed: int = 0
) -> list[Finding]:
    """Run a model operator by operator and report values that are not finite or greater than a limit.

    Args:
        graph: the model.
        feeds: arrays by input name.
        limit: the largest absolute value that is in range; None looks at NaN and infinity alone.
        seed: seed of random operators.

    Returns:
        the variables in execution order, inputs and constants first.

    >>> import numpy as np
    >>> from loadrun.testing import GraphBuilder
    >>> b = GraphBuilder()
    >>> x = b.input("x", 2)
    >>> graph = b.done(b.elemwise("MAX", b.elemwise("LOG", x, name="log"), b.const(0.0)))
    >>> [(f.var.name, f.what, f.origin) for f in watch(graph, {"x": np.array([1, -1], "f4")})]
    [('log', 'NaN', True), ('out0', 'NaN', False)]
    """
    engine = ReferenceEngine(graph, seed=seed)
    bad: dict[int, Finding] = {}
    for name, var in engine.inputs.items():
        if name in feeds:
            _look(bad, var, feeds[name], limit)
    for opr, outs in engine.walk(taken(engine.inputs, feeds)):
        for var, value in zip(opr.outputs, outs, strict=True):
            _look(bad, var, value, limit)
    passed = {v.id for f in bad.values() for v in f.var.owner.inputs}
    read = {v.id for o in graph.oprs for v in o.inputs}
    ends = {v.id for v in graph.outputs}
    return [
        Finding(**{**vars(f), "hidden": i in read and i not in passed and i not in ends})
        for i, f in bad.items()
    ]


def _look(bad: dict[int, Finding], var: Var, value: Array, limit: float | None) -> None:
    if value.dtype.kind != "f" and (limit is None or value.dtype.kind not in "iu"):
        return
    numbers = real(value, var.dtype)
    with np.errstate(all="ignore"):
        wrong = ~np.isfinite(numbers)
        if limit is not None:
            wrong |= np.abs(numbers.astype(np.float64)) > limit
    if not wrong.any():
        return
    at = np.unravel_index(int(np.argmax(wrong)), numbers.shape)
    first = float(numbers[at])
    what = "NaN" if np.isnan(first) else "infinity" if np.isinf(first) else "out of range"
    origin = not any(v.id in bad for v in var.owner.inputs)
    index = tuple(int(i) for i in at)
    bad[var.id] = Finding(var, what, int(np.count_nonzero(wrong)), numbers.size, index, first, origin)
