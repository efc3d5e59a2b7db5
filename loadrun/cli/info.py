"""`loadrun info model.mge`: what is in a dump."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from ..base.about import About
from ..base.limits import memory_limited, time_limited
from ..base.text import clean, indented
from ..dump import load_all
from ..report import json as json_report
from ..report.engines import islands
from ..report.text import shape_text, table
from ..runner import Runner
from ..verify.describe import Description, describe
from ..verify.pack.witness import testimony
from .engines import add_engine_options, chosen
from .groups import EXIT_PASS, Parser, add_limit_options, failure, model_files
from .models import add_model_options, model_options

__all__ = ["main"]

_SHOWN = 8
"""Testcases that are shown one by one."""


def parser() -> Parser:
    """The options of `loadrun info`."""
    p = Parser(
        prog="loadrun info",
        description="Show a dump's inputs, outputs, operators, parameters, FLOPs, testcases and metadata.",
    )
    p.add_argument("files", nargs="+", metavar="MODEL.mge")
    p.add_argument("--json", action="store_true", help="print JSON, a list with an entry for each dump")
    p.add_argument("--no-operators", action="store_true", help="leave the operator table out")
    add_engine_options(p, default=None)
    add_model_options(p)
    add_limit_options(p, "end a file that takes longer")
    return p


def main(argv: list[str]) -> int:
    """Describe the files; 2 when one of them cannot be read, 4 when that takes too long."""
    args = parser().parse_args(argv)
    with memory_limited(args.max_memory):
        return _engine(args) if args.engine is not None else _described(args)


def _described(args: argparse.Namespace) -> int:
    """Describe the files; 2 when one of them cannot be read, 4 when that takes too long."""
    code = EXIT_PASS
    read = model_options(args)
    found: list[Description] = []
    for path in model_files(args.files, sys.stderr):
        try:
            with time_limited(args.timeout):
                found += [replace(describe(b), witnesses=tuple(testimony(b))) for b in load_all(path, **read)]
        except Exception as e:
            fault = failure(e, named=True)
            print(f"loadrun: {indented(fault.message, 9)}", file=sys.stderr)
            code = max(code, fault.code)
    if args.json:
        print(json_report.dumps(found))
    else:
        print("\n\n".join(text(d, operators=not args.no_operators) for d in found))
    return code


def _engine(args: argparse.Namespace) -> int:
    """Say which operators the engine leaves to the reference engine; 2 when a file cannot be run."""
    code = EXIT_PASS
    found: dict[str, About] = {}
    for path in model_files(args.files, sys.stderr):
        try:
            with time_limited(args.timeout):
                for number, bundle in enumerate(load_all(path, **model_options(args))):
                    runner = Runner(bundle, chosen(args))
                    runner.run(bundle.testcases[0].inputs if len(bundle.testcases) else None)
                    found[path if number == 0 else f"{path} (dump {number + 1})"] = runner.about
        except Exception as e:
            fault = failure(e, named=True)
            print(f"loadrun: {indented(f'{path}: {fault.message}', 9)}", file=sys.stderr)
            code = max(code, fault.code)
    if args.json:
        print(json_report.dumps([{"file": path, **json_report.about_data(a)} for path, a in found.items()]))
    else:
        print("\n\n".join("\n".join([clean(path, 200), *islands(a)]) for path, a in found.items()))
    return code


def text(d: Description, *, operators: bool = True) -> str:
    """The description as text."""
    kind = d.magic if d.format == "ONNX" else f"{d.format} ({d.magic}), MegEngine {d.mge_version}"
    lines = [
        f"{clean(d.path, 200)}: {clean(kind)}, {d.size} bytes",
        f"parameters {d.parameters} ({d.parameter_bytes} bytes), {_flops(d)}, "
        f"{d.testcases} testcase{'s' * (d.testcases != 1)}",
    ]
    lines += [f"warning: {clean(w, 300)}" for w in (*d.warnings, *d.problems)]
    if d.provenance is not None:
        known = ", ".join(f"{k} {v}" for k, v in d.provenance.items())
        lines.append(f"packed with {clean(known, 300)}")
    lines += [clean(w, 300) for w in d.witnesses]
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


def _meta(value: object) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _flops(d: Description) -> str:
    shown = f"{d.flops / 1e9:.3f} GFLOP" if d.flops >= 1e7 else f"{d.flops} FLOP"
    return f"{shown} + {d.unknown} operators of unknown shape" if d.unknown else shown
