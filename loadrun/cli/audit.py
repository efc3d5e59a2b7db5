"""`loadrun audit FILE`: what do the checks of a file catch?"""

from __future__ import annotations

import sys

from ..base.text import clean
from ..engines import Choice
from ..report.text import error, table
from ..verify.audit import AuditOptions, Score, audit_files
from .engines import add_engine_options
from .groups import Parser, model_files, seed
from .models import add_model_options, model_options

__all__ = ["main"]

_HEADERS = ("file", "output", "mutants", "caught", "score", "not caught")


def parser() -> Parser:
    """Add the options of `loadrun audit`."""
    p = Parser(
        prog="loadrun audit",
        description="Replay files with weights negated, set to zero and permuted, inputs moved by one and testcases "
        "swapped, and tell how many of the changes that reach an output its check catches.",
        epilog="Exit codes: 0 every check that a mutant reached caught one, 1 one caught none, 2 a file cannot be read "
        "or run, 3 no mutant reached a check, or a check does not pass without any.",
    )
    p.add_argument("files", nargs="+", metavar="FILE.mge")
    p.add_argument(
        "--mutants", metavar="N", type=int, default=20, help="at most N of each kind for a file (20)"
    )
    p.add_argument("--seed", type=seed, default=0, help="seed that draws the weights (default 0)")
    add_engine_options(p)
    add_model_options(p)
    return p


def main(argv: list[str]) -> int:
    """Audit the files; 1 when a check caught nothing."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(
        AuditOptions,
        vars(args),
        engine=Choice(args.engine, args.strict_engine, args.cache),
        **model_options(args.input_shape, args.constant),
    )
    found = audit_files(model_files(args.files, sys.stderr), options)
    for path, said in found.failures:
        print(f"{clean(path, 200)}\n{error(said.message)}", file=sys.stderr)
    scores = [s for _, s in found.scores]
    if scores:
        print(table([_row(path, s) for path, s in found.scores], _HEADERS, right=(2, 3, 4)))
        print()
    silent = sum(s.reason is not None for s in scores)
    whole = sum(bool(s.mutants) and not s.passed and s.reason is None for s in scores)
    nothing = sum(bool(s.mutants) and not s.caught for s in scores)
    outputs = f"{len(scores)} output{'s' * (len(scores) != 1)}"
    without = f", {silent} that do not pass without any" if silent else ""
    print(f"{outputs}, {whole} with a check that catches every mutant, {nothing} that catch none{without}")
    return found.exit_code


def _row(path: str, s: Score) -> tuple[str, ...]:
    missed = ", ".join(f"{n} {what}" for what, n in s.passed.items())
    if s.reason:
        missed = f"({s.reason}) {missed}"
    score = "-" if s.value is None else f"{100 * s.value:.0f} %"
    return (
        clean(path),
        clean(s.output),
        str(s.mutants),
        str(sum(s.caught.values())),
        score,
        clean(missed, 160),
    )
