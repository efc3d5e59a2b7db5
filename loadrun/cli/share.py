"""`loadrun share MODEL --anonymize -o FILE`: a failing model without its private data."""

from __future__ import annotations

from ..base.errors import clean
from ..base.writing import check_targets
from ..compare.results import EXIT_PASS
from ..verify.share import ShareOptions, share_file
from .groups import Parser, limited, warn
from .models import model_options
from .reduce import add_failure_options

__all__ = ["main"]


def parser() -> Parser:
    """Build the parser of `loadrun share`."""
    p = Parser(
        prog="loadrun share",
        description="Write a failing model as a file that can be shown to others: with --anonymize, weights and inputs "
        "become random numbers and names become numbers, and the model still fails for the same reason.",
        epilog="Exit codes: 0 the file was written; 2 the model does not fail (or not with other tensors), a bad file "
        "or bad usage.",
    )
    add_failure_options(p)
    p.add_argument(
        "--anonymize",
        action="store_true",
        help="replace weights, inputs and names; keep shapes and operators",
    )
    return p


def main(argv: list[str]) -> int:
    """Share; 0 when the file was written."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(ShareOptions, vars(args), **model_options(args.input_shape, args.constant))
    check_targets({"--output": args.output}, [args.model])
    with limited(args.max_memory):
        result = share_file(args.model, args.output, options, warn=warn)
    print(f"{clean(args.output, 200)}: {clean(result.reason, 300)}")
    if options.anonymize:
        print(f"{result.replaced} weights and inputs are replaced; kept of their values: {result.kept}")
    return EXIT_PASS
