"""`loadrun info model.mge`: describe a model."""

import sys
from collections.abc import Sequence

from ..base.about import about_data
from ..base.errors import UsageError, clean, indented
from ..base.registry import late
from ..base.writing import check_targets, text_file
from ..dump import load
from ..inputs.feeds import ModelOptions
from ..report import json as json_report
from ..report.engines import engine_lines
from ..report.text import shape_text, table
from ..verify.describe import Description, ModelInfo, VarInfo, describe_engine, describe_files
from .fields import add_limit_options
from .groups import Parser, limited, model_files
from .models import add_engine_option, add_model_options, model_options

with late(__name__):
    from ..report import graph
    from . import operators as operator_help

_SHOWN = 8
"""How many testcases are listed."""
_WIDEST = 12
"""How many inputs or outputs of an operator are shown with their shapes."""


def parser() -> Parser:
    """Build the parser of `loadrun info`."""
    p = Parser(
        prog="loadrun info",
        description="Show inputs, outputs, operators, parameters, FLOPs, testcases and metadata of a model.",
        epilog="Exit codes: 0 all files were described, 2 a file cannot be read, or bad usage, 4 a file took longer "
        "than --timeout.",
    )
    p.add_argument("files", nargs="*", metavar="MODEL", help="files, patterns and folders")
    p.add_argument(
        "--operators",
        choices=("megengine", "onnx", "onnx-written", "numpy", "torch"),
        nargs="?",
        const="megengine",
        help="print a table of the operators that run (default: megengine), are read from or written to ONNX, or are "
        "traced from numpy or torch, and describe no file",
    )
    p.add_argument("--json", action="store_true", help="print JSON: a list with one entry per dump")
    p.add_argument(
        "--graph",
        metavar="FILE",
        help="draw the graph of one model, to FILE.html (a page with layers that fold, search, attributes and weights) "
        "or FILE.json (for Model Explorer)",
    )
    p.add_argument("-q", "--quiet", action="store_true", help="omit the table of operators")
    add_engine_option(p, default=None)
    add_model_options(p)
    add_limit_options(p, "stop a file that takes longer")
    return p


def main(argv: list[str]) -> int:
    """Describe the files; 2 when one cannot be read, 4 when that takes too long."""
    p = parser()
    args = p.parse_args(argv)
    if args.operators is not None:
        print(_operators(args.operators))
        return 0
    if not args.files:
        p.error("the following arguments are required: MODEL")
    read = ModelOptions(**model_options(args.input_shape, args.constant))
    files = model_files(args.files, sys.stderr)
    if args.graph is not None:
        if args.json or args.engine is not None:
            raise UsageError("--graph only draws the graph; leave out --json and --engine")
        with limited(args.max_memory, args.timeout, "drawing"):
            return _draw(files, args.graph, read)
    if args.engine is not None:
        ran = describe_engine(files, args.engine, read, timeout=args.timeout, max_memory=args.max_memory)
        for _, why in ran.failures:
            print(f"loadrun: {indented(why.message)}", file=sys.stderr)
        if args.json:
            print(json_report.dumps([{"file": path, **about_data(a)} for path, a in ran.descriptions]))
        elif ran.descriptions:
            print(
                "\n\n".join("\n".join([clean(path, 200), *engine_lines(a)]) for path, a in ran.descriptions)
            )
        return ran.exit_code
    result = describe_files(files, read, timeout=args.timeout, max_memory=args.max_memory)
    for _, why in result.failures:
        print(f"loadrun: {indented(why.message)}", file=sys.stderr)
    if args.json:
        print(json_report.dumps([d.data() for _, d in result.descriptions]))
    elif result.descriptions:
        print("\n\n".join(text(d, operators=not args.quiet) for _, d in result.descriptions))
    return result.exit_code


def _operators(of: str) -> str:
    """Return the tables of operators as text."""
    parts = []
    for t in operator_help.operator_tables(of):
        parts += [t.title, *([t.note] if t.note else []), "", table(t.rows, t.headers), ""]
    return "\n".join(parts).rstrip()


def _draw(files: Sequence[str], target: str, read: ModelOptions) -> int:
    if len(files) != 1 or not target.lower().endswith((".html", ".json")):
        raise UsageError(
            f"--graph takes one model and a name NAME.html or NAME.json, found "
            f"{clean(target)} and {len(files)} model{'s' * (len(files) != 1)}"
        )
    check_targets({"--graph": target}, files)

    bundle = load(files[0], **read.read)
    text = graph.graph_page(bundle) if target.lower().endswith(".html") else graph.explorer_json(bundle)
    with text_file(target, "utf-8") as out:
        out.write(text)
    return 0


def text(d: Description, *, operators: bool = True) -> str:
    """Return the description as text."""
    file, model = d.file, d.model
    kind = (
        file.magic if file.format == "ONNX" else f"{file.format} ({file.magic}), MegEngine {file.mge_version}"
    )
    lines = [
        f"{clean(file.path, 200)}: {clean(kind)}, {file.size} bytes",
        f"parameters {model.parameters} ({model.parameter_bytes} bytes), {_flops(model)}, "
        f"{d.testcases} testcase{'s' * (d.testcases != 1)}",
    ]
    lines += [f"warning: {clean(w, 300)}" for w in (*d.warnings, *d.problems)]
    if d.provenance is not None:
        known = ", ".join(f"{k} {v}" for k, v in d.provenance.items())
        lines.append(f"packed with {clean(known, 300)}")
    lines += [clean(said, 500) for said in d.accepted]
    rows = [("input", clean(v.name), shape_text(v.shape), v.dtype, "") for v in model.inputs]
    tolerances = {
        c.output: "; ".join(filter(None, (f"maxerr {c.maxerr:.4g}", clean(c.policy, 200)))) for c in d.checks
    }
    rows += [
        ("output", clean(v.name), shape_text(v.shape), v.dtype, tolerances.get(v.name, "no check"))
        for v in model.outputs
    ]
    lines += ["", table(rows, ["", "name", "shape", "dtype", "check"])]
    if operators:
        body = [
            (
                o.id,
                clean(o.type),
                _shapes(o.inputs),
                _shapes(o.outputs),
                "?" if o.flops is None else o.flops,
                o.weights or "",
                clean(o.parameters, 70),
            )
            for o in model.operators
        ]
        headers = ["#", "operator", "inputs", "outputs", "FLOPs", "weights", "parameters"]
        lines += ["", table(body, headers, right=(0, 4, 5))]
    if d.cases:
        shown = [
            (i, clean(v.name), shape_text(v.shape), v.dtype)
            for i, case in enumerate(d.cases[:_SHOWN])
            for v in case
        ]
        lines += ["", table(shown, ["testcase", "holds", "shape", "dtype"], right=(0,))]
        if len(d.cases) > _SHOWN:
            lines.append(f"... and {len(d.cases) - _SHOWN} more testcases")
    if d.metadata is not None:
        lines += ["", "metadata: " + ", ".join(f"{k}={_meta(v)}" for k, v in d.metadata.items())]
    return "\n".join(lines)


def _shapes(values: Sequence[VarInfo]) -> str:
    """Return the shapes of an operator's inputs or outputs; only the first ones, to bound the table's width."""
    shown = ", ".join(shape_text(v.shape) for v in values[:_WIDEST])
    return shown if len(values) <= _WIDEST else f"{shown}, ... ({len(values)} in all)"


def _meta(value: object) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _flops(model: ModelInfo) -> str:
    shown = f"{model.flops / 1e9:.3f} GFLOP" if model.flops >= 1e7 else f"{model.flops} FLOP"
    return f"{shown} + {model.unknown} operators of unknown shape" if model.unknown else shown
