"""`loadrun blame-pass MODEL`: which optimization makes a model's outputs diverge."""

from __future__ import annotations

from ..compare.results import EXIT_FAIL, EXIT_PASS
from ..report.optimization import optimization
from ..verify.blame_pass import BlamePassOptions, blame_pass
from .groups import (
    Parser,
    add_input_options,
    add_limit_options,
    add_seed_option,
    add_testcase_option,
    add_tolerance_option,
    limited,
    warn,
)
from .models import add_model_options, model_options

__all__ = ["main"]


def parser() -> Parser:
    """Build the parser of `loadrun blame-pass`."""
    p = Parser(
        prog="loadrun blame-pass",
        description="Run a model with and without optimizations (ONNX Runtime's, onnxoptimizer's and onnxsim's if "
        "installed, and loadrun's own), and find by bisection the one that makes the outputs diverge.",
        epilog="Exit codes: 0 the outputs agree, 1 an optimization makes them diverge, 2 a bad file or bad usage.",
    )
    p.add_argument("model", metavar="MODEL", help="the model under suspicion")
    add_input_options(p, "--input")
    add_testcase_option(p, "all")
    add_tolerance_option(p)
    add_seed_option(p)
    add_model_options(p)
    add_limit_options(p)
    return p


def main(argv: list[str]) -> int:
    """Search; 1 when an optimization is to blame."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(BlamePassOptions, vars(args), **model_options(args.input_shape, args.constant))
    with limited(args.max_memory, args.timeout):
        blamed = blame_pass(args.model, options, warn=warn)
    for blame in blamed:
        print("\n".join(optimization(blame)))
    if not blamed:
        print("the outputs agree with and without optimizations")
    return EXIT_FAIL if blamed else EXIT_PASS
