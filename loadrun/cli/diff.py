"""`loadrun diff MODEL --against OTHER`: where two runs first diverge."""

import io
import json
import sys
from dataclasses import replace
from typing import TextIO

from ..base.errors import clean
from ..base.writing import check_targets, text_file
from ..compare.results import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS
from ..report import differences as report
from ..report.differences import optimization, optimized
from ..report.graph import GraphMarks, explorer_data, explorer_graph, graph_element
from ..verify.blame_pass import BlamePassOptions, blame_pass
from ..verify.diff.files import FileDifferences, diff_files
from ..verify.diff.runs import DiffOptions
from .fields import add_limit_options, add_options
from .groups import Parser, limited, target, warn
from .models import LIMIT, add_model_options, model_options

_PASSES = (
    *("passes", "input_data", "repeat", "resize_input", "input_transform", "testcase", "tolerance", "seed"),
    *("input_shape", "constant", "timeout", "max_memory"),
)
"""The options that go with ``--passes``."""


def parser() -> Parser:
    """Build the parser of `loadrun diff`."""
    p = Parser(
        prog="loadrun diff",
        description="Run a model and a reference on the same inputs, compare every intermediate value, and name "
        "the operator to blame.",
        epilog="Exit codes: 0 everything that was compared agrees; 1 something differs; 2 a bad file or bad usage; "
        "3 all that was compared agrees, but not all outputs of a model were (stored values may be a part of them: 0); "
        "70 a bug in loadrun.",
    )
    p.add_argument("model", metavar="MODEL", help="the model under suspicion")
    p.add_argument("other", metavar="OTHER", nargs="?", help="the reference, as --against names it")
    p.add_argument(
        "--against",
        metavar="OTHER",
        help="the reference: another model, a folder from load_and_run's --bin_io_dump or of .npy files, an .npz file "
        "of values by variable name, results of --output FILE.zip, an engine, or float64 (default), the same model in "
        "double precision",
    )
    add_options(p, DiffOptions, "dump", "input_data", "repeat", "resize_input", "input_transform", "testcase")
    add_options(p, DiffOptions, "tolerance")
    p.add_argument(
        "--passes",
        action="store_true",
        help="compare the model with itself under optimizations (ONNX Runtime's, onnxoptimizer's and onnxsim's if "
        "installed, and loadrun's own), and find by bisection the one that makes the outputs diverge",
    )
    add_options(p, DiffOptions, "bisect")
    p.add_argument("-v", "--verbose", action="store_true", help="show every compared value")
    p.add_argument(
        "-o", "--output", metavar="FILE", type=target, help="write the operator to blame as a file of its own"
    )
    p.add_argument("--json", metavar="FILE", help="write the results as JSON (- for standard output)")
    p.add_argument("--html", metavar="FILE", help="write a page: the model's graph with verdicts and errors")
    p.add_argument(
        "--graph",
        metavar="FILE.json",
        type=target,
        help="write the graph for Model Explorer, and beside it FILE.data.json with the errors of its nodes",
    )
    add_options(p, DiffOptions, "seed", range=LIMIT)
    add_model_options(p)
    add_limit_options(p)
    return p


def main(argv: list[str]) -> int:
    """Compare; the exit code tells whether everything agrees."""
    p = parser()
    args = p.parse_args(argv)
    if args.other is not None and args.against is not None:
        p.error(f"two references: {clean(args.other)} and --against {clean(args.against)}; give one")
    read = model_options(args.input_shape, args.constant)
    if args.passes:
        p.only(vars(args), _PASSES, "does not go with --passes")
        if args.other is not None:
            p.error(f"--passes compares the model with itself; leave out {clean(args.other)}")
        if args.tolerance is None:
            args.tolerance = BlamePassOptions.tolerance
        with limited(args.max_memory, args.timeout, "comparing"):
            return _passes(args.model, p.record(BlamePassOptions, vars(args), **read))
    args.against = args.against or args.other or "float64"
    options = p.record(DiffOptions, vars(args), **read)
    written = {"--json": args.json, "--output": args.output, "--html": args.html, "--graph": args.graph}
    check_targets(written, [args.model, args.against])
    with limited(args.max_memory, args.timeout, "comparing"):
        result = diff_files(args.model, args.against, options, warn=warn)
    shown = sys.stderr if args.json == "-" and result.findings is None else sys.stdout
    said = io.StringIO()
    _show(result, args.model, args.against, args.range, args.tolerance, args.verbose, said)
    print(said.getvalue(), end="", file=shown)
    if result.refusals and result.differences is not None and result.differences.agree:
        print("the parts that could not be translated are to blame: all values before them agree", file=shown)
    if args.json and (result.differences is not None or result.interface):
        about = {"model": args.model, "against": args.against}
        _write(args.json, json.dumps({**about, **report.as_json(result.differences, result.interface)}))
    _draw(result, args.model, args.against, said.getvalue(), args.html, args.graph)
    if args.output and (var := result.extract(args.output)) is not None:
        what = f"{var.owner.title} {clean(var.label, 100)!r} alone"
        print(f"{clean(args.output, 200)}: {what}", file=shown)
    if not result.agree:
        return EXIT_FAIL
    return EXIT_NOT_COMPARED if result.incomplete else EXIT_PASS


def _passes(model: str, options: BlamePassOptions) -> int:
    """Find the optimization to blame."""
    blamed = blame_pass(model, options, warn=warn)
    for blame in blamed:
        print("\n".join(optimization(blame)))
    if not blamed:
        print("the outputs agree with and without optimizations")
    return EXIT_FAIL if blamed else EXIT_PASS


def _show(
    result: FileDifferences,
    model: str,
    against: str,
    limit: float | None,
    tolerance: float | None,
    everything: bool,
    out: TextIO,
) -> None:
    if result.interface:
        print("\n".join(report.interface(result.interface)), file=out)
    if result.findings is not None:
        print("\n".join(report.findings(result.findings, limit)), file=out)
    elif result.bisected is not None:
        print(f"{result.bisected.runs} runs of {clean(against)}", file=out)
        print(report.bisected(result.bisected), file=out)
    elif result.differences is not None:
        print(f"{clean(model, 200)} against {clean(against, 200)}, {result.ran_on}", file=out)
        lines = report.differences(result.differences, everything=everything)
        print("\n".join(lines), file=out)
        if result.optimized is not None:
            print("\n".join(optimized(*result.optimized, tolerance)), file=out)
        if result.interface and result.differences.agree:
            print("the models differ all the same: their inputs or outputs are not the same", file=out)


def _draw(
    result: FileDifferences, model: str, against: str, said: str, html: str | None, graph: str | None
) -> None:
    """Write the model's graph with what is known of its operators, and what is said beside it."""
    if html is None and graph is None:
        return
    marks = GraphMarks() if result.differences is None else GraphMarks.of(result.differences)
    if result.blamed is not None:
        marks = replace(marks, verdicts={**marks.verdicts, result.blamed.owner.id: "to blame"})
    rows = () if result.differences is None else result.differences.rows
    shapes = {r.var.id: r.shapes[0] for r in rows if r.shapes}
    label, outputs = clean(model, 200), result.graph.outputs
    shown = label, result.graph.needed(outputs), shapes, outputs, marks
    if html is not None:
        drawn = graph_element(*shown, whole=True)
        _write(
            html, report.differences_page(f"{label} against {clean(against, 200)}", said, result.agree, drawn)
        )
    if graph is not None:
        _write(graph, json.dumps(explorer_graph(*shown), indent=1))
        _write(f"{graph.removesuffix('.json')}.data.json", json.dumps(explorer_data(label, marks), indent=1))


def _write(target: str, text: str) -> None:
    with text_file(target, "utf-8") as f:
        print(text, file=f)
