"""This machine beside the statistics that a file's record holds: which operator gives something else here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...base.errors import UsageError
from ...graph import Graph, Var
from ...graph.dtypes import Array
from ..pack.intermediates import FIGURES, computed, figures
from .running import GraphSide

_NAMES = ("minimum", "maximum", "mean", "mean of absolute values", "deviation")


@dataclass(frozen=True)
class ChangedValue:
    """A value that is another one than when the file was packed.

    Attributes:
        var: the variable.
        what: which figure of it is furthest off.
        found, expected: that figure here, and when the file was packed; None for NaN and infinity.
        root: whether all that its operator reads is as it was.
    """

    var: Var
    what: str
    found: float | None
    expected: float | None
    root: bool


def changed_values(
    graph: Graph,
    recorded: Sequence[Sequence[float | None]],
    feeds: Mapping[str, Array],
    *,
    tolerance: float,
    seed: int = 0,
) -> list[ChangedValue]:
    """Compare a run with what `loadrun.verify.pack.intermediates` kept of it.

    Args:
        graph: the model without checks.
        recorded: what the record holds for the testcase.
        feeds: the testcase's inputs.
        tolerance: how far a figure may be off, relative to the largest absolute value; quantized values may be off by
            one step.
        seed: seed of random operators.

    Returns:
        the variables that are off, in execution order.

    Raises:
        UsageError: the record is that of another graph.
    """
    # As far as the model goes: a wrong stride may stop it far behind the operator that has it.
    here = {v.id: figures(a) for v, a in GraphSide(graph, seed).values(feeds) if v.owner.inputs}
    variables = computed(graph)
    if len(recorded) != len(variables):
        raise UsageError(
            f"the record describes {len(recorded)} values, but the model computes {len(variables)}: it has changed "
            "since"
        )
    off: dict[int, ChangedValue] = {}
    for var, there in zip(variables, recorded, strict=True):
        worst = _worst(here[var.id], there, tolerance, var) if var.id in here else None
        if worst is not None:
            root = not any(v.id in off for v in var.owner.inputs)
            off[var.id] = ChangedValue(var, *worst, root)
    return list(off.values())


def _worst(
    here: Sequence[float | None], there: Sequence[float | None], tolerance: float, var: Var
) -> tuple[str, float | None, float | None] | None:
    """Find the figure that is furthest off, by more than the tolerance."""
    if here[:1] != there[:1] or len(here) != len(there):
        one, other = (float(x[0] or 0) if x else None for x in (here, there))
        return "number of elements", one, other
    largest = max((abs(x) for x in there[1:3] if x is not None), default=0.0)
    step = 1.001 * float(var.dtype.scale) if var.dtype is not None and var.dtype.is_quantized else 0.0
    worst, figure = max(tolerance * largest, step), None
    for i, (a, b) in enumerate(zip(here[1:], there[1:], strict=True)):
        name = _NAMES[i] if i < FIGURES else f"sample {i - FIGURES}"
        if (a is None) != (b is None):
            return name, a, b
        if a is not None and b is not None and abs(a - b) > worst:
            worst, figure = abs(a - b), (name, a, b)
    return figure
