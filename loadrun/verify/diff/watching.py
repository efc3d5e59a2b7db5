"""Operators that make NaN, infinity or numbers out of a range, while a model runs or beside another run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...engines.reference import ReferenceEngine
from ...graph import Graph, Var
from ...graph.dtypes import Array, dequantized, round_bfloat16
from .blaming import SuspectVar
from .matching import is_constant
from .running import taken


@dataclass(frozen=True)
class Finding:
    """A variable with values that are not finite, or out of range.

    Attributes:
        var: the variable.
        what: "NaN", "infinity", "out of range", or "beyond" and a dtype: a number that float64 holds and it does not.
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
    return [replace(f, hidden=i in read and i not in passed and i not in ends) for i, f in bad.items()]


def beyond_range(var: Var, value: Array, known: Collection[int]) -> Finding | None:
    """Tell whether numbers in float64 are beyond the range of their variable's own dtype.

    Args:
        var: the variable.
        value: its value in float64.
        known: ids of variables for which that is known.
    """
    dtype = var.dtype
    if dtype is None or not dtype.is_float or value.dtype != np.float64 or not value.size:
        return None
    with np.errstate(all="ignore"):
        rounded = value.astype(dtype.np)
        rounded = round_bfloat16(rounded) if dtype.name == "BFloat16" else rounded
        wrong = np.isfinite(value) & ~np.isfinite(rounded)
    if not wrong.any():
        return None
    origin = not any(v.id in known for v in var.owner.inputs)
    return _finding(var, f"beyond {dtype.spelling}", value, wrong, origin)


def _finding(var: Var, what: str, numbers: Array, wrong: Array, origin: bool) -> Finding:
    at = np.unravel_index(int(np.argmax(wrong)), numbers.shape)
    index = tuple(int(i) for i in at)
    return Finding(
        var, what, int(np.count_nonzero(wrong)), numbers.size, index, float(numbers[index]), origin
    )


def _look(bad: dict[int, Finding], var: Var, value: Array, limit: float | None) -> None:
    if value.dtype.kind != "f" and (limit is None or value.dtype.kind not in "iu"):
        return
    numbers = dequantized(value, var.dtype)
    with np.errstate(all="ignore"):
        wrong = ~np.isfinite(numbers)
        if limit is not None:
            wrong |= np.abs(numbers.astype(np.float64)) > limit
    if not wrong.any():
        return
    first = float(numbers.reshape(-1)[int(np.argmax(wrong))])
    what = "NaN" if np.isnan(first) else "infinity" if np.isinf(first) else "out of range"
    origin = not any(v.id in bad for v in var.owner.inputs)
    bad[var.id] = _finding(var, what, numbers, wrong, origin)


class Finiteness:
    """Looks at the values of two runs, one after another.

    Args:
        graph: the model, without checks.
        wide: whether the second run is in float64.
    """

    def __init__(self, graph: Graph, *, wide: bool = False) -> None:
        self._graph, self._wide = graph, wide
        self._outputs = {v.id for v in graph.outputs}
        self._beyond: dict[int, Finding] = {}
        self._infinite = False

    def see(self, var: Var, actual: Array, expected: Array) -> None:
        """Take note of a variable's values in the two runs, in execution order."""
        if self._wide and (limits := beyond_range(var, expected, self._beyond)) is not None:
            self._beyond[var.id] = limits
        if var.id in self._outputs and actual.dtype.kind == "f":
            self._infinite |= not np.isfinite(actual).all()

    def findings(self, feeds: Mapping[str, Array], seed: int) -> list[Finding]:
        """List where dtypes are left, and if an output is not finite, where NaN and infinity begin."""
        watched = watch(self._graph, feeds, seed=seed) if self._infinite else []
        beyond = [f for f in self._beyond.values() if f.origin]
        told = {f.var.id for f in beyond}
        return [*beyond, *(f for f in watched if f.origin and f.var.id not in told)]


def overflowed(graph: Graph, rows: Sequence[SuspectVar], feeds: Mapping[str, Array]) -> set[int]:
    """List values that are the same NaN or infinity on both sides, though nothing that they come from is.

    Any number behind them may be wrong and agree all the same. Infinities of constants and inputs, such as a mask's,
    are what the model means.

    Args:
        graph: the model.
        rows: what was compared.
        feeds: arrays by input name.
    """
    state = {r.var.id: r for r in rows}
    if not any(r.distance is not None and r.distance.nonfinite for r in rows):
        return set()
    meant: set[int] = set()
    bad: set[int] = set()
    for opr in graph.oprs:
        expected_so = any(v.id in meant for v in opr.inputs)
        for var in opr.outputs:
            if opr.tensors:
                value = opr.tensors[var.index].value() if is_constant(var) else feeds.get(var.name or "")
                if value is not None and value.dtype.kind == "f" and not np.isfinite(value).all():
                    meant.add(var.id)
                continue
            row = state.get(var.id)
            if row is not None and not (row.distance is not None and row.distance.nonfinite):
                continue
            if row is not None and (not expected_so or any(v.id in bad for v in opr.inputs)):
                bad.add(var.id)
            elif expected_so:
                meant.add(var.id)
    return bad
