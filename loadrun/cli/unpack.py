"""`loadrun unpack FILE -o DIR`: the bare model and its testcases as .npy files."""

from __future__ import annotations

from ..dump import load
from ..pack.unpacking import unpack
from ..shown import clean
from .groups import EXIT_PASS, Parser

__all__ = ["main"]


def parser() -> Parser:
    """The options of `loadrun unpack`."""
    p = Parser(
        prog="loadrun unpack",
        description="Write the model without its checks as DIR/model.mge, every testcase as .npy files, "
        "DIR/testcases.json that describes them, and DIR/inputs.txt with which `loadrun pack` packs them again.",
    )
    p.add_argument("file", metavar="FILE.mge")
    p.add_argument("-o", "--output", metavar="DIR", required=True, help="a new or empty folder")
    return p


def main(argv: list[str]) -> int:
    """Unpack; 2 when something fails, and then there is no folder."""
    args = parser().parse_args(argv)
    bundle = load(args.file)
    unpack(bundle, args.output)
    count = len(bundle.testcases)
    print(f"{clean(args.output, 200)}: the model and {count} testcase{'s' * (count != 1)}")
    return EXIT_PASS
