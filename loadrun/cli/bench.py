"""`loadrun bench a.mge [b.mge ...]`: time models, and compare them with each other and with a baseline."""

import argparse
import json
import sys

from ..base.errors import clean
from ..base.registry import late
from ..base.writing import check_targets, text_file
from ..replay.options import ProfileOptions, RunOptions
from ..replay.profiling import profile_file, timed_graph
from ..report.benchmark import benchmark_json, benchmark_table, comparisons
from ..verify.bench.files import BenchOptions, bench_files
from .fields import add_limit_options, add_options
from .groups import Parser, decimal, integer, limited, model_files, slowdown
from .models import add_model_options, engine_list, model_options

with late(__name__):
    from ..report import benchmark


def parser() -> Parser:
    """Build the parser of `loadrun bench`."""
    p = Parser(
        prog="loadrun bench",
        description="Time models: loading, the first run, the steady state. Several models are timed in turns.",
        epilog="Exit codes: 0 all was measured; 1 a check failed, or a model is slower than --max-slowdown allows; 2 a "
        "bad file (the others are measured) or bad usage; 3 a model is missing from the baseline, or one of its "
        "models is not there now.",
    )
    p.add_argument("files", nargs="+", metavar="MODEL", help="files, patterns and folders")
    add_options(
        p,
        BenchOptions,
        engine={"type": engine_list, "default": ["reference"], "metavar": "X,Y"},
        threads={"type": _numbers, "default": [None], "metavar": "1,2"},
        batch={"flags": ("--batch-size",), "type": _numbers, "default": [None], "metavar": "1,8"},
        min_time={"type": decimal(what="a number of seconds of at least 0"), "metavar": "SECONDS"},
        max_slowdown={"type": slowdown, "metavar": "10%"},
    )
    add_options(p, BenchOptions, "testcase", "min_passes", "seed", "baseline")
    p.add_argument("--json", metavar="FILE", help="write the results as JSON (- for standard output)")
    add_options(p, RunOptions, "html")
    add_model_options(p)
    add_options(p, ProfileOptions, "profile", "perfetto", "top", "memory")
    add_options(p, ProfileOptions, by={"type": _grouping, "metavar": "WHAT"})
    add_limit_options(p)
    return p


def main(argv: list[str]) -> int:
    """Measure, compare, report."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(BenchOptions, vars(args), **model_options(args.input_shape, args.constant))
    out = sys.stderr if args.json == "-" else sys.stdout
    files = model_files(args.files, sys.stderr)
    written = {"--json": args.json, "--html": args.html}
    check_targets({**written, "--profile": args.profile, "--perfetto": args.perfetto}, files)
    with limited(args.max_memory, args.timeout, "measuring"):
        result = bench_files(files, options)
    for failed in result.failures:
        print(f"error: {clean(failed.message, 500)}", file=sys.stderr)
    if not result.measurements:
        return result.exit_code
    print(benchmark_table(result.measurements), file=out)
    for line in comparisons(result.measurements):
        print(line, file=out)
    profile_file(
        result.measurements[0].subject.path,
        p.record(ProfileOptions, vars(args)),
        out,
        testcase=args.testcase,
        seed=args.seed,
        read=options,
        engine=result.measurements[0].subject.engine,
    )
    if args.json is not None:
        with text_file(args.json) as file:
            print(json.dumps(benchmark_json(result.measurements)), file=file)
    for regression in result.regressions:
        print(clean(regression.text, 300), file=out)
    if args.html is not None:
        slower = [r.text for r in result.regressions]
        first = result.measurements[0].subject.path
        graph = timed_graph(first, testcase=args.testcase, seed=args.seed, read=options)
        with text_file(args.html, "utf-8") as file:
            file.write(benchmark.benchmark_html(result.measurements, slower, graph))
    return result.exit_code


def _numbers(text: str) -> list[int | None]:
    return [_one(part) for part in text.split(",")]


_one = integer(1, what="whole numbers of at least {} such as 1,2")


def _grouping(text: str) -> str:
    kind, colon, depth = text.partition(":")
    if kind in ("type", "name") and not colon:
        return text
    if kind == "prefix" and (not colon or (depth.isdigit() and int(depth))):
        return text
    raise argparse.ArgumentTypeError(f"expected type, name or prefix:DEPTH, found {text!r}")
