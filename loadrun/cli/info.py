"""`loadrun info model.mge`: what is in a dump."""

from __future__ import annotations

import sys

from ..describe import Description, describe
from ..dump import load_all
from ..report import json as json_report
from ..report.text import shape_text, table
from ..shown import clean, indented
from .groups import EXIT_PASS, Parser, failure

__all__ = ["main"]


def parser() -> Parser:
    """The options of `loadrun info`."""
    p = Parser(
        prog="loadrun info",
        description="Show a dump's inputs, outputs, operators, parameters, FLOPs, testcases and metadata.",
    )
    p.add_argument("files", nargs="+", metavar="MODEL.mge")
    p.add_argument("--json", action="store_true", help="print JSON instead of tables")
    p.add_argument("--no-operators", action="store_true", help="leave the operator table out")
    return p


def main(argv: list[str]) -> int:
    """Describe the files; 2 when one of them cannot be read."""
    args = parser().parse_args(argv)
    code = EXIT_PASS
    found: list[Description] = []
    for path in args.files:
        try:
            found += [describe(b) for b in load_all(path)]
        except Exception as e:
            fault = failure(e, named=True)
            print(f"loadrun: {indented(fault.message, 9)}", file=sys.stderr)
            code = max(code, fault.code)
    if args.json:
        print(json_report.dumps(found[0] if len(found) == 1 else found))
    else:
        print("\n\n".join(text(d, operators=not args.no_operators) for d in found))
    return code


def text(d: Description, *, operators: bool = True) -> str:
    """The description as text."""
    lines = [
        f"{clean(d.path, 200)}: {d.format} ({d.magic}), MegEngine {d.mge_version}, {d.size} bytes",
        f"parameters {d.parameters} ({d.parameter_bytes} bytes), {_flops(d)}, "
        f"{d.testcases} testcase{'s' * (d.testcases != 1)}",
    ]
    lines += [f"warning: {clean(w, 300)}" for w in (*d.warnings, *d.problems)]
    rows = [("input", clean(v.name), shape_text(v.shape), v.dtype, "") for v in d.inputs]
    tolerances = {c.output: f"maxerr {c.maxerr:.4g}" for c in d.checks}
    rows += [
        ("output", clean(v.name), shape_text(v.shape), v.dtype, tolerances.get(v.name, "no check"))
        for v in d.outputs
    ]
    lines += ["", table(rows, ["", "name", "shape", "dtype", "check"])]
    if operators:
        body = [
            (
                o.id,
                clean(o.type),
                ", ".join(shape_text(v.shape) for v in o.inputs),
                ", ".join(shape_text(v.shape) for v in o.outputs),
                "?" if o.flops is None else o.flops,
                o.weights or "",
                clean(o.parameters, 70),
            )
            for o in d.operators
        ]
        headers = ["#", "operator", "inputs", "outputs", "FLOPs", "weights", "parameters"]
        lines += ["", table(body, headers, right=(0, 4, 5))]
    if d.metadata is not None:
        lines += ["", "metadata: " + ", ".join(f"{k}={_meta(v)}" for k, v in d.metadata.items())]
    return "\n".join(lines)


def _meta(value: object) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _flops(d: Description) -> str:
    shown = f"{d.flops / 1e9:.3f} GFLOP" if d.flops >= 1e7 else f"{d.flops} FLOP"
    return f"{shown} + {d.unknown} operators of unknown shape" if d.unknown else shown
