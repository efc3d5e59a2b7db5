"""`loadrun unpack FILE -o DIR`: the bare model and its testcases as .npy files."""

from __future__ import annotations

from ..base.files import one_file
from ..base.text import clean
from ..compare.codes import EXIT_PASS
from ..dump import load_all
from ..dump.choosing import load_dump
from ..verify.pack.unpacking import unpack, unpack_all
from .groups import Parser, target
from .inputs import add_dump_option
from .models import add_model_options, model_options

__all__ = ["main"]


def parser() -> Parser:
    """The options of `loadrun unpack`."""
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
    args = parser().parse_args(argv)
    path = one_file(args.file)
    read = model_options(args.input_shape, args.constant).read
    bundles = load_all(path, **read) if args.dump is None else [load_dump(path, args.dump, **read)]
    if len(bundles) == 1:
        unpack(bundles[0], args.output)
    else:
        unpack_all(bundles, args.output)
    count = sum(len(b.testcases) for b in bundles)
    models = "the model" if len(bundles) == 1 else f"{len(bundles)} models"
    print(f"{clean(args.output, 200)}: {models} and {count} testcase{'s' * (count != 1)}")
    return EXIT_PASS
