"""The first operator that an engine computes differently, found with one additional output at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...base.errors import UsageError
from ...engines import Choice
from ...graph import Graph, Var
from ...graph.dtypes import Array
from .measuring import Distance, Tolerances, agree, distance
from .running import EngineSide, FileSide, GraphSide, computed


@dataclass(frozen=True)
class Bisected:
    """The result of a search.

    Attributes:
        var: the first variable that is out of its tolerance; None if the outputs agree.
        distance: how far the engine's value of it is off.
        runs: how often the engine ran.
    """

    var: Var | None
    distance: Distance | None
    runs: int


def bisect(
    graph: Graph,
    engine: str | Choice | FileSide,
    feeds: Mapping[str, Array],
    *,
    tolerance: float | None,
    seed: int = 0,
) -> Bisected:
    """Find the first operator whose value an engine gives otherwise than the reference engine.

    An engine that fuses operators gives other numbers, or hides a fault, once it has to hand out every value on the
    way. So it is asked for the model's outputs and one value more in each run, and half of the operators are left after
    it. That holds where an error, once there, is seen in what follows.

    Args:
        graph: the model, without checks.
        engine: name of the engine, or the file that the graph was made of on a runtime.
        feeds: arrays by input name.
        tolerance: as `loadrun.verify.diff.between` has it.
        seed: seed of random operators.

    Raises:
        UsageError: the engine gives none of the outputs.

    >>> import loadrun
    >>> from loadrun.passes.constants import bare
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> bisect(bare(bundle), "reference", bundle.testcases[0].inputs, tolerance=1e-4).var is None
    True
    """
    order = engine.named if isinstance(engine, FileSide) else computed(graph)
    places = {v.id: i for i, v in enumerate(order)}
    right = GraphSide(graph, seed)
    side = engine if isinstance(engine, FileSide) else EngineSide(graph, engine, seed)
    tolerances = Tolerances(tolerance, graph)
    runs = 0

    def off(var: Var) -> tuple[bool, Distance | None]:
        nonlocal runs
        runs += 1
        got = side.value(var, feeds)
        want = next((a for v, a in right.values(feeds) if v.id == var.id), None)
        if got is None or want is None:
            # A value that is not available counts as right; its readers will show.
            return True, None
        measured = distance(got, want)
        return agree(measured, var.dtype, tolerances.of(var)), measured

    wrong: dict[int, Distance | None] = {}
    known = 0
    for var in graph.outputs:
        if var.id in places:
            fine, difference = off(var)
            known += difference is not None or not fine
            if not fine:
                wrong[places[var.id]] = difference
    if not known:
        raise UsageError(f"{engine} returns none of the model's outputs")
    if not wrong:
        return Bisected(None, None, runs)
    last = min(wrong)
    # Only operators that the first wrong output depends on matter.
    needed = {v.id for o in graph.needed([order[last]]) for v in o.outputs}
    left = [v for v in order[: last + 1] if v.id in needed]
    low, high, difference = -1, len(left) - 1, wrong[last]
    while high - low > 1:
        middle = (low + high) // 2
        fine, there = off(left[middle])
        if fine:
            low = middle
        else:
            high, difference = middle, there
    return Bisected(left[high], difference, runs)
