"""`loadrun unpack FILE -o DIR`: the bare model and its testcases as .npy files."""

from __future__ import annotations

from ..base.errors import clean
from ..compare.results import EXIT_PASS
from ..verify.pack.unpacking import UnpackOptions, unpack_file
from .groups import Parser, add_dump_option, target
from .models import add_model_options, model_options

__all__ = ["main"]


def parser() -> Parser:
    """Add the options of `loadrun unpack`."""
    p = Parser(
        prog="loadrun unpack",
        description="Write the model without its checks as DIR/model.mge, every testcase as .npy files, "
        "DIR/testcases.json that describes them, and DIR/inputs.txt, a list of the inputs. `loadrun pack DIR` makes "
        "the file again. The dumps of a file that holds several get a folder each, DIR/1, DIR/2 and so on.",
    )
    p.add_argument("file", metavar="FILE.mge")
    p.add_argument("-o", "--output", metavar="DIR", type=target, required=True, help="a new or empty folder")
    add_dump_option(p)
    add_model_options(p)
    return p


def main(argv: list[str]) -> int:
    """Unpack; 2 when something fails, and then there is no folder."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(UnpackOptions, vars(args), **model_options(args.input_shape, args.constant))
    counts = unpack_file(args.file, args.output, options)
    models = "the model" if len(counts) == 1 else f"{len(counts)} models"
    count = sum(counts)
    print(f"{clean(args.output, 200)}: {models} and {count} testcase{'s' * (count != 1)}")
    return EXIT_PASS
