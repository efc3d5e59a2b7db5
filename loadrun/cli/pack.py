"""`loadrun pack model.mge -d SPEC -o out.mge`: embed input data and the outputs that the model computes."""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from ..base.errors import Warnings, clean
from ..base.stages import counted
from ..compare.policy import parse_all
from ..compare.results import EXIT_FAIL, EXIT_PASS
from ..dump.options import DumpOptions
from ..graph.dtypes import Array, DType, dequantized
from ..passes.options import FLAGS
from ..report.text import shape_text, table
from ..testcase import EXPECT, Testcase
from ..verify.pack.files import FilePacker
from ..verify.pack.options import PackOptions
from .fields import add_options
from .groups import Parser, add_quiet_option, chosen_data, target, tolerances
from .models import add_engine_option, add_model_options, model_options

_AUTO = "auto"
_SHOWN = 8
"""How many testcases the table lists."""


def parser() -> Parser:
    """Build the parser of `loadrun pack`."""
    p = Parser(
        prog="loadrun pack",
        description="Run a model on input data and write a file that carries the model, the data and the expected "
        "outputs. Testcases already in the model's file are kept.",
    )
    p.add_argument("model", metavar="MODEL", help="the model, or a folder written by `loadrun convert`")
    more = "; of an ONNX model also a folder of test_data_set_N folders"
    add_options(p, PackOptions, input_data={"flags": ("-d", "--input"), "more": more})
    add_options(p, PackOptions, "repeat", "resize_input", "input_transform")
    p.add_argument("-o", "--output", metavar="OUT.mge", type=target, required=True, help="the file to write")
    add_options(p, PackOptions, "dump")
    add_model_options(p)
    add_options(p, PackOptions, expect={"metavar": "SPEC", "action": "append"})
    add_options(p, PackOptions, "replace", maxerr={"metavar": "[NAME=]X", "action": "append"})
    add_options(p, PackOptions, "policies", "loosen", silent={"action": "store_true"})
    add_options(p, PackOptions, "no_assert")
    p.add_argument(
        "--no-record", action="store_true", help="omit provenance, digests and the order of the inputs"
    )
    add_options(p, PackOptions, "seed")
    add_engine_option(p)
    add_options(p, PackOptions, "timeout")
    add_quiet_option(p)
    _optimization_options(p)
    _file_options(p)
    return p


def _optimization_options(p: Parser) -> None:
    g = p.add_argument_group(
        "optimization",
        "as in MegEngine's trace.dump; expected outputs are those of the model before optimization",
    )
    g.add_argument(
        "--optimize-for-inference",
        action="store_true",
        help="fold constants, fuse and simplify; implied by the options below",
    )
    for name in FLAGS:
        option = "--" + name.replace("_", "-")
        if name == "enable_fuse_grain":
            g.add_argument(option, action=argparse.BooleanOptionalAction, help=FLAGS[name])
            # A default in add_argument would be appended to the help by older Pythons.
            g.set_defaults(**{name: True})
        else:
            g.add_argument(option, action="store_true", help=FLAGS[name])


def _file_options(p: Parser) -> None:
    g = p.add_argument_group("file format", "named as in MegEngine's trace.dump; by default nothing changes")
    add_options(g, DumpOptions, "dump_format", "model_version")
    g.add_argument(
        "--change-graph",
        action=argparse.BooleanOptionalAction,
        help="rewrite newer operators for older runtimes, as MegEngine does by default; off here",
    )
    metadata = {"default": argparse.SUPPRESS}
    add_options(
        g, DumpOptions, compat_older_version={"choices": ("8.14",)}, keep_var_name={"choices": (0, 1, 2)}
    )
    add_options(g, DumpOptions, "keep_opr_name", "keep_param_name", "keep_opr_priority")
    add_options(g, DumpOptions, user_info={"metavar": "TEXT"}, enable_metadata=metadata)
    add_options(g, DumpOptions, "narrow")
    add_options(g, PackOptions, "prove", "open_sizes")
    add_options(g, DumpOptions, "append", "strip_info_file", "append_json")


def main(argv: list[str]) -> int:
    """Pack; 2 when something fails, which leaves the output unchanged; 1 when the written file fails its checks."""
    p = parser()
    args = p.parse_args(argv)
    data, sets = chosen_data(p, args.input_data)
    options = p.record(
        PackOptions,
        vars(args),
        input_data=data,
        test_data=sets,
        **model_options(args.input_shape, args.constant),
        expect=tuple(args.expect or ()),
        maxerr=tolerances([text for text in args.maxerr or () if text != _AUTO]),
        suggest_maxerr=_AUTO in (args.maxerr or ()),
        policies=parse_all(args.check or ()),
        record=not args.no_record,
        replay=args.prove != "none",
        passes=_passes(vars(args)),
        file=_dump_options(vars(args)),
    )
    warned, shown = Warnings(), PackedTable()
    with options.limited():
        packer = FilePacker(args.model, options, warn=warned.add, watch=partial(counted, what="testcase"))
        for name, s in packer.suggestions.items():
            print(f"suggested: --maxerr {clean(name)}={s.maxerr:g} ({s.reason})")
        packed = packer.pack(args.output, shown.add)
    for text in warned:
        print(f"warning: {clean(text, 500)}", file=sys.stderr)
    if not args.quiet:
        print(shown.text())
        print()
    kept = f" ({packed.kept} kept)" if packed.kept else ""
    count = packed.written.testcases
    operators = f"{packed.written.nr_opr} operators, " if args.output.lower().endswith(".mge") else ""
    print(
        f"{clean(args.output, 200)}: {count} testcase{'s' * (count != 1)}{kept}, "
        f"{operators}{os.path.getsize(args.output)} bytes"
    )
    return EXIT_PASS if packed.holds else EXIT_FAIL


def _dump_options(arguments: Mapping[str, Any]) -> DumpOptions:
    """Return the options of the file format."""
    names = {f.name for f in fields(DumpOptions)} & set(arguments)
    options = {name: arguments[name] for name in names}
    if arguments["change_graph"] is not None:
        options["no_change_graph"] = not arguments["change_graph"]
    return DumpOptions(**options)


def _passes(arguments: Mapping[str, Any]) -> dict[str, object] | None:
    """Return the requested optimizations, or None."""
    flags = {name: arguments[name] for name in FLAGS}
    chosen = any(value != (name == "enable_fuse_grain") for name, value in flags.items())
    return flags if chosen or arguments["optimize_for_inference"] else None


class PackedTable:
    """A table of the packed testcases, of which the first are listed one by one."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.count = 0

    def add(self, index: int, case: Testcase) -> None:
        """Add a testcase."""
        self.count = index + 1
        if index < _SHOWN:
            for name, array in case.arrays.items():
                kind = "output" if name.endswith(EXPECT) else "input"
                dtype = case.dtypes[name]
                row = (str(index), kind, clean(name.removesuffix(EXPECT)), shape_text(array.shape))
                self.rows.append((*row, dtype.text, *figures(array, dtype)))

    def text(self) -> str:
        """Return the table."""
        headers = ["testcase", "", "name", "shape", "dtype", "min", "max", "mean", "sd"]
        shown = table(self.rows, headers, right=(0, 5, 6, 7, 8))
        more = self.count - _SHOWN
        return shown if more <= 0 else f"{shown}\n... and {more} more testcases"


def figures(array: Array, dtype: DType) -> tuple[str, str, str, str]:
    """Return minimum, maximum, mean and standard deviation as text, of dequantized values."""
    if not array.size:
        return "-", "-", "-", "-"
    real = dequantized(array, dtype).astype(np.float64)
    with np.errstate(all="ignore"):
        statistics = (real.min(), real.max(), real.mean(), real.std())
    return tuple(f"{x:.4g}" for x in statistics)  # type: ignore[return-value]
