"""Why a testcase fails: the operator in which it diverges from float64 or from another engine."""

from collections.abc import Collection, Mapping

from ..base.errors import failure
from ..compare.metrics import passes
from ..compare.results import Result, Verdict
from ..engines import baseline_for, file_of
from ..graph import Graph
from ..graph.dtypes import Array
from ..passes.constants import bare
from ..report.differences import differences, optimized
from ..report.graph import GraphMarks, graph_element, neighbourhood
from ..testcase import Bundle
from ..verify.diff import Differences, FileSide, between
from .reporting import Explained


def explained(
    bundle: Bundle,
    result: Result,
    feeds: Mapping[str, Array],
    *,
    engine: str = "reference",
    seed: int = 0,
) -> Explained:
    """Return lines on where a failing testcase diverges, and a drawing of the operators to blame.

    Args:
        bundle: the file.
        result: the testcase's. The engine that failed is compared with the reference engine, the reference engine
            against the same model in float64.
        feeds: what it ran on.
        engine: what executed it, where there is one engine; of several, the result says which.
        seed: seed of random operators.

    >>> import loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> found = explained(bundle, loadrun.run(bundle)[1], bundle.testcases[1].inputs)
    >>> found.lines[0]
    'testcase 1 beside the same model in float64:'
    """
    try:
        if bundle.source.refusal is not None:
            why = "it cannot be explained operator by operator: the reference engine does not run the model"
            return Explained((why,))
        return _explained(bundle, result, feeds, result.choice or engine, seed)
    except Exception as e:
        return Explained((f"it cannot be explained: {failure(e, named=True).message}",))


def _explained(
    bundle: Bundle, result: Result, feeds: Mapping[str, Array], engine: str, seed: int
) -> Explained:
    case = "the run" if result.index is None else f"testcase {result.index}"
    model = bare(bundle.for_data(feeds))
    inputs = {n: a for n, a in feeds.items() if n in {v.name for v in model.inputs}}
    other = baseline_for(engine)
    source = file_of(bundle, other)
    beside = other if source is None else FileSide(model, source, other)
    between_both = between(model, beside, inputs, seed=seed)
    said = [f"{case} beside the same model {'in float64' if other == 'float64' else f'on {other}'}:"]
    said += (line for part in differences(between_both) for line in part.splitlines())
    if between_both.optimized and isinstance(beside, FileSide):
        said += optimized(beside, inputs, None)
    if between_both.agree and between_both.outputs_agree and not between_both.findings:
        said.append(f"so the arithmetic is right, and {_other_cause(result)}")
    blamed = {r.opr.id for r in between_both.roots} | {s.opr.id for s in between_both.stops[0][:1]}
    return Explained(tuple(said), _drawing(model, between_both, blamed))


def _other_cause(result: Result) -> str:
    """Say what else than an operator makes a testcase fail."""
    failed = [(o, o.tolerance.maxerr) for o in result.outputs if o.verdict is Verdict.FAIL]
    if failed and all(
        o.fault is None and o.error is not None and maxerr is not None and passes(o.error, maxerr)
        for o, maxerr in failed
    ):
        return "all outputs are within their tolerances: the other criteria ask for more than rounding leaves"
    return (
        "the model and the expected values were not packed together: a weight or a value is another one, which no "
        "operator shows; `loadrun diff MODEL --against ORIGINAL` names it beside another file"
    )


def _drawing(model: Graph, differences: Differences, blamed: Collection[int]) -> str:
    """Draw the operators to blame with their neighbours; empty if there are none."""
    if not blamed:
        return ""
    shapes = {r.var.id: r.shapes[0] for r in differences.rows if r.shapes}
    near = neighbourhood(model.oprs, blamed)
    return graph_element(
        "the operators to blame", near, shapes, model.outputs, GraphMarks.of(differences, blamed)
    )
