"""`loadrun unpack FILE -o DIR`: the bare model and its testcases as .npy files."""

from __future__ import annotations

from ..base.errors import clean
from ..compare.results import EXIT_PASS
from ..verify.pack.unpacking import UnpackOptions, unpack_file
from .groups import Parser, add_dump_option, add_limit_options, limited, target
from .models import add_model_options, model_options

__all__ = ["main"]


def parser() -> Parser:
    """Add the options of `loadrun unpack`."""
    p = Parser(
        prog="loadrun unpack",
        description="Write the model without checks as DIR/model.mge, the testcases as .npy files, described in "
        "DIR/testcases.json, and a list of the inputs as DIR/inputs.txt. `loadrun pack DIR` restores the file. If a "
        "file has several dumps, each gets its own folder: DIR/1, DIR/2, ...",
        epilog="Exit codes: 0 the folder was written, 2 a file cannot be read or written, or bad usage.",
    )
    p.add_argument("file", metavar="MODEL", help="the packed file")
    p.add_argument("-o", "--output", metavar="DIR", type=target, required=True, help="a new or empty folder")
    add_dump_option(p)
    add_model_options(p)
    add_limit_options(p)
    return p


def main(argv: list[str]) -> int:
    """Unpack; 2 when something fails, which leaves no folder behind."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(UnpackOptions, vars(args), **model_options(args.input_shape, args.constant))
    with limited(args.max_memory, args.timeout):
        counts = unpack_file(args.file, args.output, options)
    models = "the model" if len(counts) == 1 else f"{len(counts)} models"
    count = sum(counts)
    print(f"{clean(args.output, 200)}: {models} and {count} testcase{'s' * (count != 1)}")
    return EXIT_PASS
