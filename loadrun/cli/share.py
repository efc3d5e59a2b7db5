"""`loadrun share MODEL --anonymize -o FILE`: a failing model that others may see."""

from __future__ import annotations

from ..base.errors import clean
from ..base.files import check_targets
from ..compare.results import EXIT_PASS
from ..verify.share import ShareOptions, share_file
from .groups import Parser, target, warn
from .models import model_options
from .reduce import add_failure_options

__all__ = ["main"]


def parser() -> Parser:
    """Build the parser of `loadrun share`."""
    p = Parser(
        prog="loadrun share",
        description="Write a failing model as a testcase that others may see: with --anonymize weights and inputs are "
        "random numbers and names are numbers, and it fails for the same reason.",
        epilog="Exit codes: 0 the file is written; 2 the model does not fail, or not with other tensors, a bad file or "
        "bad usage.",
    )
    p.add_argument("model", metavar="MODEL", help="the model that fails")
    p.add_argument(
        "-o", "--output", metavar="FILE", type=target, required=True, help="the file to write, .mge or .onnx"
    )
    p.add_argument(
        "--anonymize",
        action="store_true",
        help="replace weights, inputs and names; shapes and operators stay",
    )
    add_failure_options(p)
    return p


def main(argv: list[str]) -> int:
    """Share; 0 when the file is written."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(ShareOptions, vars(args), **model_options(args.input_shape, args.constant))
    check_targets({"--output": args.output}, [args.model])
    result = share_file(args.model, args.output, options, warn=warn)
    print(f"{clean(args.output, 200)}: {clean(result.reason, 300)}")
    if options.anonymize:
        print(f"{result.replaced} weights and inputs are replaced; kept of their values: {result.kept}")
    return EXIT_PASS
