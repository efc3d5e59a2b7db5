"""`loadrun model.mge`: replay embedded testcases, or run a plain model on given or random inputs."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import numpy as np

from ..bench import Timing, measure
from ..dtypes import Array
from ..dump import load_all
from ..engines import ENGINES
from ..errors import UsageError
from ..files import Names, replacing
from ..inputs.lists import count_cases
from ..report import text
from ..runner import FileResult, Result, Runner, random_inputs
from ..shown import clean
from ..testcase import Bundle
from ..verdicts.policy import parse_all
from ..verdicts.vacuity import Watch
from .groups import Parser, Warnings, add_copy_option, exit_code, failure, progress, seed, whole
from .inputs import add_input_options, cases_of, check_input_options
from .limits import add_policy_option
from .stream import json_file, results_file, show

__all__ = ["main"]


def parser() -> Parser:
    """The options of `loadrun run`."""
    p = Parser(
        prog="loadrun",
        description="Replay the testcases embedded in MegEngine dumps and check their outputs.",
        epilog="Exit codes: 0 at least one check was made and all passed; 1 a check failed; 2 a bad file, bad "
        "usage or a model that cannot be executed; 3 it ran but nothing was compared; 70 a fault of loadrun.",
    )
    p.add_argument("files", nargs="+", metavar="MODEL.mge")
    add_input_options(p, "--input")
    p.add_argument(
        "--output", metavar="DIR", type=Path, help="save every output as DIR/[FILE.]TESTCASE.OUTPUT.npy"
    )
    p.add_argument(
        "--iter", metavar="N", type=whole, default=0, help="time N further runs of the first testcase"
    )
    p.add_argument(
        "--warmup-iter", metavar="N", type=whole, default=1, help="untimed runs before them (default 1)"
    )
    p.add_argument("--json", metavar="FILE", help="write all results as JSON (- for standard output)")
    add_policy_option(p, "in addition to what the file itself asks")
    p.add_argument(
        "--strict", action="store_true", help="a file with a damaged end is an error, not only a warning"
    )
    p.add_argument("--save-results", metavar="FILE", help="save values and verdicts for `loadrun judge`")
    p.add_argument(
        "--explain",
        action="store_true",
        help="run the first failing testcase beside float64 and say where it parts",
    )
    p.add_argument("--no-check", action="store_true", help="nothing to compare is wanted: exit with 0, not 3")
    p.add_argument(
        "--seed", type=seed, default=0, help="seed of random inputs and random operators (default 0)"
    )
    p.add_argument("--engine", choices=ENGINES, default="reference", help="what executes the model")
    add_copy_option(p)
    p.add_argument("-q", "--quiet", action="store_true", help="print the summary line only")
    return p


def main(argv: list[str]) -> int:
    """Replay the files; the exit code tells the verdict."""
    options = parser()
    args = options.parse_args(argv)
    check_input_options(options, args)
    shown = sys.stderr if args.json == "-" else sys.stdout
    found: list[FileResult] = []
    names = Names()
    with json_file(args.json) as report, results_file(args.save_results) as saved:
        for path in args.files:
            for file, bundle in _bundles(path, args.copy, args.strict):
                found.append(file)
                if report is not None:
                    report.begin(file)
                warnings = file.warnings = Warnings(file.warnings)
                results = iter(()) if bundle is None else _results(bundle, args, warnings, names)
                out = None if args.quiet else shown
                if saved is not None:
                    saved.begin(file.path)
                    results = saved.passing(results)
                show(file, results, out, report.add if report is not None else None)
                timing = None
                if args.iter and bundle is not None and not file.message:
                    timing = _time(bundle, args, file)
                    if out is not None:
                        said = (
                            text.error(file.message or "")
                            if timing is None
                            else f"  {text.timing_line(timing)}"
                        )
                        print(said, file=out)
                if bundle is not None and file.first is not None:
                    _where(file, bundle, args, out)
                if report is not None:
                    report.end(file, timing)
                if out is not None:
                    print(file=out)
        print(text.summary(found), file=shown)
        code = exit_code(
            (f.verdict for f in found), no_check=args.no_check, fault=any(f.fault for f in found)
        )
        if report is not None:
            report.close(code)
    return code


def _where(file: FileResult, bundle: Bundle, args: argparse.Namespace, out: TextIO | None) -> None:
    """Say how to find the operator that is to blame, or find it."""
    if not args.explain:
        if out is not None:
            command = shlex.join(["loadrun", "diff", clean(bundle.path, 500), "--testcase", str(file.first)])
            print(f"  where it began: {command} --against GOOD (another model, or float64)", file=out)
        return
    from ..diff import between  # for start-up cost: a pass needs none of it
    from ..report.differences import differences
    from ..rewrite.copies import bare  # for start-up

    assert file.first is not None
    where = out or sys.stdout
    print(f"  testcase {file.first} beside the same model in float64:", file=where)
    found = between(bare(bundle), "float64", bundle.testcases[file.first].inputs, seed=args.seed)
    print("\n".join(f"  {line}" for text in differences(found) for line in text.splitlines()), file=where)
    if found.agree:
        print(
            "  so the arithmetic holds: the model or the expected values are not those that were packed together; "
            "compare with the model that it was packed from (loadrun diff --against)",
            file=where,
        )


def _bundles(path: str, copy: bool, strict: bool) -> Iterator[tuple[FileResult, Bundle | None]]:
    """The dumps of a file, or why it cannot be read."""
    start = time.perf_counter()
    try:
        bundles = load_all(path, copy=copy)
    except Exception as e:
        found = failure(e)
        yield FileResult(path, message=found.message, fault=found.fault), None
        return
    seconds = time.perf_counter() - start
    for i, bundle in enumerate(bundles):
        name = path if i == 0 else f"{path} (dump {i + 1})"
        if strict and bundle.tail:
            yield FileResult(name, message="; ".join(bundle.tail), load_seconds=seconds), None
            continue
        yield FileResult(name, warnings=_warnings(bundle), load_seconds=seconds), bundle


def _warnings(bundle: Bundle) -> list[str]:
    found = [*bundle.warnings, *bundle.tail]
    if bundle.is_container and not len(bundle.testcases):
        found.append("the file is a testcase file without testcases")
    if len(bundle.testcases) and not bundle.checks:
        found.append("the testcases hold no expected outputs (packed with no_assert)")
    return found


def _results(bundle: Bundle, args: argparse.Namespace, warnings: Warnings, names: Names) -> Iterator[Result]:
    """The results of the testcases, of the data that was given, or of a run on random data."""
    policies = parse_all(args.check or ())
    unknown = sorted(set(policies) - {"", *bundle.outputs})
    if unknown:
        raise UsageError(
            f"a policy is for the output {unknown[0]!r}; the outputs are {', '.join(bundle.outputs)}"
        )
    runner = Runner(bundle, args.engine, seed=args.seed, policies=policies)
    watch = Watch({}, runner.policies)
    source: Iterator[Result]
    if args.input is not None:
        total = count_cases(args.input)
        source = _runs(runner, cases_of(args, bundle, warnings.add), total)
    elif len(bundle.testcases):
        total, source = len(bundle.testcases), runner.replay()
    else:
        total, source = 1, iter([runner.run()])
    for result in progress(source, total, "testcase"):
        if args.output is not None:
            _save(result, args.output, f"{Path(bundle.path).stem}." if len(args.files) > 1 else "", names)
        watch.results(result)
        yield result
    for said in watch.warnings():
        warnings.add(said)


def _time(bundle: Bundle, args: argparse.Namespace, file: FileResult) -> Timing | None:
    """Time further runs of the first testcase, or of the data that was given."""
    runner = Runner(bundle, args.engine, seed=args.seed)
    try:
        if args.input is not None:
            feeds = next(cases_of(args, bundle, Warnings().add))
        else:
            feeds = bundle.testcases[0].inputs if len(bundle.testcases) else random_inputs(bundle, args.seed)
        return measure(lambda: runner.run(feeds), args.iter, args.warmup_iter)
    except Exception as e:
        found = failure(e, named=True)
        file.message, file.fault = found.message, found.fault
        return None


def _runs(runner: Runner, cases: Iterator[dict[str, Array]], total: int) -> Iterator[Result]:
    for i, case in enumerate(cases):
        yield replace(runner.run(case), index=i if total > 1 else None)


def _save(result: Result, folder: Path, lead: str, names: Names) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    case = "" if result.index is None else f"{result.index}."
    for out in result.outputs:
        if out.value is not None:
            with replacing(folder / f"{names.file(out.name, lead + case)}.npy") as f:
                np.save(f, out.value, allow_pickle=False)
