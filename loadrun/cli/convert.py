"""`loadrun convert A B`: write a model in another format, chosen by the file name's ending, or as a folder."""

import os
import sys
import warnings
from collections.abc import Iterable

from ..base.errors import UsageError, clean
from ..compare.results import EXIT_NOT_COMPARED, EXIT_PASS
from ..onnx.converting import Converted, ConvertOptions, convert_file
from ..onnx.exported import Exported
from ..report.text import table
from ..verify.pack.unpacking import UnpackOptions, unpack_file
from .fields import add_limit_options, add_options
from .groups import Parser, add_quiet_option, limited, target
from .models import add_model_options, model_options

_UNPACKED = ("output", "dump", "input_shape", "constant", "quiet", "timeout", "max_memory")
"""The options that apply to a folder."""


def parser() -> Parser:
    """Build the parser of `loadrun convert`."""
    p = Parser(
        prog="loadrun convert",
        description="Convert the model in A and write it to B. File name endings tell the formats: .mge (MegEngine) or "
        ".onnx, and .pt2 (torch.export) for A. From .onnx to .onnx the nodes stay as they are, unless --opset or "
        "--dynamic asks for others. Testcases are converted too: into the .mge file, or next to B.onnx as "
        "B.test_data_set_N. If B ends in /, it becomes a folder: the model without checks (model.mge), testcases as "
        ".npy files, and lists of them (inputs.txt, testcases.json). `loadrun pack B` makes the file again; of several "
        "dumps, each gets a folder in it.",
        epilog="Exit codes: 0 done, 2 A cannot be read or expressed or B cannot be written, 3 done, but testcases of "
        "shapes that B does not take were left out, or A's data sets have a gap.",
    )
    p.add_argument("source", metavar="A", help="the file to read")
    p.add_argument("target", metavar="B", type=target, nargs="?", help="the file or folder to write")
    p.add_argument("-o", "--output", metavar="B", type=target, help="the same as B")
    add_options(p, ConvertOptions, "format", "narrow", "prove", "dump")
    add_model_options(p)
    g = p.add_argument_group("writing ONNX")
    add_options(
        g,
        ConvertOptions,
        "opset",
        "external_data",
        dynamic={"action": "append", "metavar": "INPUT:AXIS=NAME"},
    )
    add_quiet_option(p)
    add_limit_options(p)
    return p


def main(argv: list[str]) -> int:
    """Convert; 2 when something fails, which leaves B unchanged, 3 when testcases were left out or missing."""
    p = parser()
    args = p.parse_args(argv)
    if (args.target is None) == (args.output is None):
        p.error("name one file or folder to write, as B or with -o B")
    args.target = args.target or args.output
    if args.target.endswith("/"):
        p.only(vars(args), _UNPACKED, "applies to a file, not to a folder")
        read = model_options(args.input_shape, args.constant)
        with limited(args.max_memory, args.timeout, "unpacking"):
            _unpack(args.source, args.target, p.record(UnpackOptions, vars(args), **read))
        return EXIT_PASS
    options = p.record(
        ConvertOptions,
        vars(args),
        **model_options(args.input_shape, args.constant),
        dynamic=_dynamic(args.dynamic) if args.dynamic else None,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with limited(args.max_memory, args.timeout, "converting"):
            converted = convert_file(args.source, args.target, options)
    for one in caught:
        print(f"warning: {clean(str(one.message), 500)}", file=sys.stderr)
    for missed in converted.missed:
        print(f"warning: {clean(missed, 500)}", file=sys.stderr)
    if converted.exported is not None and not args.quiet:
        _tables(converted.exported)
    print(f"{clean(args.target, 200)}: {_summary(converted)}, {os.path.getsize(args.target)} bytes")
    left_out = converted.exported is not None and converted.exported.left_out
    return EXIT_NOT_COMPARED if left_out or converted.missed else EXIT_PASS


def _unpack(source: str, target: str, options: UnpackOptions) -> None:
    """Write a folder."""
    counts = unpack_file(source, target, options)
    models = "the model" if len(counts) == 1 else f"{len(counts)} models"
    count = sum(counts)
    print(f"{clean(target, 200)}: {models} and {count} testcase{'s' * (count != 1)}")


def _tables(exported: Exported) -> None:
    """Print what was approximated."""
    rows = [(clean(text, 100), clean(where)) for text, where in exported.approximated.items()]
    if rows:
        print(table(rows, ("approximated", "first at")))
        print()


def _summary(converted: Converted) -> str:
    if converted.dump is not None:
        count = converted.dump.testcases
        return f"{converted.dump.nr_opr} operators, {count} testcase{'s' * (count != 1)}"
    exported = converted.exported
    assert exported is not None
    sets = exported.test_data_sets
    also = f", {sets} test data set{'s' * (sets != 1)}" if sets else ""
    return f"opset {exported.opset_version}, {len(exported.written.model.graph.nodes)} nodes{also}"


def _dynamic(options: Iterable[str]) -> dict[str, dict[int, str]]:
    """Read the ``--dynamic`` options.

    Raises:
        UsageError: one is not of the form INPUT:AXIS=NAME.

    >>> _dynamic(["data:0=batch", "a:b:1=n"])
    {'data': {0: 'batch'}, 'a:b': {1: 'n'}}
    """
    axes: dict[str, dict[int, str]] = {}
    for text in options:
        place, equals, symbol = text.rpartition("=")
        name, colon, axis = place.rpartition(":")
        if not (equals and colon and name and symbol) or not axis.lstrip("-").isdigit():
            raise UsageError(f"--dynamic takes INPUT:AXIS=NAME, such as data:0=batch, found {clean(text)!r}")
        axes.setdefault(name, {})[int(axis)] = symbol
    return axes
