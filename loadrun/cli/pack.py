"""`loadrun pack model.mge -d SPEC -o out.mge`: embed input data and the outputs that the model gives."""

from __future__ import annotations

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
from ..engines import Choice
from ..graph.dtypes import Array, DType
from ..passes.options import FLAGS
from ..report.text import shape_text, table
from ..testcase import EXPECT, Testcase
from ..verify.pack.files import FilePacker
from ..verify.pack.options import PackOptions
from .groups import (
    Parser,
    add_dump_option,
    add_input_options,
    add_limit_options,
    add_policy_option,
    seed,
    target,
    tolerances,
)
from .models import add_engine_options, add_model_options, model_options

__all__ = ["main"]

_SHOWN = 8
"""Testcases that the table shows one by one."""
_FLAG_HELP = {
    "enable_io16xc32": "float16 between operators, sums in float32",
    "enable_ioc16": "float16 everywhere",
    "enable_fuse_conv_bias_nonlinearity": "convolution, bias and activation in one operator",
    "enable_fuse_conv_bias_with_z": "and the residual sum behind them",
    "enable_weight_preprocess": "a hint to the runtime to transform weights beforehand",
    "enable_fuse_preprocess": "conversions of 8-bit images in one operator",
    "enable_fuse_grain": "means and global pooling in one operator (on unless --no-enable-fuse-grain)",
    "enable_nchw4": "layout of 8-bit convolutions on graphics processors",
    "enable_hwcd4": "layout for OpenCL images",
    "enable_nchw88": "layout for x86 with AVX",
    "enable_nchw44": "layout for ARM",
    "enable_nchw44_dot": "layout for ARM with dot products",
    "enable_nchw32": "layout for tensor cores",
    "enable_chwn4": "layout for tensor cores, batches inside",
    "enable_nchw64": "layout for 4-bit tensor cores",
}


def parser() -> Parser:
    """Add the options of `loadrun pack`."""
    p = Parser(
        prog="loadrun pack",
        description="Run a model on input data and write a file that carries the model, the data and the outputs "
        "that it must give. Testcases that the model's file has are kept.",
    )
    p.add_argument("model", metavar="MODEL.mge", help="the model, or a folder that `loadrun unpack` made")
    add_input_options(p, "-d", "--data")
    p.add_argument(
        "--test-data",
        metavar="DIR",
        help="the test data of an ONNX model: DIR holds folders test_data_set_N, or input_0.pb and output_0.pb",
    )
    p.add_argument("-o", "--output", metavar="OUT.mge", type=target, required=True, help="the file to write")
    add_dump_option(p)
    add_model_options(p)
    p.add_argument(
        "--expect",
        metavar="SPEC",
        action="append",
        help='what the outputs must be, as "NAME:golden.npy", once for each testcase, @FILE or testcases.json of an '
        "unpacked file; what the model computes "
        "is expected of outputs that are not named",
    )
    p.add_argument("--replace", action="store_true", help="drop the testcases that MODEL.mge has")
    p.add_argument(
        "--maxerr",
        metavar="[NAME=]X",
        action="append",
        help="tolerance of the checks, of all outputs or of one; may be repeated (default 1e-4, for integers that are "
        "not named 0; of existing checks: theirs)",
    )
    add_policy_option(p, "goes into the file's record")
    p.add_argument("--loosen", action="store_true", help="let existing checks be loosened")
    p.add_argument(
        "--suggest-maxerr",
        action="store_true",
        help="measure on the first testcase what rounding does to the outputs and suggest tolerances; new checks get "
        "them unless --maxerr is given",
    )
    p.add_argument(
        "--silent",
        action="store_true",
        default=None,
        help="MegEngine does not print the errors that it finds",
    )
    p.add_argument(
        "--no-assert", action="store_true", help="embed the inputs alone, without outputs and checks"
    )
    p.add_argument(
        "--no-record", action="store_true", help="leave out provenance, digests and the order of the inputs"
    )
    p.add_argument(
        "--intermediates",
        action="store_true",
        help="keep statistics of every intermediate value in the record, so that `loadrun --explain` can tell "
        "on another machine which operator went wrong",
    )
    p.add_argument("--no-replay", action="store_true", help="do not replay what was written")
    p.add_argument(
        "--seed", type=seed, default=0, help="seed of random data and random operators (default 0)"
    )
    add_engine_options(p)
    add_limit_options(p, "give up when it takes longer; the output is as it was then")
    p.add_argument("-q", "--quiet", action="store_true", help="print no table")
    _optimization_options(p)
    _file_options(p)
    return p


def _optimization_options(p: Parser) -> None:
    g = p.add_argument_group(
        "optimization",
        "as in MegEngine's trace.dump; the outputs the file must give are those of the model before",
    )
    g.add_argument(
        "--optimize-for-inference",
        action="store_true",
        help="fold constants, fuse and simplify; the options below imply it",
    )
    for name in FLAGS:
        option = "--" + name.replace("_", "-")
        if name == "enable_fuse_grain":
            g.add_argument(option, action=argparse.BooleanOptionalAction, help=_FLAG_HELP[name])
            # Given here, older Pythons do not add it to a help that says so already.
            g.set_defaults(**{name: True})
        else:
            g.add_argument(option, action="store_true", help=_FLAG_HELP[name])


def _file_options(p: Parser) -> None:
    g = p.add_argument_group(
        "the file", "named as in MegEngine's trace.dump; by default all is kept as it is"
    )
    g.add_argument("--format", "--dump-format", choices=("FBS_V2", "FBS"), help="format version")
    g.add_argument(
        "--model-version", metavar="N", type=int, help="version number of FBS_V2 files, at least 2"
    )
    change = g.add_mutually_exclusive_group()
    change.add_argument(
        "--no-change-graph",
        action="store_true",
        default=None,
        help="operators stay as they are; so they do by default, other than in MegEngine",
    )
    change.add_argument(
        "--change-graph",
        dest="no_change_graph",
        action="store_false",
        help="newer operators are rewritten for older runtimes, as MegEngine does by default",
    )
    g.add_argument(
        "--compat-older-version",
        choices=("8.14",),
        help="FBS with that release's header and ids, newer operators rewritten",
    )
    g.add_argument(
        "--keep-var-name", type=int, choices=(0, 1, 2), help="names of variables: none, the outputs' or all"
    )
    g.add_argument(
        "--discard-var-name",
        action="store_true",
        help="the same as --keep-var-name 0 --no-keep-param-name",
    )
    for what, names in (("opr", "operators"), ("param", "weights")):
        g.add_argument(f"--keep-{what}-name", action=argparse.BooleanOptionalAction, help=f"names of {names}")
    g.add_argument(
        "--keep-opr-priority", action=argparse.BooleanOptionalAction, help="priorities of operators"
    )
    g.add_argument("--user-info", metavar="TEXT", help="text to store as metadata")
    g.add_argument("--no-metadata", action="store_true", help="leave the metadata out")
    g.add_argument(
        "--narrow",
        action="store_true",
        help="int64 and the like become int32 and float64 float32 even where that changes values; the record says so",
    )
    g.add_argument("--append", action="store_true", help="put the dump behind what OUT.mge holds")
    g.add_argument("--strip-info-file", metavar="FILE", help="JSON file for the operators and dtypes in use")
    g.add_argument(
        "--output-strip-info", action="store_true", help="the same as --strip-info-file OUT.mge.json"
    )
    g.add_argument("--append-json", action="store_true", help="extend that file's lists")


def main(argv: list[str]) -> int:
    """Pack; 2 when something fails, and then the output is as it was; 1 when what was written does not hold."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(
        PackOptions,
        vars(args),
        **model_options(args.input_shape, args.constant),
        expect=tuple(args.expect or ()),
        maxerr=tolerances(args.maxerr),
        policies=parse_all(args.check or ()),
        record=not args.no_record,
        replay=not args.no_replay,
        engine=Choice(args.engine, args.strict_engine, args.cache),
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
    print(
        f"{clean(args.output, 200)}: {count} testcase{'s' * (count != 1)}{kept}, "
        f"{packed.written.nr_opr} operators, {os.path.getsize(args.output)} bytes"
    )
    return EXIT_PASS if packed.holds else EXIT_FAIL


def _dump_options(arguments: Mapping[str, Any]) -> DumpOptions:
    """Return what the arguments say about the file."""
    strip = arguments["strip_info_file"]
    if strip is None and arguments["output_strip_info"]:
        strip = f"{arguments['output']}.json"
    names = {f.name for f in fields(DumpOptions)} & set(arguments)
    options = {name: arguments[name] for name in names}
    options.update(dump_format=arguments["format"], strip_info_file=strip)
    if arguments["no_metadata"]:
        options["enable_metadata"] = False
    if arguments["discard_var_name"]:
        options.update(keep_var_name=0, keep_param_name=False)
    return DumpOptions(**options)


def _passes(arguments: Mapping[str, Any]) -> dict[str, object] | None:
    """Return what the arguments ask to be done to the graph."""
    flags = {name: arguments[name] for name in FLAGS}
    chosen = any(value != (name == "enable_fuse_grain") for name, value in flags.items())
    return flags if chosen or arguments["optimize_for_inference"] else None


class PackedTable:
    """What was packed: the first testcases one by one."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.count = 0

    def add(self, index: int, case: Testcase) -> None:
        """Note a testcase."""
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
    """Smallest and largest value, mean and standard deviation, of what quantized values stand for."""
    if not array.size:
        return "-", "-", "-", "-"
    real = array.astype(np.float64)
    if dtype.is_quantized:
        real = (real - dtype.zero_point) * dtype.scale
    with np.errstate(all="ignore"):
        statistics = (real.min(), real.max(), real.mean(), real.std())
    return tuple(f"{x:.4g}" for x in statistics)  # type: ignore[return-value]
