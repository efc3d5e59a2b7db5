"""The fault located by its effect: where the reference takes over a value of the model, its outputs become the model's.

Values that agree are found in both graphs whatever their operators are. Behind a fault none do, so that nothing says
which of the remaining values stand for each other. A pair that does is known by running the reference with the model's
value in place of its own: if its outputs are then the model's, the fault is at this value or before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from math import prod

from ...base.errors import LoadRunError
from ...engines.reference import ReferenceEngine
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array, dequantized
from ...graph.excerpts import excerpt, reached
from ...ops.catalog import types
from ...ops.op import Trait
from .extracting import stored_as
from .matching import Matching, is_constant, operators_before
from .measuring import Distance, Sketch, SketchIndex, are_in_order, distance, is_even, sketch
from .running import GraphSide, taken

_MOST_TRIES = 48
_MOST_PARTNERS = 6
_MOST_ELEMENTS = 1 << 27
"""Elements that all tries together may compute."""
_NAME = "loadrun:taken"
_REARRANGING = types(Trait.REARRANGES)


@dataclass(frozen=True)
class Located:
    """A value of the model that the reference can take over.

    Attributes:
        var: the value, the first one there is.
        partner: the reference's value.
        between: operators of the model before it, back to values that agree.
        distance: how far the two are apart.
        shapes: the shapes of both.
    """

    var: Var
    partner: Var
    between: tuple[Opr, ...] = ()
    distance: Distance | None = None
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class _Value:
    var: Var
    sketch: Sketch
    shape: tuple[int, ...]


class Sketched:
    """A graph with sketches of its values, by the numbers of the variables; it runs once, when they are asked for.

    Args:
        graph: the graph, without checks.
        feeds: arrays by input name.
        seed: seed of random operators.

    Attributes:
        unlike: ids of values that are known to be others than those of the other graph, in spite of their sketches.
    """

    def __init__(self, graph: Graph, feeds: Mapping[str, Array], seed: int) -> None:
        self.graph = graph
        self.unlike: set[int] = set()
        self._feeds, self._seed, self._side = feeds, seed, GraphSide(graph, seed)

    @cached_property
    def variables(self) -> dict[int, _Value]:
        """Map numbers of variables to what is known of their values; what could not be computed is left out."""
        inputs = ((v, self._feeds[v.name or ""]) for v in self.graph.inputs if v.name in self._feeds)
        values = chain(inputs, self._side.values(self._feeds))
        return {v.id: _Value(v, sketch(a), a.shape) for v, a in values if not is_constant(v)}

    def sketch_of(self, var: Var) -> Sketch | None:
        """Return the sketch of a value, None if it could not be computed."""
        known = self.variables.get(var.id)
        return None if known is None else known.sketch

    def in_order(self, of: Sketch, tolerance: float) -> list[Var]:
        """List the values whose elements may be those of a sketch, in the same order."""
        like = self.index.like(of, tolerance)
        return [v for v in like if are_in_order(of, self.variables[v.id].sketch, tolerance)]

    def size(self, number: int) -> int:
        """Return how many elements a value has."""
        return prod(self.variables[number].shape)

    @cached_property
    def index(self) -> SketchIndex:
        """All values by their sketches."""
        return SketchIndex((v.var, v.sketch) for v in self.variables.values())

    @property
    def stopped(self) -> bool:
        """Return whether an operator could not run."""
        return bool(self.variables and self._side.stops)

    def values(self, wanted: Collection[int]) -> dict[int, Array]:
        """Compute some values once more."""
        run = GraphSide(self.graph, self._seed).values(self._feeds)
        return {v.id: a.copy() for v, a in run if v.id in wanted}

    def with_value(self, var: Var, stored: Array, outputs: Sequence[Var]) -> list[Array] | None:
        """Compute outputs with another value of a variable; None if they cannot take it."""
        shape = self.variables[var.id].shape
        if stored.size != prod(shape):
            return None
        try:
            part, _ = excerpt(self.graph, outputs, {var.id: _NAME})
            engine = ReferenceEngine(part, part.outputs, seed=self._seed)
            fed = {**self._feeds, _NAME: stored.reshape(shape)}
            got = engine.run(taken(engine.inputs, fed))
        except LoadRunError:
            return None
        return [dequantized(a, v.dtype) for v, a in zip(outputs, got, strict=True)]


def locate(
    mine: Sketched, theirs: Sketched, matching: Matching, *, suspect: Var | None, tolerance: float
) -> Located | None:
    """Find the first value of a model that the reference can take over to give the model's outputs.

    Args:
        mine: the model under suspicion.
        theirs: the reference.
        matching: the partners of the outputs.
        suspect: the value that was found otherwise, if one was; it may be one that says too little to be searched.
        tolerance: how far a value may be off, relative to the largest value of its tensor.

    Returns:
        None where there is no such value, as where two operators are wrong, and where operators could not run.
    """
    search = _search(mine, theirs, matching, tolerance)
    if search is None:
        return None
    return search.located(
        (suspect, matching.pairs[suspect.id]) if suspect and suspect.id in matching.pairs else None
    )


def explains(mine: Sketched, theirs: Sketched, matching: Matching, var: Var, tolerance: float) -> bool:
    """Return whether one value of a model makes the reference's outputs the model's, so that no other is to blame."""
    search = _search(mine, theirs, matching, tolerance)
    if search is None or var.id not in matching.pairs or var.id not in mine.variables:
        return False
    return search.is_taken_over(matching.pairs[var.id], var, mine.values([var.id])[var.id])


def _search(mine: Sketched, theirs: Sketched, matching: Matching, tolerance: float) -> _Search | None:
    # What can be expressed of a broken model ends with inner values of the other one.
    real_ends = {v.id for v in theirs.graph.outputs}
    ends = [(v, matching.pairs[v.id]) for v in mine.graph.outputs if v.id in matching.pairs]
    ends = [(v, w) for v, w in ends if v.id in mine.variables and w.id in real_ends & theirs.variables.keys()]
    if mine.stopped or theirs.stopped or not ends:
        return None
    return _Search(mine, theirs, ends, tolerance)


@dataclass(frozen=True)
class _Unknown:
    """What is known of a value that the other graph lacks.

    Attributes:
        near: the nearest values before it that both graphs have, by their numbers in the model.
        depth: how many operators there are from these to it at most.
    """

    near: set[int]
    depth: int

    def distance(self, other: _Unknown) -> tuple[float, int]:
        """Return how little speaks for two values being one."""
        share = len(self.near & other.near) / max(len(self.near | other.near), 1)
        return -share, abs(self.depth - other.depth)


class _Search:
    def __init__(
        self, mine: Sketched, theirs: Sketched, ends: Sequence[tuple[Var, Var]], tolerance: float
    ) -> None:
        self._mine, self._theirs, self._ends = mine, theirs, ends
        self._tolerance = tolerance
        self._outputs = mine.values([v.id for v, _ in ends])

    def located(self, suspect: tuple[Var, Var] | None) -> Located | None:
        """See `locate`."""
        place = self._reordered(self._first())
        if place is None:
            return None
        if suspect is not None and self._is_earlier(*suspect, place):
            return Located(*suspect)
        var, partner = place.var, place.partner
        mine, theirs = self._mine.values([var.id])[var.id], self._theirs.values([partner.id])[partner.id]
        apart = distance(mine, theirs, self._tolerance)
        return replace(place, distance=apart, shapes=(mine.shape, theirs.shape))

    def _is_earlier(self, var: Var, partner: Var, place: Located) -> bool:
        """Return whether what was found depends on a value that can be taken over as well."""
        if var is place.var or var.owner not in self._mine.graph.needed([place.var]):
            return False
        value = self._mine.values([var.id]).get(var.id)
        return value is not None and self.is_taken_over(partner, var, value)

    def _first(self) -> Located | None:
        mine = self._unknown(self._mine, [v for v, _ in self._ends], self._theirs.index)
        theirs = self._unknown(self._theirs, [v for _, v in self._ends], self._mine.index)
        if not mine or not theirs:
            return self._moved_output()
        tries = min(
            _MOST_TRIES, 1 + _MOST_ELEMENTS // max(sum(map(self._theirs.size, self._theirs.variables)), 1)
        )
        candidates = [*islice(self._candidates(mine, theirs), tries)]
        values = self._mine.values({v.id for v, _ in candidates})
        for var, partner in candidates:
            if self.is_taken_over(partner, var, values[var.id]):
                return Located(var, partner, operators_before([var.owner], lambda v: v.id in mine))
        return None

    def _unknown(self, side: Sketched, ends: Sequence[Var], others: SketchIndex) -> dict[int, _Unknown]:
        """Map the values that the other graph lacks, and that some outputs depend on by such values alone."""

        def lacks(var: Var) -> bool:
            sketch_here = side.sketch_of(var)
            return (
                sketch_here is not None
                and bool(var.owner.inputs)
                and not is_even(sketch_here)
                and (var.id in side.unlike or not others.like(sketch_here, self._tolerance))
            )

        dark: dict[int, Var] = {}
        todo = list(filter(lacks, ends))
        while todo:
            var = todo.pop()
            if var.id not in dark:
                dark[var.id] = var
                todo += filter(lacks, var.owner.inputs)
        unknown: dict[int, _Unknown] = {}
        for number in sorted(dark):
            inputs = dark[number].owner.inputs
            behind = [unknown[v.id] for v in inputs if v.id in dark]
            near = set().union(
                *(u.near for u in behind), *(self._known(side, v) for v in inputs if v.id not in dark)
            )
            step = dark[number].owner.type not in _REARRANGING
            unknown[number] = _Unknown(near, step + max((u.depth for u in behind), default=0))
        return unknown

    def _known(self, side: Sketched, var: Var) -> set[int]:
        sketch_here = side.sketch_of(var)
        return (
            set()
            if sketch_here is None
            else {v.id for v in self._mine.index.like(sketch_here, self._tolerance)[:1]}
        )

    def _candidates(
        self, mine: Mapping[int, _Unknown], theirs: Mapping[int, _Unknown]
    ) -> Iterator[tuple[Var, Var]]:
        """Yield pairs of one size, the model's values in order, with those first that depend on the same values."""
        # What the model has one operator more for is before the reference's unknown values.
        border = {
            v.id: v for i in theirs for v in self._theirs.variables[i].var.owner.inputs if v.id not in theirs
        }
        theirs = {**theirs, **{i: _Unknown(self._known(self._theirs, v), 0) for i, v in border.items()}}
        sizes: dict[int, list[Var]] = defaultdict(list)
        for number in theirs.keys() & self._theirs.variables.keys():
            sizes[self._theirs.size(number)].append(self._theirs.variables[number].var)
        for number, unknown in mine.items():
            var = self._mine.variables[number].var
            ranked = sorted(
                (*unknown.distance(theirs[v.id]), v.owner.title != var.owner.title, v.id)
                for v in sizes[self._mine.size(number)]
            )
            yield from ((var, self._theirs.variables[i].var) for *_, i in ranked[:_MOST_PARTNERS])

    def is_taken_over(self, var: Var, source: Var, value: Array) -> bool:
        """Return whether the reference with a value of the model in place of its own gives the model's outputs."""
        got = self._theirs.with_value(var, stored_as(value, source.dtype, var), [v for _, v in self._ends])
        return got is not None and not any(
            self._are_apart(self._outputs[mine.id], array)
            for (mine, _), array in zip(self._ends, got, strict=True)
        )

    def _are_apart(self, x: Array, y: Array) -> bool:
        apart = distance(x, y, self._tolerance)
        return apart is None or apart.relative > self._tolerance

    def _moved_output(self) -> Located | None:
        """Return the output whose numbers are all there, in another order, if there is one."""
        there = self._theirs.values([v.id for _, v in self._ends])
        moved = [(v, w) for v, w in self._ends if self._are_apart(self._outputs[v.id], there[w.id])]
        return Located(*moved[0]) if len(moved) == 1 else None

    def _reordered(self, place: Located | None) -> Located | None:
        """Go back to the value whose numbers are in another order, where the operator behind it is not to blame."""
        while place is not None:
            earlier = self._moved_input(place)
            if earlier is None:
                break
            place = earlier
        return place

    def _moved_input(self, place: Located) -> Located | None:
        reads = {v.id: v for o in (*place.between, place.var.owner) for v in o.inputs}
        before = {v.id for o in reached([place.partner], ()) for v in (*o.inputs, place.partner)}
        pairs = [
            (v, w)
            for v in reads.values()
            if (known := self._mine.sketch_of(v)) is not None and v.owner.inputs
            for w in self._theirs.index.like(known, self._tolerance)
            if w.id in before and w.owner.inputs
        ]
        if not pairs:
            return None
        mine = self._mine.values({v.id for v, _ in pairs})
        theirs = self._theirs.values({w.id for _, w in pairs})
        moved = [
            (v, w)
            for v, w in pairs
            if all(self._differs(mine[v.id], theirs[x.id]) for u, x in pairs if u is v)
        ]
        for var, partner in moved[:_MOST_PARTNERS]:
            if self.is_taken_over(partner, var, mine[var.id]):
                return Located(var, partner)
        return None

    def _differs(self, x: Array, y: Array) -> bool:
        return self._are_apart(x.reshape(-1), y.reshape(-1))
