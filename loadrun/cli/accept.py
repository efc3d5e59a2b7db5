"""`loadrun accept FILE`: make a file expect what its model computes now, after an intended change."""

import sys

from ..base.errors import clean
from ..report.text import error, table
from ..verify.accepting import Acceptance, AcceptOptions, accept_files, accepted
from .fields import add_limit_options, add_options
from .groups import Parser, limited, model_files
from .models import add_engine_option

_SHOWN = 40
"""How many outputs are listed."""


def parser() -> Parser:
    """Build the parser of `loadrun accept`."""
    p = Parser(
        prog="loadrun accept",
        description="After an intended change: show the failing outputs with their old and new errors, and make the "
        "file expect what the model computes now. Outputs that pass keep their expected values. The record says who "
        "accepted what, when and why, with digests of both values; `loadrun info` shows it. "
        "Values of an ONNX model are in its data sets, its record in NAME.accepted.json; a .pt2 file holds both.",
        epilog="Exit codes: 0 nothing failed, or all failing outputs were accepted, 1 some were not accepted, 2 a file "
        "cannot be read, run or written, or no reason was given, 3 there are no checks.",
    )
    p.add_argument("files", nargs="+", metavar="MODEL", help="files, patterns and folders")
    add_options(p, AcceptOptions, "seed", reason={"metavar": "TEXT"}, by={"metavar": "NAME"})
    add_engine_option(p)
    add_limit_options(p)
    return p


def main(argv: list[str]) -> int:
    """Accept; 1 when failing outputs were left as they are."""
    p = parser()
    args = p.parse_args(argv)
    if args.reason is None and not (sys.stdin is not None and sys.stdin.isatty()):
        p.error("cannot ask without a terminal; pass the reason with --reason TEXT")
    if args.reason is not None and not args.reason.strip():
        p.error("--reason is empty; say why the new values are right")
    options = p.record(AcceptOptions, vars(args))

    def confirm(acceptance: Acceptance) -> str | None:
        _show(acceptance)
        return args.reason if args.reason is not None else _asked(acceptance)

    with limited(args.max_memory, args.timeout, "accepting"):
        acceptances = accept_files(model_files(args.files, sys.stderr), options, confirm=confirm)
    for one in acceptances:
        if one.failure is not None:
            print(f"{clean(one.path, 200)}\n{error(one.failure.message)}", file=sys.stderr)
    if not any(f.values or f.failure for f in acceptances):
        checks = sum(f.checks for f in acceptances)
        print(f"nothing fails: there is nothing to accept ({checks} check{'s' * (checks != 1)})")
        return accepted(acceptances)
    written = [f for f in acceptances if f.written]
    left = sum(bool(f.values) and not f.written for f in acceptances)
    count = sum(len(f.values) for f in written)
    print(
        f"{len(acceptances)} file{'s' * (len(acceptances) != 1)}: {count} new value{'s' * (count != 1)} accepted in "
        f"{len(written)}, {left} left as they were with failing outputs"
    )
    return accepted(acceptances)


def _show(acceptance: Acceptance) -> None:
    """Print the old and the new error of each output."""
    several = any(v.dump for v in acceptance.values)
    rows = [
        (
            f"{v.dump + 1}: {v.testcase}" if several else str(v.testcase),
            clean(v.output),
            f"{v.old_error:.4g}",
            f"{v.new_error:.4g}",
            f"{v.maxerr:.4g}",
            f"{v.before[:8]} -> {v.after[:8]}",
        )
        for v in acceptance.values[:_SHOWN]
    ]
    print(clean(acceptance.path, 200))
    print(
        table(
            rows, ("testcase", "output", "old error", "new error", "tolerance", "digests"), right=(0, 2, 3, 4)
        )
    )
    if len(acceptance.values) > _SHOWN:
        print(f"... and {len(acceptance.values) - _SHOWN} more")


def _asked(acceptance: Acceptance) -> str | None:
    """Ask whether the values are right, and why."""
    count = len(acceptance.values)
    these = f"these {count} values" if count != 1 else "this value"
    try:
        if input(f"Accept {these} in {clean(acceptance.path, 200)}? [y/N] ").strip().lower() not in (
            "y",
            "yes",
        ):
            return None
        return input("Reason: ").strip() or None
    except EOFError:
        return None
