"""`loadrun model.mge --engine A,B`: engines side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..dump import load_all
from ..engines import Choice
from ..errors import UsageError
from ..files import replacing
from ..report import json as json_report
from ..report import text
from ..report.engines import entrants_data, entrants_lines, round_data, round_lines
from ..review.beside import Beside, Round
from ..runner import Verdict, random_inputs
from ..shown import clean
from ..testcase import Bundle
from ..verdicts.policy import parse_all
from ..version import __version__
from .groups import exit_code, failure
from .inputs import cases_of
from .models import model_options

__all__ = ["beside"]

_ROWS = 50
"""Testcases that are printed together."""


_ALONE = (
    "--output",
    "--save-results",
    "--explain",
    "--jobs",
    "--timeout",
    "--fail-fast",
    "--json-lines",
    "--junit",
    "--html",
)
"""Options that take a single engine."""


def beside(args: argparse.Namespace, engines: Sequence[Choice], paths: Iterable[str]) -> int:
    """Replay files on several engines; the exit code is that of the worst verdict.

    Args:
        args: the options of `loadrun run`.
        engines: the engines, the first of which the others are compared with.
        paths: the files.

    Raises:
        UsageError: options that take a single engine were given.
    """
    alone = [name for name in _ALONE if getattr(args, name[2:].replace("-", "_"))]
    if alone:
        raise UsageError(f"{' and '.join(alone)} take a single --engine; {len(engines)} were named")
    out = sys.stderr if args.json == "-" else sys.stdout
    files: list[dict[str, Any]] = []
    verdicts: list[Verdict] = []
    fault = False
    for path in paths:
        try:
            for number, bundle in enumerate(load_all(path, copy=args.copy, **model_options(args))):
                name = path if number == 0 else f"{path} (dump {number + 1})"
                data, found = _one(args, engines, name, bundle, out)
                files.append(data)
                verdicts += found
        except Exception as e:
            why = failure(e)
            fault |= why.fault
            verdicts.append(Verdict.ERROR)
            files.append({"file": path, "message": why.message, "verdict": Verdict.ERROR.value})
            print(f"{clean(path, 200)}\n{text.error(why.message)}", file=out)
    code = exit_code(verdicts, no_check=args.no_check, fault=fault)
    if args.json:
        _write(
            args.json,
            {"version": json_report.VERSION, "loadrun": __version__, "files": files, "exit_code": code},
        )
    return code


def _one(
    args: argparse.Namespace, engines: Sequence[Choice], name: str, bundle: Bundle, out: Any
) -> tuple[dict[str, Any], list[Verdict]]:
    """One dump: what was found for JSON, and the engines' verdicts."""
    found = Beside(bundle, engines, seed=args.seed, policies=parse_all(args.check or ()))
    warned: list[str] = []
    cases = None if args.input is None else cases_of(args, bundle, warned.append)
    print(clean(name, 200), file=out)
    data: list[dict[str, Any]] = []
    for block in _blocks(found.rounds(cases)):
        if args.json:
            data += [row for r in block for row in round_data(found.entrants, r)]
        if not args.quiet:
            print(round_lines(found.entrants, block), file=out, flush=True)
    if args.iter:
        found.time(_feeds(args, bundle), args.iter, args.warmup_iter)
    for line in [*map(text.warning, dict.fromkeys(warned)), *entrants_lines(found.entrants)]:
        print(line, file=out)
    verdicts = [e.verdict for e in found.entrants]
    end = {"engines": entrants_data(found.entrants), "verdict": Verdict.worst(verdicts).value}
    return {"file": name, "testcases": data, **end}, verdicts


def _blocks(rounds: Iterator[Round]) -> Iterator[list[Round]]:
    pending: list[Round] = []
    for found in rounds:
        pending.append(found)
        if len(pending) == _ROWS:
            yield pending
            pending = []
    if pending:
        yield pending


def _feeds(args: argparse.Namespace, bundle: Bundle) -> Any:
    """What further runs are timed on."""
    if args.input is not None:
        return next(cases_of(args, bundle, lambda text: None))
    return bundle.testcases[0].inputs if len(bundle.testcases) else random_inputs(bundle, args.seed)


def _write(target: str, data: dict[str, Any]) -> None:
    said = json_report.dumps(data)
    if target == "-":
        print(said)
        return
    with replacing(target) as f:
        f.write(said.encode() + b"\n")
