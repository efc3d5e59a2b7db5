"""`loadrun reduce FILE -o SMALL`: the smallest part of a model that still fails, or the same without private data."""

from ..base.errors import clean
from ..base.writing import check_targets
from ..compare.results import EXIT_PASS
from ..replay.options import RunOptions
from ..verify.reduce import FailureOptions, ReduceOptions, reduce_file
from ..verify.share import share_file
from .fields import add_options
from .groups import Parser, limited, target, warn
from .models import add_model_options, model_options


def parser() -> Parser:
    """Build the parser of `loadrun reduce`."""
    p = Parser(
        prog="loadrun reduce",
        description="Cut a failing model down to the fewest operators that still fail for the same reason, with "
        "intermediate values frozen from the good run, and write them as a file of their own. With --anonymize, write "
        "the whole model so that others may see it: with other weights, inputs and names it fails for the same reason.",
        epilog="Exit codes: 0 the file was written (an interrupt keeps the best candidate so far); 2 the model does "
        "not fail (or not with other tensors), a bad file or bad usage.",
    )
    p.add_argument("model", metavar="MODEL", help="the model that fails")
    p.add_argument(
        "-o", "--output", metavar="FILE", type=target, required=True, help="the file to write, .mge or .onnx"
    )
    how = p.add_mutually_exclusive_group(required=True)
    add_options(how, ReduceOptions, fails={"metavar": "CMD"}, against={"metavar": "OTHER"})
    add_options(p, ReduceOptions, "maxerr", "timeout", message={"metavar": "REGEX"})
    add_options(p, ReduceOptions, "dump", "input_data", "repeat", "resize_input", "input_transform")
    add_options(p, ReduceOptions, "testcase", "seed", "runs")
    add_model_options(p)
    add_options(p, RunOptions, "max_memory")
    p.add_argument(
        "--anonymize",
        action="store_true",
        help="keep all operators and replace weights, inputs and names by random numbers and numbers",
    )
    return p


def main(argv: list[str]) -> int:
    """Reduce; 0 when a smaller model, or the model itself, was written."""
    p = parser()
    args = p.parse_args(argv)
    read = model_options(args.input_shape, args.constant)
    check_targets({"--output": args.output}, [args.model])
    if args.anonymize:
        with limited(args.max_memory, doing="reducing"):
            shared = share_file(
                args.model, args.output, p.record(FailureOptions, vars(args), **read), warn=warn
            )
        print(f"{clean(args.output, 200)}: {clean(shared.reason, 300)}")
        print(f"{shared.replaced} weights and inputs are replaced; kept of their values: {shared.kept}")
        return EXIT_PASS
    options = p.record(ReduceOptions, vars(args), **read)
    with limited(args.max_memory, doing="reducing"):
        reduction = reduce_file(args.model, args.output, options, warn=warn)
    operators = f"{reduction.operators} of {reduction.total} operators"
    stopped = ", stopped early" if reduction.is_interrupted else ""
    print(
        f"{clean(args.output, 200)}: {operators} after {reduction.runs} runs{stopped}: {clean(reduction.reason, 300)}"
    )
    return EXIT_PASS
