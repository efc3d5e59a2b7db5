"""Why a testcase fails: the operator in which it diverges from float64, from another engine, or from its record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..base.errors import failure
from ..compare.results import Result
from ..dump.record import intermediates_at
from ..engines import Choice, baseline_for, file_of
from ..graph.dtypes import Array
from ..passes.constants import bare
from ..report.differences import changes, differences
from ..testcase import Bundle
from ..verify.diff import TOLERANCE, FileSide, between, changed_values

__all__ = ["explained"]


def explained(
    bundle: Bundle,
    result: Result,
    feeds: Mapping[str, Array],
    *,
    engine: str | Choice = "reference",
    seed: int = 0,
) -> list[str]:
    """Say line by line where a failing testcase begins to differ.

    Args:
        bundle: the file.
        result: the testcase's. The engine that failed is compared with the reference engine, the reference engine
            against the same model in float64, and the model against the statistics that the file's record keeps.
        feeds: what it ran on.
        engine: what executed it, where there is one engine; of several, the result says which.
        seed: seed of random operators.

    >>> import loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> lines = explained(bundle, loadrun.run(bundle)[1], bundle.testcases[1].inputs)
    >>> lines[0]
    'testcase 1 beside the same model in float64:'
    """
    try:
        return list(_lines(bundle, result, feeds, result.choice or str(engine), seed))
    except Exception as e:
        return [f"it cannot be explained: {failure(e, named=True).message}"]


def _lines(
    bundle: Bundle, result: Result, feeds: Mapping[str, Array], engine: str, seed: int
) -> Iterator[str]:
    if bundle.refusal is not None:
        yield "it cannot be explained operator by operator: the reference engine does not run the model"
        return
    case = "the run" if result.index is None else f"testcase {result.index}"
    model = bare(bundle.for_data(feeds))
    inputs = {n: a for n, a in feeds.items() if n in {v.name for v in model.inputs}}
    kept = None if result.index is None else intermediates_at(bundle.record, result.index)
    if kept is not None:
        changed = changed_values(model, kept, inputs, tolerance=TOLERANCE, seed=seed)
        yield f"{case} beside the intermediate values that were recorded when it was packed:"
        yield from changes(changed)
    other = baseline_for(engine)
    source = file_of(bundle, other)
    beside = other if source is None else FileSide(model, source, other)
    between_both = between(model, beside, inputs, seed=seed)
    yield f"{case} beside the same model {'in float64' if other == 'float64' else f'on {other}'}:"
    yield from (line for said in differences(between_both) for line in said.splitlines())
    if between_both.agree:
        yield (
            "so the arithmetic holds: the model or the expected values are not those that were packed together; "
            "compare with the model that it was packed from (loadrun diff --against)"
        )
