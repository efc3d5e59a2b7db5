"""Statistics of intermediate values in a file's record: on another machine they tell which operator went wrong.

For every variable that the bare model computes, in execution order, the record of a testcase holds a list: how many
elements, then minimum, maximum, mean, mean of absolute values and deviation, then elements at equal distances from the
first to the last. Of quantized values it is what they stand for. Numbers that are not finite are null.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from ...engines.reference import ReferenceEngine
from ...graph import Graph, Var
from ...graph.dtypes import Array, DType

FIGURES = 5
"""Statistics that are between the number of elements and the samples."""
SAMPLES = 8
Figures = list[float | None]


def computed(graph: Graph) -> list[Var]:
    """List the variables that a graph computes, in execution order."""
    return [v for o in graph.needed() if o.inputs for v in o.outputs]


def statistics(graph: Graph, feeds: Mapping[str, Array], *, seed: int = 0) -> list[Figures]:
    """Run a model and describe every intermediate value; one of them is in memory at a time.

    Args:
        graph: the model without checks.
        feeds: arrays by input name.
        seed: seed of random operators.

    >>> import loadrun
    >>> from loadrun.passes.constants import bare
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> found = statistics(bare(bundle), bundle.testcases[0].inputs)
    >>> len(found) == len(computed(bare(bundle))), found[-1][0]
    (True, 4)
    """
    figures = dict(_walked(graph, feeds, seed))
    return [figures.get(v.id, []) for v in computed(graph)]


def _walked(graph: Graph, feeds: Mapping[str, Array], seed: int) -> Iterator[tuple[int, Figures]]:
    engine = ReferenceEngine(graph, seed=seed)
    inputs = {name: feeds[name] for name in engine.inputs if name in feeds}
    for opr, outs in engine.walk(inputs):
        for var, value in zip(opr.outputs, outs, strict=True):
            if opr.inputs:
                yield var.id, figures(value, var.dtype)


def figures(value: Array, dtype: DType | None = None) -> Figures:
    """Compute what the record holds of a value.

    >>> figures(np.array([3.0, -1.0, 4.0], "f4"))[:5]
    [3, -1.0, 4.0, 2.0, 2.66666667]
    """
    if not value.size or value.dtype.kind not in "iubf":
        return [value.size]
    flat = value.reshape(-1)
    places = np.linspace(0, flat.size - 1, min(SAMPLES, flat.size)).astype(np.intp)
    numbers = _real_numbers(flat, dtype)
    with np.errstate(all="ignore"):
        said = [
            numbers.min(),
            numbers.max(),
            numbers.mean(),
            np.abs(numbers).mean(),
            numbers.std(),
            *numbers[places],
        ]
    return [value.size, *(float(f"{x:.9g}") if np.isfinite(x) else None for x in said)]


def _real_numbers(flat: Array, dtype: DType | None) -> Array:
    wide = flat.astype(np.float64)
    return (
        (wide - dtype.zero_point) * float(dtype.scale) if dtype is not None and dtype.is_quantized else wide
    )
