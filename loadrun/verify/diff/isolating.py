"""Suspects by themselves: what an operator makes of the reference's values says whether it is guilty."""

from collections.abc import Mapping, Sequence
from math import inf, prod

from ...base.errors import LoadRunError
from ...engines.reference import ReferenceEngine
from ...graph import Graph, Var
from ...graph.dtypes import Array
from ...graph.excerpts import excerpt
from ...ops.infer import infer_dtypes
from .blaming import SuspectVar
from .extracting import computed_values, reference_values
from .matching import Matching, is_constant
from .measuring import dequantized, distance, is_packed_otherwise

_AT_ONCE = 1 << 25
"""Elements of suspects that are in memory together."""


class Isolation:
    """Runs suspects on the reference's values.

    Args:
        graph: the model under suspicion, without checks.
        against: the reference, without checks.
        matching: the partners of its variables.
        feeds: arrays by input name.
        seed: seed of random operators.
        rows: what was compared.
    """

    def __init__(
        self,
        graph: Graph,
        against: Graph,
        matching: Matching,
        feeds: Mapping[str, Array],
        seed: int,
        rows: Sequence[SuspectVar],
    ) -> None:
        self._shapes = {r.var.id: r.shapes[0] for r in rows if r.shapes and r.shapes[0] != r.shapes[1]}
        self._graph, self._against, self._matching = graph, against, matching
        self._feeds, self._seed = feeds, seed

    def errors(self, rows: Sequence[SuspectVar]) -> dict[int, float]:
        """Measure how far suspects are off on the reference's inputs, by the ids of their variables.

        It is the mean relative difference, infinity where the result has another size or there is none. Suspects
        that cannot take the dtypes, or whose inputs the reference does not have, are left out.
        """
        measured: dict[int, float] = {}
        some: list[SuspectVar] = []
        size = 0
        for i, row in enumerate(rows):
            some.append(row)
            size += sum(prod(shape) for shape in row.shapes)
            if i + 1 == len(rows) or size > _AT_ONCE:
                self._some(some, measured)
                some, size = [], 0
        return measured

    def _some(self, rows: Sequence[SuspectVar], measured: dict[int, float]) -> None:
        border = [_border(r) for r in rows]
        wanted = {v.id: v for r, b in zip(rows, border, strict=True) for v in (*b, r.var)}
        values = self._values(list(wanted.values()))
        for row, inputs in zip(rows, border, strict=True):
            error = self._error(row, inputs, values)
            if error is not None:
                measured[row.var.id] = error

    def _values(self, wanted: Sequence[Var]) -> dict[int, Array]:
        try:
            known = reference_values(
                self._graph, wanted, self._against, self._feeds, self._seed, self._matching
            )
            missing = [v for v in wanted if v.id not in known]
            return {
                **(computed_values(self._graph, missing, self._feeds, self._seed) if missing else {}),
                **known,
            }
        except LoadRunError:
            return {}

    def _error(self, row: SuspectVar, border: Sequence[Var], values: Mapping[int, Array]) -> float | None:
        if (
            row.var.id not in self._matching.pairs
            or row.var.id not in values
            or any(v.id not in values for v in border)
        ):
            return None
        inputs = {v.id: values[v.id] for v in border}
        error = self._error_on(row, inputs, values[row.var.id])
        mine = {
            i: a.reshape(self._shapes[i])
            for i, a in inputs.items()
            if i in self._shapes and prod(self._shapes[i]) == a.size
        }
        if mine and error:
            # Another format may have axes of one element more or less.
            again = self._error_on(row, {**inputs, **mine}, values[row.var.id])
            error = error if again is None else min(error, again)
        return error

    def _error_on(self, row: SuspectVar, inputs: Mapping[int, Array], expected: Array) -> float | None:
        there, mine = self._matching.pairs[row.var.id], row.var.dtype
        names = {i: f"x{i}" for i in inputs}
        try:
            alone, _ = excerpt(self._graph, [row.var], names)
            infer_dtypes(alone.needed())
            engine = ReferenceEngine(alone, alone.outputs, seed=self._seed)
        except LoadRunError:
            # Its inputs have another dtype than the reference's.
            return None
        try:
            (got,) = engine.run({names[i]: a for i, a in inputs.items() if names[i] in engine.inputs})
        except LoadRunError:
            return inf
        both = mine is not None and there.dtype is not None and mine.is_quantized and there.dtype.is_quantized
        want = dequantized(expected, there.dtype if both else mine)
        apart = distance(dequantized(got, mine), want, packed=is_packed_otherwise(row.var, there))
        return inf if apart is None else apart.mean


def _border(row: SuspectVar) -> list[Var]:
    inside = {v.id for o in (*row.between, row.opr) for v in o.outputs}
    border = {v.id: v for o in (*row.between, row.opr) for v in o.inputs}
    return [v for v in border.values() if v.id not in inside and not is_constant(v)]
