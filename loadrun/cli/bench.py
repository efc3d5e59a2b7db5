"""`loadrun bench a.mge [b.mge ...]`: time models, and compare them with each other and with a baseline."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.files import check_targets, contents, replacing
from ..base.text import clean
from ..dump import load
from ..engines import split_engines
from ..engines.reference import ReferenceEngine
from ..graph.dtypes import Array
from ..inputs.feeds import random_inputs
from ..report.benchmark import benchmark_json, benchmark_table, comparisons, regressions
from ..report.profile import cost_table, memory_table, trace_events
from ..runner import Verdict
from ..testcase import Bundle
from ..verify.bench.running import Subject, peak_memory, run_subjects
from .groups import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS, Parser, model_files, seed, whole
from .models import add_model_options, model_options
from .observe import add_profile_options

__all__ = ["look", "main", "parser"]


def parser() -> Parser:
    """The options of `loadrun bench`."""
    p = Parser(
        prog="loadrun bench",
        description="Time models: loading, the first run, the steady state. Several models take turns.",
        epilog="Exit codes: 0 measured; 1 a check failed, or slower than --max-slowdown allows; 2 a bad file or "
        "bad usage; 3 the baseline lacks a model.",
    )
    p.add_argument("files", nargs="+", metavar="MODEL", help="files, patterns and folders")
    p.add_argument(
        "--engine", type=split_engines, default=["reference"], metavar="X,Y", help="engines to compare"
    )
    p.add_argument(
        "--threads", type=_numbers, default=[None], metavar="1,2", help="numbers of threads to compare"
    )
    p.add_argument(
        "--batch",
        type=_numbers,
        default=[None],
        metavar="1,8",
        help="batches to compare: axis 0 of the inputs of one testcase",
    )
    p.add_argument(
        "--testcase", type=whole, metavar="N", help="run this testcase alone (default: all in turn)"
    )
    p.add_argument(
        "--min-time",
        type=_seconds,
        default=3.0,
        metavar="S",
        help="measure each for at least this many seconds (default 3)",
    )
    p.add_argument(
        "--min-passes",
        type=whole,
        default=5,
        metavar="N",
        help="... and for at least this many passes (default 5)",
    )
    p.add_argument("--seed", type=seed, default=0, help="seed of random inputs (default 0)")
    p.add_argument("--json", metavar="FILE", help="write all samples as JSON (- for standard output)")
    p.add_argument("--html", metavar="FILE", help="write one HTML page with the times of every pass")
    p.add_argument(
        "--save-baseline", metavar="FILE", help="write what was measured, to be compared with later"
    )
    p.add_argument("--baseline", metavar="FILE", help="compare with what --save-baseline wrote")
    p.add_argument(
        "--max-slowdown",
        type=_slowdown,
        default=0.1,
        metavar="10%",
        help="fail when slower than the baseline by more: 10%% or 1.1x, which is the same (default 10%%)",
    )
    add_model_options(p)
    add_profile_options(p)
    return p


def main(argv: list[str]) -> int:
    """Measure, compare, report."""
    args = parser().parse_args(argv)
    read = model_options(args)
    out = sys.stderr if args.json == "-" else sys.stdout
    args.files = model_files(args.files, sys.stderr)
    subjects = [
        Subject(path, engine, threads, batch)
        for path, engine, threads, batch in product(args.files, args.engine, args.threads, args.batch)
    ]
    names = ("json", "html", "save_baseline", "profile", "perfetto")
    check_targets({f"--{n.replace('_', '-')}": getattr(args, n) for n in names}, args.files)
    baseline = _read(args.baseline)
    found, warnings = run_subjects(
        subjects,
        seconds=args.min_time,
        passes=max(1, args.min_passes),
        testcase=args.testcase,
        seed=args.seed,
        read=read,
        done=_progress,
    )
    print(benchmark_table(found), file=out)
    for line in comparisons(found):
        print(line, file=out)
    for warning in warnings:
        print(f"warning: {warning}", file=out)
    if args.profile or args.perfetto or args.top or args.memory:
        bundle = load(args.files[0], **read)
        cases = bundle.testcases
        look(
            args,
            bundle,
            cases[args.testcase or 0].inputs if len(cases) else random_inputs(bundle, args.seed),
            out,
        )
    report = benchmark_json(found, warnings)
    for target in filter(None, (args.json, args.save_baseline)):
        _write(target, report)
    slower = [] if baseline is None else regressions(found, baseline, args.max_slowdown)
    for regression in slower:
        print(clean(regression.text, 300), file=out)
    if args.html is not None:
        from ..report.benchmark_html import benchmark_html  # for start-up

        with replacing(args.html) as f:
            f.write(benchmark_html(found, warnings, [s.text for s in slower]).encode())
    failed = any(m.verdict in (Verdict.FAIL, Verdict.ERROR) for m in found) or any(s.failed for s in slower)
    if failed:
        return EXIT_FAIL
    return EXIT_PASS if all(s.compared for s in slower) else EXIT_NOT_COMPARED


def look(args: argparse.Namespace, bundle: Bundle, feeds: Mapping[str, Array], out: Any) -> None:
    """Operators of the first file, one by one, as the options of `add_profile_options` say."""
    if args.profile or args.perfetto or args.top:
        engine = ReferenceEngine(bundle.graph, list(bundle.outputs.values()), seed=args.seed, profile=True)
        engine.run(feeds)
        engine.run(feeds)
        profile = engine.get_profile()
        if args.profile:
            _write(args.profile, profile)
        if args.perfetto:
            _write(args.perfetto, trace_events(profile, Path(args.files[0]).name))
        if args.top:
            print(cost_table(profile, args.by, args.top), file=out)
    if args.memory:
        print(memory_table(peak_memory(bundle, feeds, args.seed)), file=out)


def _write(target: str, content: object) -> None:
    text = json.dumps(content)
    if target == "-":
        print(text)
        return
    with replacing(target) as f:
        f.write(text.encode())


def _read(path: str | None) -> Any:
    if path is None:
        return None
    try:
        return json.loads(contents(path, "a baseline"))
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not a baseline: {e}") from None


def _progress(done: float) -> None:
    if sys.stderr.isatty():
        print(
            f"\rmeasuring {done:.0%}\x1b[K" if done < 1 else "\r\x1b[K", end="", file=sys.stderr, flush=True
        )


def _numbers(text: str) -> list[int | None]:
    parts = text.split(",")
    if not all(p.isascii() and p.isdigit() and int(p) for p in parts):
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 1,2, found {text!r}")
    return [int(p) for p in parts]


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, found {text!r}")
    return value


def _slowdown(text: str) -> float:
    """A share of time from a percentage, a factor or a fraction.

    >>> _slowdown("50%"), _slowdown("1.5x"), _slowdown("0.5")
    (0.5, 0.5, 0.5)
    """
    number = text.rstrip("%x")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    unit = text[len(number) :]
    if unit == "x" and 1 <= value < float("inf"):
        return value - 1
    if unit == "%" and 0 <= value < float("inf"):
        return value / 100
    if unit == "" and 0 <= value <= 1:
        return value
    if unit == "" and 1 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"is {number}% or {number}x meant? ({number}x is {100 * (value - 1):g}% slower)"
        )
    raise argparse.ArgumentTypeError(
        f"expected a percentage such as 10% or a factor such as 1.1x, found {text!r}"
    )
