"""Observations besides a replay: values of every operator of the first file that are not finite or out of range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..base.errors import clean
from ..dump import load
from ..engines import runs_file
from ..graph.dtypes import Array
from ..inputs.feeds import random_inputs
from ..passes.constants import bare
from ..report.differences import findings
from ..testcase import Bundle, Testcase
from ..verify.diff import watch
from .options import RunOptions
from .parts import prepared

__all__ = ["observe"]


def observe(path: str, options: RunOptions, fed: Sequence[Mapping[str, Array]] = ()) -> str | None:
    """Run a file once more on the reference engine and look for values that are not finite or out of range.

    Args:
        path: the file.
        options: what is looked for.
        fed: what the replay was fed, where that is not in the file.

    Returns:
        what is to be said of such values, None when all is well.

    Raises:
        LoadRunError: the model cannot be read or executed.
    """
    bundle = prepared(
        load(path, native=runs_file(options.engines[0]), **options.read), options.optimize, options.batch_size
    )
    cases = [Testcase(dict(feeds)) for feeds in fed] or _cases(bundle, options.seed)
    return "\n".join(_wrong(path, options, bundle, cases)) or None


def _cases(bundle: Bundle, seed: int) -> list[Testcase]:
    """Yield what the replay ran on: testcases of the file, else random numbers."""
    return list(bundle.testcases) if len(bundle.testcases) else [Testcase(random_inputs(bundle, seed))]


def _wrong(path: str, options: RunOptions, bundle: Bundle, cases: list[Testcase]) -> Iterator[str]:
    """Find where non-finite or out-of-range values first appear, testcase by testcase."""
    for i, case in enumerate(cases):
        model = bare(bundle.for_data(case.arrays))
        defects = watch(model, case.inputs, limit=options.range, seed=options.seed)
        if defects:
            yield f"{clean(path, 200)}, testcase {i}:" if len(cases) > 1 else f"{clean(path, 200)}:"
            yield from (f"  {line}" for line in findings(defects, options.range))
