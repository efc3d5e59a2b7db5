"""`loadrun diff MODEL --against OTHER`: where two runs first diverge."""

from __future__ import annotations

import argparse
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.errors import InputError, LoadRunError, UsageError
from ..base.files import check_targets, one_file, replacing
from ..base.text import clean
from ..dump import load, save
from ..engines import engine_names
from ..graph import Graph
from ..graph.dtypes import Array, DType
from ..passes.copies import bare
from ..report import differences as report
from ..runner import fit_inputs, random_inputs
from ..testcase import Bundle
from ..verify.diff import StoredValues, between, bisect, extract, read_values, watch
from ..verify.diff.finding import TOLERANCE
from ..verify.diff.measuring import real
from ..verify.saved import SavedFile, read_saved
from .groups import EXIT_FAIL, EXIT_PASS, Parser, failure, seed, target, whole
from .inputs import add_dump_option, add_input_options, cases_of, check_input_options, load_dump
from .models import add_model_options, model_options

__all__ = ["main"]


def parser() -> Parser:
    """The options of `loadrun diff`."""
    p = Parser(
        prog="loadrun diff",
        description="Run a model and a reference on the same inputs, compare every intermediate value, and name "
        "the operator that is to blame.",
        epilog="Exit codes: 0 everything that was compared agrees; 1 something does not; 2 a bad file or bad usage; "
        "70 a bug in loadrun.",
    )
    p.add_argument("model", metavar="MODEL", help="the model under suspicion")
    p.add_argument(
        "--against",
        metavar="OTHER",
        default="float64",
        help="another model, a folder of load_and_run's --bin_io_dump or of .npy files, an .npz file of values by "
        "variable name, results of --save-results, the name of an engine, or float64: the same model in double "
        "precision (default)",
    )
    add_dump_option(p)
    add_input_options(p, "--input")
    p.add_argument(
        "--testcase", metavar="N", type=whole, default=0, help="which testcase's inputs to take (default 0)"
    )
    p.add_argument(
        "--tolerance",
        metavar="X",
        type=_tolerance,
        default=TOLERANCE,
        help=f"how far a value may be off, relative to the largest value of its tensor (default {TOLERANCE:g})",
    )
    p.add_argument(
        "--bisect",
        action="store_true",
        help="ask an engine for one intermediate value in each run, which leaves its fusions intact, and halve "
        "what is left each time",
    )
    p.add_argument("--all", action="store_true", help="show every compared value")
    p.add_argument(
        "--extract", metavar="FILE", type=target, help="write the operator to blame as a testcase of its own"
    )
    p.add_argument("--json", metavar="FILE", help="write everything as JSON (- for standard output)")
    p.add_argument("--check-finite", action="store_true", help="name operators that make NaN or infinity")
    p.add_argument("--range", metavar="X", type=_tolerance, help="name operators that make values beyond X")
    p.add_argument(
        "--seed", type=seed, default=0, help="seed of random inputs and random operators (default 0)"
    )
    add_model_options(p)
    return p


def _tolerance(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number >= 0, found {value!r}")
    return number


def main(argv: list[str]) -> int:
    """Compare; the exit code tells whether everything agrees."""
    options = parser()
    args = options.parse_args(argv)
    check_input_options(options, args)
    try:
        return _compare(args)
    except Exception as e:
        why = failure(e, named=True)
        print(f"loadrun diff: {clean(why.message, 2000)}", file=sys.stderr)
        return why.code


def _compare(args: argparse.Namespace) -> int:
    check_targets({"--json": args.json, "--extract": args.extract}, [args.model, args.against])
    read = model_options(args)
    # Where both are ONNX models, they have the same inputs; a dump takes none of these options.
    against_onnx = args.against.lower().endswith(".onnx")
    alone = against_onnx and args.model.lower().endswith(".mge")
    bundle = load_dump(args.model, args.dump, **({} if alone else read))
    graph = bare(bundle)
    feeds = _feeds(args, bundle)
    if args.check_finite or args.range is not None:
        found = watch(graph, feeds, limit=args.range, seed=args.seed)
        print("\n".join(report.findings(found, args.range)))
        return EXIT_FAIL if found else EXIT_PASS
    other = _other(args.against, args.testcase, read if against_onnx else {})
    if args.bisect:
        return _bisected(args, graph, feeds, other)
    result = between(graph, other, feeds, tolerance=args.tolerance, seed=args.seed)
    shown = sys.stderr if args.json == "-" else sys.stdout
    print(f"{clean(args.model, 200)} against {clean(args.against, 200)}, {_which(args, bundle)}", file=shown)
    print("\n".join(report.differences(result, everything=args.all)), file=shown)
    if args.json:
        _write_json(
            args.json, json.dumps({"model": args.model, "against": args.against, **report.as_json(result)})
        )
    if args.extract and result.roots:
        if isinstance(other, StoredValues):
            raise UsageError("--extract needs all inputs of the operator: compare with a model or float64")
        row = result.roots[0]
        save(extract(graph, row.opr, other, feeds, seed=args.seed), args.extract)
        print(f"{clean(args.extract, 200)}: {row.opr.title} {clean(row.var.label, 100)!r} alone", file=shown)
    return EXIT_PASS if result.agree else EXIT_FAIL


def _bisected(
    args: argparse.Namespace, graph: Graph, feeds: Mapping[str, Array], other: Graph | StoredValues | str
) -> int:
    if not isinstance(other, str):
        raise UsageError("--bisect searches with an engine: name one with --against, such as onnxruntime")
    found = bisect(graph, other, feeds, tolerance=args.tolerance, seed=args.seed)
    print(f"{found.runs} runs of {clean(other)}")
    print(report.bisected(found))
    if args.extract and found.var is not None:
        save(extract(graph, found.var.owner, other, feeds, seed=args.seed), args.extract)
        print(f"{clean(args.extract, 200)}: {found.var.owner.title} {clean(found.var.label, 100)!r} alone")
    return EXIT_FAIL if found.var is not None else EXIT_PASS


def _which(args: argparse.Namespace, bundle: Bundle) -> str:
    if args.input is not None:
        return "on the data given"
    if len(bundle.testcases):
        return f"testcase {args.testcase}"
    return f"on random inputs, seed {args.seed}"


def _feeds(args: argparse.Namespace, bundle: Bundle) -> Mapping[str, Array]:
    """The inputs of the run: data that was given, a testcase, or random numbers."""
    if args.input is not None:
        case = next(
            iter(cases_of(args, bundle, lambda text: print(f"warning: {text}", file=sys.stderr))), None
        )
        if case is None:
            raise InputError("--input gives no data")
        return fit_inputs(bundle, case)
    count = len(bundle.testcases)
    if count:
        if args.testcase >= count:
            raise InputError(f"{args.model} has testcases 0 to {count - 1}, found --testcase {args.testcase}")
        return bundle.testcases[args.testcase].inputs
    return random_inputs(bundle, args.seed)


def _other(against: str, testcase: int, read: Mapping[str, Any]) -> Graph | StoredValues | str:
    """What the model is held against.

    Raises:
        UsageError: it is neither a file nor an engine.
    """
    path = Path(os.path.expanduser(against))
    if not path.exists() and against.partition(":")[0] in engine_names():
        return against
    if path.is_dir() or path.suffix in (".npz", ".npy"):
        return read_values(path)
    if zipfile.is_zipfile(path):
        return _results(read_saved(path), testcase, str(path))
    return bare(load(one_file(against), **read))


def _results(saved: list[SavedFile], testcase: int, path: str) -> StoredValues:
    """The outputs that a file of `--save-results` holds for a testcase."""
    for file in saved:
        for i in range(len(file)):
            if file.about(i)["testcase"] in (testcase, None):
                found = []
                for about, _, got in file.outputs(i):
                    dtype = DType(about["dtype"], float(about["scale"]), int(about["zero_point"]))
                    if got is not None:
                        found.append((about["name"], real(got, dtype)))
                return StoredValues(found)
    raise UsageError(f"{path} holds no results of testcase {testcase}")


def _write_json(target: str, text: str) -> None:
    if target == "-":
        print(text)
        return
    try:
        with replacing(target) as f:
            f.write(text.encode() + b"\n")
    except OSError as e:
        raise LoadRunError(f"cannot write {target}: {e.strerror or e}") from e
