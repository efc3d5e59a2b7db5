"""What is looked at besides a replay: values, ranges and times of every operator of the first file."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TextIO

from ..base.files import replacing
from ..base.text import clean
from ..dump import load
from ..graph.dtypes import Array
from ..inputs.feeds import random_inputs
from ..load_and_run.dumps import BinaryDump, OutputDump, TextDump
from ..load_and_run.observing import ObservedRunner
from ..load_and_run.plan import ExecutionPlan
from ..load_and_run.saying import model_table
from ..passes.copies import bare
from ..replay.prepared import prepared
from ..report.differences import findings
from ..testcase import Bundle, Testcase
from ..verify.diff import watch
from .bench import look
from .models import model_options
from .observe import LOOKS, flags_of

__all__ = ["observe"]


def observe(args: argparse.Namespace, out: TextIO, fed: Sequence[Mapping[str, Array]]) -> str | None:
    """Do what was asked for besides the replay.

    Args:
        args: the options.
        out: where tables go.
        fed: what the replay was fed, where that is not in the file.

    Returns:
        what is to be said of values that are not finite or out of range, None when all is well.

    Raises:
        LoadRunError: the model cannot be read or executed, or a folder does not exist.
    """
    wanted = any(getattr(args, n) not in (None, False) for n in LOOKS)
    bundle = prepared(
        load(args.files[0], copy=args.copy, **model_options(args)), flags_of(args), args.batch_size
    )
    cases = [Testcase(dict(feeds)) for feeds in fed] or _cases(args, bundle)
    look(args, bundle.for_data(cases[0].arrays), cases[0].inputs, out)
    if not wanted:
        return None
    _watched(args, bundle, cases, out)
    if not args.check_finite and args.range is None:
        return None
    return "\n".join(_wrong(args, bundle, cases)) or None


def _cases(args: argparse.Namespace, bundle: Bundle) -> list[Testcase]:
    """What the replay ran on: testcases of the file, else random numbers."""
    return list(bundle.testcases) if len(bundle.testcases) else [Testcase(random_inputs(bundle, args.seed))]


def _wrong(args: argparse.Namespace, bundle: Bundle, cases: list[Testcase]) -> Iterator[str]:
    """Where values that are not finite or out of range begin, testcase by testcase."""
    for i, case in enumerate(cases):
        found = watch(bare(bundle.for_data(case.arrays)), case.inputs, limit=args.range, seed=args.seed)
        if found:
            yield (
                f"{clean(args.files[0], 200)}, testcase {i}:"
                if len(cases) > 1
                else f"{clean(args.files[0], 200)}:"
            )
            yield from (f"  {line}" for line in findings(found, args.range))


def _watched(args: argparse.Namespace, bundle: Bundle, cases: list[Testcase], out: TextIO) -> None:
    with ExitStack() as files:
        text = None
        if args.io_dump is not None:
            raw = files.enter_context(replacing(args.io_dump))
            text = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="\n")
            files.callback(text.detach)
        outputs: OutputDump | None = None
        for i, case in enumerate(cases):
            sized = bundle.for_data(case.arrays)
            plan = ExecutionPlan(sized.graph, {n: a.shape for n, a in case.arrays.items()})
            if i == 0 and args.model_info:
                print(model_table(plan), file=out)
            runner = ObservedRunner(sized, seed=args.seed)
            runner.plan = plan
            if text is not None:
                runner.plugins.append(TextDump(text, plan))
            if args.bin_io_dump is not None and i == 0:
                runner.plugins.append(BinaryDump(args.bin_io_dump, plan))
            if args.bin_out_dump is not None:
                outputs = outputs or OutputDump(args.bin_out_dump, plan)
                outputs.plan = plan
                runner.plugins.append(outputs)
            if runner.plugins:
                _run(runner, sized, case)


def _run(runner: ObservedRunner, bundle: Bundle, case: Testcase) -> None:
    if case.expects:
        runner.check(case)
    else:
        runner.run(case.inputs)
