"""`loadrun audit FILE`: what do the checks of a file catch?"""

from __future__ import annotations

import sys

from ..base.failures import failure
from ..base.files import files_of
from ..base.text import clean
from ..compare.codes import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS
from ..dump import load_all
from ..engines import Choice
from ..report.text import error, table
from ..verify.audit import Score, audit
from .engines import add_engine_options
from .groups import Parser, seed
from .models import add_model_options, model_options

__all__ = ["main"]

_HEADERS = ("file", "output", "mutants", "caught", "score", "not caught")


def parser() -> Parser:
    """The options of `loadrun audit`."""
    p = Parser(
        prog="loadrun audit",
        description="Replay files with weights negated, set to zero and permuted, inputs moved by one and testcases "
        "swapped, and tell how many of the changes that reach an output its check catches.",
        epilog="Exit codes: 0 every check that a mutant reached caught one, 1 one caught none, 2 a file cannot be read "
        "or run, 3 no mutant reached a check.",
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
    args = parser().parse_args(argv)
    found: list[tuple[str, Score]] = []
    code = EXIT_PASS
    read = model_options(args.input_shape, args.constant).read
    for path in files_of(args.files):
        try:
            for bundle in load_all(path, **read):
                scores = audit(
                    bundle,
                    mutants=max(1, args.mutants),
                    seed=args.seed,
                    engine=Choice(args.engine, args.strict_engine, args.cache),
                )
                found += [(path, score) for score in scores]
        except Exception as e:
            said = failure(e)
            code = max(code, said.code)
            print(f"{clean(path, 200)}\n{error(said.message)}", file=sys.stderr)
    if found:
        print(table([_row(path, s) for path, s in found], _HEADERS, right=(2, 3, 4)))
        print()
    reached = [s for _, s in found if s.mutants]
    whole = sum(not s.passed for s in reached)
    nothing = sum(not s.caught for s in reached)
    outputs = f"{len(found)} output{'s' * (len(found) != 1)}"
    print(f"{outputs}, {whole} with a check that catches every mutant, {nothing} that catch none")
    if code:
        return code
    return EXIT_FAIL if nothing else EXIT_PASS if reached else EXIT_NOT_COMPARED


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
