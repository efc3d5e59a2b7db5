"""`loadrun pack model.mge -d SPEC -o out.mge`: embed input data and the outputs that the model computes."""

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
    add_maxerr_option,
    add_narrow_option,
    add_policy_option,
    add_prove_option,
    add_quiet_option,
    add_seed_option,
    seconds,
    target,
    tolerances,
    whole,
)
from .models import BESIDE, ENGINES, add_model_options, engine, model_options

__all__ = ["main"]

_AUTO = "auto"
_SHOWN = 8
"""How many testcases the table lists."""
_FLAG_HELP = {
    "enable_io16xc32": "float16 between operators, accumulation in float32",
    "enable_ioc16": "float16 throughout",
    "enable_fuse_conv_bias_nonlinearity": "fuse convolution, bias and activation",
    "enable_fuse_conv_bias_with_z": "fuse convolution, bias, activation and residual sum",
    "enable_weight_preprocess": "tell the runtime to transform weights in advance",
    "enable_fuse_preprocess": "fuse the conversion of 8-bit images",
    "enable_fuse_grain": "fuse means and global pooling (the default; --no-enable-fuse-grain turns it off)",
    "enable_nchw4": "layout for 8-bit convolutions on GPUs",
    "enable_hwcd4": "layout for OpenCL images",
    "enable_nchw88": "layout for x86 with AVX",
    "enable_nchw44": "layout for ARM",
    "enable_nchw44_dot": "layout for ARM with dot products",
    "enable_nchw32": "layout for tensor cores",
    "enable_chwn4": "layout for tensor cores, batch innermost",
    "enable_nchw64": "layout for 4-bit tensor cores",
}


def parser() -> Parser:
    """Add the options of `loadrun pack`."""
    p = Parser(
        prog="loadrun pack",
        description="Run a model on input data and write a file that carries the model, the data and the expected "
        "outputs. Testcases already in the model's file are kept.",
    )
    p.add_argument("model", metavar="MODEL", help="the model, or a folder written by `loadrun convert`")
    add_input_options(p, "-d", "--data", more="; of an ONNX model also a folder of test_data_set_N folders")
    p.add_argument("-o", "--output", metavar="OUT.mge", type=target, required=True, help="the file to write")
    add_dump_option(p)
    add_model_options(p, writes=True)
    p.add_argument(
        "--expect",
        metavar="SPEC",
        action="append",
        help='expected outputs, as "NAME:golden.npy", once for each testcase, @FILE, or the testcases.json of an '
        "unpacked file; for outputs that are not named, what the model computes",
    )
    p.add_argument(
        "--state",
        metavar="IN=OUT",
        dest="states",
        action="append",
        default=[],
        help=(
            "feed the output OUT of a step to the input IN of the next one, as for a cache; past_*=present_* matches "
            "all such pairs, ids=argmax(logits) feeds the index of the largest element, which is stored in the file"
        ),
    )
    p.add_argument(
        "--steps",
        metavar="N",
        type=whole,
        default=0,
        help=(
            "number of steps of a testcase with states; -d is used once, with an axis of steps or with k for the "
            "number of the step, as in #ones(1,k+1), or N times"
        ),
    )
    p.add_argument("--replace", action="store_true", help="drop the testcases in MODEL")
    add_maxerr_option(
        p,
        "1e-4, 0 for integers; existing checks keep theirs",
        f"; {_AUTO}: what the rounding error of the first testcase suggests, for new checks without another X",
    )
    add_policy_option(p, "; stored in the file's record")
    p.add_argument("--loosen", action="store_true", help="allow existing checks to be loosened")
    p.add_argument(
        "--silent",
        action="store_true",
        default=None,
        help="keep MegEngine from printing the errors of failed checks",
    )
    p.add_argument(
        "--no-assert", action="store_true", help="embed only the inputs, without outputs and checks"
    )
    p.add_argument(
        "--no-record", action="store_true", help="omit provenance, digests and the order of the inputs"
    )
    add_seed_option(p)
    p.add_argument("--engine", metavar="NAME", type=engine, default="reference", help=ENGINES)
    p.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        help="give up after this time and leave the output file unchanged",
    )
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
            g.add_argument(option, action=argparse.BooleanOptionalAction, help=_FLAG_HELP[name])
            # A default in add_argument would be appended to the help by older Pythons.
            g.set_defaults(**{name: True})
        else:
            g.add_argument(option, action="store_true", help=_FLAG_HELP[name])


def _file_options(p: Parser) -> None:
    g = p.add_argument_group("file format", "named as in MegEngine's trace.dump; by default nothing changes")
    g.add_argument("--format", choices=("FBS_V2", "FBS"), help="format version")
    g.add_argument(
        "--model-version", metavar="N", type=whole, help="version number of FBS_V2 files, at least 2"
    )
    g.add_argument(
        "--change-graph",
        action=argparse.BooleanOptionalAction,
        help="rewrite newer operators for older runtimes, as MegEngine does by default; off here",
    )
    g.add_argument(
        "--compat-older-version",
        choices=("8.14",),
        help="write FBS with this release's header and ids, and rewrite newer operators",
    )
    g.add_argument(
        "--keep-var-name",
        type=whole,
        choices=(0, 1, 2),
        help="keep variable names: of none, of the outputs, or of all",
    )
    g.add_argument(
        "--discard-var-name",
        action="store_true",
        help="the same as --keep-var-name 0 --no-keep-param-name",
    )
    for what, names in (("opr", "operators"), ("param", "weights")):
        g.add_argument(
            f"--keep-{what}-name", action=argparse.BooleanOptionalAction, help=f"keep the names of {names}"
        )
    g.add_argument(
        "--keep-opr-priority",
        action=argparse.BooleanOptionalAction,
        help="keep the priorities of operators",
    )
    g.add_argument("--user-info", metavar="TEXT", help="text to store as metadata")
    g.add_argument(
        "--enable-metadata",
        action=argparse.BooleanOptionalAction,
        default=argparse.SUPPRESS,
        help="store metadata (the default)",
    )
    add_narrow_option(g)
    add_prove_option(g)
    g.add_argument(
        "--open-sizes",
        action="store_true",
        help="leave open the sizes that an ONNX model leaves open, as far as that holds (default: those in which data "
        "differ)",
    )
    g.add_argument("--append", action="store_true", help="append the dump to OUT.mge")
    g.add_argument(
        "--strip-info-file", metavar="FILE", help="write the operators and dtypes in use to a JSON file"
    )
    g.add_argument(
        "--output-strip-info", action="store_true", help="the same as --strip-info-file OUT.mge.json"
    )
    g.add_argument("--append-json", action="store_true", help="add to that JSON file instead of replacing it")


def main(argv: list[str]) -> int:
    """Pack; 2 when something fails, which leaves the output unchanged; 1 when the written file fails its checks."""
    p = parser()
    args = p.parse_args(argv)
    folders = [text for text in args.input_data or () if _holds_sets(text)]
    if folders and len(args.input_data) > 1:
        p.error(f"-d {clean(folders[0])} is a folder of test data; give no other data beside it")
    options = p.record(
        PackOptions,
        vars(args),
        input_data=None if folders or args.input_data is None else tuple(args.input_data),
        test_data=folders[0] if folders else None,
        **model_options(args.input_shape, args.constant),
        expect=tuple(args.expect or ()),
        states=tuple(args.states),
        weights=tuple(w for w in args.weights if w != BESIDE),
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


def _holds_sets(text: str) -> bool:
    """Return whether a specification is a folder with the test data of an ONNX model."""
    names = os.listdir(text) if os.path.isdir(text) else ()
    return any(name == "input_0.pb" or name.startswith("test_data_set_") for name in names)


def _dump_options(arguments: Mapping[str, Any]) -> DumpOptions:
    """Return the options of the file format."""
    strip = arguments["strip_info_file"]
    if strip is None and arguments["output_strip_info"]:
        strip = f"{arguments['output']}.json"
    names = {f.name for f in fields(DumpOptions)} & set(arguments)
    options = {name: arguments[name] for name in names}
    if BESIDE in arguments["weights"]:
        options["beside"] = [w for w in arguments["weights"] if w != BESIDE]
    options.update(dump_format=arguments["format"], strip_info_file=strip)
    if arguments["change_graph"] is not None:
        options["no_change_graph"] = not arguments["change_graph"]
    if arguments["discard_var_name"]:
        options.update(keep_var_name=0, keep_param_name=False)
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
    real = array.astype(np.float64)
    if dtype.is_quantized:
        real = (real - dtype.zero_point) * dtype.scale
    with np.errstate(all="ignore"):
        statistics = (real.min(), real.max(), real.mean(), real.std())
    return tuple(f"{x:.4g}" for x in statistics)  # type: ignore[return-value]
