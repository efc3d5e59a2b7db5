"""Observations besides a replay: values, ranges and times of every operator of the first file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from ..base.errors import clean
from ..base.writing import text_file
from ..dump import load
from ..engines import runs_file
from ..graph.dtypes import Array
from ..inputs.feeds import random_inputs
from ..load_and_run.dumps import TextDump
from ..load_and_run.plan import ExecutionPlan
from ..load_and_run.plugins import ObservedRunner
from ..passes.constants import bare
from ..report.differences import findings
from ..testcase import Bundle, Testcase
from ..verify.diff import watch
from .options import ProfileOptions, RunOptions
from .profiling import write_profiles
from .serial import prepared


def observe(
    path: str, options: RunOptions, out: TextIO, fed: Sequence[Mapping[str, Array]] = ()
) -> str | None:
    """Run a file once more and observe its operators: times on the engine, values on the reference engine.

    Args:
        path: the file.
        options: what is looked at.
        out: where tables go.
        fed: what the replay was fed, where that is not in the file.

    Returns:
        what is to be said of values that are not finite or out of range, None when all is well.

    Raises:
        LoadRunError: the model cannot be read or executed, or a folder does not exist.
    """
    engine = options.engines[0]
    bundle = prepared(
        load(path, native=runs_file(engine), **options.read),
        options.optimize,
        options.batch_size,
    )
    cases = [Testcase(dict(feeds)) for feeds in fed] or _cases(bundle, options.seed)
    write_profiles(
        ProfileOptions(top=options.top), bundle, cases[0].inputs, out, seed=options.seed, engine=engine
    )
    if not options.watched:
        return None
    _watched(options, bundle, cases)
    if options.range is None:
        return None
    return "\n".join(_wrong(path, options, bundle, cases)) or None


def _cases(bundle: Bundle, seed: int) -> list[Testcase]:
    """Return what the replay ran on: testcases of the file, else random numbers."""
    return list(bundle.testcases) if len(bundle.testcases) else [Testcase(random_inputs(bundle, seed))]


def _wrong(path: str, options: RunOptions, bundle: Bundle, cases: list[Testcase]) -> Iterator[str]:
    """Find where non-finite or out-of-range values first appear, testcase by testcase."""
    for i, case in enumerate(cases):
        model = bare(bundle.for_data(case.arrays))
        defects = watch(model, case.inputs, limit=options.range, seed=options.seed)
        if defects:
            yield f"{clean(path, 200)}, testcase {i}:" if len(cases) > 1 else f"{clean(path, 200)}:"
            yield from (f"  {line}" for line in findings(defects, options.range))


def _watched(options: RunOptions, bundle: Bundle, cases: list[Testcase]) -> None:
    """Write every variable of every testcase."""
    if options.io_dump is None:
        return
    with text_file(options.io_dump, "utf-8") as text:
        for case in cases:
            sized = bundle.for_data(case.arrays)
            plan = ExecutionPlan(sized.graph, {n: a.shape for n, a in case.arrays.items()})
            runner = ObservedRunner(sized, seed=options.seed)
            runner.plan = plan
            runner.plugins.append(TextDump(text, plan))
            if case.expects:
                runner.check(case)
            else:
                runner.run(case.inputs)
